//! From one version to the next, and what becomes of one that fails.

use serde_json::json;
use sts_plus_api::{Reason, VersionPhase, names};
use sts_plus_e2e::{Scene, objects};

// spec: es§3, L022, L024
#[tokio::test]
async fn both_versions_are_there_until_the_new_one_has_all_its_pods() {
    let scene = Scene::with_versions("upgrade", &objects::extended("db")).await;
    let before = scene.view();
    scene.release_version("app:2-ready-after-2s").await;
    let canary = scene.until_versions("a canary", |view| view.is(VersionPhase::Canary)).await;
    assert_eq!(canary.status.current_version, Some(1));
    assert_eq!(canary.status.update_version, Some(2));
    let both = scene
        .until_versions("both run", |view| view.status.versions.values().filter(|ready| **ready).count() == 2)
        .await;
    assert_eq!(both.uids("db-v1-"), before.uids("db-v1-"), "nothing of version 1 was touched");
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(after.status.current_version, Some(2));
    assert_eq!(after.world.image("db-v2-0"), "app:2-ready-after-2s");
    assert_eq!(scene.trace(), ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 3", "db-v1 0", "db-v1 gone"]);
    scene.assert_never_fewer_than(3);
    scene.end().await;
}

// spec: es§3, L022, L024
#[tokio::test]
async fn a_canary_that_never_comes_makes_the_version_stale_and_the_running_one_stays() {
    let mut db = objects::extended("db");
    db["spec"]["updateStrategy"] = json!({ "canaries": 1, "canaryWatchSeconds": 2, "retryCount": 2 });
    let scene = Scene::with_versions("stale", &db).await;
    let before = scene.view();
    scene.release_version("app:2-never-ready").await;
    let failed = scene
        .until_versions("stale", |view| view.condition("Stale") == "True/VersionStale" && view.is(VersionPhase::Failed))
        .await;
    assert_eq!(failed.condition("Stalled"), "True/VersionStale");
    assert!(failed.message("Stale").contains("db-v2-0 is not Ready"), "{}", failed.message("Stale"));
    let gone = scene.until_versions("its pods are gone", |view| view.uids("db-v2-").is_empty()).await;
    assert_eq!(gone.uids("db-v1-"), before.uids("db-v1-"));
    let tries = ["db-v2 1", "db-v2 0"];
    let trace = scene.trace();
    let expected: Vec<&str> = ["db-v1 3", "db-v2 0"].into_iter().chain(tries).chain(tries).chain(["db-v2 1"]).collect();
    assert_eq!(trace[..expected.len()], expected);
    let mut end = trace[expected.len()..].to_vec();
    end.sort();
    assert_eq!(end, ["db-v2 0", "db-v2 stale"]);
    assert_eq!(scene.events_of(Reason::CanaryRetried).await.len(), 2);
    // The way back: no new number, no restart, no mark.
    scene.release_version("app:1").await;
    let back = scene.until_versions("version 1 alone", |view| view.is_only(1)).await;
    assert_eq!(back.condition("Stale"), "False/NoStaleVersion");
    assert_eq!(back.uids("db-v1-"), before.uids("db-v1-"));
    // The same template later is a new version.
    scene.change(&json!({ "spec": { "updateStrategy": { "retryCount": 0 } } })).await;
    scene.release_version("app:2-never-ready").await;
    scene.until_versions("stale again", |view| view.condition("Stale") == "True/VersionStale").await;
    scene.release_version("app:3").await;
    let fixed = scene.until_versions("version 4 alone", |view| view.is_only(4)).await;
    assert_eq!(fixed.status.last_version, 4, "3 was the stale one");
    scene.assert_never_fewer_than(3);
    scene.end().await;
}

// spec: es§3, L024
#[tokio::test]
async fn a_stale_version_is_tried_again_when_a_person_says_so() {
    let mut db = objects::extended("db");
    db["spec"]["updateStrategy"] = json!({ "canaryWatchSeconds": 2 });
    let scene = Scene::with_versions("retry", &db).await;
    scene.release_version("app:2-ready-after-3s").await;
    scene.until_versions("stale", |view| view.condition("Stale") == "True/VersionStale").await;
    scene
        .change(&json!({
            "metadata": { "annotations": { names::RETRY_VERSION: "once more" } },
            "spec": { "updateStrategy": { "canaryWatchSeconds": 60 } },
        }))
        .await;
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(after.condition("Stale"), "False/NoStaleVersion");
    assert_eq!(scene.trace().last().map(String::as_str), Some("db-v1 gone"));
    assert!(scene.trace().contains(&"db-v2 not stale".to_owned()), "{:?}", scene.trace());
    scene.end().await;
}
