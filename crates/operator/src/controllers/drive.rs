//! The run of one object, of whatever kind: look into the caches and decide. If that asks for anything at all, wait for a turn. What only
//! notes and asks is done on the caches: a status is written for the version of the object that was seen, and what it notes is looked at
//! again before any step. For all else look at the API server itself, decide again, and only then act.

use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use jiff::Timestamp;
use kube::runtime::controller::Action as Next;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, ResourceExt as _};
use sts_plus_decide::{CheckRequest, Try};
use tracing::Instrument as _;

use super::slots::{Asked, Slots, Stand};
use super::trouble::{self, Troubled};
use super::turns::{Lane, Turns};
use super::when::{self, Period, now};
use crate::checks::{Attempt, Prober};
use crate::errors::{Class, Error};
use crate::events::Events;
use crate::leader::Guard;
use crate::metrics::Metrics;
use crate::pulse::Pulse;
use crate::telemetry::panic_text;
use crate::watch::{Caches, Queue};
use crate::written::Written;

/// Each run has a number, by which its lines in the log are found.
static RUNS: AtomicU64 = AtomicU64::new(1);
/// How soon an object that waits for its turn sees what happens to it.
const AGAIN: Duration = Duration::from_millis(250);
/// How long, and how often, a cache is waited for that has not seen the last write.
const CATCH_UP: Duration = Duration::from_millis(10);
const CATCHES_UP: u32 = 50;
/// A conflict is looked at again at once this often in one run.
pub(super) const FRESH_ROUNDS: u32 = 3;

/// A kind of object that is looked after.
pub(crate) trait Kind: Sized + Send + Sync + 'static {
    /// The object.
    type Object: Troubled + Clone + Debug + serde::de::DeserializeOwned + Send + Sync;
    /// What a decision looks at, and what its writes need more of.
    type Scene: Send + Sync;
    /// What was decided.
    type Plan: Send + Sync;
    /// What was found out about an object and is in no cache.
    type Findings: Default + Send + 'static;

    /// What people call it.
    const NAME: &'static str;

    /// From the caches. Nothing if they are not whole yet, or older than what we wrote, or if more than they hold is to be known.
    fn cached(object: &Self::Object, context: &Context<Self>) -> Option<Self::Scene>;

    /// True if something is to be found out before a decision. It never delays one that holds.
    fn is_due(object: &Self::Object, context: &Context<Self>) -> bool;

    /// Finds it out.
    fn find_out(object: &Self::Object, context: &Context<Self>) -> impl Future<Output = ()> + Send;

    /// From the API server itself. Nothing if the object is gone.
    fn live(
        object: &Self::Object,
        context: &Context<Self>,
    ) -> impl Future<Output = Result<Option<Self::Scene>, Error>> + Send;

    /// What is to be done.
    fn decide(scene: &Self::Scene, now: Timestamp) -> Self::Plan;

    /// Carries it out.
    fn apply(
        plan: &Self::Plan,
        scene: &Self::Scene,
        context: &Context<Self>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// The check that the plan asks for.
    fn check(plan: &Self::Plan) -> Option<&CheckRequest>;

    /// What a try for `request` is about.
    fn asked(scene: &Self::Scene, request: &CheckRequest) -> Asked;

    /// The try itself.
    fn attempt(scene: &Self::Scene, request: &CheckRequest, context: &Context<Self>) -> Option<Attempt>;

    /// The outcome of a try, for the next decision. The first one who sees it tells it.
    fn hear(scene: &mut Self::Scene, tried: Try, is_new: bool, context: &Context<Self>);

    /// True if a cache has not seen yet what was written last.
    fn lags(object: &Self::Object, context: &Context<Self>) -> bool;

    /// True if the plan writes nothing but the status, and the caches are enough for that.
    fn only_notes(plan: &Self::Plan, scene: &Self::Scene) -> bool;

    /// True if the plan changes nothing that is to be seen.
    fn is_nothing(plan: &Self::Plan, scene: &Self::Scene) -> bool;

    /// True if the plan holds pods that could move.
    fn is_hold(plan: &Self::Plan, scene: &Self::Scene) -> bool;

    /// When the plan wants to be made anew.
    fn wake(plan: &Self::Plan) -> Option<Timestamp>;

    /// True if nothing goes on that could end soon.
    fn is_at_rest(plan: &Self::Plan) -> bool;

    /// An error is told in the logs and counted.
    fn failed(object: &Self::Object, error: &Error, context: &Context<Self>);

    /// One is gone, and is counted no more.
    fn gone(namespace: &str, name: &str, metrics: &Metrics);

    /// All of them.
    fn store(caches: &Caches) -> &Store<Self::Object>;
}

/// What the runs of one kind in one scope work with.
pub(crate) struct Context<K: Kind> {
    /// The API server.
    pub client: Client,
    /// Whether we lead.
    pub guard: Arc<Guard>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Signs of life.
    pub pulse: Arc<Pulse>,
    /// What the streams have brought.
    pub caches: Arc<Caches>,
    /// Where to ask for another look.
    pub queue: Queue<K::Object>,
    /// What we wrote last.
    pub written: Arc<Written>,
    /// Events for people.
    pub events: Arc<Events>,
    /// The way to Prometheus.
    pub prober: Arc<Prober>,
    /// What is remembered of each object.
    pub slots: Arc<Slots<K::Findings>>,
    /// Within which time an object at rest is looked at, while there are not too many.
    pub resync: Duration,
    /// Whose turn it is.
    pub turns: Turns,
    /// How many sets of streams and controllers there are.
    pub scopes: usize,
    /// What only this kind needs.
    pub kind: K,
}

impl<K: Kind> Context<K> {
    /// The object with this UID is gone.
    pub fn forget(&self, uid: &str) {
        self.slots.forget(uid);
        self.written.forget(uid);
    }
}

/// One run. A panic stays in it.
///
/// # Errors
///
/// What went wrong; [`after_error`] says when the object is looked at again.
pub(crate) async fn reconcile<K: Kind>(object: Arc<K::Object>, context: Arc<Context<K>>) -> Result<Next, Error> {
    context.pulse.glanced();
    let (uid, name) = (object.uid().unwrap_or_default(), ObjectRef::from_obj(&*object));
    let why = context.queue.why(&name).unwrap_or("its time");
    if !context.guard.is_open() {
        context.slots.stop(&uid);
        return Ok(when::not_leading());
    }
    if let Some(left) = context.slots.rest(&uid) {
        return Ok(when::after_rest(left));
    }
    let (begun, id) = (Instant::now(), RUNS.fetch_add(1, Ordering::Relaxed));
    let run = AssertUnwindSafe(run(&object, &context)).catch_unwind();
    let outcome = run.instrument(tracing::info_span!("run", id, why)).await;
    let outcome = outcome.unwrap_or_else(|panic| Err(Error::Panic(panic_text(&*panic))));
    context.metrics.ran(K::NAME, begun.elapsed());
    match &outcome {
        Ok(_) => context.slots.went_well(&uid),
        Err(error) => {
            K::failed(&object, error, &context);
            trouble::tell(&*object, error, &context.client, &context.events, &context.written).await;
        }
    }
    outcome
}

/// When an object is looked at again after an error.
#[must_use]
#[allow(clippy::needless_pass_by_value, reason = "the controller calls it like this")]
pub(crate) fn after_error<K: Kind>(object: Arc<K::Object>, error: &Error, context: Arc<Context<K>>) -> Next {
    let failures = context.slots.failed(&object.uid().unwrap_or_default());
    when::after_error(error.class(), failures)
}

/// What a glance into the caches comes to.
enum Glance<K: Kind> {
    /// Nothing is to be done until then.
    Rest(Next),
    /// Something is, in this lane; with what was seen, if that is enough.
    Act(Lane, Option<Box<Ground<K>>>),
}

/// What is decided on.
struct Ground<K: Kind> {
    scene: K::Scene,
    plan: K::Plan,
    at: Timestamp,
    /// How long ago the API server itself was looked at.
    ago: Duration,
}

async fn run<K: Kind>(object: &Arc<K::Object>, context: &Context<K>) -> Result<Next, Error> {
    let mut glance = glance(object, context)?;
    if matches!(glance, Glance::Act(_, None)) && catch_up(object, context).await {
        glance = self::glance(object, context)?;
    }
    if K::is_due(object, context) && !matches!(glance, Glance::Act(Lane::Hold, _)) {
        let find_out = async {
            let _turn = (context.turns.take(Lane::Look, &namespace(&**object)).await, context.pulse.run());
            K::find_out(object, context).await;
        };
        tokio::select! {
            () = find_out => {}
            _ = changed(object, Lane::Look, context) => {}
        }
        glance = self::glance(object, context)?;
    }
    let (waiting, namespace) = (context.metrics.waits(K::NAME), namespace(&**object));
    loop {
        let lane = match glance {
            Glance::Rest(next) => return Ok(next),
            Glance::Act(lane, _) => lane,
        };
        tokio::select! {
            turn = context.turns.take(lane, &namespace) => {
                let _turn = (turn, context.pulse.run());
                drop(waiting);
                // A future of this size is not made for each of thousands that wait.
                return Box::pin(fresh_rounds(object, context)).await;
            }
            changed = changed(object, lane, context) => glance = changed?,
        }
    }
}

/// Waits a moment for the caches to see what was written last: a run that comes before them would have to look past them. Returns whether they
/// have seen it now and had not before. It is not waited for again where that was in vain: the watch may have fallen silent.
async fn catch_up<K: Kind>(object: &Arc<K::Object>, context: &Context<K>) -> bool {
    let lags = || K::lags(&latest(object, context), context);
    let uid = object.uid().unwrap_or_default();
    if !lags() || context.slots.lags(&uid, true) {
        return false;
    }
    for _ in 0..CATCHES_UP {
        tokio::time::sleep(CATCH_UP).await;
        if !lags() {
            context.slots.lags(&uid, false);
            return true;
        }
    }
    false
}

/// The object as the cache has it now.
fn latest<K: Kind>(object: &Arc<K::Object>, context: &Context<K>) -> Arc<K::Object> {
    let latest = K::store(&context.caches).get(&ObjectRef::from_obj(&**object));
    latest.filter(|latest| latest.uid() == object.uid()).unwrap_or_else(|| Arc::clone(object))
}

/// Waits until there is something else to do than what it waits for in this lane: what happens to an object that waits is seen at once.
async fn changed<K: Kind>(object: &Arc<K::Object>, lane: Lane, context: &Context<K>) -> Result<Glance<K>, Error> {
    let name = ObjectRef::from_obj(&**object);
    loop {
        tokio::time::sleep(AGAIN).await;
        if context.queue.why(&name).is_none() {
            continue;
        }
        match glance(object, context)? {
            Glance::Act(same, _) if same == lane => {}
            other => return Ok(other),
        }
    }
}

fn namespace(object: &impl kube::Resource) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

/// Acts, and looks again at once after a conflict, some times. What was seen before the turn may be old.
async fn fresh_rounds<K: Kind>(object: &Arc<K::Object>, context: &Context<K>) -> Result<Next, Error> {
    let mut ground = match glance(object, context)? {
        Glance::Rest(next) => return Ok(next),
        Glance::Act(_, ground) => ground.map(|ground| *ground),
    };
    let mut round = 0;
    loop {
        let outcome = if let Some(ground) = ground.take() {
            carry_out(&**object, ground, true, context).await
        } else {
            round += 1;
            let Some(ground) = look(&**object, context).await? else { return Ok(when::when_it_changes()) };
            carry_out(&**object, ground, false, context).await
        };
        match outcome {
            Ok(Some(next)) => return Ok(next),
            Ok(None) => {}
            Err(error) if error.class() == Class::Conflict && round < FRESH_ROUNDS => {
                tracing::debug!(round, "looking again at once: {error}");
            }
            Err(error) => return Err(error),
        }
    }
}

/// Decides on the caches.
fn glance<K: Kind>(object: &Arc<K::Object>, context: &Context<K>) -> Result<Glance<K>, Error> {
    let (object, uid) = (latest(object, context), object.uid().unwrap_or_default());
    let lane = |is_hold: bool| match is_hold {
        true => Lane::Hold,
        false if context.slots.is_done(&uid) => Lane::Answer,
        false => Lane::Look,
    };
    let Some(scene) = K::cached(&object, context) else { return Ok(Glance::Act(lane(false), None)) };
    context.slots.lags(&uid, false);
    let (at, ago) = (now(), context.slots.look_ago(&uid));
    let plan = decide::<K>(&scene, at)?;
    let is_nothing = match K::check(&plan) {
        Some(request) => context.slots.is_running(&uid, &K::asked(&scene, request)),
        None => K::is_nothing(&plan, &scene),
    };
    let is_over = period(&plan, context).is_over(ago);
    if is_nothing && !is_over {
        if K::check(&plan).is_none() {
            context.slots.stop(&uid);
        }
        return Ok(Glance::Rest(next(&plan, ago, at, context)));
    }
    let (lane, is_enough) = (lane(K::is_hold(&plan, &scene)), !is_over && K::only_notes(&plan, &scene));
    Ok(Glance::Act(lane, is_enough.then(|| Box::new(Ground { scene, plan, at, ago }))))
}

/// Looks at the API server itself, and decides. Nothing if the object is gone.
async fn look<K: Kind>(object: &K::Object, context: &Context<K>) -> Result<Option<Ground<K>>, Error> {
    let uid = object.uid().unwrap_or_default();
    let Some(scene) = K::live(object, context).await? else {
        context.forget(&uid);
        return Ok(None);
    };
    context.slots.looked(&uid);
    let at = now();
    let plan = decide::<K>(&scene, at)?;
    Ok(Some(Ground { scene, plan, at, ago: Duration::ZERO }))
}

/// Does what the plan wants. Nothing if it may only note and ask, and the plan wants more.
async fn carry_out<K: Kind>(
    object: &K::Object,
    Ground { mut scene, mut plan, mut at, ago }: Ground<K>,
    may_only_note: bool,
    context: &Context<K>,
) -> Result<Option<Next>, Error> {
    let uid = object.uid().unwrap_or_default();
    if let Some(request) = K::check(&plan).cloned() {
        let asked = K::asked(&scene, &request);
        match context.slots.look(&uid, &asked) {
            Stand::Running => return Ok(Some(next(&plan, ago, at, context))),
            Stand::None => {
                begin(object, &scene, &request, asked, context);
                return Ok(Some(next(&plan, ago, at, context)));
            }
            Stand::Done(tried, is_new) => {
                // The answers are about what is seen here. A step on them is decided on a look at the API server, which they are older than.
                K::hear(&mut scene, *tried, is_new, context);
                at = now();
                plan = decide::<K>(&scene, at)?;
                if K::check(&plan).is_some() {
                    context.slots.stop(&uid);
                    return Ok(Some(when::once_more()));
                }
            }
        }
    }
    if may_only_note && !K::only_notes(&plan, &scene) {
        return Ok(None);
    }
    K::apply(&plan, &scene, context).await?;
    context.slots.stop(&uid);
    Ok(Some(next(&plan, ago, at, context)))
}

/// Starts a try beside the controller; its end wakes the object.
fn begin<K: Kind>(object: &K::Object, scene: &K::Scene, request: &CheckRequest, asked: Asked, context: &Context<K>) {
    let Some(attempt) = K::attempt(scene, request, context) else { return };
    let (queue, name) = (context.queue.clone(), ObjectRef::from_obj(object));
    context
        .slots
        .start(&object.uid().unwrap_or_default(), asked, attempt.make(), move || queue.ask([name], "its check"));
}

/// A panic in the decision about one object is an error of this object.
fn decide<K: Kind>(scene: &K::Scene, now: Timestamp) -> Result<K::Plan, Error> {
    let decided = std::panic::catch_unwind(AssertUnwindSafe(|| K::decide(scene, now)));
    decided.map_err(|panic| Error::Panic(panic_text(&*panic)))
}

fn period<K: Kind>(plan: &K::Plan, context: &Context<K>) -> Period {
    if K::is_at_rest(plan) {
        // Each scope has its part of what all may cost the API server.
        Period::at_rest(K::store(&context.caches).len().saturating_mul(context.scopes), context.resync)
    } else {
        Period::IN_MOTION
    }
}

fn next<K: Kind>(plan: &K::Plan, ago: Duration, now: Timestamp, context: &Context<K>) -> Next {
    when::next_look(period(plan, context), ago, K::wake(plan), now)
}
