//! A PhasedRollout as JSON or YAML, through the type, the check of its queries, and a whole decision. What a user may write into
//! spec and status by hand is in here, whether or not the API server would take it.

use sts_plus::views::rollout_view;
use sts_plus_api::{Check, PhasedRollout};
use sts_plus_decide::ConfigProblem;
use sts_plus_gates::{Endpoint, Policy, promql, questions, template, validate};

use crate::world::{now, observed, pods, set, settle};

/// Longest sentence about one field, in bytes.
const SENTENCE: usize = 1024;

/// # Panics
/// Something breaks.
pub fn run(bytes: &[u8]) {
    let Some(rollout) = crate::object::<PhasedRollout>(bytes) else { return };
    let again = serde_json::to_value(&rollout).ok().and_then(|value| serde_json::from_value(value).ok());
    let again: PhasedRollout = again.expect("what was read can be written and read again");
    assert_eq!(again.spec, rollout.spec);

    let check = &rollout.spec.check;
    let problems = validate(check, &Policy::default());
    for problem in &problems {
        let message = &problem.message;
        assert!(message.starts_with("spec.check."), "a sentence begins with its field: {message}");
        assert!(message.len() <= SENTENCE, "{} bytes: {message}", message.len());
        assert!(!message.contains(['\n', '\r', '\0']), "one line: {message:?}");
    }
    if problems.is_empty() {
        usable(check);
    }

    let mut view = rollout_view(&rollout);
    // Without the seal a status was edited by hand; then it is believed as if it were ours.
    if view.status.seal.is_none() {
        view.status.put_seal();
    }
    let mut observed = observed(view, set(), pods());
    observed.config = problems
        .into_iter()
        .map(|problem| ConfigProblem { reason: problem.reason, message: problem.message })
        .collect();
    settle(observed, now());
}

/// Without a problem, every query can be asked.
fn usable(check: &Check) {
    for question in questions(check) {
        let url = question.url.expect("a query without a URL is a problem");
        Endpoint::parse(url).expect("a URL that cannot be read is a problem");
        let filled = template::fill(&question.query.expr, &template::dummies()).expect("a bad template is a problem");
        promql::check(&filled).expect("bad PromQL is a problem");
    }
}
