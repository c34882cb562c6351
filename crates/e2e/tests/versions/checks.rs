//! What Prometheus says about the canaries.

use serde_json::{Value, json};
use sts_plus_api::VersionPhase;
use sts_plus_e2e::{Scene, objects};

use crate::story::{Story, View, db};

/// `db` whose canaries must not have errors: a check each second, two in a row, three at most.
async fn checked() -> Value {
    let url = Scene::prometheus().await;
    let mut db = db();
    db["spec"]["updateStrategy"]["check"] = json!({
        "initialDelaySeconds": 0, "periodSeconds": 1, "successThreshold": 2, "maxTries": 3,
        "query": { "expr": objects::ERRORS, "url": url },
    });
    db
}

#[tokio::test]
async fn canaries_that_pass_their_checks_bring_the_version_into_charge() {
    let story = Story::at_rest("passes", &checked().await).await;
    story.release("app:2").await;
    let canary = story
        .until("it is checked", |view| view.is(VersionPhase::Canary) && view.status.message.contains("check at"))
        .await;
    assert!(canary.uids("db-v2-").len() <= 1);
    let after = story.until("version 2 alone", |view| view.is_only(2)).await;
    let passed = after.status.checks.iter().rev().take_while(|check| check.passed).count();
    assert!(passed >= 2, "{:?}", after.status.checks);
    assert!(after.status.checks.iter().all(|check| check.pod == "db-v2-0"));
    story.assert_never_fewer_than(3);
    story.end().await;
}

#[tokio::test]
async fn a_check_that_fails_makes_the_version_stale() {
    let story = Story::at_rest("fails", &checked().await).await;
    let before = story.view().await;
    story.release("app:2-errors").await;
    let failed = story.until("stale", |view| view.condition("Stale") == "True/VersionStale").await;
    assert!(failed.message("Stale").contains("3 checks without 2 consecutive passes"), "{}", failed.message("Stale"));
    let versions = std::collections::BTreeMap::from([("1".to_owned(), true), ("2".to_owned(), false)]);
    let is_gone = |view: &View| view.uids("db-v2-").is_empty() && view.status.versions == versions;
    let gone = story.until("its pods are gone", is_gone).await;
    assert_eq!(gone.uids("db-v1-"), before.uids("db-v1-"));
    let mut trace = story.trace();
    // One after the other in the same step.
    trace[3..].sort();
    assert_eq!(trace, ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 0", "db-v2 stale"]);
    story.release("app:3").await;
    story.until("version 3 alone", |view| view.is_only(3)).await;
    let after = ["db-v2 gone", "db-v3 0", "db-v3 1", "db-v3 3", "db-v1 0", "db-v1 gone"];
    assert_eq!(story.trace()[5..], after);
    story.assert_never_fewer_than(3);
    story.end().await;
}

/// While Prometheus gives errors the clock of the canaries stands still, and nothing passes.
#[tokio::test]
async fn while_prometheus_gives_errors_the_clock_stands_still() {
    let mut db = checked().await;
    db["spec"]["updateStrategy"]["canaryWatchSeconds"] = json!(4);
    db["spec"]["updateStrategy"]["check"]["query"]["url"] = json!("http://127.0.0.1:9");
    let story = Story::at_rest("outage", &db).await;
    story.release("app:2").await;
    let held = story.until("held", |view| view.is(VersionPhase::Held)).await;
    assert!(held.status.message.contains("no usable answer"), "{}", held.status.message);
    let asked = |story: &Story| story.scene.log().matches("check: ").count();
    sts_plus_e2e::eventually("it was asked for longer than it is watched", async || asked(&story) >= 7).await;
    assert!(story.view().await.is(VersionPhase::Held), "{:?}", story.view().await.status);
    let url = Scene::prometheus().await;
    story.change(&json!({ "spec": { "updateStrategy": { "check": { "query": { "url": url } } } } })).await;
    story.until("version 2 alone", |view| view.is_only(2)).await;
    story.end().await;
}
