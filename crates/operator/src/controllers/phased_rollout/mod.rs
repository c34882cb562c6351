//! The run of one PhasedRollout: look into the caches, decide; if that asks for anything at all, look again at the API server
//! itself, decide again, and only then act.
//!
//! `observe` reads, `decide` (another crate) decides, `apply` writes, `attempt` asks Prometheus, `trouble` tells people when none of
//! that can be done. This file ties them together. It must never write itself, and never act on a cache.

mod apply;
pub(crate) mod attempt;
mod bodies;
mod observe;
mod report;
pub mod secrets;
mod trouble;

#[cfg(test)]
mod tests;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use kube::runtime::controller::Action as Next;
use kube::{Client, ResourceExt as _};
use sts_plus_api::{Phase, PhasedRollout};
use sts_plus_decide::{Plan, decide};

use crate::errors::{Class, Error};
use crate::events::Events;
use crate::failures::Failures;
use crate::hold::Hold;
use crate::leader::Guard;
use crate::metrics::Metrics;
use crate::pace;
use crate::pulse::Pulse;
use crate::telemetry::panic_text;
use crate::tries::{Stand, Tries};
use crate::watch::{Caches, Queue, send};
use crate::written::Written;
use observe::Scene;

/// A conflict is looked at again at once this often in one run.
const FRESH_ROUNDS: u32 = 3;
/// Each object is looked at once in this time, at the API server itself, whatever the streams say: a lost event is healed.
const PERIOD: (Duration, Duration) = (Duration::from_mins(4), Duration::from_mins(5));
/// The same while a rollout goes on: a stream that has gone silent is noticed by its own time-out after minutes only.
const PERIOD_IN_MOTION: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(12));
/// Whatever a plan says, an object does not spin.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The pause after an error that only a person can mend.
const PERSON_PAUSE: Duration = Duration::from_secs(30);

/// What the runs of one scope work with.
pub struct Context {
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
    pub queue: Queue,
    /// What is known about the hold.
    pub hold: Arc<Hold>,
    /// Tries under way.
    pub tries: Arc<Tries>,
    /// What we wrote last.
    pub written: Arc<Written>,
    /// Events for people.
    pub events: Arc<Events>,
    /// The way to Prometheus.
    pub prober: Arc<attempt::Prober>,
    /// What is wrong with the Secrets of the checks.
    pub secrets: secrets::Look,
    /// What went wrong lately.
    pub failures: Arc<Failures>,
}

pub use attempt::{Prober, prober};

impl Context {
    fn forget(&self, uid: &str) {
        self.tries.forget(uid);
        self.secrets.forget(uid);
        self.written.forget(uid);
        self.failures.clear(uid);
    }
}

/// One run. A panic stays in it.
///
/// # Errors
///
/// What went wrong; [`after_error`] says when the object is looked at again.
pub async fn reconcile(rollout: Arc<PhasedRollout>, context: Arc<Context>) -> Result<Next, Error> {
    let _run = context.pulse.run();
    let uid = rollout.uid().unwrap_or_default();
    if !context.guard.is_open() {
        // Another operator decides. All objects are looked at again when it is our turn.
        context.tries.forget(&uid);
        return Ok(Next::requeue(pace::between(PERIOD.0, PERIOD.1)));
    }
    if let Some(rest) = context.failures.rest(&uid) {
        return Ok(Next::requeue(rest));
    }
    let outcome = match AssertUnwindSafe(run(&rollout, &context)).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) => Err(Error::Panic(panic_text(&*panic))),
    };
    match outcome {
        Ok(next) => {
            context.failures.clear(&uid);
            Ok(next)
        }
        Err(error) => {
            report::failure(&rollout, &error);
            context.metrics.failed(&rollout.namespace().unwrap_or_default(), &rollout.name_any(), error.class());
            trouble::tell(&rollout, &context, &error).await;
            Err(error)
        }
    }
}

/// When an object is looked at again after an error.
#[must_use]
#[allow(clippy::needless_pass_by_value, reason = "the controller calls it like this")]
pub fn after_error(rollout: Arc<PhasedRollout>, error: &Error, context: Arc<Context>) -> Next {
    let failures = context.failures.failed(&rollout.uid().unwrap_or_default());
    Next::requeue(pause_after(error.class(), failures))
}

pub(crate) fn pause_after(class: Class, failures: u32) -> Duration {
    match class {
        Class::Transient | Class::Conflict | Class::Bug => pace::after_failures(failures, FIRST_PAUSE, LONGEST_PAUSE),
        Class::Invalid | Class::Forbidden => pace::between(PERSON_PAUSE.mul_f32(0.75), PERSON_PAUSE),
    }
}

async fn run(rollout: &PhasedRollout, context: &Context) -> Result<Next, Error> {
    context.secrets.refresh(rollout, &context.client).await;
    if let Some(next) = glance(rollout, context) {
        return next;
    }
    let mut round = 1;
    loop {
        match act(rollout, context).await {
            Err(error) if error.class() == Class::Conflict && round < FRESH_ROUNDS => {
                tracing::debug!(round, "looking again at once: {error}");
                round += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Decides on the caches. Says when to look again if nothing is to be done; says nothing if it takes a look at the API server.
fn glance(rollout: &PhasedRollout, context: &Context) -> Option<Result<Next, Error>> {
    let scene = observe::cached(rollout, context)?;
    let now = now();
    let plan = match decide_safely(&scene, now) {
        Ok(plan) => plan,
        Err(error) => return Some(Err(error)),
    };
    let uid = scene.rollout_uid();
    if !context.written.looked_within(uid, period(&plan).0) {
        return None;
    }
    let nothing = match &plan.check {
        Some(request) => context.tries.is_running(uid, &scene.asked(request)),
        None => plan.actions.is_empty() && plan.events.is_empty() && plan.status == scene.observed.rollout.status,
    };
    if !nothing {
        return None;
    }
    if plan.check.is_none() {
        context.tries.forget(uid);
    }
    Some(Ok(next(&plan, &scene, now)))
}

/// Looks at the API server itself, decides, and carries it out.
async fn act(rollout: &PhasedRollout, context: &Context) -> Result<Next, Error> {
    let Some(mut scene) = observe::live(rollout, context).await? else {
        context.forget(&rollout.uid().unwrap_or_default());
        return Ok(Next::await_change());
    };
    let uid = scene.rollout_uid().to_owned();
    context.written.looked(&uid);
    let mut at = now();
    let mut plan = decide_safely(&scene, at)?;
    if let Some(request) = plan.check.take() {
        let asked = scene.asked(&request);
        match context.tries.take(&uid, &asked) {
            Stand::Running => return Ok(next(&plan, &scene, at)),
            Stand::None => {
                begin(&scene, context, &uid, asked);
                return Ok(next(&plan, &scene, at));
            }
            Stand::Done(tried) => {
                // The answers are older than this look at the pods: what they say is about what is seen here.
                report::verdicts(&scene, &tried);
                for record in &tried.records {
                    context.metrics.checked(scene.namespace(), scene.name(), record.verdict);
                }
                if !tried.config.is_empty() {
                    context.secrets.forget(&uid);
                }
                scene.observed.tried = Some(*tried);
                at = now();
                plan = decide_safely(&scene, at)?;
                if plan.check.is_some() {
                    return Ok(Next::requeue(FIRST_PAUSE));
                }
            }
        }
    } else {
        context.tries.forget(&uid);
    }
    apply::carry_out(&plan, &scene, context).await?;
    Ok(next(&plan, &scene, at))
}

/// Starts a try beside the controller; its end wakes the object.
fn begin(scene: &Scene, context: &Context, uid: &str, asked: crate::tries::Asked) {
    let attempt = attempt::Attempt::new(scene, &asked.request, context);
    let (queue, object) = (context.queue.clone(), scene.reference());
    context.tries.start(uid, asked, attempt.make(), move || send(&queue, [object]));
}

/// A panic in the decision about one object is an error of this object.
fn decide_safely(scene: &Scene, now: Timestamp) -> Result<Plan, Error> {
    std::panic::catch_unwind(AssertUnwindSafe(|| decide(&scene.observed, now)))
        .map_err(|panic| Error::Panic(panic_text(&*panic)))
}

/// Now, in the precision that a status keeps.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// Within which time the API server itself is looked at.
fn period(plan: &Plan) -> (Duration, Duration) {
    match plan.status.phase {
        Phase::Rolling | Phase::Checking | Phase::RollingBack | Phase::Held => PERIOD_IN_MOTION,
        Phase::Idle | Phase::Paused | Phase::Failed | Phase::RolledBack | Phase::Completed | Phase::Blocked => PERIOD,
    }
}

/// The next look: when the plan says, when the hold is to be found out again, or after the period, whichever comes first.
fn next(plan: &Plan, scene: &Scene, now: Timestamp) -> Next {
    let (low, high) = period(plan);
    let period = pace::between(low, high);
    let wake = plan.wake.map(|wake| {
        let left = wake.duration_since(now).as_millis().clamp(0, i128::from(u32::MAX));
        // One more: never a moment too early.
        Duration::from_millis(u64::try_from(left).unwrap_or(0) + 1)
    });
    Next::requeue([wake, scene.hold_again].into_iter().flatten().fold(period, Duration::min).max(SHORTEST_WAIT))
}
