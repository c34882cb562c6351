//! Writes: the actions of a plan in their order, then the events, then the status. It must never decide: a write that is refused
//! ends the run, and the next one decides on what is then seen. The status comes last, since a transition that it does not show yet
//! is decided, and told, again.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::Patch;
use kube::{Api, Resource as _, ResourceExt as _};
use sts_plus_api::{PhasedRollout, PhasedRolloutStatus, Reason, names};
use sts_plus_decide::{Action, EventTarget, NewPartition, Plan};

use super::observe::Scene;
use super::{Context, bodies, report};
use crate::client::deadline;
use crate::controllers::roll::Roll;
use crate::errors::Error;
use crate::patch::by;
use crate::views::SetObject;

/// Carries out a plan.
pub(super) async fn carry_out(plan: &Plan, scene: &Scene, context: &Context) -> Result<(), Error> {
    // The version that the status is based on, moved on by our own writes only.
    let mut version = scene.rollout.resource_version();
    let mut is_gone = false;
    for action in &plan.actions {
        match act(action, scene, context).await? {
            Done::Nothing => {}
            Done::Rollout(written) => version = written,
            Done::Gone => is_gone = true,
        }
        report::action(scene, action);
        if is_step(action, plan, scene) {
            context.metrics.stepped(scene.namespace(), scene.name());
        }
    }
    // An event outlives its object: what became of the hold is told also when the PhasedRollout is gone.
    let basis = scene.rollout.resource_version().unwrap_or_default();
    for event in &plan.events {
        let regarding = match event.on {
            EventTarget::Rollout => scene.rollout.object_ref(&()),
            EventTarget::Set => scene.target().map_or_else(|| scene.rollout.object_ref(&()), reference_of),
        };
        report::event(scene, event);
        context.events.record(regarding, event.severity, event.reason, &event.note, &basis).await;
    }
    if !is_gone && plan.status != scene.observed.rollout.status {
        write_status(plan, scene, version.as_deref(), context).await?;
        report::transition(scene, plan);
        if has_drifted(&plan.status) && !has_drifted(&scene.observed.rollout.status) {
            context.metrics.drifted(scene.namespace(), scene.name());
        }
    }
    if is_gone {
        context.forget(scene.rollout_uid());
    }
    Ok(())
}

/// A lower partition while something goes on; at rest the hold just makes room for the number of replicas.
fn is_step(action: &Action, plan: &Plan, scene: &Scene) -> bool {
    let Action::PatchSet { set, partition: NewPartition::Set(new), .. } = action else { return false };
    let before = scene.sets.get(set).and_then(SetObject::partition);
    plan.status.current.is_some() && before.is_some_and(|before| *new < before)
}

fn has_drifted(status: &PhasedRolloutStatus) -> bool {
    let drift = Reason::PartitionDrift.to_string();
    status.conditions.iter().any(|condition| condition.reason == drift)
}

enum Done {
    /// Nothing that matters for the status.
    Nothing,
    /// The PhasedRollout was written and has this version now.
    Rollout(Option<String>),
    /// The PhasedRollout may be gone: nothing more can be written to it.
    Gone,
}

async fn act(action: &Action, scene: &Scene, context: &Context) -> Result<Done, Error> {
    match action {
        Action::AddFinalizer => {
            patch_rollout("adding the finalizer", bodies::add_finalizer(&scene.rollout), scene, context).await
        }
        Action::ConsumeAnnotation(key) => {
            let patch = bodies::consume_annotation(&scene.rollout, key);
            patch_rollout("removing an annotation", patch, scene, context).await
        }
        Action::RemoveFinalizer => {
            let patch = bodies::remove_finalizer(&scene.rollout);
            match patch_rollout("removing the finalizer", patch, scene, context).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
            Ok(Done::Gone)
        }
        Action::PatchSet { .. } | Action::DeletePod { .. } => {
            let Context { client, written, .. } = context;
            let roll = Roll { client, namespace: scene.namespace(), written };
            roll.step(action, &scene.sets).await.map(|_| Done::Nothing)
        }
    }
}

async fn patch_rollout(
    what: &str,
    patch: Option<json_patch::Patch>,
    scene: &Scene,
    context: &Context,
) -> Result<Done, Error> {
    let Some(patch) = patch else { return Ok(Done::Nothing) };
    let rollouts: Api<PhasedRollout> = Api::namespaced(context.client.clone(), scene.namespace());
    let patch = Patch::Json::<()>(patch);
    let call = format!("{what} of PhasedRollout {}", scene.name());
    let written = deadline(call, rollouts.patch(scene.name(), &by(names::MANAGER_LIFECYCLE), &patch)).await?;
    let version = written.resource_version();
    context.written.remember(scene.rollout_uid(), version.as_deref());
    Ok(Done::Rollout(version))
}

async fn write_status(plan: &Plan, scene: &Scene, version: Option<&str>, context: &Context) -> Result<(), Error> {
    let rollouts: Api<PhasedRollout> = Api::namespaced(context.client.clone(), scene.namespace());
    let body = Patch::Merge(bodies::status(&scene.rollout, version, &plan.status));
    let params = by(names::MANAGER_STATUS);
    let call = format!("writing the status of PhasedRollout {}", scene.name());
    let written = deadline(call, rollouts.patch_status(scene.name(), &params, &body)).await?;
    context.written.remember(scene.rollout_uid(), written.resource_version().as_deref());
    Ok(())
}

fn reference_of(set: &SetObject) -> ObjectReference {
    set.object_ref(&())
}
