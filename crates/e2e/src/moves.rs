//! Who allowed each pod to move: found out from a tape alone, from UIDs, partitions and verdicts with their times.
//!
//! A pod has moved when it was made anew on another revision. It was allowed to when the operator had written, before the pod began
//! to leave, a partition that opens its index for that very revision; and it came through the gate when enough consecutive checks
//! had passed before that write and after the step before it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use sts_plus_api::names;

use crate::world::{annotation_of, image_of, partition_of, revision_of, uid_of};
use crate::{Entry, Scene, Seen};

/// A pod that was made anew on another revision.
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
    /// Resource version with which it was made anew.
    pub made: u64,
    /// The step that allowed it; missing if nothing did.
    pub allowed: Option<Step>,
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
    /// The consecutive passed tries at the end of those between the step before and this one.
    pub passes: usize,
    /// When the last of these tries was made.
    pub last_try: Option<Timestamp>,
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
        let index: i32 = name.rsplit_once('-').and_then(|(_, index)| index.parse().ok()).unwrap_or_default();
        let left = self.left.unwrap_or(made);
        let opens = |step: &&Step| step.version < left && step.revision == revision_of(pod) && step.partition <= index;
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
    let tries = tries(entries);
    let mut steps: Vec<Step> = Vec::new();
    let mut written = BTreeMap::new();
    for entry in entries {
        let Seen::Set(set) = &entry.seen else { continue };
        let name = set.metadata.name.clone().unwrap_or_default();
        let Some(record) = annotation_of(set, names::WRITTEN_PARTITION).map(str::to_owned) else { continue };
        if written.insert(name, record.clone()) == Some(record.clone()) {
            continue;
        }
        let Some((revision, partition)) = record.rsplit_once('/') else { continue };
        let partition: i32 = partition.parse().unwrap_or(-1);
        assert_eq!(partition_of(set), Some(partition), "the record is written together with the partition");
        let after = steps.last().map_or(Timestamp::MIN, |step| step.seen);
        let between = tries.range(after..entry.arrived).rev();
        let passed: Vec<_> = between.take_while(|(_, passed)| **passed).collect();
        steps.push(Step {
            version: entry.version,
            seen: entry.arrived,
            revision: revision.to_owned(),
            partition,
            passes: passed.len(),
            last_try: passed.first().map(|(time, _)| **time),
        });
    }
    steps
}

/// Every try that a status told of, by its time: whether all of its queries passed.
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

/// Fails if a pod moved off `good` without the operator's step for that revision and `threshold` consecutive passes before it.
pub fn assert_gated(entries: &[Entry], good: &str, threshold: usize) -> Vec<Move> {
    let moves = of(entries);
    for moved in moves.iter().filter(|moved| moved.from == good) {
        let Some(step) = &moved.allowed else { panic!("nobody allowed {moved:?}") };
        assert!(step.passes >= threshold, "{} moved after {} passed checks: {moved:?}", moved.pod, step.passes);
    }
    moves
}

/// Fails if a pod moved that nobody allowed to. Back to `good`, the last good revision, a pod may move at any time.
pub fn assert_allowed(entries: &[Entry], good: &str) -> Vec<Move> {
    let moves = of(entries);
    for moved in moves.iter().filter(|moved| moved.to != good) {
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
    assert_gated(&scene.tape.entries(), "app:1", 2);
}
