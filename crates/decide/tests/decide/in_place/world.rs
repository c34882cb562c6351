//! The world: the ExtendedStatefulSet, what the operator wrote to its StatefulSets, and the StatefulSet controller of the model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};
use sts_plus_api::{CheckRecord, ExtendedStatefulSetStatus, Reason, Verdict};
use sts_plus_decide::{CheckRequest, ChildView, PodView, Try, VersionsObserved};
use sts_plus_model::{Health, Metric, Release, Set, world};

use super::laws::Ledger;
use crate::owner::Owner;

/// What stands in the annotations and labels of a StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    pub zone: Option<String>,
    pub version: i32,
    pub hash: String,
    pub settings: String,
    pub stale: Option<String>,
}

#[derive(Clone)]
pub struct World {
    /// StatefulSets, pods and time.
    pub native: sts_plus_model::World,
    pub owner: Owner,
    pub parallel: bool,
    /// How long a good pod takes to become Ready, in seconds.
    pub ready_after: i64,
    pub status: ExtendedStatefulSetStatus,
    pub marks: BTreeMap<String, Marks>,
    /// The templates that are kept: digest and settings, by version.
    pub kept: BTreeMap<i32, (String, String)>,
    pub foreign: Vec<String>,
    /// Zones that no node carries any more: what runs there runs on.
    pub closed_zones: Vec<String>,
    /// Pod templates by their number in the model, from 1: version and content.
    pub templates: Vec<(i32, String)>,
    /// Contents whose pods never become Ready.
    pub bad: BTreeSet<String>,
    /// What checks say about contents; the default is that they pass.
    pub metrics: BTreeMap<String, Metric>,
    pub events: Vec<(Reason, String)>,
    pub ledger: Ledger,
    /// When the last plan wants to be asked again, in seconds.
    pub wake: Option<i64>,
}

/// What a person needs to see of it when a law is broken.
impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExtendedStatefulSetStatus { phase, message, current_version, last_version, upgrade, .. } = &self.status;
        writeln!(
            f,
            "\n{} wants {} {} {:?}",
            self.native.now, self.owner.hash, self.owner.spec, self.owner.annotations
        )?;
        writeln!(f, "bad {:?} metrics {:?} foreign {:?} wake {:?}", self.bad, self.metrics, self.foreign, self.wake)?;
        writeln!(f, "{phase:?}: {message}; {current_version:?} of {last_version} {upgrade:?}")?;
        for (name, set) in &self.native.sets {
            let Set { generation, template, replicas, partition, status, .. } = set;
            let text = format!("{name} template {template} generation {generation} replicas {replicas} {partition:?}");
            writeln!(f, "{text} {:?} of {:?} pods {}", status.current, status.update, set.layout())?;
            writeln!(f, "  {:?} {:?}", self.marks.get(name), set.annotations)?;
            writeln!(f, "  {:?}", self.status.rollouts.get(name).map(|rollout| (&rollout.phase, &rollout.message)))?;
        }
        writeln!(f, "templates {:?}", self.templates)?;
        for (reason, note) in self.events.iter().rev().take(12).rev() {
            writeln!(f, "  {reason}: {note}")?;
        }
        Ok(())
    }
}

impl World {
    /// Three replicas of template h1, and the fields of `strategy` in `spec.updateStrategy`.
    pub fn new(strategy: &Value) -> Self {
        let mut strategy = strategy.clone();
        strategy["type"] = json!("InPlace");
        let mut native = sts_plus_model::World::empty();
        native.policy = false;
        native.ledger.without_policy = true;
        Self {
            native,
            owner: Owner::new(&strategy),
            parallel: false,
            ready_after: 2,
            status: ExtendedStatefulSetStatus::default(),
            marks: BTreeMap::new(),
            kept: BTreeMap::new(),
            foreign: Vec::new(),
            closed_zones: Vec::new(),
            templates: Vec::new(),
            bad: BTreeSet::new(),
            metrics: BTreeMap::new(),
            events: Vec::new(),
            ledger: Ledger::default(),
            wake: None,
        }
    }

    /// The number of a pod template in the model.
    pub fn template_number(&mut self, version: i32, content: &str) -> u32 {
        let wanted = (version, content.to_owned());
        let at = self.templates.iter().position(|known| *known == wanted).unwrap_or_else(|| {
            self.templates.push(wanted);
            self.templates.len() - 1
        });
        self.behave();
        u32::try_from(at + 1).unwrap()
    }

    /// Pods behave as their content says, also those that run.
    pub fn behave(&mut self) {
        for (at, (_, content)) in self.templates.iter().enumerate() {
            let health =
                if self.bad.contains(content) { Health::Crashing } else { Health::ReadyAfter(self.ready_after) };
            let metric = self.metrics.get(content).copied().unwrap_or(Metric::Pass);
            self.native.releases.insert(u32::try_from(at + 1).unwrap(), Release { health, metric });
        }
        for set in self.native.sets.values_mut() {
            for pod in set.pods.values_mut() {
                let health = self.native.releases[&world::template_of(&pod.revision)].health;
                let is_by_hand = pod.health == Health::NeverReady;
                if !is_by_hand && pod.health != health && (health == Health::Crashing || !pod.ready) {
                    let is_new = !pod.ready;
                    (pod.health, pod.ready) = (health, false);
                    pod.since = if is_new && health == Health::Crashing { pod.since } else { self.native.now };
                }
            }
        }
    }

    /// Version and content of what a pod carries.
    pub fn carried(&self, revision: &str) -> (i32, &str) {
        let (version, content) = &self.templates[world::template_of(revision) as usize - 1];
        (*version, content)
    }

    pub fn observe(&self, tried: Option<Try>) -> VersionsObserved {
        VersionsObserved {
            owner: self.owner.view(&self.status),
            template: self.owner.template_view(),
            children: self.native.sets.values().map(|set| self.child(set)).collect(),
            kept: self.kept.iter().map(|(version, (hash, _))| (*version, hash.clone())).collect(),
            orphans: Vec::new(),
            abandoned: Vec::new(),
            foreign: self.foreign.clone(),
            active: None,
            preview: None,
            former: Vec::new(),
            keeps_children: false,
            serves_policies: true,
            config: Vec::new(),
            empty_zones: self.closed_zones.clone(),
            tried,
        }
    }

    fn child(&self, set: &Set) -> ChildView {
        let marks = self.marks[&set.name].clone();
        let pods = self
            .native
            .pod_views(set)
            .into_iter()
            .map(|pod| PodView { version: pod.revision.as_deref().map(|revision| self.carried(revision).0), ..pod });
        ChildView {
            name: set.name.clone(),
            uid: set.uid.clone(),
            zone: marks.zone,
            version: marks.version,
            hash: marks.hash,
            settings: marks.settings,
            generation: set.generation,
            deleting: false,
            replicas: set.replicas,
            min_ready_seconds: set.min_ready,
            selector: "app=web".into(),
            stale: marks.stale,
            pods: pods.collect(),
            refused: None,
            changed: None,
            in_the_way: None,
            mislabelled: None,
            set: Some(Box::new(sts_plus_model::operator::set_view(set))),
        }
    }

    /// What Prometheus says about the template that is asked about.
    pub fn answer(&self, request: &CheckRequest) -> Try {
        let (_, content) = self.carried(&request.key.revision);
        let verdict = match self.metrics.get(content) {
            Some(Metric::Error) => Verdict::Error,
            Some(Metric::Fail) => Verdict::Data,
            Some(Metric::InTurn(answers)) => {
                answers.iter().cycle().nth(self.native.asked).copied().unwrap_or(Verdict::NoData)
            }
            _ => Verdict::NoData,
        };
        let record = CheckRecord {
            time: world::stamp(self.native.now),
            name: "q".into(),
            pod: request.variables.get("pod").cloned().expect("a check is about a pod"),
            query: "errors > 0".into(),
            endpoint: "http://prom:9090".into(),
            verdict,
            passed: verdict == Verdict::NoData,
            message: format!("{verdict:?}"),
            http_status: Some(200),
            series_count: u32::from(verdict == Verdict::Data),
            series: Vec::new(),
        };
        let time = world::stamp(self.native.now);
        let records = vec![record];
        Try { request: request.key.clone(), time, records, config: Vec::new(), warnings: Vec::new() }
    }

    pub fn set(&self, name: &str) -> &Set {
        &self.native.sets[name]
    }

    /// The contents of the pods, in order; those that are not Ready have a `!`, those that leave a `-`.
    pub fn layout(&self, name: &str) -> String {
        let pod = |pod: &sts_plus_model::Pod| {
            let mark = match (pod.gone_at, pod.ready) {
                (Some(_), _) => "-",
                (None, false) => "!",
                (None, true) => "",
            };
            format!("{}{mark}", self.carried(&pod.revision).1)
        };
        self.set(name).pods.values().map(pod).collect::<Vec<_>>().join(" ")
    }

    pub fn heard(&self, reason: Reason) -> usize {
        self.events.iter().filter(|(said, _)| *said == reason).count()
    }

    /// All pods that are wanted are there at the template that is wanted, and Ready.
    pub fn is_complete(&self) -> bool {
        self.wanted().iter().all(|(name, _, count)| {
            self.native.sets.get(name).map_or(*count == 0, |set| {
                let is_well = |pod: &sts_plus_model::Pod| {
                    pod.is_healthy() && pod.revision == set.wanted() && self.carried(&pod.revision).1 == self.owner.hash
                };
                set.pods.len() == usize::try_from(*count).unwrap() && set.pods.values().all(is_well)
            })
        })
    }

    /// Names, zones and pods of the StatefulSets that should be there.
    pub fn wanted(&self) -> Vec<(String, Option<String>, i32)> {
        let spec = self.owner.spec();
        let count = i32::try_from(self.owner.spec["template"]["spec"]["replicas"].as_i64().unwrap()).unwrap();
        let zones = spec.all_zones();
        if zones.is_empty() {
            return vec![("web".into(), None, count)];
        }
        let number = i32::try_from(zones.len()).unwrap();
        let is_spread = self.owner.spec["zoneReplicas"] == "Spread";
        let share = |at: i32| if is_spread { count / number + i32::from(at < count % number) } else { count };
        zones.iter().zip(0..).map(|(zone, at)| (format!("web-{zone}"), Some(zone.clone()), share(at))).collect()
    }
}
