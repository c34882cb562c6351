//! What a write has done is told when it is seen to be so, against the status of before: an operator that is killed between a write and
//! its event, or whose write came to pass without an answer, tells it all the same.

use sts_plus_api::{Reason, VersionCondition, VersionSet};

use crate::versions::{draft::Draft, plan::VersionAction, world::World};

/// Between the Services in a message.
const AND: &str = "; ";

/// StatefulSets that were not needed any more and are gone.
pub(super) fn removed(draft: &mut Draft, world: &World) {
    if world.is_in_place {
        return;
    }
    let (before, now) = (&draft.observed.owner.status, &draft.status);
    let target = now.upgrade.as_ref().map(|upgrade| upgrade.version);
    // What is wanted and gone was deleted by somebody else, which is told where it is made anew, or where another version is in charge.
    let is_wanted = |version: i32, set: &VersionSet| {
        [now.current_version, target].contains(&Some(version)) && world.zones.iter().any(|(zone, _)| *zone == set.zone)
    };
    let was_lost = |version: i32| before.current_version == Some(version) && now.current_version != Some(version);
    let is_there = |set: &VersionSet| draft.observed.children.iter().any(|child| child.name == set.name);
    let sets = before.details.iter().flat_map(|detail| detail.sets.iter().map(|set| (detail.version, set)));
    let gone = sets.filter(|(version, set)| !is_there(set) && !is_wanted(*version, set) && !was_lost(*version));
    let notes: Vec<_> = gone
        .map(|(_, set)| format!("StatefulSet {} was not needed any more and had no pods; it is deleted", set.name))
        .collect();
    for note in notes {
        draft.normal(Reason::VersionRemoved, &note);
    }
}

/// Services that select another version than before.
pub(super) fn switched(draft: &mut Draft) {
    let kind = VersionCondition::ServicesFollow.to_string();
    let before = draft.observed.owner.status.conditions.iter().find(|condition| condition.type_ == kind);
    let before = before.map(|condition| condition.message.as_str()).unwrap_or_default();
    let new: Vec<_> =
        selections(draft).into_iter().filter(|note| !before.split(AND).any(|told| told == note)).collect();
    for note in new {
        draft.normal(Reason::ServiceSwitched, &note);
    }
}

/// What the Services select, as the condition says it.
pub(super) fn selected(draft: &Draft) -> Option<String> {
    Some(selections(draft).join(AND)).filter(|message| !message.is_empty())
}

/// One line for each Service that selects what it should.
fn selections(draft: &Draft) -> Vec<String> {
    let services = [&draft.observed.active, &draft.observed.preview].into_iter().flatten();
    let is_changing = |name: &str| {
        draft.actions.iter().any(|action| matches!(action, VersionAction::Select { service, .. } if service == name))
    };
    let usable = services.filter(|service| service.exists && !service.is_foreign && !is_changing(&service.name));
    usable
        .filter_map(|service| Some(format!("Service {} selects version {}", service.name, service.version.as_ref()?)))
        .collect()
}
