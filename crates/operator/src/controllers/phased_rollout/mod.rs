//! The run of one PhasedRollout: look into the caches, decide; if that asks for anything at all, look again at the API server
//! itself, decide again, and only then act.
//!
//! `observe` reads, `decide` (another crate) decides, `apply` writes, `attempt` asks Prometheus; `trouble` beside it tells people when
//! none of that can be done. This file ties them together. It must never write itself, and never act on a cache.

mod apply;
pub(crate) mod attempt;
mod bodies;
mod observe;
mod report;
pub mod secrets;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::controller::Action as Next;
use kube::{Client, ResourceExt as _};
use sts_plus_api::{Phase, PhasedRollout};
use sts_plus_decide::{Plan, decide};

use super::frame::{self, FIRST_PAUSE, PERIOD, PERIOD_IN_MOTION, now};
use super::trouble;
use crate::errors::Error;
use crate::events::Events;
use crate::failures::Failures;
use crate::hold::Hold;
use crate::leader::Guard;
use crate::metrics::Metrics;
use crate::pulse::Pulse;
use crate::tries::{Stand, Tries};
use crate::watch::{Caches, Queue, send};
use crate::written::Written;
use observe::Scene;

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
    /// Pods in the way.
    pub strays: Strays,
}

pub use super::in_the_way::Known as Strays;
pub use attempt::{Prober, prober};

impl Context {
    fn forget(&self, uid: &str) {
        self.tries.forget(uid);
        self.secrets.forget(uid);
        self.written.forget(uid);
        self.failures.clear(uid);
        self.strays.put(uid, None);
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
    if let Some(next) = frame::not_now(&uid, &context.guard, &context.tries, &context.failures) {
        return Ok(next);
    }
    let outcome = frame::caught(run(&rollout, &context)).await;
    match outcome {
        Ok(next) => {
            context.failures.clear(&uid);
            Ok(next)
        }
        Err(error) => {
            report::failure(&rollout, &error);
            context.metrics.failed(&rollout.namespace().unwrap_or_default(), &rollout.name_any(), error.class());
            trouble::tell(&*rollout, &error, &context.client, &context.events, &context.written).await;
            Err(error)
        }
    }
}

/// When an object is looked at again after an error.
#[must_use]
#[allow(clippy::needless_pass_by_value, reason = "the controller calls it like this")]
pub fn after_error(rollout: Arc<PhasedRollout>, error: &Error, context: Arc<Context>) -> Next {
    frame::after_error(&rollout.uid().unwrap_or_default(), error, &context.failures)
}

async fn run(rollout: &PhasedRollout, context: &Context) -> Result<Next, Error> {
    context.secrets.refresh(rollout, &context.client).await;
    if let Some(next) = glance(rollout, context) {
        return next;
    }
    frame::fresh_rounds(|| act(rollout, context)).await
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
    let ago = context.written.look_ago(uid);
    if ago > period(&plan).0 {
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
    Some(Ok(next(&plan, ago, now)))
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
        match context.tries.look(&uid, &asked) {
            Stand::Running => return Ok(next(&plan, Duration::ZERO, at)),
            Stand::None => {
                begin(&scene, context, &uid, asked);
                return Ok(next(&plan, Duration::ZERO, at));
            }
            Stand::Done(tried, is_new) => {
                // The answers are older than this look at the pods: what they say is about what is seen here.
                if is_new {
                    report::verdicts(&scene, &tried);
                    for record in &tried.records {
                        context.metrics.checked(scene.namespace(), scene.name(), record.verdict);
                    }
                    if !tried.config.is_empty() {
                        context.secrets.forget(&uid);
                    }
                }
                scene.observed.tried = Some(*tried);
                at = now();
                plan = decide_safely(&scene, at)?;
                if plan.check.is_some() {
                    context.tries.forget(&uid);
                    return Ok(Next::requeue(FIRST_PAUSE));
                }
            }
        }
    }
    apply::carry_out(&plan, &scene, context).await?;
    context.tries.forget(&uid);
    Ok(next(&plan, Duration::ZERO, at))
}

/// Starts a try beside the controller; its end wakes the object.
fn begin(scene: &Scene, context: &Context, uid: &str, asked: crate::tries::Asked) {
    let attempt = attempt::Attempt::new(scene, &asked.request, context);
    let (queue, object) = (context.queue.clone(), scene.reference());
    context.tries.start(uid, asked, attempt.make(), move || send(&queue, [object]));
}

fn decide_safely(scene: &Scene, now: Timestamp) -> Result<Plan, Error> {
    frame::safely(|| decide(&scene.observed, now))
}

/// Within which time the API server itself is looked at.
fn period(plan: &Plan) -> (Duration, Duration) {
    match plan.status.phase {
        Phase::Rolling | Phase::Checking | Phase::RollingBack | Phase::Held => PERIOD_IN_MOTION,
        Phase::Idle | Phase::Paused | Phase::Failed | Phase::RolledBack | Phase::Completed | Phase::Blocked => PERIOD,
    }
}

/// The next look: when the plan says, when the hold is to be found out again, or after the period, whichever comes first.
fn next(plan: &Plan, ago: Duration, now: Timestamp) -> Next {
    frame::next_look(period(plan), ago, plan.wake, None, now)
}
