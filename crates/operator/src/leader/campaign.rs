//! The loop over the Lease: wait for it, take it, renew it, give it back. Each write is bound to the version that was read, so that
//! of two that take it at once one is refused.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};

use super::turn::{Candidate, Record, Turn, good_until};
use super::{Guard, Moment, Timing, now};
use crate::errors::told;
use crate::pace;
use crate::pulse::Pulse;

/// A watch of the Lease is ended by the API server after so many seconds.
const WATCH_SECONDS: u32 = 60;
/// The loop comes round at least so often, however long the lease of another is.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);
/// How long the release at the end may take.
const RELEASE: Duration = Duration::from_secs(3);

/// One operator that wants to lead.
pub struct Campaign {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    guard: Arc<Guard>,
    pulse: Arc<Pulse>,
}

/// Why the Lease was not written.
enum Refused {
    /// Somebody else wrote in between, or it is gone or there.
    Changed,
    /// Not known; it may go away by itself.
    Failed(String),
}

impl Campaign {
    /// For the Lease `namespace`/`name`. The client must not be guarded itself.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        timing: Timing,
        guard: Arc<Guard>,
        pulse: Arc<Pulse>,
    ) -> Self {
        let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
        // Different for each process: one that was started again in the same pod is somebody else.
        let identity = format!("{}_{:016x}", host.as_deref().unwrap_or("sts-plus"), pace::random());
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), identity, timing, guard, pulse }
    }

    /// Stands by and leads by turns, until `stop` ends; then the Lease is released.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = stop => {}
            () = self.stand() => {}
        }
        let led = self.guard.is_open();
        self.guard.close();
        if led && tokio::time::timeout(RELEASE, self.release()).await.is_err() {
            tracing::warn!("the lease could not be released in time: the next leader waits until it expires");
        }
    }

    async fn stand(&self) {
        loop {
            let (lease, until) = self.wait_for_turn().await;
            self.guard.open_until(until);
            tracing::info!(identity = self.identity, "this operator leads");
            let why = self.lead(lease, until).await;
            self.guard.close();
            tracing::warn!(identity = self.identity, "this operator leads no more and writes nothing: {why}");
        }
    }

    /// Waits until the Lease is ours; with the moment until which that is good.
    async fn wait_for_turn(&self) -> (Lease, Moment) {
        let mut candidate = Candidate::new(&self.identity);
        let mut told_holder = None;
        loop {
            self.pulse.elected();
            match self.read().await {
                Ok(lease) => {
                    let holder = lease.as_ref().and_then(holder);
                    if holder.is_some() && holder != told_holder && holder.as_ref() != Some(&self.identity) {
                        tracing::info!(leader = holder, "standing by: another operator leads");
                        told_holder = holder;
                    }
                    if let Some(taken) = self.follow(&mut candidate, lease).await {
                        return taken;
                    }
                }
                Err(text) => {
                    tracing::warn!("the lease cannot be read: {text}");
                    self.pause().await;
                }
            }
        }
    }

    /// Follows the Lease from this version on. Nothing if it has to be read anew.
    async fn follow(&self, candidate: &mut Candidate, mut lease: Option<Lease>) -> Option<(Lease, Moment)> {
        let (mut changes, begun) = (None, now());
        loop {
            self.pulse.elected();
            let record = lease.as_ref().map(|lease| self.record(lease));
            match candidate.look(record.as_ref(), now()) {
                Turn::Take => {
                    let sent = now();
                    return match self.write(lease, Some(&self.identity)).await {
                        Ok(taken) => Some((taken, good_until(sent, self.timing))),
                        Err(Refused::Changed) => None,
                        Err(Refused::Failed(text)) => {
                            tracing::warn!("the lease cannot be taken: {text}");
                            self.pause().await;
                            None
                        }
                    };
                }
                Turn::Wait(until) => {
                    let seen = lease.as_ref()?;
                    if changes.is_none() {
                        let params = WatchParams::default()
                            .fields(&format!("metadata.name={}", self.name))
                            .timeout(WATCH_SECONDS);
                        let version = seen.resource_version().unwrap_or_default();
                        let started = tokio::time::timeout(self.timing.retry, self.api.watch(&params, &version)).await;
                        changes = started.ok().and_then(Result::ok).map(futures::StreamExt::boxed);
                    }
                    let Some(stream) = &mut changes else {
                        self.pause().await;
                        return None;
                    };
                    tokio::select! {
                        event = stream.next() => match event {
                            Some(Ok(WatchEvent::Added(new) | WatchEvent::Modified(new))) => lease = Some(new),
                            Some(Ok(WatchEvent::Bookmark(_))) => {}
                            Some(Ok(WatchEvent::Deleted(_))) => lease = None,
                            Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => {
                                // One that does not last is not begun again and again without a pause.
                                if now().saturating_sub(begun) < self.timing.retry {
                                    self.pause().await;
                                }
                                return None;
                            }
                        },
                        () = tokio::time::sleep(until.saturating_sub(now()).min(LONGEST_SLEEP)) => {}
                    }
                }
            }
        }
    }

    /// Renews until that does not work any more; says why.
    async fn lead(&self, mut lease: Lease, mut until: Moment) -> String {
        let mut why = "it was not renewed in time".to_owned();
        loop {
            self.pulse.elected();
            tokio::time::sleep(self.timing.retry.min(until.saturating_sub(now()))).await;
            let sent = now();
            if sent >= until {
                return why;
            }
            match self.write(Some(lease.clone()), Some(&self.identity)).await {
                // An answer that came too late is no renewal: others may have begun.
                Ok(_) if now() >= until => return "it was not renewed in time".to_owned(),
                Ok(renewed) => {
                    lease = renewed;
                    until = good_until(sent, self.timing);
                    self.guard.open_until(until);
                }
                Err(Refused::Changed) => match self.read().await {
                    // Our own renewal whose answer was lost, or somebody has annotated it.
                    Ok(Some(ours)) if holder(&ours).as_ref() == Some(&self.identity) => lease = ours,
                    Ok(_) => return "another operator holds the lease".to_owned(),
                    Err(text) => why = text,
                },
                Err(Refused::Failed(text)) => {
                    tracing::debug!("the lease was not renewed: {text}");
                    why = format!("the lease was not renewed in time: {text}");
                }
            }
        }
    }

    async fn release(&self) {
        loop {
            match self.read().await {
                Ok(Some(lease)) if holder(&lease).as_ref() == Some(&self.identity) => {
                    match self.write(Some(lease), None).await {
                        Ok(_) => return tracing::info!("the lease is released"),
                        Err(Refused::Changed) => {}
                        Err(Refused::Failed(text)) => return tracing::warn!("the lease was not released: {text}"),
                    }
                }
                Ok(_) => return,
                Err(text) => return tracing::warn!("the lease was not released: {text}"),
            }
        }
    }

    async fn pause(&self) {
        tokio::time::sleep(pace::between(self.timing.retry.mul_f32(0.8), self.timing.retry)).await;
    }

    /// One call may take half the time in which a renewal must be done, so that there is a second chance.
    async fn call<T>(&self, answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Refused> {
        match tokio::time::timeout(self.timing.renew / 2, answer).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Err(Refused::Changed),
            Ok(Err(error)) => Err(Refused::Failed(told(&error))),
            Err(_) => Err(Refused::Failed("no answer in time".to_owned())),
        }
    }

    async fn read(&self) -> Result<Option<Lease>, String> {
        match self.call(self.api.get_opt(&self.name)).await {
            Ok(lease) => Ok(lease),
            Err(Refused::Changed) => Ok(None),
            Err(Refused::Failed(text)) => Err(text),
        }
    }

    /// Writes the Lease over the one that was read, or creates it.
    async fn write(&self, read: Option<Lease>, new_holder: Option<&str>) -> Result<Lease, Refused> {
        let params = PostParams::default();
        let time = MicroTime(Timestamp::now());
        let before = read.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let is_same = before.holder_identity.as_deref() == new_holder;
        let transitions = before.lease_transitions.unwrap_or(0);
        let spec = LeaseSpec {
            holder_identity: new_holder.map(str::to_owned),
            lease_duration_seconds: Some(i32::try_from(self.timing.lease.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: if is_same { before.acquire_time } else { Some(time.clone()) },
            renew_time: Some(time),
            lease_transitions: Some(if is_same || new_holder.is_none() {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..LeaseSpec::default()
        };
        if let Some(lease) = read {
            let lease = Lease { metadata: lease.metadata, spec: Some(spec) };
            self.call(self.api.replace(&self.name, &params, &lease)).await
        } else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            self.call(self.api.create(&params, &Lease { metadata, spec: Some(spec) })).await
        }
    }

    fn record(&self, lease: &Lease) -> Record {
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        Record {
            version: lease.resource_version().unwrap_or_default(),
            holder: holder(lease),
            lease: seconds.map_or(self.timing.lease, Duration::from_secs),
        }
    }
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).filter(|holder| !holder.is_empty())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// The lease of another, and each watch of it ends at once.
    #[tokio::test]
    async fn a_watch_that_does_not_last_is_not_begun_without_a_pause() {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let lease = json!({ "metadata": { "name": "lease", "namespace": "ns", "resourceVersion": "1" },
                "spec": { "holderIdentity": "another", "leaseDurationSeconds": 3600 } });
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let body = if is_watch { Vec::new() } else { lease.to_string().into_bytes() };
            async move { Ok::<_, Infallible>(Response::new(Body::from(body))) }
        });
        let second = Duration::from_secs(1);
        let timing = Timing { lease: second * 15, renew: second * 10, retry: second / 4 };
        let guard = Arc::new(Guard::waiting());
        let campaign =
            Campaign::new(Client::new(service, "ns"), "ns", "lease", timing, Arc::clone(&guard), Arc::default());
        campaign.run(tokio::time::sleep(second)).await;
        let seen = requests.load(Ordering::Relaxed);
        // It reads and watches about five times; a busy machine does less.
        assert!((2..=14).contains(&seen) && !guard.is_open(), "{seen} requests");
    }
}
