//! Watches that pass through: event by event, unless they are frozen, an event gets lost, or they end before their time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _, stream};
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::Value;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Instant;

use super::Inner;
use super::serve::{Body, BoxError};

/// Says of an event (`{"type", "object"}`) whether it gets lost.
type Loss = Box<dyn FnMut(&Value) -> bool + Send>;

/// What is wrong with watches, by resource.
#[derive(Default)]
pub(super) struct Watches {
    /// Those that are frozen, and whether one of them had something to say since.
    pub(super) frozen: BTreeMap<String, bool>,
    pub(super) losses: BTreeMap<String, Loss>,
    /// How long a watch of a resource lasts at most.
    pub(super) shortened: BTreeMap<String, Duration>,
}

/// What the API server says to whom it cannot tell any more what has happened since.
const EXPIRED: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
    r#""message":"too old resource version","reason":"Expired","code":410}}"#,
    "\n"
);

impl Watches {
    /// A watch of this resource has something to say: whether it stays silent.
    fn silences(&mut self, resource: &str) -> bool {
        let Some(has_silenced) = self.frozen.get_mut(resource) else { return false };
        *has_silenced = true;
        true
    }

    fn loses(&mut self, resource: &str, event: &[u8]) -> bool {
        let Some(loss) = self.losses.get_mut(resource) else { return false };
        serde_json::from_slice(event).is_ok_and(|event| loss(&event))
    }
}

struct Passing {
    resource: String,
    from: BodyStream<Incoming>,
    rest: BytesMut,
    inner: Arc<Inner>,
    expiry: broadcast::Receiver<String>,
    /// When it ends.
    end: Option<Instant>,
    is_over: bool,
}

/// Waits until the watches of `resource` expire.
async fn expired(expiry: &mut broadcast::Receiver<String>, resource: &str) {
    loop {
        match expiry.recv().await {
            Ok(expired) if expired == resource => return,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// The body of a watch of `resource`.
pub(super) fn watched(resource: &str, from: Incoming, inner: &Arc<Inner>) -> Body {
    let passing = Passing {
        resource: resource.to_owned(),
        from: BodyStream::new(from),
        rest: BytesMut::new(),
        expiry: inner.expiry.subscribe(),
        end: inner.watches().shortened.get(resource).map(|longest| Instant::now() + *longest),
        is_over: false,
        inner: Arc::clone(inner),
    };
    StreamBody::new(passing.events()).boxed_unsync()
}

impl Passing {
    /// A watch that had something to say while its resource was frozen never says anything again, and never ends: what becomes of a
    /// connection whose other end is gone without a word.
    fn events(self) -> impl Stream<Item = Result<Frame<Bytes>, BoxError>> {
        stream::unfold(self, |mut passing| async move {
            loop {
                while let Some(event) = passing.next_line() {
                    if !passing.inner.watches().loses(&passing.resource, &event) {
                        return Some((Ok(Frame::data(event)), passing));
                    }
                }
                if passing.is_over {
                    return None;
                }
                let part = tokio::select! {
                    part = passing.from.next() => part,
                    () = expired(&mut passing.expiry, &passing.resource) => {
                        passing.is_over = true;
                        return Some((Ok(Frame::data(Bytes::from_static(EXPIRED.as_bytes()))), passing));
                    }
                    () = until(passing.end) => return None,
                };
                let is_frozen = passing.inner.watches().silences(&passing.resource);
                if is_frozen {
                    std::future::pending::<()>().await;
                }
                match part? {
                    Ok(frame) => passing.rest.extend(frame.into_data().unwrap_or_default()),
                    Err(error) => return Some((Err(error.into()), passing)),
                }
            }
        })
    }

    fn next_line(&mut self) -> Option<Bytes> {
        let end = self.rest.iter().position(|byte| *byte == b'\n')?;
        Some(self.rest.split_to(end + 1).freeze())
    }
}
