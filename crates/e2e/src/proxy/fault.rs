//! What can go wrong with one request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde_json::json;
use tokio::sync::watch;

use super::serve::{Body, whole};

/// What goes wrong with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It reaches the API server later.
    Delayed(Duration),
    /// It reaches the API server when it is let through, whether somebody still waits for the answer or not.
    Held(Barrier),
    /// It is answered with this status and never reaches the API server.
    Refused(u16),
    /// The API server carries it out, and it is answered with this status.
    Lost(u16),
    /// The connection is reset, and it never reaches the API server.
    Reset,
    /// The API server carries it out, and the connection is reset.
    Cut,
    /// The operator is killed (SIGKILL).
    Killed(Moment),
    /// It is answered with this object, such as an answer of long ago, and never reaches the API server.
    Answered(Bytes),
}

/// Holds requests until it is opened.
#[derive(Clone, Debug, Default)]
pub struct Barrier(Arc<watch::Sender<bool>>);

impl Barrier {
    /// Lets through what is held, and what comes later.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub(super) async fn passed(&self) {
        // It cannot be closed while this one holds it.
        let _ = self.0.subscribe().wait_for(|is_open| *is_open).await;
    }
}

impl PartialEq for Barrier {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Barrier {}

/// When a process is killed, seen from one request of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It has not reached the API server.
    Before,
    /// The API server has carried it out, and there is no answer yet.
    During,
    /// The answer has arrived. Nothing is written after it.
    After,
}

/// An answer as the API server gives it when it refuses.
pub(super) fn refusal(code: u16) -> Response<Body> {
    let (reason, message) = match code {
        403 => ("Forbidden", "the role of the operator was taken away for a while"),
        409 => {
            ("Conflict", "the object has been modified; please apply your changes to the latest version and try again")
        }
        422 => ("Invalid", "the server rejected our request due to an error in our request"),
        429 => ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "the server was unable to return a response in the time allotted"),
        _ => ("InternalError", "an error on the server has prevented the request from succeeding"),
    };
    let retry_after = matches!(code, 429 | 503 | 504).then_some(1);
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
        "details": { "retryAfterSeconds": retry_after.unwrap_or(0) },
    });
    let mut answer = answer(Bytes::from(status.to_string()));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}

/// A good answer with this object.
pub(super) fn answer(object: Bytes) -> Response<Body> {
    let mut answer = Response::new(whole(object));
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}
