//! The first act as it is seen, kept and told: each change of the StatefulSet, its pods and its PhasedRollout becomes a line.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::{apps::v1::StatefulSet, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use sts_plus_api::{
    CheckRecord, ConditionType, Phase, PhasedRollout, PhasedRolloutStatus, Reason, Step, Verdict, names,
};

use crate::{
    played,
    seen::{Change, Changes},
    stage::Stage,
    tell::{Teller, Tone},
    watch::{Watch, Watched},
};

/// A pod as it was seen last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodSeen {
    pub(crate) uid: String,
    pub(crate) tag: String,
    pub(crate) ready: bool,
    pub(crate) leaving: bool,
}

/// The StatefulSet as it was seen last.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetSeen {
    pub(crate) partition: i32,
    pub(crate) replicas: i32,
    tag: String,
}

/// What happened, for the summary.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Pods in the order in which they became Ready: name, tag, UID.
    pub(crate) ready: Vec<(String, String, String)>,
    /// The partition each time that it changed.
    pub(crate) partitions: Vec<i32>,
    /// Verdicts that were told.
    pub(crate) checks: usize,
}

/// The namespace of the demo, watched.
pub(crate) struct Scene<'a> {
    pub(crate) watch: Watch<'a>,
    pub(crate) pods: BTreeMap<String, PodSeen>,
    pub(crate) set: SetSeen,
    pub(crate) record: Record,
    status: PhasedRolloutStatus,
    threshold: i32,
    tries: i32,
    told_until: Timestamp,
    has_told_the_write: bool,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(stage: &'a Stage, tell: &'a Teller, changes: Changes) -> Self {
        Self {
            watch: Watch::new(stage, tell, changes),
            pods: BTreeMap::new(),
            set: SetSeen::default(),
            record: Record::default(),
            status: PhasedRolloutStatus::default(),
            threshold: 0,
            tries: 0,
            told_until: Timestamp::MIN,
            has_told_the_write: false,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.status.phase
    }

    /// Whether a dry run has shown that the API server keeps the hold.
    pub(crate) fn is_enforced(&self) -> bool {
        self.enforced().is_some_and(|condition| condition.status == "True")
    }

    /// True once it is known for good: policies act only some moments after they were installed.
    pub(crate) fn is_enforcement_settled(&self) -> bool {
        let never = Reason::PolicyNotServed.to_string();
        self.enforced().is_some_and(|condition| condition.status == "True" || condition.reason == never)
    }

    fn enforced(&self) -> Option<&Condition> {
        let wanted = ConditionType::HoldEnforced.to_string();
        self.status.conditions.iter().find(|condition| condition.type_ == wanted)
    }

    /// True if there are all pods, each Ready and with this tag.
    pub(crate) fn all_carry(&self, tag: &str) -> bool {
        let whole = i32::try_from(self.pods.len()).is_ok_and(|count| count == self.set.replicas);
        whole && self.pods.values().all(|pod| pod.tag == tag && pod.ready && !pod.leaving)
    }

    fn take_set(&mut self, set: &StatefulSet) {
        let spec = set.spec.clone().unwrap_or_default();
        let strategy = spec.update_strategy.unwrap_or_default().rolling_update.unwrap_or_default();
        let image = spec.template.spec.and_then(|pod| pod.containers.into_iter().next()?.image);
        let seen = SetSeen {
            partition: strategy.partition.unwrap_or(0),
            replicas: spec.replicas.unwrap_or(1),
            tag: tag(image.as_deref()),
        };
        let before = std::mem::replace(&mut self.set, seen);
        if before.partition == self.set.partition {
            return;
        }
        self.record.partitions.push(self.set.partition);
        let (partition, replicas) = (self.set.partition, self.set.replicas);
        let in_one_write = partition == names::HOLD && before.tag != self.set.tag;
        let why = if in_one_write {
            "held by the API server".to_owned()
        } else if partition == names::HOLD {
            "held".to_owned()
        } else if partition >= replicas {
            "at rest".to_owned()
        } else {
            format!("web-{partition} may roll")
        };
        let text = format!("{partition:<10}  {}  {why}", self.picture());
        self.line(Timestamp::now(), Tone::Moved, "partition", text);
        if in_one_write && !self.has_told_the_write {
            self.has_told_the_write = true;
            let version = set.metadata.resource_version.as_deref().unwrap_or("?");
            let text = format!(
                "one write (resourceVersion {version}): kubectl changed the image, policy sts-plus-hold the partition"
            );
            self.line(Timestamp::now(), Tone::Moved, "", text);
        }
    }

    /// The pods in their order, with a bar where the partition is: what is right of it may roll.
    fn picture(&self) -> String {
        let bar = self.set.partition.min(self.set.replicas);
        let place = |index| {
            let mark = if index == bar { "┃ " } else { "  " };
            if index == self.set.replicas {
                return mark.to_owned();
            }
            let name = format!("web-{index}");
            let tag = self.pods.get(&name).map_or("", |pod| &pod.tag);
            format!("{mark}{name} {tag:<6} ")
        };
        (0..=self.set.replicas).map(place).collect()
    }

    fn take_pod(&mut self, pod: &Pod) -> anyhow::Result<()> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let seen = pod_seen(pod);
        let before = self.pods.insert(name.clone(), seen.clone()).unwrap_or_default();
        played::play(self.watch.stage, &name, &seen.tag)?;
        let same = before.uid == seen.uid;
        if seen.leaving && same && !before.leaving {
            self.line(
                Timestamp::now(),
                Tone::Plain,
                "pod",
                format!("{name}  {:<6}  terminating  uid {}", seen.tag, short(&seen.uid)),
            );
        }
        if seen.ready && !seen.leaving && !(same && before.ready) {
            self.record.ready.push((name.clone(), seen.tag.clone(), seen.uid.clone()));
            self.line(
                Timestamp::now(),
                Tone::Plain,
                "pod",
                format!("{name}  {:<6}  Ready        uid {}", seen.tag, short(&seen.uid)),
            );
        }
        Ok(())
    }

    fn take_gone(&mut self, pod: &Pod) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        if self.pods.get(&name).is_some_and(|seen| seen.uid == pod_seen(pod).uid) {
            self.pods.remove(&name);
        }
    }

    async fn take_rollout(&mut self, rollout: PhasedRollout) -> anyhow::Result<()> {
        (self.threshold, self.tries) = (rollout.spec.check.success_threshold, rollout.spec.check.max_tries);
        let status = rollout.status.unwrap_or_default();
        let before = std::mem::replace(&mut self.status, status);
        // A verdict belongs to the step that was going on before it.
        let step = before.current.as_ref().or(self.status.current.as_ref()).map(|current| current.step);
        let news: Vec<CheckRecord> =
            self.status.checks.iter().filter(|check| check.time > self.told_until).cloned().collect();
        for check in &news {
            self.told_until = check.time;
            let goes_on = before.phase == Phase::Failed;
            self.take_check(check, step, goes_on).await?;
        }
        let repairs = |status: &PhasedRolloutStatus| status.current.as_ref().is_some_and(|it| it.step == Step::Repair);
        if repairs(&self.status) && !repairs(&before) {
            self.line(Timestamp::now(), Tone::Moved, "repair", Teller::fitted(&self.status.message));
        }
        let notable = [Phase::Held, Phase::Failed, Phase::Blocked, Phase::Completed];
        if before.phase != self.status.phase && notable.contains(&self.status.phase) {
            let tone = if self.status.phase == Phase::Completed { Tone::Good } else { Tone::Bad };
            let text = Teller::fitted(&format!("{}: {}", self.status.phase_name(), self.status.message));
            self.line(Timestamp::now(), tone, "phase", text);
        }
        Ok(())
    }

    async fn take_check(&mut self, check: &CheckRecord, step: Option<Step>, goes_on: bool) -> anyhow::Result<()> {
        self.record.checks += 1;
        let value = match check.series.first() {
            Some(series) => series.value.clone(),
            None => played::value(self.watch.stage, &check.pod).await?,
        };
        let data = data(check.verdict);
        let current = self.status.current.as_ref().filter(|it| Some(it.step) == step && it.pod == check.pod);
        // With the last pass the step is over, and its counters are gone.
        let passes = current.map_or(0, |it| it.consecutive_passes);
        let passes = if passes == 0 { self.threshold } else { passes };
        let (tone, verdict) = match current {
            _ if check.passed => (Tone::Good, format!("pass {passes}/{}", self.threshold)),
            Some(it) if !goes_on => (Tone::Bad, format!("FAIL, try {} of {}", it.tries, self.tries)),
            _ => (Tone::Bad, "FAIL".to_owned()),
        };
        let note = match step {
            Some(Step::Preflight) => "  before anything moves",
            Some(Step::Final) => "  after the last pod",
            _ if goes_on => "  held, still asking",
            _ => "",
        };
        let text = format!(
            "{}  {}   value {value:<3} {data:<8} {}{}",
            check.pod,
            check.query,
            self.watch.tell.paint(tone, &verdict),
            self.watch.tell.paint(Tone::Dim, note)
        );
        self.line(check.time, tone, "check", text);
        Ok(())
    }

    fn line(&mut self, time: Timestamp, tone: Tone, kind: &'static str, text: String) {
        self.watch.lines.push(time, tone, kind, text);
    }
}

impl<'a> Watched<'a> for Scene<'a> {
    fn watch(&mut self) -> &mut Watch<'a> {
        &mut self.watch
    }

    async fn take(&mut self, change: Change) -> anyhow::Result<()> {
        match change {
            Change::Set(set) => self.take_set(&set),
            Change::Pod(pod) => self.take_pod(&pod)?,
            Change::Gone(pod) => self.take_gone(&pod),
            Change::Rollout(rollout) => self.take_rollout(*rollout).await?,
            Change::SetGone(_) | Change::Extended(_) => {}
        }
        Ok(())
    }

    fn stand(&self) -> String {
        format!("{}: {}", self.status.phase_name(), self.status.message)
    }
}

trait PhaseName {
    fn phase_name(&self) -> String;
}

impl PhaseName for PhasedRolloutStatus {
    fn phase_name(&self) -> String {
        format!("{:?}", self.phase)
    }
}

/// What a verdict is in a line.
pub(crate) fn data(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Data => "data",
        Verdict::NoData => "no data",
        Verdict::Unproven => "no metric",
        Verdict::Error => "error",
    }
}

pub(crate) fn pod_seen(pod: &Pod) -> PodSeen {
    let image = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.as_deref());
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready =
        |condition: &k8s_openapi::api::core::v1::PodCondition| condition.type_ == "Ready" && condition.status == "True";
    PodSeen {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        tag: tag(image),
        ready: conditions.is_some_and(|conditions| conditions.iter().any(is_ready)),
        leaving: pod.metadata.deletion_timestamp.is_some(),
    }
}

/// What follows the colon of an image.
pub(crate) fn tag(image: Option<&str>) -> String {
    image.and_then(|image| image.rsplit_once(':')).map_or("", |(_, tag)| tag).to_owned()
}

/// Enough of a UID to tell pods apart.
pub(crate) fn short(uid: &str) -> &str {
    uid.split('-').next().unwrap_or(uid)
}
