//! The active Service selects the version in charge, the preview Service the newest one.

use sts_plus_api::{Reason, names};

use crate::versions::{draft::Draft, observed::ServiceView, plan::VersionAction, world::World};

/// The active Service selects the version in charge, the preview Service the newest one.
pub(super) fn select(draft: &mut Draft, world: &World, current: i32, target: i32) {
    let newest = if world.children(target).is_empty() { current } else { target };
    let observed = draft.observed;
    follow(draft, world, observed.active.as_ref(), current);
    if !is_one_service(draft) {
        follow(draft, world, observed.preview.as_ref(), newest);
    }
}

/// One Service cannot follow two versions: the active one counts.
fn is_one_service(draft: &Draft) -> bool {
    let strategy = &draft.observed.owner.spec.update_strategy;
    strategy.active_service.is_some() && strategy.active_service == strategy.preview_service
}

fn follow(draft: &mut Draft, world: &World, service: Option<&ServiceView>, version: i32) {
    let Some(service) = service.filter(|service| service.exists && !service.is_foreign) else { return };
    if !draft.observed.owner.status.services.contains(&service.name) {
        // Noted before it is written: a Service whose selector is ours is never lost, whatever happens in between.
        if !draft.status.services.contains(&service.name) {
            draft.status.services.push(service.name.clone());
        }
        draft.wake_now();
        return;
    }
    if service.version.as_deref() == Some(version.to_string().as_str()) || world.children(version).is_empty() {
        return;
    }
    draft.act(VersionAction::Select { service: service.name.clone(), before: service.version.clone(), version });
    draft.wake_now();
}

/// A Service that is to be noted before it is written.
pub(super) fn coming<'a>(draft: &'a Draft) -> Option<&'a str> {
    let services = [&draft.observed.active, &draft.observed.preview].into_iter().flatten();
    let noted = &draft.observed.owner.status.services;
    services.map(|service| service.name.as_str()).find(|name| !noted.iter().any(|noted| noted == name))
}

/// What keeps a Service from following a version.
pub(super) fn unusable(draft: &Draft) -> Option<String> {
    let services = [("activeService", &draft.observed.active), ("previewService", &draft.observed.preview)];
    if is_one_service(draft) {
        return Some("spec.updateStrategy.activeService and previewService name the same Service: name two".to_owned());
    }
    services.into_iter().find_map(|(field, service)| {
        let service = service.as_ref()?;
        let name = &service.name;
        match service {
            ServiceView { exists: false, .. } => {
                Some(format!("spec.updateStrategy.{field}: Service {name} does not exist; make it or correct the name"))
            }
            ServiceView { is_foreign: true, .. } => Some(format!(
                "spec.updateStrategy.{field}: Service {name} selects a version that somebody else wrote; remove {} from its selector",
                names::VERSION
            )),
            _ => None,
        }
    })
}

/// Services that no field names any more are let go, whatever else there is to be said.
pub(super) fn release_former(draft: &mut Draft) {
    let observed = draft.observed;
    let noted = &observed.owner.status.services;
    for service in observed.former.iter().filter(|service| noted.contains(&service.name)) {
        if is_ours(service) {
            let note = format!("Service {} is not named any more: no version stays in its selector", service.name);
            draft.normal(Reason::ServiceReleased, &note);
            draft.act(VersionAction::Free { service: service.name.clone() });
        }
        // One that is gone or somebody else's is no business of ours.
        draft.status.services.retain(|name| *name != service.name);
    }
}

/// A Service that is there, with a selector that we wrote.
pub(super) fn is_ours(service: &ServiceView) -> bool {
    service.exists && service.is_ours
}
