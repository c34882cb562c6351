//! A tape as a story: one line for each thing that a person would tell, in the order in which it was written.
//!
//! Revisions are told by the image of their pods. A verdict is told where it counts: before the partition that was written because
//! of it, although the status that holds it is written after that (hold first, status second). That it was indeed there before is
//! not told by this order but proven by [`crate::moves`], from times.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sts_plus_api::{CheckRecord, ExtendedStatefulSet, PhasedRollout, PhasedRolloutStatus, Step, names};

use crate::world::{annotation_of, image_of, is_ready, partition_of, template_image, uid_of};
use crate::{Entry, Seen};

/// A line of a story, with the resource version of what it tells.
#[derive(Clone, Debug)]
pub struct Line {
    /// Resource version.
    pub version: u64,
    /// The line.
    pub text: String,
}

/// The whole story.
pub fn tell(entries: &[Entry]) -> String {
    lines(entries).into_iter().map(|line| line.text).collect::<Vec<_>>().join("\n")
}

/// The lines of the story from `version` on.
pub fn since(entries: &[Entry], version: u64) -> Vec<String> {
    lines(entries).into_iter().filter(|line| line.version > version).map(|line| line.text).collect()
}

/// The lines of the story.
pub fn lines(entries: &[Entry]) -> Vec<Line> {
    let mut teller = Teller::default();
    for entry in entries {
        teller.hear(entry);
    }
    teller.lines
}

#[derive(Default)]
struct Teller {
    lines: Vec<Line>,
    sets: BTreeMap<String, SetTold>,
    pods: BTreeMap<String, (String, bool)>,
    rollouts: BTreeMap<String, PhasedRolloutStatus>,
    extended: BTreeMap<String, String>,
    /// Where the last step of the operator was told that no status has followed yet.
    step: Option<usize>,
}

#[derive(Clone, Default, PartialEq)]
struct SetTold {
    image: String,
    partition: Option<i32>,
    replicas: Option<i32>,
    strategy: String,
    claim: Option<String>,
    written: Option<String>,
    flipped: bool,
}

impl Teller {
    fn say(&mut self, entry: &Entry, text: String) {
        self.lines.push(Line { version: entry.version, text });
    }

    fn hear(&mut self, entry: &Entry) {
        match &entry.seen {
            Seen::Set(set) => self.hear_set(entry, set),
            Seen::Pod(pod) => self.hear_pod(entry, pod),
            Seen::Rollout(rollout) => self.hear_rollout(entry, rollout),
            Seen::Extended(owner) => self.hear_extended(entry, owner),
        }
    }

    fn hear_set(&mut self, entry: &Entry, set: &k8s_openapi::api::apps::v1::StatefulSet) {
        let name = set.metadata.name.clone().unwrap_or_default();
        if entry.gone {
            self.sets.remove(&name);
            return self.say(entry, format!("{name} is deleted"));
        }
        let now = told_of(set);
        let is_new = !self.sets.contains_key(&name);
        let before = self.sets.insert(name.clone(), now.clone()).unwrap_or_default();
        let mut news = Vec::new();
        if before.image != now.image {
            news.push(now.image.clone());
        }
        if before.replicas != now.replicas {
            news.push(format!("replicas {}", now.replicas.unwrap_or(1)));
        }
        if before.strategy != now.strategy && !(is_new && now.strategy == "RollingUpdate") {
            news.push(now.strategy.clone());
        }
        if before.partition != now.partition {
            news.push(format!("partition {}", partition(now.partition)));
        }
        if before.claim != now.claim {
            news.push(now.claim.as_ref().map_or("released".to_owned(), |claim| format!("claimed by {claim}")));
        }
        if !news.is_empty() {
            self.say(entry, format!("{name}: {}", news.join(", ")));
        }
        if before.written != now.written && now.written.is_some() && !news.is_empty() {
            self.step = Some(self.lines.len() - 1);
        }
        if !before.flipped && now.flipped && before.image == now.image {
            self.say(entry, format!("{name}: {} is the current revision", now.image));
        }
    }

    fn hear_pod(&mut self, entry: &Entry, pod: &k8s_openapi::api::core::v1::Pod) {
        let (name, uid) = (pod.metadata.name.clone().unwrap_or_default(), uid_of(pod));
        if entry.gone {
            if self.pods.remove(&name).is_some() {
                self.say(entry, format!("{name} is gone ({})", image_of(pod)));
            }
            return;
        }
        let known = self.pods.get(&name).filter(|(known, _)| *known == uid).cloned();
        let ready = is_ready(pod);
        if known.is_none() {
            self.say(entry, format!("{name} is made ({})", image_of(pod)));
        }
        let was_ready = known.is_some_and(|(_, ready)| ready);
        if ready && !was_ready {
            self.say(entry, format!("{name} is Ready"));
        }
        if !ready && was_ready && pod.metadata.deletion_timestamp.is_none() {
            self.say(entry, format!("{name} is not Ready"));
        }
        self.pods.insert(name, (uid, ready));
    }

    fn hear_rollout(&mut self, entry: &Entry, rollout: &PhasedRollout) {
        let name = rollout.metadata.name.clone().unwrap_or_default();
        if entry.gone {
            self.rollouts.remove(&name);
            return self.say(entry, format!("{name} is deleted"));
        }
        let Some(status) = rollout.status.clone() else { return };
        let before = self.rollouts.insert(name.clone(), status.clone()).unwrap_or_default();
        let verdicts = verdicts(&before, &status);
        let place = self.step.take().filter(|_| !verdicts.is_empty()).unwrap_or(self.lines.len());
        let version = self.lines.get(place).map_or(entry.version, |line| line.version);
        let lines = verdicts.into_iter().map(|text| Line { version, text });
        self.lines.splice(place..place, lines);
        let stand = |status: &PhasedRolloutStatus| stand(format!("{:?}", status.phase), &status.conditions);
        let (was, is) = (stand(&before), stand(&status));
        if was != is {
            self.say(entry, format!("{name}: {is}"));
        }
    }

    fn hear_extended(&mut self, entry: &Entry, owner: &ExtendedStatefulSet) {
        let name = owner.metadata.name.clone().unwrap_or_default();
        if entry.gone {
            self.extended.remove(&name);
            return self.say(entry, format!("{name} is deleted"));
        }
        let Some(status) = &owner.status else { return };
        let is = stand(format!("{:?}", status.phase), &status.conditions);
        if self.extended.insert(name.clone(), is.clone()).as_ref() != Some(&is) {
            self.say(entry, format!("{name}: {is}"));
        }
    }
}

fn told_of(set: &k8s_openapi::api::apps::v1::StatefulSet) -> SetTold {
    let spec = set.spec.clone().unwrap_or_default();
    let status = set.status.clone().unwrap_or_default();
    let strategy = spec.update_strategy.and_then(|strategy| strategy.type_).unwrap_or_default();
    SetTold {
        image: template_image(set).to_owned(),
        partition: partition_of(set),
        replicas: spec.replicas,
        strategy,
        claim: annotation_of(set, names::CLAIM).map(str::to_owned),
        written: annotation_of(set, names::WRITTEN_PARTITION).map(str::to_owned),
        flipped: status.current_revision.is_some() && status.current_revision == status.update_revision,
    }
}

fn partition(partition: Option<i32>) -> String {
    match partition {
        None => "removed".to_owned(),
        Some(names::HOLD) => "HOLD".to_owned(),
        Some(number) => number.to_string(),
    }
}

/// Phase, and the reason where it says more.
fn stand(phase: String, conditions: &[Condition]) -> String {
    let reason = conditions.iter().find(|condition| condition.type_ == "Ready").map(|c| c.reason.as_str());
    match reason {
        Some(reason) if reason != phase => format!("{phase} ({reason})"),
        _ => phase,
    }
}

/// The verdicts that `after` has and `before` has not, with how far their cycle had come by them.
fn verdicts(before: &PhasedRolloutStatus, after: &PhasedRolloutStatus) -> Vec<String> {
    let is_new = |record: &&CheckRecord| !before.checks.contains(record);
    let new: Vec<_> = after.checks.iter().filter(is_new).collect();
    let cycle = before.current.as_ref();
    let step = match cycle.map(|current| current.step) {
        Some(Step::Preflight) | None => "preflight",
        Some(Step::Final) => "final",
        _ => "pod",
    };
    let tell = |record: &&CheckRecord| {
        let verdict = if record.passed { "passed" } else { "not passed" };
        format!("check {step} {}: {:?}, {verdict}", record.pod, record.verdict)
    };
    new.iter().map(tell).collect()
}
