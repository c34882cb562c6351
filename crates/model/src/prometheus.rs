//! What the checks say, as a function of the revision and the pod.

use sts_plus_api::{CheckRecord, Step, Verdict};
use sts_plus_decide::{CheckRequest, ConfigProblem, Try};

use crate::world::{World, stamp, template_of};

/// What the checks say about pods of one template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// They pass.
    Pass,
    /// They fail.
    Fail,
    /// They fail for the pod with this index, and pass for the others.
    FailAt(i32),
    /// They fail in the preflight cycle only.
    FailBefore,
    /// They fail in the final cycle only.
    FailAfter,
    /// They fail while the pod with this ordinal carries this template, whichever revision they are asked about.
    FailBeside(i32, u32),
    /// These answers in turn, over all tries in this world; then from the first again.
    InTurn(&'static [Verdict]),
    /// Prometheus gives an error.
    Error,
    /// The metric does not exist, and that holds.
    Missing,
    /// They fail for whatever is asked about, as long as a pod of this template serves.
    WhereItRuns,
    /// What [`World::oracle`] says: a test decides each time.
    Flaky,
}

/// What a flaky metric says this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// No series.
    Pass,
    /// A series.
    Refuse,
    /// No usable answer.
    Error,
}

impl World {
    /// One try, made now.
    pub(crate) fn ask(&self, request: &CheckRequest, config: Vec<ConfigProblem>) -> Try {
        self.ask_about(request, template_of(&request.key.revision), config)
    }

    /// The same about pods of this template.
    pub(crate) fn ask_about(&self, request: &CheckRequest, template: u32, config: Vec<ConfigProblem>) -> Try {
        let key = &request.key;
        let metric = match self.release(template).metric {
            _ if self.prometheus_down => Metric::Error,
            _ if self.serves_badly() => Metric::Fail,
            own => own,
        };
        let verdict = match metric {
            Metric::Pass | Metric::WhereItRuns => Verdict::NoData,
            Metric::Flaky => match self.oracle {
                Answer::Pass => Verdict::NoData,
                Answer::Refuse => Verdict::Data,
                Answer::Error => Verdict::Error,
            },
            Metric::Fail => Verdict::Data,
            Metric::FailAt(index) => data_if(index == key.index),
            Metric::FailBefore => data_if(key.step == Step::Preflight),
            Metric::FailAfter => data_if(key.step == Step::Final),
            Metric::FailBeside(ordinal, template) => data_if(self.carries(ordinal, template)),
            Metric::InTurn(answers) => answers.iter().cycle().nth(self.asked).copied().unwrap_or(Verdict::NoData),
            Metric::Error => Verdict::Error,
            Metric::Missing => Verdict::Unproven,
        };
        let record = CheckRecord {
            time: stamp(self.now),
            name: "q".into(),
            pod: request.variables.get("pod").cloned().unwrap_or_default(),
            query: "errors > 0".into(),
            endpoint: "http://prom:9090".into(),
            verdict,
            passed: verdict == Verdict::NoData,
            message: said(verdict).into(),
            http_status: Some(200),
            series_count: u32::from(verdict == Verdict::Data),
            series: Vec::new(),
        };
        Try { request: key.clone(), time: stamp(self.now), records: vec![record], config, warnings: Vec::new() }
    }

    fn carries(&self, ordinal: i32, template: u32) -> bool {
        let mut pods = self.sets.values().filter_map(|set| set.pods.get(&ordinal));
        pods.any(|pod| template_of(&pod.revision) == template)
    }

    /// Some pod of a template that fails where it runs is Ready.
    fn serves_badly(&self) -> bool {
        if !self.releases.values().any(|release| release.metric == Metric::WhereItRuns) {
            return false;
        }
        let mut pods = self.sets.values().flat_map(|set| set.pods.values());
        pods.any(|pod| pod.ready && self.release(template_of(&pod.revision)).metric == Metric::WhereItRuns)
    }
}

/// One word for the outcome of a try.
pub(crate) fn outcome(tried: &Try) -> &'static str {
    let is = |verdict| tried.records.iter().any(|record| record.verdict == verdict);
    match () {
        () if !tried.config.is_empty() => "unusable",
        () if is(Verdict::Data) => "fail",
        () if is(Verdict::Error) => "error",
        () if is(Verdict::Unproven) => "unproven",
        () => "pass",
    }
}

fn data_if(fails: bool) -> Verdict {
    if fails { Verdict::Data } else { Verdict::NoData }
}

fn said(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NoData => "no series",
        Verdict::Data => "1 series: errors 7",
        Verdict::Unproven => "the metric errors does not exist",
        Verdict::Error => "connection refused",
    }
}
