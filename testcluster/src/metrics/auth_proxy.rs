//! A reverse proxy in front of Prometheus that demands credentials, fails when told to, and remembers what it was asked.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;

use super::Server;
use crate::http_client::HttpClient;

/// What a request must bring along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    #[default]
    Open,
    /// `Authorization: Bearer <token>`.
    Bearer(String),
    /// `Authorization: Basic …` of this user and password.
    Basic(String, String),
}

/// A request that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    /// `GET` or `POST`.
    pub method: String,
    /// Path and query.
    pub uri: String,
    /// The form of a POST, as it came.
    pub body: String,
    /// The Authorization header.
    pub authorization: Option<String>,
    /// The User-Agent header.
    pub user_agent: Option<String>,
    /// What it was answered with.
    pub status: u16,
    /// What Prometheus answered; empty if it was not asked.
    pub answer: String,
    /// When it was answered, before whoever asks has it.
    pub at: Timestamp,
}

#[derive(Debug)]
struct Inner {
    upstream: HttpClient,
    access: Access,
    answer: Option<(StatusCode, &'static str, String)>,
    flaky: Option<Flaky>,
    seen: Vec<SeenRequest>,
}

/// Of the requests about something, each so-and-so-many-th is not answered.
#[derive(Debug)]
struct Flaky {
    part: String,
    each: usize,
    after: Duration,
    count: usize,
}

impl Flaky {
    /// When the request fails, if it does.
    fn fails(&mut self, body: &str) -> Option<Duration> {
        self.count += usize::from(body.contains(&self.part));
        (body.contains(&self.part) && self.count.is_multiple_of(self.each)).then_some(self.after)
    }
}

/// The proxy. It ends when it is dropped.
#[derive(Debug)]
pub struct AuthProxy {
    inner: Arc<Mutex<Inner>>,
    server: Server,
}

impl AuthProxy {
    /// Forwards everything to `upstream` (`http://127.0.0.1:<port>`) and demands nothing yet.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(upstream: &str) -> anyhow::Result<Self> {
        let inner = Arc::new(Mutex::new(Inner {
            upstream: HttpClient::plain(upstream)?,
            access: Access::Open,
            answer: None,
            flaky: None,
            seen: Vec::new(),
        }));
        let routes = Router::new().fallback(handle).with_state(Arc::clone(&inner));
        let server = Server::start(routes).await?;
        Ok(Self { inner, server })
    }

    /// `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// What is demanded from now on. Other requests are answered with 401.
    pub fn demand(&self, access: Access) {
        self.inner().access = access;
    }

    /// Answers every request with this status and body instead of forwarding it.
    pub fn answer_with(&self, status: u16, body: &str) {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.inner().answer = Some((status, "text/plain; charset=utf-8", body.to_owned()));
    }

    /// Answers every query at once with these series, as Prometheus writes them in `result`, instead of forwarding it.
    pub fn answer_series(&self, series: &serde_json::Value) {
        let body = serde_json::json!({ "status": "success", "data": { "resultType": "vector", "result": series } });
        self.inner().answer = Some((StatusCode::OK, "application/json", body.to_string()));
    }

    /// From now on each `each`-th request whose form contains `part`, as it comes, is answered with 503 instead of being forwarded,
    /// this long after it has come.
    pub fn fail_each(&self, each: usize, part: &str, after: Duration) {
        self.inner().flaky = Some(Flaky { part: part.to_owned(), each, after, count: 0 });
    }

    /// Forwards again, and everything.
    pub fn forward(&self) {
        let mut inner = self.inner();
        (inner.answer, inner.flaky) = (None, None);
    }

    /// What has arrived since the last [`AuthProxy::forget`].
    #[must_use]
    pub fn seen(&self) -> Vec<SeenRequest> {
        self.inner().seen.clone()
    }

    /// Those of them whose form contains this, as it came.
    #[must_use]
    pub fn seen_about(&self, part: &str) -> Vec<SeenRequest> {
        self.inner().seen.iter().filter(|request| request.body.contains(part)).cloned().collect()
    }

    /// How many requests have arrived since the last [`AuthProxy::forget`].
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner().seen.len()
    }

    /// Forgets what has arrived.
    pub fn forget(&self) {
        self.inner().seen.clear();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn handle(State(inner): State<Arc<Mutex<Inner>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let mut seen = SeenRequest {
        method: parts.method.to_string(),
        uri: parts.uri.to_string(),
        body: String::from_utf8_lossy(&body).into_owned(),
        authorization: text(&parts.headers, &header::AUTHORIZATION),
        user_agent: text(&parts.headers, &header::USER_AGENT),
        status: 0,
        answer: String::new(),
        at: Timestamp::now(),
    };
    let (upstream, failure, refusal) = {
        let mut inner = lock(&inner);
        let failure = inner.flaky.as_mut().and_then(|flaky| flaky.fails(&seen.body));
        (inner.upstream.clone(), failure, refusal(&inner, &seen))
    };
    let response = if let Some(after) = failure {
        tokio::time::sleep(after).await;
        StatusCode::SERVICE_UNAVAILABLE.into_response()
    } else if let Some(response) = refusal {
        response
    } else {
        let response = forward(&upstream, parts, body).await;
        seen.answer = String::from_utf8_lossy(response.body()).into_owned();
        response.map(Body::from)
    };
    (seen.status, seen.at) = (response.status().as_u16(), Timestamp::now());
    lock(&inner).seen.push(seen);
    response
}

fn refusal(inner: &Inner, request: &SeenRequest) -> Option<Response> {
    if let Some((status, kind, body)) = &inner.answer {
        return Some((*status, [(header::CONTENT_TYPE, *kind)], body.clone()).into_response());
    }
    let (wanted, scheme) = match &inner.access {
        Access::Open => return None,
        Access::Bearer(token) => (format!("Bearer {token}"), "Bearer"),
        Access::Basic(user, password) => {
            let pair = STANDARD.encode(format!("{user}:{password}"));
            (format!("Basic {pair}"), "Basic realm=\"prometheus\"")
        }
    };
    if request.authorization.as_deref() == Some(wanted.as_str()) {
        return None;
    }
    Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, scheme)], "Unauthorized\n").into_response())
}

async fn forward(upstream: &HttpClient, mut parts: http::request::Parts, body: Bytes) -> http::Response<Bytes> {
    // Prometheus itself demands nothing, and credentials belong in no log of it.
    parts.headers.remove(header::AUTHORIZATION);
    let request = http::Request::from_parts(parts, Full::new(body));
    match upstream.send(request).await {
        Ok(mut answer) => {
            answer.headers_mut().remove(header::TRANSFER_ENCODING);
            answer
        }
        Err(error) => {
            let mut answer = http::Response::new(Bytes::from(format!("{error:#}\n")));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        }
    }
}

fn text(headers: &HeaderMap, name: &header::HeaderName) -> Option<String> {
    let value = headers.get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}
