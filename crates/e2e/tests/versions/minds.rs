//! A person who changes the template while an upgrade goes on.

use serde_json::json;
use sts_plus_api::{Reason, VersionPhase, names};

use crate::story::{Story, db};

#[tokio::test]
async fn the_newest_template_wins_and_what_was_between_goes() {
    let story = Story::at_rest("newest", &db()).await;
    let before = story.view().await;
    story.release("app:2-never-ready").await;
    story.until("a canary of version 2", |view| view.world.pods.contains_key("db-v2-0")).await;
    story.release("app:3").await;
    let after = story.until("version 3 alone", |view| view.is_only(3)).await;
    assert_eq!(after.status.last_version, 3);
    // The one between goes before the next one starts.
    let between = ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 0", "db-v2 gone"];
    let next = ["db-v3 0", "db-v3 1", "db-v3 3", "db-v1 0", "db-v1 gone"];
    assert_eq!(story.trace(), [between, next].concat());
    assert!(before.uids("db-v1-").len() == 3 && after.uids("db-v1-").is_empty());
    story.assert_never_fewer_than(3);
    story.end().await;
}

#[tokio::test]
async fn back_to_the_running_template_aborts_and_restarts_nothing() {
    let story = Story::at_rest("back", &db()).await;
    let before = story.view().await;
    story.release("app:2-never-ready").await;
    story.until("a canary of version 2", |view| view.world.pods.contains_key("db-v2-0")).await;
    story.release("app:1").await;
    let after = story.until("version 1 alone", |view| view.is_only(1)).await;
    assert_eq!(after.uids(""), before.uids(""), "the same pods");
    assert_eq!((after.status.current_version, after.status.update_version), (Some(1), None));
    assert_eq!(story.trace(), ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 0", "db-v2 gone"]);
    assert_eq!(story.scene.until_events(Reason::UpgradeAborted, 1).await.len(), 1);
    story.end().await;
}

#[tokio::test]
async fn paused_no_step_is_made_and_afterwards_it_goes_on() {
    let story = Story::at_rest("paused", &db()).await;
    story.change(&json!({ "spec": { "paused": true } })).await;
    story.release("app:2").await;
    story.until("paused", |view| view.is(VersionPhase::Paused)).await;
    let trace = story.trace();
    // What runs is looked after all the same.
    story.scene.kubectl_ok(&["delete", "pod", "db-v1-1", "--wait=false"], "").await;
    story.change(&json!({ "spec": { "template": { "spec": { "replicas": 5 } } } })).await;
    story.until("five pods", |view| view.is_told() && view.uids("db-v1-").len() == 5).await;
    assert_eq!(story.trace()[trace.len()..], ["db-v1 5"]);
    story.change(&json!({ "spec": { "paused": false } })).await;
    story.until("version 2 alone", |view| view.is_only(2)).await;
    story.end().await;
}

/// L009, L082: a fix is never locked out by the pods that it repairs.
#[tokio::test]
async fn a_running_version_that_is_not_whole_is_waited_for_unless_told_otherwise() {
    let story = Story::at_rest("waits", &db()).await;
    let unready = json!({ "metadata": { "annotations": { "sts-plus.test/ready": "false" } } });
    story.scene.patch("pod/db-v1-1", &unready).await;
    story.until("not whole", |view| view.status.ready == "2/3").await;
    story.release("app:2").await;
    let held = story.until("held", |view| view.condition("Stalled") == "True/RunningVersionNotReady").await;
    assert!(held.message("Stalled").contains("db-v1-1") && held.message("Stalled").contains("updateNotReady"));
    assert!(!held.world.sets.contains_key("db-v2"), "nothing of version 2 is there");
    assert_eq!(story.trace(), ["db-v1 3"]);
    story.change(&json!({ "spec": { "updateStrategy": { "updateNotReady": true } } })).await;
    story.until("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(story.trace(), ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 3", "db-v1 0", "db-v1 gone"]);
    story.end().await;
}

#[tokio::test]
async fn a_version_without_a_ready_pod_is_not_waited_for() {
    let mut broken = db();
    broken["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:1-nopull");
    let story = Story::new("fix").await;
    story.scene.create(&broken).await;
    story.until("it cannot come up", |view| view.is_told() && view.world.pods.contains_key("db-v1-0")).await;
    story.release("app:2").await;
    let fixed = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(fixed.world.image("db-v2-2"), "app:2");
    story.end().await;
}

/// Numbers are never used again, also after everything was deleted and the operator was started anew.
#[tokio::test]
async fn numbers_are_never_used_again() {
    let mut story = Story::at_rest("numbers", &db()).await;
    story.release("app:2").await;
    story.until("version 2 alone", |view| view.is_only(2)).await;
    story.scene.stop_operator().await;
    story.scene.kubectl_ok(&["delete", "statefulset", "db-v2"], "").await;
    story.release("app:3").await;
    story.scene.start_operator();
    let after = story.until("version 3 alone", |view| view.is_only(3)).await;
    assert_eq!(after.status.last_version, 3);
    // The template of version 1 is a new version by now.
    story.release("app:1").await;
    story.until("version 4 alone", |view| view.is_only(4)).await;
    story.end().await;
}

/// L112: the operator asks for as little as it can: nothing at all while nothing changes.
#[tokio::test]
async fn unchanged_input_makes_no_write() {
    let mut story = Story::at_rest("quiet", &db()).await;
    let writes = |story: &Story| story.scene.requests().iter().filter(|entry| entry.is_write()).count();
    story.scene.stop_operator().await;
    let (before, seen) = (writes(&story), story.view().await);
    let watched = story.scene.requests().len();
    story.scene.start_operator();
    for _ in 0..10 {
        story.scene.apply(&db()).await;
    }
    let looks = |entry: &testcluster::AuditEntry| entry.verb == "get" && entry.resource == "extendedstatefulsets";
    story.scene.until_requests("it looks again", watched, looks).await;
    let marked = json!({ "metadata": { "annotations": { "a-person": "was here" } } });
    story.change(&marked).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(writes(&story), before, "{:#?}", story.scene.requests().split_off(watched));
    let after = story.view().await;
    assert_eq!((after.uids(""), after.status), (seen.uids(""), seen.status));
    assert_eq!(story.scene.events_of(Reason::UpgradeStarted).await.len(), 1, "{}", names::VERSION);
    story.end().await;
}
