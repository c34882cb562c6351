//! What a status counts is what a list of the pods has. (A `SetView` does not even have the counters of the StatefulSet's status.)

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sts_plus_api::PhasedRolloutStatus;
use sts_plus_decide::{Observed, PodView, SetView, Target, decide};
use sts_plus_model::random::cases;

use super::input::{NOW, moment, observed};

/// How many of the cases must be about new counts, so that the test says something.
const FLOOR: u32 = 200;

const fn counts(status: &PhasedRolloutStatus) -> (i32, i32) {
    (status.updated_replicas, status.ready_replicas)
}

/// As a person would count in a list: pods with an ordinal of the set, on this revision, and Ready ones.
fn listed(set: &SetView, pods: &[PodView], revision: &str) -> (i32, i32) {
    let first = i64::from(set.start);
    let own = pods.iter().filter(|pod| (first..first + i64::from(set.replicas)).contains(&i64::from(pod.ordinal)));
    let own: BTreeMap<&str, &PodView> = own.map(|pod| (pod.name.as_str(), pod)).collect();
    let number = |is: &dyn Fn(&PodView) -> bool| i32::try_from(own.values().filter(|pod| is(pod)).count()).unwrap();
    (
        number(&|pod| pod.revision.as_deref() == Some(revision)),
        number(&|pod| pod.ready && !pod.deleting && !pod.finished),
    )
}

/// The target is there, and is taken.
fn with_a_target() -> impl Strategy<Value = (Box<SetView>, Observed)> {
    observed().prop_filter_map("a set", |mut observed| {
        (observed.rollout.deleting, observed.rivals) = (false, Vec::new());
        let Target::Found(set) = &observed.target else { return None };
        Some((set.clone(), observed))
    })
}

// spec: pr§9, L106
#[test]
fn what_is_counted_is_what_a_list_of_the_pods_has() {
    let config = Config { source_file: Some(file!()), ..cases(4000) };
    let counted = Cell::new(0);
    let case = |(set, observed): (Box<SetView>, Observed)| {
        let status = decide(&observed, moment(NOW)).status;
        // Counts of before stay while nothing else changes, and go with the target.
        let is_new = counts(&status) != counts(&observed.rollout.status) && status.replicas != 0;
        if let (true, Some(revision)) = (is_new, &status.target_revision) {
            prop_assert_eq!(counts(&status), listed(&set, &observed.pods, revision), "{:?}", status);
            counted.set(counted.get() + 1);
        }
        Ok(())
    };
    TestRunner::new(config).run(&with_a_target(), case).unwrap_or_else(|error| panic!("{error}"));
    assert!(counted.get() >= FLOOR, "only {} cases have counted", counted.get());
}
