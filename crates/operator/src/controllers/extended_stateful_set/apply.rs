//! Writes: the actions of a plan in their order, then the events, then the status. It must never decide: a write that is refused ends
//! the run, and the next one decides on what is then seen.

use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use sts_plus_api::{ExtendedStatefulSet, ExtendedStatefulSetStatus, Reason, VersionStrategyType, names};
use sts_plus_decide::{NewPartition, Severity, VersionAction, VersionsPlan};

use super::child::{self, Mode};
use super::observe::Scene;
use super::{Context, leave, templates};
use crate::client::deadline;
use crate::controllers::partition;
use crate::controllers::roll::Roll;
use crate::errors::Error;
use crate::patch::{add, by, status_patch, test};
use crate::views::SetObject;

/// Carries out a plan.
pub(super) async fn carry_out(plan: &VersionsPlan, scene: &Scene, context: &Context) -> Result<(), Error> {
    let mut status = plan.status.clone();
    let is_in_place = scene.owner.spec.update_strategy.kind == VersionStrategyType::InPlace;
    let mut was_drift = false;
    for action in &plan.actions {
        let written = act(action, scene, context).await?;
        tracing::info!(namespace = scene.namespace(), owner = scene.name(), ?action, "written");
        if let Some(set) = written {
            let before = scene.sets.get(set.name()).and_then(|before| before.metadata.generation);
            was_drift |= before != set.metadata.generation;
            note(&mut status, &set, is_in_place);
        }
    }
    let basis = scene.owner.resource_version().unwrap_or_default();
    // Put back and nothing changed by it: it was our own write, whose note a crash kept from the status.
    for event in plan.events.iter().filter(|event| event.reason != Reason::ChildDrift || was_drift) {
        let (namespace, owner) = (scene.namespace(), scene.name());
        match event.severity {
            Severity::Normal => tracing::info!(namespace, owner, reason = %event.reason, "event: {}", event.note),
            Severity::Warning => tracing::warn!(namespace, owner, reason = %event.reason, "event: {}", event.note),
        }
        context.events.record(scene.owner.object_ref(&()), event.severity, event.reason, &event.note, &basis).await;
    }
    if status != scene.observed.owner.status {
        write_status(&status, scene, context).await?;
    }
    Ok(())
}

/// What was written is known to be ours by its generation.
fn note(status: &mut ExtendedStatefulSetStatus, set: &SetObject, is_in_place: bool) {
    let sets = status.details.iter_mut().flat_map(|detail| &mut detail.sets);
    for noted in sets.filter(|noted| noted.name == set.name()) {
        noted.generation = set.metadata.generation.unwrap_or_default();
        if !is_in_place {
            noted.replicas = set.view().replicas;
        }
    }
}

/// One write; the StatefulSet as it is then, if it was one that stays.
async fn act(action: &VersionAction, scene: &Scene, context: &Context) -> Result<Option<SetObject>, Error> {
    let none = |()| None;
    let written = match action {
        VersionAction::Create { name, zone, version, replicas } => {
            let owner = templates::owner_at(*version, scene, context).await?;
            let body = scene.body(&owner, name, zone.as_deref(), *version, *replicas, names::HOLD);
            Some(child::make(name, &body, Mode::Write, scene, context).await?)
        }
        VersionAction::Apply { name, zone, version, replicas, partition } => {
            let owner = templates::owner_at(*version, scene, context).await?;
            let body = scene.body(&owner, name, zone.as_deref(), *version, *replicas, *partition);
            let there = child::read(name, scene, context).await?;
            Some(child::replace(&there, &body, Mode::Write, scene, context).await?)
        }
        VersionAction::Scale { name, uid, generation, replicas } => {
            let operations = vec![
                test(["metadata", "uid"], json!(uid)),
                test(["metadata", "generation"], json!(generation)),
                add(["spec", "replicas"], json!(replicas)),
            ];
            let params = by(names::MANAGER_VERSIONS);
            let change = Patch::Json(json_patch::Patch(operations));
            Some(write_set("scaling", name, &params, &change, scene, context).await?)
        }
        VersionAction::Mark { name, uid, stale } => {
            let annotations = json!({ names::STALE: stale.as_ref().map(|_| "true"), names::STALE_REASON: stale });
            let change = json!({ "metadata": { "uid": uid, "annotations": annotations } });
            let params = by(names::MANAGER_MARKS);
            Some(write_set("marking", name, &params, &Patch::Merge(change), scene, context).await?)
        }
        VersionAction::Adopt { name, uid } => Some(leave::adopt(name, uid, scene, context).await?),
        VersionAction::Roll(action) => {
            let Context { client, written, .. } = context;
            let roll = Roll { client, namespace: scene.namespace(), written };
            return roll.step(action, &scene.sets).await;
        }
        VersionAction::Remember { version } => templates::remember(*version, scene, context).await.map(none)?,
        VersionAction::Forget { version } => templates::forget(*version, scene, context).await.map(none)?,
        VersionAction::AddFinalizer => leave::guard(scene, context).await.map(none)?,
        VersionAction::RemoveFinalizer => leave::end(scene, context).await.map(none)?,
        VersionAction::Free { service } => leave::free(service, scene, context).await.map(none)?,
        VersionAction::Orphan => leave::orphan(scene, context).await.map(none)?,
        VersionAction::Delete { name, uid } => delete(name, uid, scene, context).await.map(none)?,
        VersionAction::Select { service, before, version } => {
            select(service, before.as_deref(), *version, scene, context).await.map(none)?
        }
    };
    if let Some(set) = &written {
        context.written.remember(set.uid(), set.metadata.resource_version.as_deref());
        if let VersionAction::Apply { partition, .. } = action {
            partition::is_granted(NewPartition::Set(*partition), set, &context.written)?;
        }
    }
    Ok(written)
}

async fn write_set(
    what: &str,
    name: &str,
    params: &PatchParams,
    patch: &Patch<Value>,
    scene: &Scene,
    context: &Context,
) -> Result<SetObject, Error> {
    let sets: Api<SetObject> = Api::namespaced(context.client.clone(), scene.namespace());
    deadline(format!("{what} StatefulSet {name}"), sets.patch(name, params, patch)).await
}

async fn delete(name: &str, uid: &str, scene: &Scene, context: &Context) -> Result<(), Error> {
    let sets: Api<SetObject> = Api::namespaced(context.client.clone(), scene.namespace());
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams {
        preconditions: Some(preconditions),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    match deadline(format!("deleting StatefulSet {name}"), sets.delete(name, &params)).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// A selector is one value: the version in it is changed only if the Service is as it was read. The annotation says whose version it is.
async fn select(name: &str, before: Option<&str>, version: i32, scene: &Scene, context: &Context) -> Result<(), Error> {
    let services: Api<Service> = Api::namespaced(context.client.clone(), scene.namespace());
    let service = deadline(format!("reading Service {name}"), services.get(name)).await?;
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    if selector.get(names::VERSION).map(String::as_str) != before {
        return Err(Error::Outdated { what: format!("Service {name}") });
    }
    let mut operations = vec![
        test(["metadata", "uid"], json!(service.metadata.uid)),
        test(["metadata", "resourceVersion"], json!(service.metadata.resource_version)),
    ];
    if service.metadata.annotations.is_none() {
        operations.push(add(["metadata", "annotations"], json!({})));
    }
    operations.push(add(["metadata", "annotations", names::OWNER], json!(scene.name())));
    if service.spec.as_ref().is_none_or(|spec| spec.selector.is_none()) {
        operations.push(add(["spec", "selector"], json!({})));
    }
    operations.push(add(["spec", "selector", names::VERSION], json!(version.to_string())));
    let params = by(names::MANAGER_VERSIONS);
    let patch = Patch::Json::<()>(json_patch::Patch(operations));
    deadline(format!("switching Service {name}"), services.patch(name, &params, &patch)).await?;
    Ok(())
}

async fn write_status(status: &ExtendedStatefulSetStatus, scene: &Scene, context: &Context) -> Result<(), Error> {
    let owners: Api<ExtendedStatefulSet> = Api::namespaced(context.client.clone(), scene.namespace());
    let owner = &scene.owner;
    let version = owner.resource_version();
    let body = Patch::Merge(status_patch(owner, version.as_deref(), &owner.status, status));
    let params = by(names::MANAGER_STATUS);
    let call = format!("writing the status of ExtendedStatefulSet {}", scene.name());
    let written = deadline(call, owners.patch_status(scene.name(), &params, &body)).await?;
    context.written.remember(scene.uid(), written.resource_version().as_deref());
    Ok(())
}
