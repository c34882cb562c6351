//! InPlace in mid-upgrade under writers that mean well: an autoscaler, a person who breaks the glass, and time that pods need.

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase, names};
use sts_plus_e2e::{Scene, View, objects};

use super::{carried, checked, plain};
use crate::versions::scale;

/// An upgrade to version 2 whose check fails at the first pod, db-2.
async fn failed(name: &str) -> (Scene, View) {
    let scene = Scene::with_versions(name, &checked(&json!({})).await).await;
    scene.release_version("app:2-errors").await;
    let middle =
        scene.until_versions("the check fails at db-2", |view| is_failed(view) && versions(view) == "1 1 2").await;
    (scene, middle)
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

#[tokio::test]
async fn scaled_in_mid_upgrade_no_pod_is_rolled_and_new_ones_are_of_the_version_in_charge() {
    let (scene, middle) = failed("scaled").await;
    scale(&scene, "extendedstatefulset/db", 5).await;
    let up = |view: &View| is_failed(view) && replicas(view) == Some(5) && carried(view).len() == 5;
    let after = scene.until_versions("five pods", up).await;
    // Stalled: the release may be what makes more pods needed.
    assert_eq!(versions(&after), "1 1 2 1 1");
    assert_eq!(after.uids("db-0"), middle.uids("db-0"));
    scale(&scene, "extendedstatefulset/db", 2).await;
    // The pod that failed went with the scaling: no other one is tried for it while the checks fail.
    let down = |view: &View| is_failed(view) && replicas(view) == Some(2) && versions(view) == "1 1";
    let after = scene.until_versions("two pods of version 1", down).await;
    assert_eq!(after.uids("db-0"), middle.uids("db-0"));
    scene.release_version("app:1").await;
    scale(&scene, "extendedstatefulset/db", 4).await;
    let back = scene.until_versions("version 1 alone", |view| view.is_only(1) && versions(view) == "1 1 1 1").await;
    // At rest the hold is at or above the count.
    let rest = |view: &View| view.world.partition_of("db").is_some_and(|at| at >= 4);
    scene.until_versions("at rest", |view| rest(view) && view.is_only(1)).await;
    assert_eq!(back.uids("db-0"), middle.uids("db-0"));
    scene.end().await;
}

/// The glass is broken for one partition of one revision: once, and it is said.
#[tokio::test]
async fn a_person_may_allow_one_partition_of_the_child_and_it_is_said() {
    let (scene, middle) = failed("allowed").await;
    let annotation = |value: Value| json!({ "metadata": { "annotations": { names::ALLOW_PARTITION: value } } });
    let open = |at: i32| json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": at } } } });
    // Another value than the one that is asked for allows nothing.
    scene.patch("statefulset/db", &annotation(json!("1"))).await;
    scene.patch("statefulset/db", &open(0)).await;
    let held = |view: &View| is_failed(view) && versions(view) == "1 1 2" && view.world.partition_of("db") != Some(0);
    scene.until_versions("kept", held).await;
    scene.patch("statefulset/db", &open(1)).await;
    let told = scene.until_events(Reason::PartitionAllowed, 1).await;
    assert!(format!("{told:?}").contains("allowed partition 1"), "{told:?}");
    let rolled =
        |view: &View| versions(view) == "1 2 2" && view.world.annotation_of("db", names::ALLOW_PARTITION).is_none();
    let after =
        scene.until_versions("db-1 is rolled, and the word is used up", |view| rolled(view) && is_failed(view)).await;
    assert_eq!(after.uids("db-0"), middle.uids("db-0"));
    assert_eq!(scene.events_of(Reason::ChildDrift).await.len(), 0, "a person's word is no drift");
    scene.end().await;
}

/// Each pod is available before its check, and before the next pod.
#[rstest]
#[case::behind_checks(true)]
#[case::without_checks(false)]
#[tokio::test]
async fn the_next_pod_waits_until_the_one_before_is_available(#[case] is_checked: bool) {
    const SECONDS: i64 = 3;
    let db = if is_checked { checked(&json!({ "successThreshold": 1, "final": true })).await } else { plain() };
    let db = objects::with(db, "/spec/template/spec/minReadySeconds", SECONDS);
    let scene = Scene::with_versions("available", &objects::with(db, "/spec/template/spec/replicas", 2)).await;
    scene.release_version("app:2").await;
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2) && versions(view) == "2 2").await;
    let ready = ["db-1", "db-0"].map(|pod| after.world.ready_since(pod).expect("Ready"));
    let created = after.world.pods["db-0"].metadata.creation_timestamp.as_ref().expect("created").0;
    let waited = created.duration_since(ready[0]).as_secs();
    assert!(waited >= SECONDS, "db-0 came {waited} s after db-1 was Ready");
    let asked = scene.asked();
    // The check of db-1, and the final one.
    assert_eq!(asked.len(), if is_checked { 2 } else { 0 }, "{asked:?}");
    for (asked, ready) in asked.iter().zip(ready) {
        assert!(asked.at.duration_since(ready).as_secs() >= SECONDS, "{asked:?}, Ready since {ready}");
    }
    scene.end().await;
}
