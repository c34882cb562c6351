//! A proxy between an operator and the API server that makes things go wrong: a request is refused, late, lost, or answered with
//! what was true long ago; a watch falls silent or misses an event; the operator is killed before, during or after a write. It
//! passes on who asks, so that the API server sees the same user, and it remembers every request.
//!
//! `call` is what a request is about, `fault` what can go wrong with it, `watched` passes streams, and `serve` are the two ends.

mod call;
mod fault;
mod serve;
mod watched;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::Ground;
pub use call::Call;
pub use fault::{Barrier, Fault, Moment};
use serve::{Body, BoxError, Upstream, collected, listen, whole};
use watched::Watches;

/// Between an answer that has left and the kill that comes after it.
const ARRIVES: Duration = Duration::from_millis(30);

/// A request that has come by.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it came.
    pub at: Timestamp,
    /// What it was about.
    pub call: Call,
    /// What went wrong with it.
    pub fault: Option<Fault>,
    /// What the API server answered, if it was asked and did.
    pub answered: Option<u16>,
}

/// Somebody who kills the operator when asked, and says when it is dead.
pub type Kills = mpsc::UnboundedReceiver<oneshot::Sender<()>>;
/// Says of a request what goes wrong with it.
type Rule = Box<dyn FnMut(&Call) -> Option<Fault> + Send>;

/// The proxy; it is gone when it is dropped.
pub struct Proxy {
    inner: Arc<Inner>,
    kubeconfig: PathBuf,
    _server: JoinSet<()>,
}

struct Inner {
    upstream: Upstream,
    rules: Mutex<Vec<Rule>>,
    records: Mutex<Vec<Record>>,
    watches: Mutex<Watches>,
    /// The resource of which all open watches expire.
    expiry: broadcast::Sender<String>,
    kills: mpsc::UnboundedSender<oneshot::Sender<()>>,
    /// True between an answer and the kill that comes after it.
    doomed: tokio::sync::watch::Sender<bool>,
}

impl Proxy {
    /// In front of the API server, for operators with the installed service account. `name` is that of no other proxy.
    pub async fn start(ground: &Ground, name: &str) -> (Self, Kills) {
        let cluster = ground.cluster;
        let (kills, asked) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            upstream: Upstream::new(cluster.server_url(), Some(cluster.ca_pem())),
            rules: Mutex::default(),
            records: Mutex::default(),
            watches: Mutex::default(),
            expiry: broadcast::Sender::new(16),
            kills,
            doomed: tokio::sync::watch::Sender::new(false),
        });
        let all = Arc::clone(&inner);
        let (address, server) = listen(move |request| handle(request, Arc::clone(&all))).await;
        let token = ground.operator_token().await;
        let kubeconfig = cluster.dir().join(format!("proxy-{name}.kubeconfig"));
        std::fs::write(&kubeconfig, document(&format!("http://{address}"), &token).to_string())
            .expect("a kubeconfig can be written");
        (Self { inner, kubeconfig, _server: server }, asked)
    }

    /// The kubeconfig of the operator's service account, by way of this proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// One more rule. Of several the first one that has a fault for a request counts.
    pub fn on(&self, rule: impl FnMut(&Call) -> Option<Fault> + Send + 'static) {
        lock(&self.inner.rules).push(Box::new(rule));
    }

    /// All goes well again, but for the watches that are frozen already.
    pub fn heal(&self) {
        lock(&self.inner.rules).clear();
        *self.inner.watches() = Watches::default();
    }

    /// Every watch of a resource falls silent, those that are open and those to come, and no one of them ever ends.
    pub fn freeze(&self, resource: &str) {
        self.inner.watches().frozen.insert(resource.to_owned(), false);
    }

    /// Whether a watch of a resource had something to say since it was frozen.
    pub fn has_silenced(&self, resource: &str) -> bool {
        self.inner.watches().frozen.get(resource).is_some_and(|has_silenced| *has_silenced)
    }

    /// Every open watch of a resource expires: its list has to be read anew.
    pub fn expire(&self, resource: &str) {
        // Without an open watch nobody hears it.
        let _ = self.inner.expiry.send(resource.to_owned());
    }

    /// No watch of a resource lasts longer from now on, counted from its begin.
    pub fn shorten(&self, resource: &str, longest: Duration) {
        self.inner.watches().shortened.insert(resource.to_owned(), longest);
    }

    /// The events of this resource for which `lost` is true never arrive.
    pub fn lose(&self, resource: &str, lost: impl FnMut(&Value) -> bool + Send + 'static) {
        self.inner.watches().losses.insert(resource.to_owned(), Box::new(lost));
    }

    /// What has come by so far, in its order.
    pub fn records(&self) -> Vec<Record> {
        lock(&self.inner.records).clone()
    }

    /// The writes among them.
    pub fn writes(&self) -> Vec<Record> {
        let mut records = self.records();
        records.retain(|record| record.call.is_write());
        records
    }
}

impl Inner {
    fn watches(&self) -> MutexGuard<'_, Watches> {
        lock(&self.watches)
    }

    fn fault(&self, call: &Call) -> Option<Fault> {
        lock(&self.rules).iter_mut().find_map(|rule| rule(call))
    }

    fn record(&self, call: &Call, fault: Option<Fault>) -> usize {
        let mut records = lock(&self.records);
        records.push(Record { at: Timestamp::now(), call: call.clone(), fault, answered: None });
        records.len() - 1
    }

    fn answered(&self, record: usize, code: u16) {
        if let Some(record) = lock(&self.records).get_mut(record) {
            record.answered = Some(code);
        }
    }

    /// When this returns, the operator is dead.
    async fn kill(&self) {
        let (dead, is_dead) = oneshot::channel();
        let _ = self.kills.send(dead);
        let _ = is_dead.await;
    }

    /// A write of an operator that is about to be killed never leaves.
    async fn let_through(&self, call: &Call) {
        if call.is_write() {
            let _ = self.doomed.subscribe().wait_for(|doomed| !*doomed).await;
        }
    }

    fn kill_soon(self: &Arc<Self>) {
        self.doomed.send_replace(true);
        let inner = Arc::clone(self);
        // Not a part of the connection, which ends with the operator.
        tokio::spawn(async move {
            tokio::time::sleep(ARRIVES).await;
            inner.kill().await;
            // Time for what it had sent to find its connection closed.
            tokio::time::sleep(ARRIVES).await;
            inner.doomed.send_replace(false);
        });
    }
}

async fn handle(request: Request<Incoming>, inner: Arc<Inner>) -> Result<Response<Body>, BoxError> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let call = Call::parse(&parts.method, &parts.uri, &body);
    inner.let_through(&call).await;
    let fault = inner.fault(&call);
    let record = inner.record(&call, fault.clone());
    match &fault {
        Some(Fault::Refused(code)) => return Ok(fault::refusal(*code)),
        Some(Fault::Answered(object)) => return Ok(fault::answer(object.clone())),
        Some(Fault::Reset) => return Err("reset".into()),
        Some(Fault::Killed(Moment::Before)) => {
            inner.kill().await;
            return Err("killed".into());
        }
        Some(Fault::Delayed(time)) => tokio::time::sleep(*time).await,
        Some(Fault::Held(_) | Fault::Lost(_) | Fault::Cut | Fault::Killed(_)) | None => {}
    }
    // A task of its own: a request that has left is carried out, whatever becomes of who asked.
    let (to, all, held) = (inner.upstream.clone(), Arc::clone(&inner), fault.clone());
    let sent = tokio::spawn(async move {
        if let Some(Fault::Held(barrier)) = held {
            barrier.passed().await;
        }
        let answer = to.send(parts, body).await?;
        all.answered(record, answer.status().as_u16());
        if call.verb == "watch" {
            let (parts, body) = answer.into_parts();
            return Ok(Response::from_parts(parts, watched::watched(&call.resource, body, &all)));
        }
        let (parts, body) = collected(answer).await?;
        Ok::<_, BoxError>(Response::from_parts(parts, whole(body)))
    });
    let answer = sent.await??;
    match fault {
        Some(Fault::Lost(code)) => Ok(fault::refusal(code)),
        Some(Fault::Cut) => Err("cut".into()),
        Some(Fault::Killed(Moment::During)) => {
            inner.kill().await;
            Err("killed".into())
        }
        Some(Fault::Killed(_)) => {
            inner.kill_soon();
            Ok(answer)
        }
        _ => Ok(answer),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn document(server: &str, token: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxy",
        "clusters": [{ "name": "proxy", "cluster": { "server": server } }],
        "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "proxy" } }],
        "users": [{ "name": "proxy", "user": { "token": token } }],
    })
}
