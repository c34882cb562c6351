//! What Prometheus says about the canaries.

use jiff::Timestamp;
use serde_json::{Value, json};
use sts_plus_api::VersionPhase;
use sts_plus_e2e::{Entry, Scene, Seen, View, eventually, objects};
use testcluster::AuthProxy;

/// `db` whose canaries must not have errors: a check each second, two in a row, three at most.
async fn checked() -> Value {
    let url = Scene::prometheus().await;
    let mut db = objects::extended("db");
    db["spec"]["updateStrategy"]["check"] = json!({
        "initialDelaySeconds": 0, "periodSeconds": 1, "successThreshold": 2, "maxTries": 3,
        "query": { "expr": objects::ERRORS, "url": url },
    });
    db
}

// spec: es§3, L024
#[tokio::test]
async fn canaries_that_pass_their_checks_bring_the_version_into_charge() {
    let scene = Scene::with_versions("passes", &checked().await).await;
    scene.release_version("app:2").await;
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    let entries = scene.tape.entries();
    let is_told = |entry: &Entry| match &entry.seen {
        Seen::Extended(db) => db
            .status
            .as_ref()
            .is_some_and(|status| status.phase == VersionPhase::Canary && status.message.contains("check at")),
        _ => false,
    };
    assert!(entries.iter().any(is_told), "the checks of the canary are told");
    let grows = |entry: &&Entry| match &entry.seen {
        Seen::Set(set) => {
            let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
            set.metadata.name.as_deref() == Some("db-v2") && replicas > Some(1)
        }
        _ => false,
    };
    let grown = entries.iter().find(grows).expect("version 2 has all its pods").arrived;
    let asked = scene.asked();
    let passed = asked.iter().filter(|asked| asked.at < grown && asked.has_passed()).count();
    assert!(passed >= 2, "before the other pods came: {asked:?}");
    let checked: Vec<_> = after.status.checks.iter().map(|check| check.pod.as_str()).collect();
    assert!(!checked.is_empty() && checked.iter().all(|pod| *pod == "db-v2-0"), "{checked:?}");
    assert_eq!(scene.trace(), ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 3", "db-v1 0", "db-v1 gone"]);
    scene.assert_never_fewer_than(3);
    scene.end().await;
}

// spec: es§3, L024
#[tokio::test]
async fn a_check_that_fails_makes_the_version_stale() {
    let scene = Scene::with_versions("fails", &checked().await).await;
    let before = scene.view();
    scene.release_version("app:2-errors").await;
    let failed = scene.until_versions("stale", |view| view.condition("Stale") == "True/VersionStale").await;
    assert!(failed.message("Stale").contains("3 checks without 2 consecutive passes"), "{}", failed.message("Stale"));
    let versions = std::collections::BTreeMap::from([("1".to_owned(), true), ("2".to_owned(), false)]);
    let is_gone = |view: &View| view.uids("db-v2-").is_empty() && view.status.versions == versions;
    let gone = scene.until_versions("its pods are gone", is_gone).await;
    assert_eq!(gone.uids("db-v1-"), before.uids("db-v1-"));
    let mut trace = scene.trace();
    // One after the other in the same step.
    trace[3..].sort();
    assert_eq!(trace, ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 0", "db-v2 stale"]);
    scene.release_version("app:3").await;
    scene.until_versions("version 3 alone", |view| view.is_only(3)).await;
    let after = ["db-v2 gone", "db-v3 0", "db-v3 1", "db-v3 3", "db-v1 0", "db-v1 gone"];
    assert_eq!(scene.trace()[5..], after);
    scene.assert_never_fewer_than(3);
    scene.end().await;
}

/// While Prometheus gives errors the clock of the canaries stands still, and nothing passes.
// spec: es§1
#[tokio::test]
async fn while_prometheus_gives_errors_the_clock_stands_still() {
    let door = AuthProxy::start(&Scene::prometheus().await).await.expect("the proxy starts");
    door.answer_with(503, "overloaded");
    let mut db = checked().await;
    db["spec"]["updateStrategy"]["check"]["query"]["url"] = json!(door.url());
    let scene = Scene::with_versions("outage", &db).await;
    scene.release_version("app:2").await;
    let held = scene.until_versions("held", |view| view.is(VersionPhase::Held)).await;
    assert!(held.status.message.contains("no usable answer"), "{}", held.status.message);
    // From now on the canary may take little longer than what it has taken already.
    let since = held.status.upgrade.as_ref().and_then(|upgrade| upgrade.since).expect("the step has begun");
    let watched = Timestamp::now().duration_since(since).as_secs() + 5;
    scene.change(&json!({ "spec": { "updateStrategy": { "canaryWatchSeconds": watched } } })).await;
    door.forget();
    let asked = usize::try_from(watched).expect("seconds") + 2;
    eventually("it is asked once a second for longer than it is watched", async || door.count() >= asked).await;
    let still = scene.view();
    assert!(still.is(VersionPhase::Held) && !still.condition("Stale").starts_with("True"), "{:?}", still.status);
    scene.change(&json!({ "spec": { "updateStrategy": { "canaryWatchSeconds": 60 } } })).await;
    door.forward();
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    scene.end().await;
}
