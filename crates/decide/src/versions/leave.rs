//! The beginning and the end of an ExtendedStatefulSet. The finalizer is there from the start and always: without it the garbage collector
//! would take all pods along with the definition before anybody is asked.

use sts_plus_api::Reason;

use crate::versions::{
    draft::Draft,
    plan::{VersionAction, VersionsPlan},
    services::is_ours,
    world::World,
};

/// The finalizer comes first: nothing is made before it is sure that it can be let go again.
pub(super) fn guard(mut draft: Draft) -> VersionsPlan {
    draft.act(VersionAction::AddFinalizer);
    draft.wake_now();
    draft.unchanged()
}

/// StatefulSets that stayed when an object of this name went are taken in before anything else is decided: they go on as they are.
pub(super) fn adopt(mut draft: Draft) -> VersionsPlan {
    for orphan in &draft.observed.orphans {
        let note =
            format!("StatefulSet {} carries our marks and belonged to nobody: it is taken in as it is", orphan.name);
        draft.normal(Reason::ChildAdopted, &note);
        draft.act(VersionAction::Adopt { name: orphan.name.clone(), uid: orphan.uid.clone() });
    }
    draft.wake_now();
    draft.unchanged()
}

/// It is being deleted: its Services are let go, its StatefulSets as well if they are to stay, and then the object itself.
pub(super) fn go(mut draft: Draft, world: &World) -> VersionsPlan {
    let observed = draft.observed;
    if !observed.owner.has_finalizer {
        return draft.unchanged();
    }
    let with_pods = world.versions().filter(|version| world.has_pods(*version)).count();
    // Where pods of several versions stay, a Service without a version would reach those that are not verified.
    let is_needed = observed.keeps_children && with_pods > 1;
    let mut services: Vec<_> = observed.active.iter().chain(&observed.preview).chain(&observed.former).collect();
    services.sort_by(|a, b| a.name.cmp(&b.name));
    services.dedup_by(|a, b| a.name == b.name);
    for service in services.into_iter().filter(|service| is_ours(service) && !is_needed) {
        draft.act(VersionAction::Free { service: service.name.clone() });
    }
    if observed.keeps_children {
        // What its versions were made from is of no use to anybody else.
        for version in observed.kept.keys() {
            draft.act(VersionAction::Forget { version: *version });
        }
        draft.act(VersionAction::Orphan);
    }
    draft.act(VersionAction::RemoveFinalizer);
    draft.unchanged()
}
