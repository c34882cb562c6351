//! ExtendedStatefulSets: `observe` reads, `trial` asks what the API server makes of the template, `render` says what the template comes to,
//! `decide` (another crate) decides, `apply` writes. This file tells the driver which is which.

mod apply;
mod child;
mod known;
mod labels;
mod leave;
mod observe;
pub mod render;
mod sentence;
mod services;
mod templates;
mod trial;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::reflector::Store;
use sts_plus_api::{ExtendedStatefulSet, VersionCheck, VersionPhase};
use sts_plus_decide::{CheckRequest, Try, VersionAction, VersionsPlan, decide_versions};

use super::drive::{self, Kind};
use super::phased_rollout::raises;
use super::slots::Asked;
use crate::checks::Attempt;
use crate::errors::Error;
use crate::metrics::Metrics;
use crate::views::SetObject;
use crate::watch::Caches;
use known::Known;
use observe::Scene;

/// What the runs of one scope work with.
pub(crate) type Context = drive::Context<ExtendedStatefulSets>;

/// What only ExtendedStatefulSets need.
pub(crate) struct ExtendedStatefulSets {
    /// True if StatefulSets always stay when an ExtendedStatefulSet goes: the operator is uninstalled.
    pub keeps_children: bool,
}

/// What was found out about one and is in no cache.
#[derive(Default)]
pub(crate) struct Findings(Option<Known>);

impl Kind for ExtendedStatefulSets {
    type Object = ExtendedStatefulSet;
    type Scene = Scene;
    type Plan = VersionsPlan;
    type Findings = Findings;

    const NAME: &'static str = "ExtendedStatefulSet";

    fn cached(owner: &ExtendedStatefulSet, context: &Context) -> Option<Scene> {
        observe::cached(owner, context)
    }

    fn is_due(_: &ExtendedStatefulSet, _: &Context) -> bool {
        false
    }

    async fn find_out(_: &ExtendedStatefulSet, _: &Context) {}

    async fn live(owner: &ExtendedStatefulSet, context: &Context) -> Result<Option<Scene>, Error> {
        observe::live(owner, context).await
    }

    fn decide(scene: &Scene, now: Timestamp) -> VersionsPlan {
        decide_versions(&scene.observed, now)
    }

    async fn apply(plan: &VersionsPlan, scene: &Scene, context: &Context) -> Result<(), Error> {
        apply::carry_out(plan, scene, context).await
    }

    fn check(plan: &VersionsPlan) -> Option<&CheckRequest> {
        plan.check.as_ref()
    }

    fn asked(scene: &Scene, request: &CheckRequest) -> Asked {
        Asked::of(&scene.observed.owner.spec.update_strategy.check, scene.uid(), request)
    }

    fn attempt(scene: &Scene, request: &CheckRequest, context: &Context) -> Option<Attempt> {
        let owner = &scene.observed.owner;
        let check = owner.spec.update_strategy.check.as_ref().map(VersionCheck::to_check)?;
        let upgrade = owner.status.upgrade.as_ref().and_then(|upgrade| upgrade.cycle.as_ref());
        let revision = Some(request.key.revision.as_str());
        let in_place = owner.status.rollouts.values().find(|rollout| rollout.target_revision.as_deref() == revision);
        let cycle = in_place.map_or(upgrade, |rollout| rollout.current.as_ref());
        Some(Attempt::of(&context.client, &context.prober, scene.namespace(), &check, request, cycle))
    }

    fn hear(scene: &mut Scene, tried: Try, is_new: bool, context: &Context) {
        for record in tried.records.iter().filter(|_| is_new) {
            let (namespace, owner, passed) = (scene.namespace(), scene.name(), record.passed);
            context.metrics.version_checked(namespace, owner, record.verdict);
            tracing::info!(namespace, owner, pod = record.pod, passed, "check: {}", record.message);
        }
        scene.observed.tried = Some(tried);
    }

    fn lags(owner: &ExtendedStatefulSet, context: &Context) -> bool {
        observe::lags(owner, context)
    }

    /// More than the caches hold is looked at for each decision.
    fn only_notes(_: &VersionsPlan, _: &Scene) -> bool {
        false
    }

    fn is_nothing(plan: &VersionsPlan, scene: &Scene) -> bool {
        plan.actions.is_empty() && plan.events.is_empty() && plan.status == scene.observed.owner.status
    }

    fn is_hold(plan: &VersionsPlan, scene: &Scene) -> bool {
        let partition_of = |set: &str| scene.sets.get(set).and_then(SetObject::partition);
        plan.actions.iter().any(|action| match action {
            VersionAction::Roll(action) => raises(action, partition_of),
            VersionAction::Apply { name, partition, .. } => *partition > partition_of(name).unwrap_or(0),
            _ => false,
        })
    }

    fn wake(plan: &VersionsPlan) -> Option<Timestamp> {
        plan.wake
    }

    fn is_at_rest(plan: &VersionsPlan) -> bool {
        let is_well = |kind: &str, good: &str| {
            let told = plan.status.conditions.iter().filter(|condition| condition.type_ == kind);
            told.map(|condition| condition.status.as_str()).all(|status| status == good)
        };
        let at_rest = matches!(plan.status.phase, VersionPhase::Ready | VersionPhase::Paused);
        at_rest && is_well("ServicesFollow", "True") && is_well("ZoneUnschedulable", "False")
    }

    fn failed(owner: &ExtendedStatefulSet, error: &Error, context: &Context) {
        let (namespace, name) = (owner.namespace().unwrap_or_default(), owner.name_any());
        context.metrics.version_failed(&namespace, &name, error.class());
        tracing::warn!(namespace, owner = name, class = %error.class(), "{error}");
    }

    fn gone(namespace: &str, name: &str, metrics: &Metrics) {
        metrics.forget_versions(namespace, name);
    }

    fn store(caches: &Caches) -> &Store<ExtendedStatefulSet> {
        &caches.owners
    }
}
