//! In place, what the laws remember of each StatefulSet: what its status said, what people asked for, and which pods are away because of us.

use std::collections::BTreeSet;

use sts_plus_api::{OnFailure, PhasedRolloutStatus, Step};
use sts_plus_model::versions::World;
use sts_plus_model::versions::world::{BY_HAND, content_of};
use sts_plus_model::world::template_of;
use sts_plus_model::{Deed, Pod, Set, Who};

use super::{
    laws::{Act, Mind},
    moves::Deeds,
    places::Zone,
};

/// What a status says from now on.
pub fn status(mind: &mut Mind, act: &Act) {
    for (name, zone) in &mut mind.zones {
        let before = act.before.native.sets.get(name).map(Set::threshold);
        let after = act.after.native.sets.get(name).map(Set::threshold);
        if after < before {
            zone.begin_cycle();
        }
        let Some(status) = act.is else { continue };
        let empty = PhasedRolloutStatus::default();
        let Some(is) = status.rollouts.get(name) else { continue };
        let was = act.was.rollouts.get(name).unwrap_or(&empty);
        let failure = is.failure.as_ref().filter(|_| was.failure.is_none());
        if let Some(failure) = failure.filter(|failure| failure.policy == OnFailure::Pause) {
            zone.paused = Some(template_of(&failure.revision));
        }
        let begun =
            |status: &PhasedRolloutStatus| status.current.as_ref().is_some_and(|one| one.step == Step::Rollback);
        if begun(is) && !begun(was) {
            zone.gone_back.extend(act.seen.native.sets.get(name).map(|set| set.template));
        }
        if is.phase == sts_plus_api::Phase::Paused {
            zone.passes.clear();
            zone.ill_since = None;
        }
        if is.completion_time.is_some() && was.completion_time.is_none() {
            zone.begin_cycle();
            zone.has_moved = false;
        }
    }
}

/// What people ask for.
pub fn people(mind: &mut Mind, deed: Deeds, before: &World, after: &World) {
    if !after.is_in_place() {
        return;
    }
    let nth = |nth: u8| before.native.sets.keys().nth(usize::from(nth)).cloned();
    match deed {
        Deeds::Retry => {
            let has_failed = |name: &String| {
                let rollout = before.status.rollouts.get(name);
                rollout.is_some_and(|one| one.failure.is_some() || !one.rejected_revisions.is_empty())
            };
            for (name, zone) in mind.zones.iter_mut().filter(|(name, _)| has_failed(name)) {
                zone.begin_anew();
                zone.paused = None;
                if let Some(set) = after.native.sets.get(name) {
                    zone.gone_back.remove(&set.template);
                }
            }
        }
        Deeds::Scale(0) => {
            mind.zones.values_mut().for_each(|zone| (zone.paused, zone.gone_back) = (None, BTreeSet::new()));
        }
        Deeds::Delete(set, pod) | Deeds::Break(set, pod) => {
            if let Some(name) = nth(set) {
                mind.ours.remove(&(name, pod));
            }
        }
        Deeds::BreakAll(set) => {
            let name = nth(set).unwrap_or_default();
            mind.ours.retain(|(ours, _)| *ours != name);
        }
        Deeds::Partition(set, _) | Deeds::Image(set) => {
            let Some(name) = nth(set) else { return };
            let (Some(old), Some(new)) = (before.native.sets.get(&name), after.native.sets.get(&name)) else { return };
            let zone = mind.zones.entry(name).or_default();
            if new.threshold() < old.threshold() {
                zone.by_hand = true;
                zone.approved.extend((new.threshold()..new.replicas).map(|index| (new.template, index)));
            }
        }
        Deeds::ScaleSet(set, 0) => {
            let Some(name) = nth(set) else { return };
            let Some(set) = after.native.sets.get(&name) else { return };
            mind.zones.entry(name).or_default().approved.extend((0..8).map(|index| (set.template, index)));
        }
        _ => {}
    }
}

/// What is new, disturbed, ill, or back.
pub fn follow(mind: &mut Mind, before: &World, after: &World) {
    mind.zones.retain(|name, _| after.native.sets.contains_key(name));
    for (name, set) in &after.native.sets {
        let zone = mind.zones.entry(name.clone()).or_default();
        let old = before.native.sets.get(name);
        if old.is_none_or(|old| old.uid != set.uid) {
            *zone = Zone { template: set.template, ..Zone::default() };
            zone.approved.extend((0..8).map(|index| (set.template, index)));
        } else if zone.template != set.template && content_of(&set.wanted()) != BY_HAND {
            zone.template = set.template;
            zone.approved.clear();
            zone.begin_anew();
            zone.paused = None;
        }
        // A slot that a hand adds or takes for a moment disturbs no pod; one that is missing is looked at where it is opened.
        let is_there = |pod: &Pod| pod.is_available(set.min_ready, after.native.now);
        if set.pods.is_empty() || !set.pods.values().all(is_there) {
            zone.passes.clear();
        }
        let wanted = set.wanted();
        let is_ill = |pod: &Pod| pod.revision == wanted && !pod.is_healthy();
        let is_refused = set.refused.iter().any(|refused| !refused.message.contains("exceeded quota"));
        if set.pods.values().any(is_ill) || is_refused {
            zone.ill_since.get_or_insert(after.native.now);
        }
    }
    disturbed(mind, before, after);
}

fn disturbed(mind: &mut Mind, before: &World, after: &World) {
    for deed in after.native.tale.deeds() {
        match deed {
            Deed::Deleted(who @ (Who::Native | Who::Operator), pod) => {
                let Some((name, ordinal)) = pod.rsplit_once('-') else { continue };
                let ordinal: i32 = ordinal.parse().unwrap_or(0);
                let by_hand = mind.zones.get(name).is_some_and(|zone| zone.by_hand);
                let Some(old) = before.native.sets.get(name) else { continue };
                let was_well =
                    old.pods.get(&ordinal).is_some_and(|pod| pod.is_available(old.min_ready, after.native.now));
                if was_well && !(by_hand && *who == Who::Native) {
                    mind.ours.insert((name.to_owned(), ordinal));
                }
            }
            Deed::Created(pod, ..) => {
                let zone = pod.rsplit_once('-').and_then(|(name, _)| mind.zones.get_mut(name));
                if let Some(zone) = zone {
                    zone.has_moved = true;
                }
            }
            _ => {}
        }
    }
    mind.ours.retain(|(name, ordinal)| {
        after.native.sets.get(name).is_some_and(|set| {
            let is_there = set.pods.get(ordinal).is_some_and(|pod| pod.is_available(set.min_ready, after.native.now));
            set.ordinals().any(|at| at == *ordinal) && !is_there
        })
    });
}
