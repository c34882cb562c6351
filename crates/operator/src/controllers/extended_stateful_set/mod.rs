//! The run of one ExtendedStatefulSet: look into the caches, decide; if that asks for anything at all, look again at the API server
//! itself, decide again, and only then act.
//!
//! `observe` reads, `trial` asks what the API server makes of the template, `render` says what the template comes to, `decide` (another crate) decides, `apply` writes. This file ties them
//! together. It must never write itself, and never act on a cache.

mod apply;
mod child;
mod labels;
mod leave;
mod memory;
mod observe;
mod refusal;
pub mod render;
mod services;
mod templates;
mod trial;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::controller::Action as Next;
use kube::{Client, ResourceExt as _};
use sts_plus_api::{ExtendedStatefulSet, VersionPhase};
use sts_plus_decide::{VersionsPlan, decide_versions};

use super::frame::{self, FIRST_PAUSE, PERIOD, PERIOD_IN_MOTION, now};
use super::phased_rollout::attempt::{Attempt, Prober};
use super::trouble;
use crate::errors::Error;
use crate::events::Events;
use crate::failures::Failures;
use crate::leader::Guard;
use crate::metrics::Metrics;
use crate::pulse::Pulse;
use crate::tries::{Asked, Stand, Tries};
use crate::watch::{Caches, Queue, send};
use crate::written::Written;
use observe::Scene;

pub use memory::Memory;

/// What the runs of one scope work with.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// Whether we lead.
    pub guard: Arc<Guard>,
    /// Numbers.
    pub metrics: Arc<Metrics>,
    /// Signs of life.
    pub pulse: Arc<Pulse>,
    /// What the streams have brought.
    pub caches: Arc<Caches>,
    /// Where to ask for another look.
    pub queue: Queue<ExtendedStatefulSet>,
    /// Tries under way.
    pub tries: Arc<Tries>,
    /// What we wrote last.
    pub written: Arc<Written>,
    /// Events for people.
    pub events: Arc<Events>,
    /// The way to Prometheus.
    pub prober: Arc<Prober>,
    /// What was found out and is in no cache.
    pub memory: Memory,
    /// True if StatefulSets always stay when an ExtendedStatefulSet goes: the operator is uninstalled.
    pub keeps_children: bool,
    /// What went wrong lately.
    pub failures: Arc<Failures>,
}

impl Context {
    fn forget(&self, uid: &str) {
        self.tries.forget(uid);
        self.written.forget(uid);
        self.failures.clear(uid);
        self.memory.forget(uid);
    }
}

/// One run. A panic stays in it.
///
/// # Errors
///
/// What went wrong; [`after_error`] says when the object is looked at again.
pub async fn reconcile(owner: Arc<ExtendedStatefulSet>, context: Arc<Context>) -> Result<Next, Error> {
    let _run = context.pulse.run();
    let uid = owner.uid().unwrap_or_default();
    if let Some(next) = frame::not_now(&uid, &context.guard, &context.tries, &context.failures) {
        return Ok(next);
    }
    let outcome = frame::caught(run(&owner, &context)).await;
    match &outcome {
        Ok(_) => context.failures.clear(&uid),
        Err(error) => {
            let (namespace, name) = (owner.namespace().unwrap_or_default(), owner.name_any());
            context.metrics.version_failed(&namespace, &name, error.class());
            tracing::warn!(namespace, owner = name, class = %error.class(), "{error}");
            trouble::tell(&*owner, error, &context.client, &context.events, &context.written).await;
        }
    }
    outcome
}

/// When an object is looked at again after an error.
#[must_use]
#[allow(clippy::needless_pass_by_value, reason = "the controller calls it like this")]
pub fn after_error(owner: Arc<ExtendedStatefulSet>, error: &Error, context: Arc<Context>) -> Next {
    frame::after_error(&owner.uid().unwrap_or_default(), error, &context.failures)
}

async fn run(owner: &ExtendedStatefulSet, context: &Context) -> Result<Next, Error> {
    if let Some(next) = glance(owner, context) {
        return next;
    }
    frame::fresh_rounds(|| act(owner, context)).await
}

/// Decides on the caches. Says when to look again if nothing is to be done; says nothing if it takes a look at the API server.
fn glance(owner: &ExtendedStatefulSet, context: &Context) -> Option<Result<Next, Error>> {
    let scene = observe::cached(owner, context)?;
    let now = now();
    let plan = match decide_safely(&scene, now) {
        Ok(plan) => plan,
        Err(error) => return Some(Err(error)),
    };
    let ago = context.written.look_ago(scene.uid());
    if ago > period(&plan).0 {
        return None;
    }
    let nothing = match &plan.check {
        Some(request) => context.tries.is_running(scene.uid(), &scene.asked(request)),
        None => plan.actions.is_empty() && plan.events.is_empty() && plan.status == scene.observed.owner.status,
    };
    nothing.then(|| Ok(next(&plan, ago, now)))
}

/// Looks at the API server itself, decides, and carries it out.
async fn act(owner: &ExtendedStatefulSet, context: &Context) -> Result<Next, Error> {
    let Some(mut scene) = observe::live(owner, context).await? else {
        context.forget(&owner.uid().unwrap_or_default());
        return Ok(Next::await_change());
    };
    let uid = scene.uid().to_owned();
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
                for record in tried.records.iter().filter(|_| is_new) {
                    let (namespace, owner, passed) = (scene.namespace(), scene.name(), record.passed);
                    context.metrics.version_checked(namespace, owner, record.verdict);
                    tracing::info!(namespace, owner, pod = record.pod, passed, "check: {}", record.message);
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
fn begin(scene: &Scene, context: &Context, uid: &str, asked: Asked) {
    let owner = &scene.observed.owner;
    let Some(check) = owner.spec.update_strategy.check.as_ref().map(sts_plus_api::VersionCheck::to_check) else {
        return;
    };
    let upgrade = owner.status.upgrade.as_ref().and_then(|upgrade| upgrade.cycle.as_ref());
    let revision = Some(asked.request.key.revision.as_str());
    let in_place = owner.status.rollouts.values().find(|rollout| rollout.target_revision.as_deref() == revision);
    let cycle = in_place.map_or(upgrade, |rollout| rollout.current.as_ref());
    let attempt = Attempt::of(&context.client, &context.prober, scene.namespace(), &check, &asked.request, cycle);
    let (queue, object) = (context.queue.clone(), scene.reference());
    context.tries.start(uid, asked, attempt.make(), move || send(&queue, [object]));
}

fn decide_safely(scene: &Scene, now: Timestamp) -> Result<VersionsPlan, Error> {
    frame::safely(|| decide_versions(&scene.observed, now))
}

/// Within which time the API server itself is looked at.
fn period(plan: &VersionsPlan) -> (Duration, Duration) {
    let is_well = |kind: &str, good: &str| {
        plan.status
            .conditions
            .iter()
            .filter(|condition| condition.type_ == kind)
            .all(|condition| condition.status == good)
    };
    let at_rest = matches!(plan.status.phase, VersionPhase::Ready | VersionPhase::Paused);
    if at_rest && is_well("ServicesFollow", "True") && is_well("ZoneUnschedulable", "False") {
        PERIOD
    } else {
        PERIOD_IN_MOTION
    }
}

/// The next look: when the plan says, or after the period, whichever comes first.
fn next(plan: &VersionsPlan, ago: Duration, now: Timestamp) -> Next {
    frame::next_look(period(plan), ago, plan.wake, None, now)
}
