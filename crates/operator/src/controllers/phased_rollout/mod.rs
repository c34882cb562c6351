//! PhasedRollouts: `observe` reads, `decide` (another crate) decides, `apply` writes, `report` says what was done. This file tells the driver which
//! is which.

mod apply;
mod bodies;
mod observe;
mod report;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::reflector::Store;
use sts_plus_api::{ConditionType, Phase, PhasedRollout, PhasedRolloutStatus, is_true};
use sts_plus_decide::{Action, CheckRequest, NewPartition, Plan, RolloutView, Stray, Try, decide};

use super::drive::{self, Kind};
use super::look::LastLook;
use super::slots::Asked;
use crate::checks::{Attempt, secrets};
use crate::errors::Error;
use crate::hold::Hold;
use crate::metrics::Metrics;
use crate::views::SetObject;
use crate::watch::Caches;
use observe::Scene;

/// What the runs of one scope work with.
pub(crate) type Context = drive::Context<PhasedRollouts>;

/// What only PhasedRollouts need.
pub(crate) struct PhasedRollouts {
    /// What is known about the hold.
    pub hold: Arc<Hold>,
}

/// What was found out about one and is in no cache.
#[derive(Default)]
pub(crate) struct Findings {
    /// A pod in the way.
    stray: Option<Stray>,
    /// What is wrong with the Secrets of its checks.
    secrets: Option<secrets::Seen>,
    /// What the API server showed last.
    look: Option<LastLook>,
}

impl Kind for PhasedRollouts {
    type Object = PhasedRollout;
    type Scene = Scene;
    type Plan = Plan;
    type Findings = Findings;

    const NAME: &'static str = "PhasedRollout";

    fn cached(rollout: &PhasedRollout, context: &Context) -> Option<Scene> {
        observe::cached(rollout, context)
    }

    fn is_due(rollout: &PhasedRollout, context: &Context) -> bool {
        if rollout.spec.skips_checks() {
            return false;
        }
        context.slots.findings(&rollout.uid().unwrap_or_default(), |findings| {
            // What is written meanwhile is no memory of a look.
            let seen = findings.secrets.get_or_insert_with(|| secrets::Seen::remembered(rollout).unwrap_or_default());
            seen.is_due(rollout.metadata.generation)
        })
    }

    async fn find_out(rollout: &PhasedRollout, context: &Context) {
        let (namespace, generation) = (rollout.namespace().unwrap_or_default(), rollout.metadata.generation);
        let (check, policy) = (&rollout.spec.check, context.prober.secrets());
        let seen = secrets::Seen::look(&namespace, check, generation, &context.client, policy).await;
        let uid = rollout.uid().unwrap_or_default();
        context.slots.findings(&uid, |findings| findings.secrets = Some(seen));
    }

    async fn live(rollout: &PhasedRollout, context: &Context) -> Result<Option<Scene>, Error> {
        observe::live(rollout, context).await
    }

    fn decide(scene: &Scene, now: Timestamp) -> Plan {
        decide(&scene.observed, now)
    }

    async fn apply(plan: &Plan, scene: &Scene, context: &Context) -> Result<(), Error> {
        apply::carry_out(plan, scene, context).await
    }

    fn check(plan: &Plan) -> Option<&CheckRequest> {
        plan.check.as_ref()
    }

    fn asked(scene: &Scene, request: &CheckRequest) -> Asked {
        let set_uid = scene.target().map_or("", SetObject::uid);
        Asked::of(&scene.observed.rollout.spec.check, set_uid, request)
    }

    fn attempt(scene: &Scene, request: &CheckRequest, context: &Context) -> Option<Attempt> {
        let RolloutView { namespace, spec, status, .. } = &scene.observed.rollout;
        let current = status.current.as_ref();
        Some(Attempt::of(&context.client, &context.prober, namespace, &spec.check, request, current))
    }

    fn hear(scene: &mut Scene, tried: Try, is_new: bool, context: &Context) {
        if is_new {
            report::verdicts(scene, &tried);
            for record in &tried.records {
                context.metrics.checked(scene.namespace(), scene.name(), record.verdict);
            }
            if !tried.config.is_empty() {
                let void = |findings: &mut Findings| findings.secrets.iter_mut().for_each(secrets::Seen::is_void);
                context.slots.findings(scene.rollout_uid(), void);
            }
        }
        scene.observed.tried = Some(tried);
    }

    fn lags(rollout: &PhasedRollout, context: &Context) -> bool {
        observe::lags(rollout, context)
    }

    fn only_notes(plan: &Plan, scene: &Scene) -> bool {
        let is_rolled_out =
            |status: &PhasedRolloutStatus| is_true(&status.conditions, &ConditionType::RolledOut.to_string());
        // Pipelines go on when it is.
        let tells_the_end = is_rolled_out(&plan.status) && !is_rolled_out(&scene.observed.rollout.status);
        // Mostly it has, and only the cache does not know it yet: a wait that is none would be told, in the middle of anything.
        let awaits_controller = scene.target().is_some_and(|set| !set.controller_has_seen());
        let is_enough = !tells_the_end && !awaits_controller && !scene.is_behind;
        plan.actions.is_empty() && plan.events.is_empty() && is_enough
    }

    fn is_nothing(plan: &Plan, scene: &Scene) -> bool {
        plan.actions.is_empty() && plan.events.is_empty() && plan.status == scene.observed.rollout.status
    }

    fn is_hold(plan: &Plan, scene: &Scene) -> bool {
        // The finalizer comes before the claim, which holds.
        let is_to_hold = |action: &Action| {
            *action == Action::AddFinalizer || raises(action, |set| scene.sets.get(set).and_then(SetObject::partition))
        };
        plan.actions.iter().any(is_to_hold)
    }

    fn wake(plan: &Plan) -> Option<Timestamp> {
        plan.wake
    }

    fn is_at_rest(plan: &Plan) -> bool {
        // At rest, too, a pod may be missing: why, no stream says.
        if is_true(&plan.status.conditions, &ConditionType::Reconciling.to_string()) {
            return false;
        }
        match plan.status.phase {
            Phase::Rolling | Phase::Checking | Phase::RollingBack | Phase::Held => false,
            Phase::Idle | Phase::Paused | Phase::Failed | Phase::RolledBack | Phase::Completed | Phase::Blocked => true,
        }
    }

    fn failed(rollout: &PhasedRollout, error: &Error, context: &Context) {
        report::failure(rollout, error);
        context.metrics.failed(&rollout.namespace().unwrap_or_default(), &rollout.name_any(), error.class());
    }

    fn gone(namespace: &str, name: &str, metrics: &Metrics) {
        metrics.forget(namespace, name);
    }

    fn store(caches: &Caches) -> &Store<PhasedRollout> {
        &caches.rollouts
    }
}

/// True if the write holds pods of a StatefulSet that were not held before.
pub(super) fn raises(action: &Action, partition_of: impl Fn(&str) -> Option<i32>) -> bool {
    match action {
        Action::PatchSet { set, partition: NewPartition::Set(new), .. } => *new > partition_of(set).unwrap_or(0),
        _ => false,
    }
}
