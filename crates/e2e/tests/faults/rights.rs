//! The role of the operator lacks a right for a while.

use std::time::{Duration, Instant};

use futures::future::join_all;
use sts_plus_e2e::proxy::Fault;

use super::story::{Kind, play};

/// From the first refusal on.
const WHILE: Duration = Duration::from_secs(3);
const RIGHTS: [(&str, &str); 12] = [
    ("watch", "phasedrollouts"),
    ("watch", "statefulsets"),
    ("watch", "pods"),
    ("list", "statefulsets"),
    ("list", "pods"),
    ("get", "phasedrollouts"),
    ("get", "statefulsets"),
    ("patch", "phasedrollouts"),
    ("patch", "phasedrollouts/status"),
    ("patch", "statefulsets"),
    ("delete", "pods"),
    ("create", "events"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_was_missing_for_a_while_changes_no_end() {
    join_all(RIGHTS.map(async |(verb, resource)| {
        let mut until = None;
        let played = play(Kind::Rollback, "refused", move |call| {
            if !call.is(verb, resource) {
                return None;
            }
            let until = *until.get_or_insert_with(|| Instant::now() + WHILE);
            (Instant::now() < until).then_some(Fault::Refused(403))
        })
        .await;
        println!("without {verb} {resource}: {} writes", played.writes.len());
    }))
    .await;
}
