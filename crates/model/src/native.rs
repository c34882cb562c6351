//! The StatefulSet controller, restated from the project's notes (native-statefulset B1–B7, B9). One call is one sync. It must do
//! what the real one does, also where that is not what anybody wants.

use std::collections::BTreeMap;

use sts_plus_decide::{RefusedPod, Strategy};

use crate::{
    tale::{Deed, Who},
    world::{Pod, Set, SetStatus, World, stamp, template_of},
};

/// The update section by version and feature gate (B9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// `MaxUnavailableStatefulSet` off: 1.24–1.34, 1.35.4+, 1.36.
    GateOff,
    /// 1.35.0–1.35.3: every unavailable pod uses the budget, so Parallel no longer heals broken pods.
    Gate135,
    /// 1.37: Parallel replaces old broken pods at once, healthy ones within the budget.
    Gate137,
}

/// What one sync did to the pods.
enum Walk {
    /// It waits; the update section is not reached.
    Waits,
    /// All slots are as they should be.
    Done,
}

impl World {
    /// One sync of the set `name`. True if anything changed.
    pub fn sync(&mut self, name: &str) -> bool {
        if self.controller_down {
            return false;
        }
        let Some(mut set) = self.sets.remove(name) else { return false };
        let before = (set.pods.clone(), set.status.clone(), set.revisions.len());
        let mut status = Self::revisions(&mut set);
        // B6: what this sync makes and deletes is not counted until the next one.
        count(&set, &mut status);
        // B1: slots first, then the update section, the status last.
        let walk = self.walk(&mut set, &status);
        if matches!(walk, Walk::Done) && set.strategy == Strategy::RollingUpdate {
            self.update(&mut set, &mut status);
        }
        self.complete(&set, &mut status);
        set.status = status;
        let changed = before != (set.pods.clone(), set.status.clone(), set.revisions.len());
        self.sets.insert(name.to_owned(), set);
        changed
    }

    /// B2: only the template makes a revision, an equal one is found again (O10), and a current revision that is lost becomes the
    /// update revision.
    fn revisions(set: &mut Set) -> SetStatus {
        let update = set.wanted();
        set.revisions.insert(update.clone());
        let current = set.status.current.clone().filter(|current| set.revisions.contains(current));
        let current = current.unwrap_or_else(|| update.clone());
        // History keeps the current one, the update one, and what some pod still carries (a limit of 0, the worst case).
        let pods = &set.pods;
        set.revisions
            .retain(|kept| *kept == current || *kept == update || pods.values().any(|pod| pod.revision == *kept));
        SetStatus {
            observed_generation: set.generation,
            current: Some(current),
            update: Some(update),
            ..set.status.clone()
        }
    }

    /// B1, B5: create and wait slot by slot, then remove what is outside the range.
    fn walk(&mut self, set: &mut Set, status: &SetStatus) -> Walk {
        let monotonic = !set.parallel;
        for ordinal in set.ordinals() {
            match set.pods.get(&ordinal) {
                None => {
                    if !self.is_granted(set, status, ordinal) {
                        // An error ends the sync.
                        return Walk::Waits;
                    }
                    self.create(set, status, ordinal);
                    if monotonic {
                        return Walk::Waits;
                    }
                }
                Some(pod) if monotonic && !pod.is_available(set.min_ready, self.now) => return Walk::Waits,
                Some(_) => {}
            }
        }
        self.shrink(set, monotonic)
    }

    /// What the API server says to a pod; the controller tells a refusal in an event.
    fn is_granted(&self, set: &mut Set, status: &SetStatus, ordinal: i32) -> bool {
        let name = set.pod_name(ordinal);
        let before = set.refused.iter().position(|refused| refused.name == name).map(|at| set.refused.remove(at));
        let Some(why) = self.refusal(set, status, ordinal) else { return true };
        let since = before.map_or(stamp(self.now), |refused| refused.since);
        let message = format!("pods \"{name}\" is forbidden: {why}");
        set.refused.insert(0, RefusedPod { name, since, last: stamp(self.now), message });
        false
    }

    /// The quota of pods, or a template that no pod can be made of.
    fn refusal(&self, set: &Set, status: &SetStatus, ordinal: i32) -> Option<&'static str> {
        if self.refused_templates.contains(&template_of(&revision_for(set, status, ordinal))) {
            return Some("error looking up service account ns/shop: serviceaccount \"shop\" not found");
        }
        self.quota.filter(|most| set.pods.len() >= *most).map(|_| "exceeded quota: few")
    }

    fn shrink(&mut self, set: &mut Set, monotonic: bool) -> Walk {
        let range: Vec<i32> = set.ordinals().collect();
        let first_unhealthy = set.pods.iter().find(|(_, pod)| !pod.is_healthy()).map(|(ordinal, _)| *ordinal);
        let condemned: Vec<i32> = set.pods.keys().copied().filter(|o| !range.contains(o)).rev().collect();
        for ordinal in condemned {
            let Some(pod) = set.pods.get(&ordinal) else { continue };
            if pod.gone_at.is_some() {
                if monotonic {
                    return Walk::Waits;
                }
                continue;
            }
            if monotonic && !pod.is_available(set.min_ready, self.now) && first_unhealthy != Some(ordinal) {
                return Walk::Waits;
            }
            self.evict(set, ordinal, Who::Native);
            self.ledger.condemned(&set.name, ordinal);
            if monotonic {
                return Walk::Waits;
            }
        }
        Walk::Done
    }

    fn create(&mut self, set: &mut Set, status: &SetStatus, ordinal: i32) {
        let revision = revision_for(set, status, ordinal);
        let health = self.release(template_of(&revision)).health;
        let uid = self.next_uid();
        self.ledger.created(set, ordinal, &revision);
        self.tell(Deed::Created(set.pod_name(ordinal), uid, revision.clone()));
        let pod = Pod { uid, revision, created: self.now, health, ready: false, since: self.now, gone_at: None };
        set.pods.insert(ordinal, pod);
    }

    /// A plain DELETE.
    pub(crate) fn evict(&mut self, set: &mut Set, ordinal: i32, who: Who) {
        let gone_at = self.now + self.grace;
        let name = set.pod_name(ordinal);
        if let Some(pod) = set.pods.get_mut(&ordinal).filter(|pod| pod.gone_at.is_none()) {
            pod.gone_at = Some(gone_at);
            self.ledger.deleted(&set.name, ordinal, &pod.revision);
            self.tell(Deed::Deleted(who, name));
        }
    }

    /// B5: the update section, by version.
    fn update(&mut self, set: &mut Set, status: &mut SetStatus) {
        let doomed = match (self.native, set.parallel) {
            (Loop::Gate135, _) => self.within_budget(set, status),
            (Loop::Gate137, true) => self.two_phases(set, status),
            (Loop::GateOff, _) | (Loop::Gate137, false) => self.one_at_a_time(set, status),
        };
        for ordinal in doomed {
            self.evict(set, ordinal, Who::Native);
            // B6: decremented for a pod of a third revision as well.
            status.current_replicas -= 1;
        }
    }

    /// From the top slot down to the partition: the first that is off is deleted; an unavailable one on the way ends the sync.
    fn one_at_a_time(&self, set: &Set, status: &SetStatus) -> Vec<i32> {
        for (ordinal, pod) in open_slots(set) {
            if pod.gone_at.is_none() && status.update.as_ref() != Some(&pod.revision) {
                return vec![ordinal];
            }
            if !pod.is_available(set.min_ready, self.now) {
                break;
            }
        }
        Vec::new()
    }

    /// 1.35.0: all slots count, and at the budget (1) nothing is deleted.
    fn within_budget(&self, set: &Set, status: &SetStatus) -> Vec<i32> {
        if self.unavailable(set) >= 1 {
            return Vec::new();
        }
        off(set, status).map(|(ordinal, _)| ordinal).take(1).collect()
    }

    /// 1.37, Parallel: the broken ones together, without a budget; then healthy ones within it.
    fn two_phases(&self, set: &Set, status: &SetStatus) -> Vec<i32> {
        let broken: Vec<i32> = off(set, status)
            .filter(|(_, pod)| !pod.is_available(set.min_ready, self.now))
            .map(|(ordinal, _)| ordinal)
            .collect();
        if !broken.is_empty() {
            return broken;
        }
        self.within_budget(set, status)
    }

    fn unavailable(&self, set: &Set) -> usize {
        set.ordinals().filter(|o| set.pods.get(o).is_none_or(|pod| !pod.is_available(set.min_ready, self.now))).count()
    }

    /// B6: only counters are read, neither the partition nor availability.
    fn complete(&mut self, set: &Set, status: &mut SetStatus) {
        let all = set.replicas;
        let full = [status.updated_replicas, status.ready, status.replicas].iter().all(|count| *count == all);
        if full && set.strategy == Strategy::RollingUpdate && status.current != status.update {
            status.current.clone_from(&status.update);
            status.current_replicas = status.updated_replicas;
            self.tell(Deed::Current(status.update.clone().unwrap_or_default()));
        }
    }
}

/// B3, B4: the slot, not the ordinal, is compared with the partition (O11); without one a stale counter decides.
fn revision_for(set: &Set, status: &SetStatus, ordinal: i32) -> String {
    let slot = ordinal - set.start;
    let old = set.strategy == Strategy::RollingUpdate
        && match set.partition {
            Some(partition) => slot < partition,
            None => slot < set.status.current_replicas,
        };
    let revision = if old { &status.current } else { &status.update };
    revision.clone().unwrap_or_default()
}

/// Slots at or above the partition that have a pod, from the top.
fn open_slots(set: &Set) -> impl Iterator<Item = (i32, &Pod)> {
    let open = set.ordinals().rev().filter(|ordinal| ordinal - set.start >= set.threshold());
    open.filter_map(|ordinal| Some((ordinal, set.pods.get(&ordinal)?)))
}

/// Those of them that can be rolled.
fn off<'a>(set: &'a Set, status: &'a SetStatus) -> impl Iterator<Item = (i32, &'a Pod)> {
    open_slots(set).filter(|(_, pod)| pod.gone_at.is_none() && status.update.as_ref() != Some(&pod.revision))
}

/// B6: replicas and ready count terminating pods, the revision counters do not.
fn count(set: &Set, status: &mut SetStatus) {
    let pods: &BTreeMap<i32, Pod> = &set.pods;
    let number = |is: &dyn Fn(&Pod) -> bool| i32::try_from(pods.values().filter(|pod| is(pod)).count()).unwrap_or(0);
    let staying =
        |pod: &Pod, revision: &Option<String>| pod.gone_at.is_none() && revision.as_ref() == Some(&pod.revision);
    status.replicas = number(&|_| true);
    status.ready = number(&|pod| pod.ready);
    let (current, update) = (status.current.clone(), status.update.clone());
    status.current_replicas = number(&|pod| staying(pod, &current));
    status.updated_replicas = number(&|pod| staying(pod, &update));
}
