//! What the operator wrote in a story, in words.

use std::collections::BTreeSet;

use sts_plus_e2e::proxy::{Call, Fault, Record};

/// Says writes in words that are the same in each run of the same story. What an upgrade does in its second try has other words than
/// the same in the first one.
#[derive(Default)]
pub struct Words {
    failures: i64,
}

impl Words {
    /// The next write of the story.
    pub fn of(&mut self, call: &Call) -> String {
        if let Some(failures) = call.body.pointer("/status/upgrade/failures").and_then(serde_json::Value::as_i64) {
            self.failures = failures;
        }
        match self.failures {
            0 => call.words(),
            failures => format!("{} (after {failures})", call.words()),
        }
    }
}

/// All writes, each with its record.
pub fn worded(writes: &[Record]) -> Vec<(String, &Record)> {
    let mut words = Words::default();
    writes.iter().map(|record| (words.of(&record.call), record)).collect()
}

/// What is written, each once, in its order. How many renewals the Lease has is left to the clock.
pub fn once(writes: &[Record]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    worded(writes).into_iter().map(|(words, _)| words).filter(|words| seen.insert(words.clone())).collect()
}

/// The faults that came to pass.
pub fn faults(writes: &[Record]) -> BTreeSet<(String, String)> {
    worded(writes)
        .into_iter()
        .filter_map(|(words, record)| Some((words, format!("{:?}", record.fault.as_ref()?))))
        .collect()
}

fn is_event(record: &Record) -> bool {
    record.call.is("create", "events")
}

/// The events that are on record.
fn events(writes: &[Record]) -> BTreeSet<String> {
    let recorded = |record: &&Record| record.answered.is_some_and(|code| code < 300 || code == 409);
    writes.iter().filter(|record| is_event(record)).filter(recorded).map(|record| record.call.words()).collect()
}

/// As [`assert_told`], where one write can undo another: what one has done is not seen when the next one undid it and went wrong too.
pub fn assert_told_unless_undone(writes: &[Record], other: &[Record]) {
    let is_lost = |record: &Record| matches!(record.fault, Some(Fault::Killed(_) | Fault::Lost(_) | Fault::Cut));
    if !writes.windows(2).any(|two| two.iter().all(is_lost)) {
        assert_told(writes, other);
    }
}

/// Every transition of `other` is on record here too, but for an event that the API server refused, which nobody sends again. What
/// is told of the deletion of a single pod is told by whoever deleted.
pub fn assert_told(writes: &[Record], other: &[Record]) {
    let mut told = events(writes);
    let is_refused = |record: &&Record| record.fault.as_ref().is_some_and(|fault| !matches!(fault, Fault::Killed(_)));
    told.extend(writes.iter().filter(|record| is_event(record)).filter(is_refused).map(|record| record.call.words()));
    let is_transition = |words: &&String| !words.contains("PodDeleted");
    let other = events(other);
    let lost: Vec<_> = other.difference(&told).filter(is_transition).collect();
    assert!(lost.is_empty(), "not told: {lost:#?}\n{}", tell(writes));
}

/// For a message.
pub fn tell(writes: &[Record]) -> String {
    let line = |(words, record): (String, &Record)| {
        let fault = record.fault.as_ref().map(|fault| format!("{fault:?}")).unwrap_or_default();
        format!("{} {words}: {:?} {fault}\n", record.at, record.answered)
    };
    worded(writes).into_iter().map(line).collect()
}
