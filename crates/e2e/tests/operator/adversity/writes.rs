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

/// Every transition of `other` is on record here too, but for an event that the API server refused, which nobody sends again; and for that
/// of the deletion of a single pod if something went wrong between the deletion and the next status: by then nobody knows who deleted. So it
/// is with a step if two things went wrong between the partition and the next status, and the partition is another one by then.
pub fn assert_reported(writes: &[Record], other: &[Record]) {
    let mut reported = events(writes);
    let is_refused = |record: &&Record| record.fault.as_ref().is_some_and(|fault| !matches!(fault, Fault::Killed(_)));
    reported
        .extend(writes.iter().filter(|record| is_event(record)).filter(is_refused).map(|record| record.call.words()));
    let other = events(other);
    let is_excused = |words: &&String| {
        deleted(words).is_some_and(|pod| is_interrupted(writes, pod))
            || rolled(words).is_some_and(|pod| is_interrupted_twice(writes, pod))
    };
    let lost: Vec<_> = other.difference(&reported).filter(|words| !is_excused(words)).collect();
    assert!(lost.is_empty(), "not reported: {lost:#?}\n{}", tell(writes));
}

/// The pod of whose deletion an event tells.
fn deleted(words: &str) -> Option<&str> {
    words.strip_prefix("create events PodDeleted ")?.rsplit(' ').next()
}

/// The pod of whose step an event tells.
fn rolled(words: &str) -> Option<&str> {
    words.strip_prefix("create events PartitionLowered ")?.rsplit(' ').next()
}

/// True if something went wrong between the deletion of a pod and the status after it.
fn is_interrupted(writes: &[Record], pod: &str) -> bool {
    faults_since(writes, |record| record.call.is("delete", "pods") && record.call.name == pod) > 0
}

/// True if two things went wrong between the partition that opened a pod and the status after it.
fn is_interrupted_twice(writes: &[Record], pod: &str) -> bool {
    let Some((set, ordinal)) = pod.rsplit_once('-') else { return false };
    let opens = format!("patch statefulsets {set} partition {ordinal}");
    let is_made = |record: &Record| record.call.words().starts_with(&opens) && record.answered == Some(200);
    faults_since(writes, is_made) > 1
}

/// How many things went wrong from the first of these writes up to the next status.
fn faults_since(writes: &[Record], is_it: impl Fn(&Record) -> bool) -> usize {
    let Some(start) = writes.iter().position(is_it) else { return 0 };
    let is_status = |record: &Record| record.call.is("patch", "phasedrollouts/status") && record.answered.is_some();
    let end = writes[start..].iter().position(is_status).map_or(writes.len(), |at| start + at + 1);
    writes[start..end].iter().filter(|record| record.fault.is_some()).count()
}

/// For a message.
pub fn tell(writes: &[Record]) -> String {
    let line = |(words, record): (String, &Record)| {
        let fault = record.fault.as_ref().map(|fault| format!("{fault:?}")).unwrap_or_default();
        format!("{} {words}: {:?} {fault}\n", record.at, record.answered)
    };
    worded(writes).into_iter().map(line).collect()
}
