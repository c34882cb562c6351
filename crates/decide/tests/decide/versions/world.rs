//! The world: one ExtendedStatefulSet, its children, and the operator that carries out plans.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sts_plus_api::{CheckRecord, ExtendedStatefulSetStatus, Reason, Verdict};
use sts_plus_decide::{
    Action, CheckRequest, ChildView, OwnerView, ServiceView, TemplateView, Try, VersionAction, VersionsObserved,
    VersionsPlan, decide_versions,
};

use super::{laws::Ledger, native::Native};
use crate::owner::Owner;

pub const START: i64 = 1_750_000_000;

#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct World {
    pub now: Timestamp,
    pub owner: Owner,
    pub status: ExtendedStatefulSetStatus,
    /// Zones that no node carries: no pod comes up there.
    pub empty_zones: Vec<String>,
    /// Zones that no node carries any more: what runs there runs on, and nothing comes up.
    pub closed_zones: Vec<String>,
    /// Templates that are kept.
    pub kept: BTreeMap<i32, String>,
    pub children: Vec<ChildView>,
    pub foreign: Vec<String>,
    pub active: Option<ServiceView>,
    pub preview: Option<ServiceView>,
    /// Services that no field names any more.
    pub former: Vec<ServiceView>,
    pub has_finalizer: bool,
    pub deleting: bool,
    pub keeps_children: bool,
    pub serves_policies: bool,
    /// StatefulSets that were let go.
    pub orphans: Vec<String>,
    pub abandoned: Vec<String>,
    pub min_ready_seconds: i32,
    /// Digests whose pods never become Ready.
    pub bad: BTreeSet<String>,
    /// Digests whose checks do not pass.
    pub failing: BTreeSet<String>,
    /// What Prometheus answers in turn, in place of that; then from the first again.
    pub answers: Option<&'static [Verdict]>,
    /// Tries that were made.
    pub asked: Cell<usize>,
    pub events: Vec<(Reason, String)>,
    pub ledger: Ledger,
    pub uids: u32,
    pub native: Native,
    /// When the last plan wants to be asked again.
    pub wake: Option<Timestamp>,
}

/// What a person needs to see of it when a law is broken.
impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExtendedStatefulSetStatus { phase, message, current_version, last_version, upgrade, .. } = &self.status;
        writeln!(f, "\n{} wants {} {} {:?}", self.now, self.owner.hash, self.owner.spec, self.owner.annotations)?;
        writeln!(f, "bad {:?} failing {:?} foreign {:?} wake {:?}", self.bad, self.failing, self.foreign, self.wake)?;
        writeln!(f, "{phase:?}: {message}; {current_version:?} of {last_version} {upgrade:?}")?;
        for child in &self.children {
            let pods: Vec<_> = child.pods.iter().map(|pod| (pod.ordinal, pod.ready, pod.deleting)).collect();
            writeln!(f, "{} {} {} of {} {:?}", child.name, child.hash, child.generation, child.replicas, child.stale)?;
            writeln!(f, "  (ordinal, ready, leaves) {pods:?}")?;
        }
        Ok(())
    }
}

impl World {
    /// Three replicas of template h1, and the fields of `strategy` in `spec.updateStrategy`.
    pub fn new(strategy: &Value) -> Self {
        Self {
            now: Timestamp::from_second(START).unwrap(),
            owner: Owner::new(strategy),
            status: ExtendedStatefulSetStatus::default(),
            children: Vec::new(),
            kept: BTreeMap::new(),
            empty_zones: Vec::new(),
            closed_zones: Vec::new(),
            foreign: Vec::new(),
            active: None,
            preview: None,
            former: Vec::new(),
            has_finalizer: true,
            deleting: false,
            keeps_children: false,
            serves_policies: true,
            orphans: Vec::new(),
            abandoned: Vec::new(),
            min_ready_seconds: 0,
            bad: BTreeSet::new(),
            failing: BTreeSet::new(),
            answers: None,
            asked: Cell::new(0),
            events: Vec::new(),
            ledger: Ledger::default(),
            uids: 0,
            native: Native::default(),
            wake: None,
        }
    }

    /// The zones that no node carries.
    pub fn uncarried(&self) -> Vec<String> {
        [self.empty_zones.clone(), self.closed_zones.clone()].concat()
    }

    pub fn observe(&self, tried: Option<Try>) -> VersionsObserved {
        VersionsObserved {
            owner: OwnerView {
                deleting: self.deleting,
                has_finalizer: self.has_finalizer,
                ..self.owner.view(&self.status)
            },
            template: TemplateView { min_ready_seconds: self.min_ready_seconds, ..self.owner.template_view() },
            children: self.children.clone(),
            kept: self.kept.clone(),
            orphans: Vec::new(),
            abandoned: self.abandoned.clone(),
            foreign: self.foreign.clone(),
            active: self.active.clone(),
            preview: self.preview.clone(),
            former: self.former.clone(),
            keeps_children: self.keeps_children,
            serves_policies: self.serves_policies,
            config: Vec::new(),
            empty_zones: self.uncarried(),
            tried,
        }
    }

    /// What is decided now, after a try if one is due. The same input must give the same plan.
    pub fn plan(&self) -> VersionsPlan {
        let decided = |tried| {
            let observed = self.observe(tried);
            let plan = decide_versions(&observed, self.now);
            assert_eq!(plan, decide_versions(&observed, self.now), "the same input gave another plan");
            plan
        };
        let plan = decided(None);
        let Some(request) = &plan.check else { return plan };
        assert!(plan.actions.is_empty() && plan.events.is_empty(), "a try comes alone: {plan:?}");
        assert_eq!(plan.status, self.status, "a try comes alone");
        let answered = decided(Some(self.answer(request)));
        assert_eq!(answered.check, None, "an answer is followed by a step, not by a question");
        answered
    }

    fn answer(&self, request: &CheckRequest) -> Try {
        let verdict = self.verdict(&request.key.revision);
        let passed = verdict == Verdict::NoData;
        let record = CheckRecord {
            time: self.now,
            name: "q".into(),
            pod: request.variables.get("pod").cloned().expect("a check is about a pod"),
            query: "errors > 0".into(),
            endpoint: "http://prom:9090".into(),
            verdict,
            passed,
            message: if passed { "no errors".into() } else { "too many errors".into() },
            http_status: Some(200),
            series_count: u32::from(!passed),
            series: Vec::new(),
        };
        Try {
            request: request.key.clone(),
            time: self.now,
            records: vec![record],
            config: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn verdict(&self, hash: &str) -> Verdict {
        let at = self.asked.replace(self.asked.get() + 1);
        let in_turn = self.answers.and_then(|answers| answers.iter().cycle().nth(at).copied());
        in_turn.unwrap_or(if self.failing.contains(hash) { Verdict::Data } else { Verdict::NoData })
    }

    /// One round of the operator. True if it had nothing to do and nothing new to say.
    pub fn round(&mut self) -> bool {
        self.round_until(usize::MAX)
    }

    /// A round in which the operator crashes after so many writes; the write of the status is the last one.
    pub fn round_until(&mut self, writes: usize) -> bool {
        let plan = self.plan();
        self.judge(&plan);
        let is_quiet = plan.actions.is_empty() && plan.events.is_empty() && plan.status == self.status;
        let mut status = plan.status.clone();
        for action in plan.actions.iter().take(writes) {
            self.carry_out(action, &mut status);
        }
        if plan.actions.len() < writes {
            self.events.extend(plan.events.iter().map(|event| (event.reason, event.note.clone())));
            self.status = status;
            self.wake = plan.wake;
            self.judge_rest(&plan);
        } else {
            self.wake = None;
        }
        is_quiet
    }

    /// One write. The generation after it is put into the status, so that a write of somebody else is noticed.
    fn carry_out(&mut self, action: &VersionAction, status: &mut ExtendedStatefulSetStatus) {
        let written = match action {
            VersionAction::Create { name, zone, version, replicas } => {
                if !self.has(name) && !self.foreign.contains(name) {
                    let child = self.born(name, zone.clone(), *version, *replicas);
                    self.children.push(child);
                }
                name
            }
            VersionAction::Apply { name, replicas, .. } | VersionAction::Scale { name, replicas, .. } => {
                let child = self.child_mut(name);
                child.replicas = *replicas;
                child.generation += 1;
                name
            }
            VersionAction::Mark { name, stale, .. } => {
                self.child_mut(name).stale.clone_from(stale);
                name
            }
            VersionAction::Remember { version } => {
                self.kept.insert(*version, self.owner.hash.clone());
                return;
            }
            VersionAction::Forget { version } => {
                self.kept.remove(version);
                return;
            }
            VersionAction::Roll(action) => {
                self.roll(action);
                return;
            }
            VersionAction::Delete { name, .. } => {
                self.children.retain(|child| child.name != *name);
                name
            }
            VersionAction::Select { service, version, .. } => {
                assert!(self.has_finalizer && self.status.services.contains(service), "noted before it is written");
                self.write_service(service, Some(&version.to_string()));
                return;
            }
            VersionAction::Free { service } => {
                self.write_service(service, None);
                return;
            }
            VersionAction::AddFinalizer | VersionAction::RemoveFinalizer => {
                self.has_finalizer = *action == VersionAction::AddFinalizer;
                return;
            }
            VersionAction::Adopt { .. } => panic!("nobody was lost"),
            VersionAction::Orphan => {
                self.orphans = self.children.iter().map(|child| child.name.clone()).collect();
                return;
            }
        };
        let Some(child) = self.children.iter().find(|child| child.name == *written) else { return };
        let sets = status.details.iter_mut().flat_map(|detail| &mut detail.sets);
        sets.filter(|set| set.name == child.name).for_each(|set| set.generation = child.generation);
    }

    /// One write, without a plan.
    pub fn carry_out_alone(&mut self, action: &VersionAction) {
        let mut status = self.status.clone();
        self.carry_out(action, &mut status);
    }

    /// A surplus pod that the StatefulSet controller does not remove.
    fn roll(&mut self, action: &Action) {
        let Action::DeletePod { name, uid } = action else { panic!("in place only: {action:?}") };
        let end = self.now + SignedDuration::from_secs(30);
        let pods = self.children.iter_mut().flat_map(|child| &mut child.pods);
        for pod in pods.filter(|pod| pod.name == *name && pod.uid == *uid && !pod.deleting) {
            (pod.deleting, pod.gone_by) = (true, Some(end));
        }
    }

    fn write_service(&mut self, name: &str, version: Option<&str>) {
        let services = [self.active.as_mut(), self.preview.as_mut()].into_iter().flatten().chain(&mut self.former);
        for found in services.filter(|found| found.name == *name) {
            (found.is_ours, found.version) = (version.is_some(), version.map(str::to_owned));
        }
    }

    fn born(&mut self, name: &str, zone: Option<String>, version: i32, replicas: i32) -> ChildView {
        self.uids += 1;
        ChildView {
            name: name.to_owned(),
            uid: format!("uid-{}", self.uids),
            zone,
            version,
            hash: self.kept.get(&version).unwrap_or(&self.owner.hash).clone(),
            settings: "s".into(),
            generation: 1,
            deleting: false,
            replicas,
            min_ready_seconds: self.min_ready_seconds,
            selector: format!("version={version}"),
            stale: None,
            pods: Vec::new(),
            refused: None,
            changed: None,
            in_the_way: None,
            mislabelled: None,
            set: None,
        }
    }

    pub fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// To the time at which the operator wants to be asked again, at least a second on.
    pub fn pass_to_wake(&mut self) {
        let later = self.now + SignedDuration::from_secs(1);
        self.now = self.wake.map_or(later, |wake| wake.max(later));
    }

    /// Operator and controllers take turns until nothing changes any more, and no time is awaited.
    pub fn settle(&mut self) {
        assert!(self.run_until(|_| false), "it does not come to rest: {self:?}");
    }

    /// The same until something is so. True if it came to rest before.
    pub fn run_until(&mut self, is_so: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..400 {
            if is_so(self) {
                return false;
            }
            let is_quiet = self.round();
            if self.tick() || !is_quiet {
                self.pass(1);
            } else if self.wake.is_some() {
                self.pass_to_wake();
            } else {
                return true;
            }
        }
        panic!("400 rounds were not enough: {self:?}");
    }

    pub fn child(&self, name: &str) -> &ChildView {
        let names: Vec<_> = self.children.iter().map(|child| &child.name).collect();
        self.children.iter().find(|child| child.name == name).unwrap_or_else(|| panic!("no {name} in {names:?}"))
    }

    pub fn child_mut(&mut self, name: &str) -> &mut ChildView {
        self.children.iter_mut().find(|child| child.name == name).expect("it exists")
    }

    pub fn has(&self, name: &str) -> bool {
        self.children.iter().any(|child| child.name == name)
    }

    pub fn heard(&self, reason: Reason) -> usize {
        self.events.iter().filter(|(said, _)| *said == reason).count()
    }
}
