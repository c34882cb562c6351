//! InPlace in mid-upgrade under writers that mean well: an autoscaler, a person who breaks the glass, and time that pods need.

use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase, names};
use sts_plus_e2e::objects;

use crate::in_place::{all_at, carried, checked, plain};
use crate::story::{Story, View};

/// An upgrade to version 2 whose check fails at the first pod, db-2.
async fn failed(name: &str) -> (Story, View) {
    let story = Story::at_rest(name, &checked(&json!({ "preflight": false })).await).await;
    story.release("app:2-errors").await;
    let middle = story.until("the check fails at db-2", |view| is_failed(view) && versions(view) == "1 1 2").await;
    (story, middle)
}

fn is_failed(view: &View) -> bool {
    view.is(VersionPhase::Failed)
}

/// The versions of the pods by their ordinals.
fn versions(view: &View) -> String {
    carried(view).into_values().collect::<Vec<_>>().join(" ")
}

fn replicas(view: &View) -> Option<i32> {
    view.world.sets["db"].spec.as_ref().and_then(|spec| spec.replicas)
}

/// What an autoscaler writes.
pub async fn scale(story: &Story, what: &str, count: i32) {
    story.scene.kubectl_ok(&["scale", what, &format!("--replicas={count}")], "").await;
}

#[tokio::test]
async fn scaled_in_mid_upgrade_no_pod_is_rolled_and_new_ones_are_of_the_version_in_charge() {
    let (story, middle) = failed("scaled").await;
    scale(&story, "extendedstatefulset/db", 5).await;
    let up = |view: &View| is_failed(view) && replicas(view) == Some(5) && carried(view).len() == 5;
    let after = story.until("five pods", up).await;
    // Stalled: the release may be what makes more pods needed.
    assert_eq!(versions(&after), "1 1 2 1 1");
    assert_eq!(after.uids("db-0"), middle.uids("db-0"));
    scale(&story, "extendedstatefulset/db", 2).await;
    // The pod that failed went with the scaling: no other one is tried for it while the checks fail.
    let down = |view: &View| is_failed(view) && replicas(view) == Some(2) && versions(view) == "1 1";
    let after = story.until("two pods of version 1", down).await;
    assert_eq!(after.uids("db-0"), middle.uids("db-0"));
    story.release("app:1").await;
    scale(&story, "extendedstatefulset/db", 4).await;
    let back = story.until("version 1 alone", |view| view.is_only(1) && versions(view) == "1 1 1 1").await;
    // At rest the hold is at or above the count.
    let rest = |view: &View| view.world.partition_of("db").is_some_and(|at| at >= 4);
    story.until("at rest", |view| rest(view) && view.is_only(1)).await;
    assert_eq!(back.uids("db-0"), middle.uids("db-0"));
    story.end().await;
}

#[tokio::test]
async fn an_autoscaler_at_the_stateful_set_itself_is_put_back_and_opens_nothing() {
    let (story, middle) = failed("scaled-child").await;
    for count in [5, 1] {
        scale(&story, "statefulset/db", count).await;
        story.until("put back", |view| replicas(view) == Some(3) && is_failed(view) && carried(view).len() == 3).await;
    }
    let after = story.view().await;
    assert_eq!(after.uids("db-0"), middle.uids("db-0"));
    let carried = carried(&after);
    assert!(["db-0", "db-1"].iter().all(|pod| carried[*pod] == "1"), "{carried:?}");
    assert!(!story.scene.events_of(Reason::ChildDrift).await.is_empty());
    story.end().await;
}

/// The glass is broken for one partition of one revision: once, and it is said.
#[tokio::test]
async fn a_person_may_allow_one_partition_of_the_child_and_it_is_said() {
    let (story, middle) = failed("allowed").await;
    let annotation = |value: Value| json!({ "metadata": { "annotations": { names::ALLOW_PARTITION: value } } });
    let open = |at: i32| json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": at } } } });
    // Another value than the one that is asked for allows nothing.
    story.scene.patch("statefulset/db", &annotation(json!("1"))).await;
    story.scene.patch("statefulset/db", &open(0)).await;
    let held = |view: &View| is_failed(view) && versions(view) == "1 1 2" && view.world.partition_of("db") != Some(0);
    story.until("kept", held).await;
    story.scene.patch("statefulset/db", &open(1)).await;
    let told = story.scene.until_events(Reason::PartitionAllowed, 1).await;
    assert!(format!("{told:?}").contains("allowed partition 1"), "{told:?}");
    let rolled =
        |view: &View| versions(view) == "1 2 2" && view.world.annotation_of("db", names::ALLOW_PARTITION).is_none();
    let after = story.until("db-1 is rolled, and the word is used up", |view| rolled(view) && is_failed(view)).await;
    assert_eq!(after.uids("db-0"), middle.uids("db-0"));
    assert_eq!(story.scene.events_of(Reason::ChildDrift).await.len(), 0, "a person's word is no drift");
    story.end().await;
}

/// Each pod is Available before its check, and before the next pod.
#[tokio::test]
async fn the_next_pod_waits_until_the_one_before_is_available() {
    const SECONDS: i32 = 4;
    let slow = objects::with(
        checked(&json!({ "preflight": false })).await,
        "/spec/template/spec/minReadySeconds",
        json!(SECONDS),
    );
    for (name, db) in [
        ("available", slow),
        ("available-plain", objects::with(plain(), "/spec/template/spec/minReadySeconds", json!(SECONDS))),
    ] {
        let story = Story::at_rest(name, &db).await;
        story.release("app:2").await;
        let after = story.until("version 2 alone", |view| view.is_only(2) && all_at(view, 2)).await;
        let mut ready = Vec::new();
        for pod in ["db-2", "db-1", "db-0"] {
            let there = &after.world.pods[pod];
            let made = there.metadata.creation_timestamp.as_ref().expect("made").0;
            if let Some(before) = ready.last().copied() {
                let waited = made.duration_since(before);
                assert!(
                    waited.as_secs() >= i64::from(SECONDS),
                    "{name} {pod} came {waited:?} after the one before was Ready"
                );
            }
            ready.push(after.world.ready_since(pod).expect("Ready"));
        }
        let checks = after.status.rollouts["db"].checks.clone();
        let last = *ready.last().expect("three pods");
        let final_ones = checks
            .iter()
            .filter(|check| check.pod == "db-0")
            .all(|check| check.time.duration_since(last).as_secs() >= i64::from(SECONDS));
        assert!(final_ones, "{name}: {checks:?}");
        story.end().await;
    }
}
