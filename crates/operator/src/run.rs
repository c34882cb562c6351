//! The life of the operator: from its first look at the cluster to a graceful stop. The wiring is here and nowhere else.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::api::DynamicObject;
use kube::runtime::Controller;
use kube::runtime::controller::{Action, Error as ControllerError};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource};
use sts_plus_gates::Policy;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::args::{RunArgs, WorkArgs};
use crate::checks::{Prober, prober};
use crate::client::{self, USER_AGENT};
use crate::controllers::extended_stateful_set::ExtendedStatefulSets;
use crate::controllers::phased_rollout::PhasedRollouts;
use crate::controllers::slots::Slots;
use crate::controllers::turns::Turns;
use crate::controllers::{Context, Kind, after_error, reconcile};
use crate::errors::{Error, told};
use crate::events::Events;
use crate::hold::Hold;
use crate::leader::Guard;
use crate::metrics::Exposed;
use crate::pulse::Pulse;
use crate::watch::{self, Caches, Queue, Queues, Scope};
use crate::web::{self, Web};
use crate::wire::WireLayer;
use crate::written::Written;

/// How long runs that have begun may take after we were told to stop. Whatever is cut off then is taken up by the next operator:
/// every write is safe on its own.
const GRACE: Duration = Duration::from_secs(10);

/// Runs until SIGTERM or SIGINT. A second signal ends the process at once.
///
/// # Errors
///
/// If there is no usable configuration, or a controller ends by itself.
pub async fn run(args: &RunArgs) -> anyhow::Result<()> {
    let policy = args.prometheus.policy()?;
    let mut stop = Stop::new()?;
    let config = client::config().await.map_err(|error| anyhow::anyhow!(told(&error)))?;
    let listener = match args.web_address()? {
        Some(address) => Some(web::listen(address).await?),
        None => None,
    };
    let pulse = Arc::new(Pulse::default());
    let election = args.leader.start(&config, &pulse)?;
    let wire = WireLayer { guard: election.guard(), metrics: Arc::default(), pulse };
    let client = client::guarded(config, &wire).map_err(|error| anyhow::anyhow!(told(&error)))?;
    let scopes = Scope::of(&args.namespaces);
    tracing::info!(version = USER_AGENT, ?scopes, identity = args.identity.as_deref(), "sts-plus starts");

    let shared = Shared { scopes: scopes.len(), ..Shared::new(client, wire, policy, args.work.clone()) };
    let mut work = Work::start(shared, &scopes);
    let web = work.web();
    if let Some(listener) = listener {
        work.streams.spawn(web::serve(listener, Arc::clone(&web)));
    }

    let outcome = tokio::select! {
        signal = stop.asked() => {
            tracing::info!(signal, "told to stop: what has begun is finished");
            Ok(())
        }
        _ = work.controllers.join_next() => Err(anyhow::anyhow!("a controller ended by itself")),
        _ = work.streams.join_next() => Err(anyhow::anyhow!("a stream ended by itself")),
    };
    tokio::spawn(async move {
        stop.asked().await;
        tracing::warn!("told to stop again: stopped at once");
        std::process::exit(130);
    });
    web.stop();
    work.finish().await;
    election.end().await;
    work.streams.shutdown().await;
    tracing::info!("sts-plus has stopped");
    outcome
}

/// Streams and controllers at work.
struct Work {
    shared: Shared,
    streams: JoinSet<()>,
    controllers: JoinSet<()>,
    stops: Vec<oneshot::Sender<()>>,
    caches: Vec<Arc<Caches>>,
}

impl Work {
    fn start(shared: Shared, scopes: &[Scope]) -> Self {
        let mut streams = JoinSet::new();
        let mut controllers = JoinSet::new();
        for kind in watch::POLICY_KINDS {
            streams.spawn(watch::follow_policy(shared.client.clone(), kind, Arc::clone(&shared.hold)));
        }
        streams.spawn(Arc::clone(&shared.hold).keep_asking());
        streams.spawn(tell_the_hold(Arc::clone(&shared.hold), shared.wire.guard.changes()));
        let started = scopes.iter().map(|scope| start(scope, &shared, &mut streams, &mut controllers));
        let (stops, caches): (Vec<Vec<_>>, _) = started.unzip();
        Self { shared, streams, controllers, stops: stops.into_iter().flatten().collect(), caches }
    }

    fn web(&self) -> Arc<Web> {
        let wire = &self.shared.wire;
        Arc::new(Web::new(Arc::clone(&wire.pulse), Exposed::new(wire, &self.caches), self.caches.clone()))
    }

    /// What has begun is finished, and nothing is begun any more.
    async fn finish(&mut self) {
        self.stops.clear();
        let finished = async { while self.controllers.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, finished).await.is_err() {
            tracing::warn!("some runs did not finish within {} s and are cut off", GRACE.as_secs());
        }
        self.controllers.shutdown().await;
    }
}

/// Works in all namespaces until `done` says that it is enough, without an election and without asking any Prometheus on loopback. The
/// StatefulSets of an ExtendedStatefulSet that is deleted stay.
///
/// # Errors
///
/// If the configuration cannot be used, or a controller ends by itself.
pub(crate) async fn work_until<T>(config: kube::Config, done: impl Future<Output = T>) -> anyhow::Result<T> {
    let wire = WireLayer { guard: Arc::new(Guard::always()), metrics: Arc::default(), pulse: Arc::default() };
    let client = client::guarded(config, &wire).map_err(|error| anyhow::anyhow!(told(&error)))?;
    let shared = Shared { keeps_children: true, ..Shared::new(client, wire, Policy::default(), WorkArgs::default()) };
    let mut work = Work::start(shared, &[Scope::Cluster]);
    let outcome = tokio::select! {
        outcome = done => Ok(outcome),
        _ = work.controllers.join_next() => Err(anyhow::anyhow!("a controller ended by itself")),
        _ = work.streams.join_next() => Err(anyhow::anyhow!("a stream ended by itself")),
    };
    work.finish().await;
    work.streams.shutdown().await;
    outcome
}

/// What all scopes share.
struct Shared {
    client: Client,
    wire: WireLayer,
    hold: Arc<Hold>,
    written: Arc<Written>,
    events: Arc<Events>,
    prober: Arc<Prober>,
    turns: Turns,
    work: WorkArgs,
    scopes: usize,
    /// See [`ExtendedStatefulSets::keeps_children`].
    keeps_children: bool,
}

impl Shared {
    fn new(client: Client, wire: WireLayer, policy: Policy, work: WorkArgs) -> Self {
        let metrics = Arc::clone(&wire.metrics);
        let prober = prober(policy).heard_by(move |origin, took| metrics.asked_prometheus(origin, took));
        Self {
            hold: Arc::new(Hold::new(client.clone())),
            events: Arc::new(Events::new(client.clone())),
            written: Arc::default(),
            prober: Arc::new(prober),
            turns: Turns::new(usize::from(work.concurrency)),
            work,
            scopes: 1,
            keeps_children: false,
            client,
            wire,
        }
    }

    fn context<K: Kind>(
        &self,
        caches: &Arc<Caches>,
        queue: Queue<K::Object>,
        slots: Arc<Slots<K::Findings>>,
        kind: K,
    ) -> Arc<Context<K>> {
        Arc::new(Context {
            client: self.client.clone(),
            guard: Arc::clone(&self.wire.guard),
            metrics: Arc::clone(&self.wire.metrics),
            pulse: Arc::clone(&self.wire.pulse),
            caches: Arc::clone(caches),
            queue,
            written: Arc::clone(&self.written),
            events: Arc::clone(&self.events),
            prober: Arc::clone(&self.prober),
            slots,
            resync: Duration::from_secs(self.work.resync),
            turns: self.turns.clone(),
            scopes: self.scopes,
            kind,
        })
    }
}

/// Starts the streams and the controllers of one scope. The controllers finish what they have begun when what is returned is dropped.
fn start(
    scope: &Scope,
    shared: &Shared,
    streams: &mut JoinSet<()>,
    controllers: &mut JoinSet<()>,
) -> (Vec<oneshot::Sender<()>>, Arc<Caches>) {
    let (rollouts, asked) = Queue::new();
    let (owners, asked_owners) = Queue::new();
    let queues = Queues { rollouts, owners };
    let (slots, slots_of_owners) = (Arc::new(Slots::default()), Arc::new(Slots::default()));
    let forget = {
        let (written, slots, owners) = (Arc::clone(&shared.written), Arc::clone(&slots), Arc::clone(&slots_of_owners));
        move |uid: &str| {
            written.forget(uid);
            slots.forget(uid);
            owners.forget(uid);
        }
    };
    let forget: watch::Forget = Arc::new(forget);
    let caches =
        watch::start(&shared.client, &shared.wire.pulse, scope, shared.work.page_size, &queues, &forget, streams);

    streams.spawn(wake(shared.hold.changes(), shared.wire.guard.changes(), Arc::clone(&caches), queues.clone()));
    let kind = PhasedRollouts { hold: Arc::clone(&shared.hold) };
    let rollouts = shared.context(&caches, queues.rollouts, slots, kind);
    let kind = ExtendedStatefulSets { keeps_children: shared.keeps_children };
    let owners = shared.context(&caches, queues.owners, slots_of_owners, kind);
    (vec![control(rollouts, asked, controllers), control(owners, asked_owners, controllers)], caches)
}

/// Whoever leads from now on finds out anew what the API server holds.
async fn tell_the_hold(hold: Arc<Hold>, mut leads: tokio::sync::watch::Receiver<bool>) {
    while leads.changed().await.is_ok() {
        if *leads.borrow() {
            hold.leads();
        }
    }
}

/// Whoever leads from now on looks at everything at once, and all of a namespace look when something new is known of its hold.
async fn wake(
    mut hold: broadcast::Receiver<Arc<str>>,
    mut leads: tokio::sync::watch::Receiver<bool>,
    caches: Arc<Caches>,
    queues: Queues,
) {
    loop {
        tokio::select! {
            namespace = hold.recv() => match namespace {
                Ok(namespace) => queues.wake_rollouts_in(&namespace, &caches),
                Err(RecvError::Lagged(_)) => queues.wake_all(&caches),
                Err(RecvError::Closed) => return,
            },
            changed = leads.changed() => match changed {
                Ok(()) => queues.wake_all(&caches),
                Err(_) => return,
            },
        }
    }
}

/// Starts the controller of one kind.
fn control<K: Kind>(
    context: Arc<Context<K>>,
    asked: mpsc::UnboundedReceiver<ObjectRef<K::Object>>,
    controllers: &mut JoinSet<()>,
) -> oneshot::Sender<()> {
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = stopped.shared();
    controllers.spawn(async move {
        // Else each object would be read from the API server once, just because we have started.
        tokio::select! {
            () = context.caches.settle() => {}
            _ = stopped.clone() => return,
        }
        // The primary stream is one of ours like the others: its failures pace nothing but itself.
        let controller = Controller::for_stream(futures::stream::pending(), K::store(&context.caches).clone())
            .reconcile_on(asked)
            .graceful_shutdown_on(stopped.map(drop));
        let runs = controller.run(reconcile, after_error, Arc::clone(&context));
        watch_over(runs, |gone| {
            let namespace = gone.namespace.as_deref().unwrap_or_default();
            let _ = context.queue.why(&ObjectRef::new(&gone.name).within(namespace));
            K::gone(namespace, &gone.name, &context.metrics);
            context.forget(gone.extra.uid.as_deref().unwrap_or_default());
        })
        .await;
    });
    stop
}

/// Follows the runs of a controller until it ends. What an object's run says was told where it happened.
async fn watch_over<K, E>(
    runs: impl Stream<Item = Result<(ObjectRef<K>, Action), ControllerError<Error, E>>>,
    gone: impl Fn(&ObjectRef<DynamicObject>),
) where
    K: Resource,
    K::DynamicType: Hash + Eq,
    E: std::error::Error + 'static,
{
    let mut runs = std::pin::pin!(runs);
    while let Some(outcome) = runs.next().await {
        match outcome {
            Ok(_) | Err(ControllerError::ReconcilerFailed(..)) => {}
            // It was deleted before the run.
            Err(ControllerError::ObjectNotFound(object)) => {
                tracing::debug!(%object, "it is gone");
                gone(&object);
            }
            Err(error) => tracing::warn!("controller: {error}"),
        }
    }
}

/// The signals that end us.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
