//! A tap on the line to Prometheus: what was asked for which pod, and what it answered. It changes nothing.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use jiff::Timestamp;
use serde_json::Value;
use tokio::task::JoinSet;

use super::serve::{Body, BoxError, Upstream, collected, listen, whole};

/// One answer of Prometheus.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When it came, before the operator had it.
    pub at: Timestamp,
    /// The pod of the set `web` that the query names.
    pub pod: String,
    /// Whether no series came, which is a pass for a query in alert style.
    pub is_empty: bool,
}

/// The tap; it is gone when it is dropped.
pub struct Tap {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    _server: JoinSet<()>,
}

impl Tap {
    /// On the line to the Prometheus at `url`.
    pub async fn on(url: &str) -> Self {
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (upstream, all) = (Upstream::new(url, None), Arc::clone(&asked));
        let (address, server) = listen(move |request| pass(request, upstream.clone(), Arc::clone(&all))).await;
        Self { url: format!("http://{address}"), asked, _server: server }
    }

    /// Where the operator finds it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What was answered so far, in its order.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn pass(
    request: Request<Incoming>,
    upstream: Upstream,
    all: Arc<Mutex<Vec<Asked>>>,
) -> Result<Response<Body>, BoxError> {
    let (parts, body) = request.into_parts();
    let form = body.collect().await?.to_bytes();
    let (parts, answer) = collected(upstream.send(parts, form.clone()).await?).await?;
    let series = serde_json::from_slice::<Value>(&answer).unwrap_or_default();
    if let (Some(pod), Some(series)) = (pod(&form), series.pointer("/data/result").and_then(Value::as_array)) {
        let asked = Asked { at: Timestamp::now(), pod, is_empty: series.is_empty() };
        all.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
    }
    Ok(Response::from_parts(parts, whole(answer)))
}

/// The pod in a form.
fn pod(form: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(form);
    let at = text.find("web-")?;
    text.get(at..at + "web-0".len()).map(str::to_owned)
}
