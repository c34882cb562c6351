//! What users do to the world.

use sts_plus_model::{Health, Metric, Set};

use super::world::World;

impl World {
    pub fn bad(&mut self, content: &str, is_bad: bool) {
        if is_bad {
            self.bad.insert(content.to_owned());
        } else {
            self.bad.remove(content);
        }
        self.behave();
    }

    /// What kept pods of this content from being Ready is gone, also for those that are there.
    pub fn heal(&mut self, content: &str) {
        self.bad(content, false);
        let ill: Vec<(String, i32)> = self
            .native
            .sets
            .iter()
            .flat_map(|(name, set)| set.pods.iter().map(move |(ordinal, pod)| (name, *ordinal, pod)))
            .filter(|(_, _, pod)| !pod.ready && self.carried(&pod.revision).1 == content)
            .map(|(name, ordinal, _)| (name.clone(), ordinal))
            .collect();
        for (name, ordinal) in ill {
            if let Some(pod) = self.native.sets.get_mut(&name).and_then(|set| set.pods.get_mut(&ordinal)) {
                pod.health = Health::ReadyAfter(0);
            }
        }
    }

    pub fn metric(&mut self, content: &str, metric: Metric) {
        self.metrics.insert(content.to_owned(), metric);
    }

    /// A hand at a StatefulSet.
    pub fn edit(&mut self, name: &str, change: impl FnOnce(&mut Set)) {
        let now = self.native.now;
        let Some(set) = self.native.sets.get_mut(name) else { return };
        let before = (set.template, set.replicas, set.partition);
        change(set);
        if before != (set.template, set.replicas, set.partition) {
            set.generation += 1;
            set.changed = now;
        }
        if set.partition != before.2 {
            set.writer = Some("kubectl".to_owned());
            if set.partition < before.2 {
                self.ledger.opened_by_hand.insert(name.to_owned());
            }
        }
    }

    /// An image that the template does not say.
    pub fn edit_image(&mut self, name: &str) {
        let Some(version) = self.marks.get(name).map(|marks| marks.version) else { return };
        let template = self.template_number(version, "x");
        self.edit(name, |set| set.template = template);
    }

    /// Its pods go with it.
    pub fn delete_set(&mut self, name: &str) {
        self.native.sets.remove(name);
        self.marks.remove(name);
        self.ledger.good.remove(name);
        if self.status.last_version == 0 {
            self.forget_numbers();
        }
    }

    /// Without a status, numbers are known from the StatefulSets and their pods alone.
    pub fn forget_numbers(&mut self) {
        let pods = self.native.sets.values().flat_map(|set| set.pods.values());
        let carried = pods.map(|pod| self.carried(&pod.revision).0);
        let highest = self.marks.values().map(|marks| marks.version).chain(carried).max().unwrap_or(0);
        self.ledger.numbers.retain(|version, _| *version <= highest);
    }

    pub fn delete_pod(&mut self, name: &str, ordinal: i32) {
        let gone_at = self.native.now + self.native.grace;
        if let Some(pod) = self.native.sets.get_mut(name).and_then(|set| set.pods.get_mut(&ordinal)) {
            pod.gone_at.get_or_insert(gone_at);
        }
    }

    /// A pod is not Ready for a moment.
    pub fn flake(&mut self, name: &str, ordinal: i32) {
        let now = self.native.now;
        if let Some(pod) = self.native.sets.get_mut(name).and_then(|set| set.pods.get_mut(&ordinal)) {
            (pod.ready, pod.since) = (false, now);
        }
    }
}
