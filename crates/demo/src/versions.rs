//! The second act as it is seen, kept and told: each change of the ExtendedStatefulSet, its StatefulSets and their pods becomes a line.

use std::collections::BTreeMap;

use anyhow::bail;
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use sts_plus_api::{CheckRecord, ExtendedStatefulSet, ExtendedStatefulSetStatus, VersionPhase, names};

use crate::{
    played,
    scene::{PodSeen, data, pod_seen, short, tag},
    second_act::PODS,
    seen::{Change, Changes},
    stage::Stage,
    tell::{Teller, Tone},
    watch::{Watch, Watched},
};

/// The StatefulSet of a version as it was seen last.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetSeen {
    pub(crate) replicas: i32,
    pub(crate) stale: bool,
    tag: String,
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Pods in the order in which they became Ready: name, tag, UID.
    pub(crate) ready: Vec<(String, String, String)>,
    /// Verdicts that were told.
    pub(crate) checks: usize,
    /// The most pods that were Ready at the same moment, by version.
    pub(crate) most: BTreeMap<String, usize>,
    /// How many pods each StatefulSet was to have, one after the other, and when it was seen.
    pub(crate) wanted: BTreeMap<String, Vec<(i32, Timestamp)>>,
    /// When each pod had passed as many checks in a row as are needed.
    pub(crate) passed: BTreeMap<String, Timestamp>,
    /// True once two versions had all their pods Ready at the same moment.
    pub(crate) beside: bool,
}

/// The ExtendedStatefulSet, watched.
pub(crate) struct Versions<'a> {
    pub(crate) watch: Watch<'a>,
    pub(crate) pods: BTreeMap<String, PodSeen>,
    pub(crate) sets: BTreeMap<String, SetSeen>,
    pub(crate) status: ExtendedStatefulSetStatus,
    pub(crate) record: Record,
    generation: Option<i64>,
    of: BTreeMap<String, String>,
    checked: Counted,
    told_until: Timestamp,
}

/// The checks of one canary so far.
#[derive(Debug, Default)]
struct Counted {
    pod: String,
    tries: i32,
    passes: i32,
    threshold: i32,
    limit: i32,
}

impl<'a> Versions<'a> {
    pub(crate) fn new(stage: &'a Stage, tell: &'a Teller, changes: Changes) -> Self {
        Self {
            watch: Watch::new(stage, tell, changes),
            pods: BTreeMap::new(),
            sets: BTreeMap::new(),
            status: ExtendedStatefulSetStatus::default(),
            record: Record::default(),
            generation: None,
            of: BTreeMap::new(),
            checked: Counted::default(),
            told_until: Timestamp::MIN,
        }
    }

    /// How many pods a StatefulSet was to have, one after the other.
    pub(crate) fn wanted(&self, set: &str) -> Vec<i32> {
        self.record.wanted.get(set).into_iter().flatten().map(|(count, _)| *count).collect()
    }

    /// True if a pod had passed its checks before the StatefulSet was to have that many pods. The operator runs on this machine, so the
    /// clock is the same.
    pub(crate) fn has_passed_before(&self, pod: &str, set: &str, count: i32) -> bool {
        let times = self.record.wanted.get(set).into_iter().flatten();
        let seen = times.filter(|(wanted, _)| *wanted == count).map(|(_, seen)| *seen).min();
        seen.zip(self.record.passed.get(pod)).is_some_and(|(seen, passed)| *passed <= seen)
    }

    /// True if the status is about the spec as it is now, and says this.
    pub(crate) fn is(&self, phase: VersionPhase) -> bool {
        self.generation.is_some() && self.status.observed_generation == self.generation && self.status.phase == phase
    }

    /// True if this version alone is there, with all its pods.
    pub(crate) fn is_only(&self, version: i32) -> bool {
        let versions = BTreeMap::from([(version.to_string(), true)]);
        let alone = self.status.versions == versions && self.sets.len() == 1;
        alone && self.is(VersionPhase::Ready) && self.ready(version) == PODS && self.pods.len() == PODS
    }

    /// How many pods of a version are Ready.
    pub(crate) fn ready(&self, version: i32) -> usize {
        self.ready_by_version().get(version.to_string().as_str()).copied().unwrap_or_default()
    }

    /// The condition is True.
    pub(crate) fn has(&self, kind: &str) -> bool {
        self.status.conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
    }

    /// The UIDs of the pods of a version, by name.
    pub(crate) fn uids(&self, version: i32) -> BTreeMap<String, String> {
        let version = version.to_string();
        let pods = self.pods.iter().filter(|(name, _)| self.of.get(*name) == Some(&version));
        pods.map(|(name, pod)| (name.clone(), pod.uid.clone())).collect()
    }

    fn take_set(&mut self, set: &StatefulSet) {
        let annotations = set.metadata.annotations.clone().unwrap_or_default();
        // The StatefulSet of the first act is still there.
        if !annotations.contains_key(names::VERSION) {
            return;
        }
        let name = set.metadata.name.clone().unwrap_or_default();
        let spec = set.spec.clone().unwrap_or_default();
        let image = spec.template.spec.and_then(|pod| pod.containers.into_iter().next()?.image);
        let seen = SetSeen {
            replicas: spec.replicas.unwrap_or(1),
            stale: annotations.get(names::STALE).is_some_and(|stale| stale == "true"),
            tag: tag(image.as_deref()),
        };
        let before = self.sets.insert(name.clone(), seen.clone());
        if before.as_ref().is_none_or(|before| before.replicas != seen.replicas) {
            self.record.wanted.entry(name.clone()).or_default().push((seen.replicas, Timestamp::now()));
            let what = match (before, seen.replicas) {
                (None, 0) => "made, without pods".to_owned(),
                (None, count) => format!("made, {count} pods wanted"),
                (_, 1) => "1 pod wanted: the canary".to_owned(),
                (_, 0) => "no pods wanted".to_owned(),
                (_, count) => format!("{count} pods wanted"),
            };
            self.line(Tone::Moved, "set", format!("{name:<7}  {:<6}  {what}", seen.tag));
        } else if seen.stale && before.is_some_and(|before| !before.stale) {
            self.line(Tone::Bad, "set", format!("{name:<7}  {:<6}  marked {}: \"true\"", seen.tag, names::STALE));
        }
    }

    fn take_pod(&mut self, pod: &Pod) -> anyhow::Result<()> {
        let Some(version) = version_of(pod) else { return Ok(()) };
        let name = pod.metadata.name.clone().unwrap_or_default();
        let seen = pod_seen(pod);
        let before = self.pods.insert(name.clone(), seen.clone()).unwrap_or_default();
        self.of.insert(name.clone(), version);
        played::play(self.watch.stage, &name, &seen.tag)?;
        let same = before.uid == seen.uid;
        let text = |what: &str| format!("{name}  {:<6}  {what:<11}  uid {}", seen.tag, short(&seen.uid));
        if seen.leaving && same && !before.leaving {
            self.line(Tone::Plain, "pod", text("terminating"));
        }
        if seen.ready && !seen.leaving && !(same && before.ready) {
            self.line(Tone::Plain, "pod", text("Ready"));
            self.record.ready.push((name.clone(), seen.tag.clone(), seen.uid.clone()));
        }
        self.count()
    }

    fn take_gone(&mut self, pod: &Pod) -> anyhow::Result<()> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        if self.pods.get(&name).is_some_and(|seen| seen.uid == pod_seen(pod).uid) {
            self.pods.remove(&name);
        }
        self.count()
    }

    fn ready_by_version(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (name, _) in self.pods.iter().filter(|(_, pod)| pod.ready && !pod.leaving) {
            if let Some(version) = self.of.get(name) {
                *counts.entry(version.clone()).or_default() += 1;
            }
        }
        counts
    }

    /// What holds at every moment, not only when somebody looks: some version has all its pods once one had.
    fn count(&mut self) -> anyhow::Result<()> {
        let counts = self.ready_by_version();
        let was_whole = self.record.most.values().any(|most| *most >= PODS);
        let whole: Vec<&String> = counts.iter().filter(|(_, count)| **count >= PODS).map(|(name, _)| name).collect();
        if was_whole && whole.is_empty() {
            bail!("no version has all its pods: {counts:?}");
        }
        if let [old, new, ..] = whole.as_slice()
            && !std::mem::replace(&mut self.record.beside, true)
        {
            let text = format!("versions {old} and {new} have all {PODS} pods Ready, both of them");
            self.line(Tone::Good, "beside", text);
        }
        for (version, count) in counts {
            let most = self.record.most.entry(version).or_default();
            *most = count.max(*most);
        }
        Ok(())
    }

    async fn take_owner(&mut self, owner: ExtendedStatefulSet) -> anyhow::Result<()> {
        self.generation = owner.metadata.generation;
        if let Some(check) = owner.spec.update_strategy.check {
            (self.checked.threshold, self.checked.limit) = (check.success_threshold, check.max_tries);
        }
        let before = std::mem::replace(&mut self.status, owner.status.unwrap_or_default());
        let news = self.status.checks.iter().filter(|check| check.time > self.told_until);
        for check in news.cloned().collect::<Vec<_>>() {
            self.told_until = check.time;
            self.take_check(&check).await?;
        }
        if before.current_version.is_some() && before.current_version != self.status.current_version {
            let version = self.status.current_version.unwrap_or_default();
            self.line(Tone::Good, "promoted", format!("version {version} is in charge"));
        }
        let notable = [VersionPhase::Ready, VersionPhase::Failed, VersionPhase::Held, VersionPhase::Blocked];
        if before.phase != self.status.phase && notable.contains(&self.status.phase) {
            let tone = if self.status.phase == VersionPhase::Ready { Tone::Good } else { Tone::Bad };
            let text = Teller::fitted(&format!("{:?}: {}", self.status.phase, self.status.message));
            self.line(tone, "phase", text);
        }
        Ok(())
    }

    async fn take_check(&mut self, check: &CheckRecord) -> anyhow::Result<()> {
        self.record.checks += 1;
        if self.checked.pod != check.pod {
            let Counted { threshold, limit, .. } = self.checked;
            self.checked = Counted { pod: check.pod.clone(), threshold, limit, ..Counted::default() };
        }
        self.checked.tries += 1;
        self.checked.passes = if check.passed { self.checked.passes + 1 } else { 0 };
        let Counted { tries, passes, threshold, limit, .. } = self.checked;
        if passes == threshold {
            self.record.passed.insert(check.pod.clone(), check.time);
        }
        let value = match check.series.first() {
            Some(series) => series.value.clone(),
            None => played::value(self.watch.stage, &check.pod).await?,
        };
        let (tone, verdict) = if check.passed {
            (Tone::Good, format!("pass {passes}/{threshold}"))
        } else {
            (Tone::Bad, format!("FAIL, try {tries} of {limit}"))
        };
        let text = format!(
            "{}  {}   value {value:<3} {:<8} {}",
            check.pod,
            check.query,
            data(check.verdict),
            self.watch.tell.paint(tone, &verdict)
        );
        self.watch.lines.push(check.time, tone, "check", text);
        Ok(())
    }

    fn line(&mut self, tone: Tone, kind: &'static str, text: String) {
        self.watch.lines.push(Timestamp::now(), tone, kind, text);
    }
}

impl<'a> Watched<'a> for Versions<'a> {
    fn watch(&mut self) -> &mut Watch<'a> {
        &mut self.watch
    }

    async fn take(&mut self, change: Change) -> anyhow::Result<()> {
        match change {
            Change::Set(set) => self.take_set(&set),
            Change::SetGone(set) => {
                let name = set.metadata.name.unwrap_or_default();
                if self.sets.remove(&name).is_some() {
                    self.line(Tone::Moved, "set", format!("{name:<7}  gone"));
                }
            }
            Change::Pod(pod) => self.take_pod(&pod)?,
            Change::Gone(pod) => self.take_gone(&pod)?,
            Change::Extended(owner) => self.take_owner(*owner).await?,
            Change::Rollout(_) => {}
        }
        Ok(())
    }

    fn stand(&self) -> String {
        format!("{:?}: {}", self.status.phase, self.status.message)
    }
}

/// The version that a pod belongs to; `None` for a pod of the first act.
fn version_of(pod: &Pod) -> Option<String> {
    pod.metadata.labels.as_ref()?.get(names::VERSION).cloned()
}
