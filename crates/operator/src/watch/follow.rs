//! One stream, followed for ever: failures are logged and paused for, nothing is handed on but events.

use std::fmt::Debug;

use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::errors::{Class, class_of, is_not_found, told, told_status};
use crate::pace::Pace;
use crate::pulse::Pulse;

/// What is heard of a stream.
pub(super) enum Heard<W> {
    /// Something of it.
    Event(Event<W>),
    /// The API server does not serve it, or does not let us read it. It is asked again.
    Refused,
}

/// What is told when a stream fails.
pub(super) struct Name {
    /// The kind, for people.
    pub(super) what: &'static str,
    /// What a person can do if the API server refuses, or what it means.
    pub(super) cure: &'static str,
}

/// Follows `api` until the task is aborted. Without `pulse`, an API server that does not serve the kind, or does not let us see it, is no
/// fault: it is asked for less and less then, which is no sign of life.
pub(super) async fn follow<W>(
    name: Name,
    pulse: Option<&Pulse>,
    api: Api<W>,
    config: watcher::Config,
    mut pace: Pace,
    mut hear: impl FnMut(Heard<W>) + Send,
) where
    W: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    W::DynamicType: Send,
{
    let path = api.resource_url().to_owned();
    if let Some(pulse) = pulse {
        pulse.follows(&path);
    }
    let mut events = std::pin::pin!(watcher(api, config));
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => hear(Heard::Event(event)),
            Err(error) => {
                if let Some(pulse) = pulse {
                    pulse.came_round(&path);
                }
                if is_refused(&error) {
                    hear(Heard::Refused);
                }
                let pause = pace.failed();
                log(&name, pulse.is_some(), &error, pace.failures(), pause);
                tokio::time::sleep(pause).await;
            }
        }
    }
}

fn log(Name { what, cure }: &Name, is_needed: bool, error: &watcher::Error, failures: u32, pause: std::time::Duration) {
    // A watch that has become too old, or was ended by the server, is everyday life.
    let everyday = failures == 1 && !matches!(error, watcher::Error::InitialListFailed(_));
    let pause = format!("{:.1} s", pause.as_secs_f32());
    let text = text_of(error);
    if everyday {
        tracing::debug!(what, pause, "watch of {what} is started again: {text}");
    } else if is_refused(error) && !is_needed {
        tracing::debug!(what, failures, pause, "{what} cannot be watched: {text}; {cure}");
    } else if is_refused(error) {
        tracing::warn!(what, failures, pause, "{what} cannot be watched: {text}; {cure}");
    } else {
        tracing::warn!(what, failures, pause, "watch of {what} failed: {text}");
    }
}

fn is_refused(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            matches!(class_of(error), Class::Forbidden) || is_not_found(error)
        }
        _ => false,
    }
}

fn text_of(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => told(error),
        watcher::Error::WatchError(status) => told_status(status),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}
