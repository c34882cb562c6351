//! A person who changes the template while an upgrade goes on.

use jiff::Timestamp;
use serde_json::json;
use sts_plus_api::{Reason, VersionPhase};
use sts_plus_e2e::{Scene, View, audit, objects};

use super::assert_quiet;

// spec: es§3, L022
#[tokio::test]
async fn the_newest_template_wins_and_what_was_between_goes() {
    let scene = Scene::with_versions("newest", &objects::extended("db")).await;
    let before = scene.view();
    scene.release_version("app:2-never-ready").await;
    scene.until_versions("a canary of version 2", |view| view.world.pods.contains_key("db-v2-0")).await;
    scene.release_version("app:3").await;
    let after = scene.until_versions("version 3 alone", |view| view.is_only(3)).await;
    assert_eq!(after.status.last_version, 3);
    // The one between goes before the next one starts.
    let between = ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 0", "db-v2 gone"];
    let next = ["db-v3 0", "db-v3 1", "db-v3 3", "db-v1 0", "db-v1 gone"];
    assert_eq!(scene.trace(), [between, next].concat());
    assert!(before.uids("db-v1-").len() == 3 && after.uids("db-v1-").is_empty());
    scene.assert_never_fewer_than(3);
    scene.end().await;
}

// spec: es§3
#[tokio::test]
async fn back_to_the_running_template_aborts_and_restarts_nothing() {
    let scene = Scene::with_versions("back", &objects::extended("db")).await;
    let before = scene.view();
    scene.release_version("app:2-never-ready").await;
    scene.until_versions("a canary of version 2", |view| view.world.pods.contains_key("db-v2-0")).await;
    scene.release_version("app:1").await;
    let after = scene.until_versions("version 1 alone", |view| view.is_only(1)).await;
    assert_eq!(after.uids(""), before.uids(""), "the same pods");
    assert_eq!((after.status.current_version, after.status.update_version), (Some(1), None));
    assert_eq!(scene.trace(), ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 0", "db-v2 gone"]);
    assert_eq!(scene.until_events(Reason::UpgradeAborted, 1).await.len(), 1);
    scene.end().await;
}

// spec: es§1, es§3
#[tokio::test]
async fn paused_no_step_is_made_and_afterwards_it_goes_on() {
    let scene = Scene::with_versions("paused", &objects::extended("db")).await;
    scene.change(&json!({ "spec": { "paused": true } })).await;
    scene.release_version("app:2").await;
    scene.until_versions("paused", |view| view.is(VersionPhase::Paused)).await;
    let (trace, before) = (scene.trace(), scene.view());
    // What runs is looked after all the same.
    scene.delete("pod/db-v1-1").await;
    scene.change(&json!({ "spec": { "template": { "spec": { "replicas": 5 } } } })).await;
    let is_back = |view: &View| view.uids("db-v1-1") != before.uids("db-v1-1");
    let are_five = |view: &View| view.is_told() && view.status.ready == "5/5" && is_back(view);
    scene.until_versions("five pods", are_five).await;
    assert_eq!(scene.trace()[trace.len()..], ["db-v1 5"]);
    scene.change(&json!({ "spec": { "paused": false } })).await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    scene.end().await;
}

/// L009, L082: a fix is never locked out by the pods that it repairs.
// spec: es§3, L009, L082
#[tokio::test]
async fn a_running_version_that_is_not_whole_is_waited_for_unless_told_otherwise() {
    let scene = Scene::with_versions("waits", &objects::extended("db")).await;
    let unready = json!({ "metadata": { "annotations": { "sts-plus.test/ready": "false" } } });
    scene.patch("pod/db-v1-1", &unready).await;
    scene.until_versions("not whole", |view| view.status.ready == "2/3").await;
    scene.release_version("app:2").await;
    let held = scene.until_versions("held", |view| view.condition("Stalled") == "True/RunningVersionNotReady").await;
    assert!(held.message("Stalled").contains("db-v1-1") && held.message("Stalled").contains("updateNotReady"));
    assert!(!held.world.sets.contains_key("db-v2"), "nothing of version 2 is there");
    assert_eq!(scene.trace(), ["db-v1 3"]);
    scene.change(&json!({ "spec": { "updateStrategy": { "updateNotReady": true } } })).await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(scene.trace(), ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 3", "db-v1 0", "db-v1 gone"]);
    scene.end().await;
}

// spec: es§3, L009, L082
#[tokio::test]
async fn a_version_without_a_ready_pod_is_not_waited_for() {
    let mut broken = objects::extended("db");
    broken["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:1-nopull");
    let scene = Scene::with_operator("fix").await;
    scene.create(&broken).await;
    scene.until_versions("it cannot come up", |view| view.is_told() && view.world.pods.contains_key("db-v1-0")).await;
    scene.release_version("app:2").await;
    let fixed = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(fixed.world.image("db-v2-2"), "app:2");
    scene.end().await;
}

/// Numbers are never used again, also after everything was deleted and the operator was restarted.
// spec: es§3
#[tokio::test]
async fn numbers_are_never_used_again() {
    let mut scene = Scene::with_versions("numbers", &objects::extended("db")).await;
    scene.release_version("app:2").await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    scene.stop_operator().await;
    scene.delete("statefulset/db-v2").await;
    scene.release_version("app:3").await;
    scene.start_operator();
    let after = scene.until_versions("version 3 alone", |view| view.is_only(3)).await;
    assert_eq!(after.status.last_version, 3);
    // The template of version 1 is a new version by now.
    scene.release_version("app:1").await;
    scene.until_versions("version 4 alone", |view| view.is_only(4)).await;
    scene.end().await;
}

/// L112: the operator asks for as little as it can: nothing at all while nothing changes.
// spec: es§3, L007
#[tokio::test]
async fn unchanged_input_makes_no_write() {
    let mut scene = Scene::with_versions("quiet", &objects::extended("db")).await;
    let (start, seen) = (Timestamp::now(), scene.view());
    for _ in 0..3 {
        scene.apply(&objects::extended("db")).await;
    }
    assert_quiet(&mut scene, "at rest").await;
    let mut since = scene.requests();
    since.retain(|entry| entry.received >= start);
    assert_eq!(audit::writes(&since).len(), 0, "{}", audit::tell(&since));
    let after = scene.view();
    assert_eq!((after.uids(""), after.status), (seen.uids(""), seen.status));
    assert_eq!(scene.events_of(Reason::UpgradeStarted).await.len(), 1);
    scene.end().await;
}
