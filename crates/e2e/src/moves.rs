//! Who allowed each pod to move: found out from UIDs and partitions of a tape, and from what Prometheus answered.
//!
//! A pod has moved when it was recreated on another revision. It was allowed to when the operator had written, before the pod began
//! to leave, a partition that opens its index for that very revision; and it came through the gate when enough consecutive checks
//! had passed before that write and after the step before it, in the words of Prometheus and not in those of the operator.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use sts_plus_api::names;

use crate::world::{annotation_of, image_of, partition_of, revision_of, start_of, uid_of};
use crate::{Asked, Entry, Scene, Seen};

/// A pod that was recreated on another revision.
#[derive(Clone, Debug)]
pub struct Move {
    /// Its name.
    pub pod: String,
    /// The image that it had.
    pub from: String,
    /// The image that it has.
    pub to: String,
    /// Resource version with which it began to leave.
    pub left: u64,
    /// Resource version with which it was recreated.
    pub made: u64,
    /// The step that allowed it; missing if nothing did.
    pub allowed: Option<Step>,
}

impl Move {
    fn assert_passed(&self, asked: &[Asked], threshold: usize) {
        let Some(step) = &self.allowed else { panic!("nobody allowed {self:?}") };
        let passes = step.passes(asked);
        assert!(passes >= threshold, "{} moved after {passes} passed checks: {self:?}\n{asked:#?}", self.pod);
    }
}

/// A partition that the operator wrote.
#[derive(Clone, Debug)]
pub struct Step {
    /// Resource version.
    pub version: u64,
    /// When it was seen: somewhat after it was written.
    pub seen: Timestamp,
    /// The revision for which it was written.
    pub revision: String,
    /// The partition.
    pub partition: i32,
    /// The ordinal of the first pod.
    pub start: i32,
    /// When the step before of the same set was seen.
    pub before: Timestamp,
}

impl Step {
    /// Whether the pod with this ordinal is to be recreated: partitions count from the first pod.
    fn opens(&self, ordinal: i32) -> bool {
        i64::from(self.partition) + i64::from(self.start) <= i64::from(ordinal)
    }

    /// The consecutive answers that are passes, at the end of those between the step before and this one.
    pub fn passes(&self, asked: &[Asked]) -> usize {
        let between = asked.iter().rev().filter(|asked| (self.before..self.seen).contains(&asked.at));
        between.take_while(|asked| asked.has_passed()).count()
    }
}

/// All moves, in their order.
pub fn of(entries: &[Entry]) -> Vec<Move> {
    let steps = steps(entries);
    let mut all = Vec::new();
    let mut lives: BTreeMap<&str, Life> = BTreeMap::new();
    for entry in entries {
        let Seen::Pod(pod) = &entry.seen else { continue };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let leaves = entry.gone || pod.metadata.deletion_timestamp.is_some();
        match lives.get_mut(name) {
            Some(life) if life.uid == uid_of(pod) => {
                if leaves && life.left.is_none() {
                    life.left = Some(entry.version);
                }
            }
            _ => {
                let before = lives.insert(name, Life::new(pod));
                let moved = before.filter(|before| before.revision != revision_of(pod));
                all.extend(moved.map(|before| before.became(pod, entry.version, &steps)));
            }
        }
    }
    all
}

struct Life<'a> {
    uid: String,
    revision: &'a str,
    image: &'a str,
    left: Option<u64>,
}

impl<'a> Life<'a> {
    fn new(pod: &'a Pod) -> Self {
        Self { uid: uid_of(pod), revision: revision_of(pod), image: image_of(pod), left: None }
    }

    fn became(&self, pod: &Pod, made: u64, steps: &[Step]) -> Move {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let ordinal =
            name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok()).expect("a pod has an ordinal");
        let left = self.left.unwrap_or(made);
        let opens = |step: &&Step| step.version < left && step.revision == revision_of(pod) && step.opens(ordinal);
        Move {
            from: self.image.to_owned(),
            to: image_of(pod).to_owned(),
            left,
            made,
            allowed: steps.iter().rfind(opens).cloned(),
            pod: name,
        }
    }
}

/// The partitions that the operator wrote: those that came together with its own record of them.
pub fn steps(entries: &[Entry]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // The last record of each set, and when it was seen.
    let mut written: BTreeMap<String, (String, Timestamp)> = BTreeMap::new();
    for entry in entries {
        let Seen::Set(set) = &entry.seen else { continue };
        let name = set.metadata.name.clone().unwrap_or_default();
        let Some(record) = annotation_of(set, names::WRITTEN_PARTITION).map(str::to_owned) else { continue };
        let last = written.get(&name);
        if last.is_some_and(|(last, _)| *last == record) {
            continue;
        }
        let Some((revision, partition)) = record.rsplit_once('/') else { continue };
        let partition: i32 = partition.parse().unwrap_or(-1);
        assert_eq!(partition_of(set), Some(partition), "the record is written together with the partition");
        steps.push(Step {
            version: entry.version,
            seen: entry.arrived,
            revision: revision.to_owned(),
            partition,
            start: start_of(set),
            before: last.map_or(Timestamp::MIN, |(_, seen)| *seen),
        });
        written.insert(name, (record, entry.arrived));
    }
    steps
}

/// Every try that a status told of, by its time: whether all of its queries passed. This is what the operator says; what it was told is
/// [`Scene::asked`].
pub fn tries(entries: &[Entry]) -> BTreeMap<Timestamp, bool> {
    let mut tries = BTreeMap::new();
    for entry in entries {
        let Seen::Rollout(rollout) = &entry.seen else { continue };
        for record in rollout.status.iter().flat_map(|status| &status.checks) {
            let passed = tries.entry(record.time).or_insert(true);
            *passed &= record.passed;
        }
    }
    tries
}

/// Fails if a pod moved off `good` without the operator's step for that revision and `threshold` consecutive passes before it, or if none
/// moved off it at all.
pub fn assert_gated(scene: &Scene, good: &str, threshold: usize) -> Vec<Move> {
    assert_gated_by(&scene.asked(), &scene.tape.entries(), good, threshold)
}

/// The same of what was recorded and heard before.
pub fn assert_gated_by(asked: &[Asked], entries: &[Entry], good: &str, threshold: usize) -> Vec<Move> {
    let moves = of(entries);
    let gated: Vec<_> = moves.iter().filter(|moved| moved.from == good).collect();
    assert!(!gated.is_empty(), "no pod has moved off {good}: {moves:#?}");
    assert_passed(gated, asked, threshold);
    moves
}

/// Fails if nobody allowed one of them, or before there were `threshold` consecutive passes.
pub fn assert_passed<'a>(moves: impl IntoIterator<Item = &'a Move>, asked: &[Asked], threshold: usize) {
    for moved in moves {
        moved.assert_passed(asked, threshold);
    }
}

/// Fails if a pod moved that nobody allowed to, or if none moved. Back to `good`, the last good revision, a pod may move at any time.
pub fn assert_allowed(entries: &[Entry], good: &str) -> Vec<Move> {
    let moves = of(entries);
    let forward: Vec<_> = moves.iter().filter(|moved| moved.to != good).collect();
    assert!(!forward.is_empty(), "no pod has moved but back to {good}: {moves:#?}");
    for moved in forward {
        assert!(moved.allowed.is_some(), "nobody allowed {moved:?}");
    }
    moves
}

/// Releases `app:2`, and `app:3` once the first pod is on it. Fails unless the operator itself then held the set before its next step.
pub async fn assert_second_template_held(scene: &Scene) {
    scene.release("app:2").await;
    scene.until("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2")).await;
    scene.release("app:3").await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    let story = scene.story();
    let after = story.split_once("web: app:3\n").map_or("", |(_, after)| after);
    let (hold, step) = (after.find("web: partition HOLD"), after.find("web: partition 1"));
    assert!(hold.is_some() && hold < step, "held by the operator, after the change\n{story}");
    // Only a pod that was open already can have slipped: those on the last good revision come through the gate.
    assert_gated(scene, "app:1", 2);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    /// A set of three pods from ordinal 5, at these partitions of revision `b` one after the other, a second apart; then `web-7` and
    /// `web-6` are recreated on it.
    fn entries(partitions: &[i32]) -> Vec<Entry> {
        let mut all = Vec::new();
        let mut add = |gone: bool, seen: Seen| {
            let version = all.len() as u64 + 1;
            all.push(Entry { version, arrived: second(version), gone, seen });
        };
        for partition in partitions {
            let set = json!({
                "metadata": { "name": "web", "annotations": { names::WRITTEN_PARTITION: format!("b/{partition}") } },
                "spec": {
                    "ordinals": { "start": 5 }, "selector": {}, "template": {},
                    "updateStrategy": { "rollingUpdate": { "partition": partition } },
                },
            });
            add(false, Seen::Set(Arc::new(serde_json::from_value(set).expect("a set"))));
        }
        for (name, gone, revision) in
            ["web-7", "web-6"].iter().flat_map(|name| [(name, false, "a"), (name, true, "a"), (name, false, "b")])
        {
            let pod = json!({
                "metadata": { "name": name, "uid": format!("{name}{revision}"), "labels": { "controller-revision-hash": revision } },
            });
            add(gone, Seen::Pod(Arc::new(serde_json::from_value(pod).expect("a pod"))));
        }
        all
    }

    fn second(second: u64) -> Timestamp {
        Timestamp::from_second(i64::try_from(second).expect("a second")).expect("a time")
    }

    fn allowed(partitions: &[i32]) -> Vec<Option<i32>> {
        of(&entries(partitions)).into_iter().map(|moved| moved.allowed.map(|step| step.partition)).collect()
    }

    #[test]
    fn partitions_count_from_the_first_pod_and_not_from_ordinal_zero() {
        assert_eq!(allowed(&[names::HOLD]), [None, None]);
        assert_eq!(allowed(&[3]), [None, None], "at rest");
        assert_eq!(allowed(&[3, 2]), [Some(2), None], "the last pod alone");
        assert_eq!(allowed(&[3, 2, 1]), [Some(1), Some(1)]);
    }

    #[test]
    #[should_panic(expected = "no pod has moved off app:1")]
    fn where_no_pod_has_moved_off_the_good_release_nothing_is_shown() {
        assert_gated_by(&[], &entries(&[3, 2, 1]), "app:1", 0);
    }

    #[test]
    fn a_step_has_the_passes_since_the_one_before_without_what_was_before_a_failure() {
        let asked = |at: u64, series: Option<usize>| Asked { at: second(at), query: String::new(), series };
        let step = steps(&entries(&[3, 2])).pop().expect("a step");
        let passes = |heard: &[Asked]| step.passes(heard);
        assert_eq!((step.before, step.seen), (second(1), second(2)));
        assert_eq!(passes(&[]), 0);
        assert_eq!(passes(&[asked(0, Some(0)), asked(1, Some(0)), asked(1, Some(0)), asked(2, Some(0))]), 2);
        assert_eq!(passes(&[asked(1, Some(0)), asked(1, Some(1)), asked(1, Some(0))]), 1);
        assert_eq!(passes(&[asked(1, Some(0)), asked(1, None)]), 0, "no answer is no pass");
    }
}
