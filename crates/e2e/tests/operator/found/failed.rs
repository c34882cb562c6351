//! A rollout that has failed: what keeps it so, and that every pod of the failed revision goes back.

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase};
use sts_plus_e2e::{World, moves, objects};

use super::{Owned, images, words};
use crate::rollout::{RECOVERING, gate, recovers, set};

/// No preflight, one pass is enough, and two refusals are a failure.
fn soon(policy: &str) -> Value {
    json!({ "preflight": false, "successThreshold": 1, "maxTries": 2, "onFailure": policy })
}

/// Two of four pods were rolled, the second one failed, and onFailure Pause stops the rollout for a person. Its checks pass by now, and
/// somebody deletes pods of it: they come back on the old revision and stay there until a retry.
// spec: pr§5, L038, L081
#[rstest]
#[case::the_failed_one(&["web-2"])]
#[case::the_one_above(&["web-3"])]
#[case::both(&["web-2", "web-3"])]
#[case::one_that_has_not_moved(&["web-1"])]
#[tokio::test]
async fn whatever_pods_are_deleted_a_pause_after_a_failed_pod_stands(#[case] pods: &[&str]) {
    let gate = objects::with(gate(soon("Pause")).await, "/spec/check/query/expr", RECOVERING);
    let owned = Owned::at_rest("paused", &objects::set(4), &gate).await;
    recovers(&owned, "web-2", true).await;
    owned.release("app:2").await;
    let stopped = |world: &World| {
        world.is(Phase::Failed) && world.condition(ConditionType::Stalled) == "True/ChecksFailed" && world.is_held()
    };
    let failed = owned.until("failed", stopped).await;
    assert_eq!(images(&failed), ["app:1", "app:1", "app:2", "app:2"]);
    recovers(&owned, "web-2", false).await;
    for pod in pods {
        owned.delete_pod(pod).await;
    }
    let before = failed.uids();
    let back = |world: &World| {
        let is_new = |pod: &&str| world.uids().get(*pod).is_some_and(|uid| *uid != before[*pod]);
        world.pods.values().filter(|pod| sts_plus_e2e::is_ready(pod)).count() == 4 && pods.iter().all(is_new)
    };
    let back = owned.until("they are back", back).await;
    assert!(pods.iter().all(|pod| back.image(pod) == "app:1"), "{:?}", images(&back));
    // One was enough before the failure.
    owned.until_answered(4, true).await;
    let still = owned.until("still failed", stopped).await;
    assert_eq!(still.uids(), back.uids(), "no pod has moved");
    let message = still.status().message;
    assert!(message.contains("sts.plus/retry"), "{message}");

    owned.retry().await;
    owned.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_allowed(&owned.tape.entries(), "app:1");
    owned.end().await;
}

/// A is good; B has passed on the two upper pods; C fails on the first one and is rolled back. The other one on B has never moved to C: it is
/// no reason to stop, and nobody says of it that it is back.
// spec: pr§5, L081
#[rstest]
#[tokio::test]
async fn pods_that_never_moved_do_not_stop_a_rollback(#[values("OrderedReady", "Parallel")] policy: &str) {
    let gate = objects::with(gate(soon("Rollback")).await, "/spec/check/query/expr", RECOVERING);
    let gate = objects::with(gate, "/spec/pauseBefore", json!([2]));
    let owned = Owned::at_rest("between", &set(5, policy), &gate).await;
    owned.release("app:2").await;
    let awaited = |world: &World| world.condition(ConditionType::Held) == "True/AwaitingApproval" && world.is_told();
    let awaited = owned.until_settled("two have passed", awaited).await;
    assert_eq!(images(&awaited), ["app:1", "app:1", "app:1", "app:2", "app:2"]);
    let before = awaited.uids();

    recovers(&owned, "web-4", true).await;
    owned.release("app:3").await;
    let back = |world: &World| {
        world.condition(ConditionType::Stalled) == "True/RevisionRejected"
            && world.is_ready_on("web-4", "app:1")
            && world.uids()["web-4"] != before["web-4"]
    };
    let back = owned.until("rolled back", back).await;
    assert_eq!(images(&back), ["app:1", "app:1", "app:1", "app:2", "app:1"]);
    assert_eq!(back.status().rejected_revisions, [back.update_revision()]);
    let still = owned.until_looked_at_again().await;
    assert_eq!(still.uids(), back.uids());
    for pod in ["web-0", "web-1", "web-2", "web-3"] {
        assert_eq!(still.uids()[pod], before[pod], "{pod} was never touched");
    }
    assert_eq!(owned.deleted(), ["web-4"]);
    assert!(still.is_held() && matches!(still.status().phase, Phase::RolledBack | Phase::Held), "{:?}", still.status());
    let words = words(&owned).await;
    let wrong = |words: &&String| words.contains("is stopped") || words.contains("pods are back");
    assert_eq!(words.iter().find(wrong), None);
    owned.end().await;
}

/// The new web-2 crashes, and web-0 of the old revision is broken, too, and stays so. The release has failed all the same, and the status
/// says so of web-2.
// spec: pr§5, pr§6, L079
#[rstest]
#[tokio::test]
async fn a_broken_pod_of_the_old_revision_does_not_hide_one_of_the_new(
    #[values("OrderedReady", "Parallel")] policy: &str,
    #[values("Hold", "Pause", "Rollback")] on_failure: &str,
) {
    // All tries take 10 s, in which web-0 breaks.
    let check = objects::with(soon(on_failure), "/maxTries", 10);
    let owned = Owned::at_rest("hidden", &set(3, policy), &gate(check).await).await;
    owned.release("app:2-broken").await;
    owned.until("web-2 is on the release", |world| world.image("web-2") == "app:2-broken").await;
    owned.annotate("pod/web-0", "sts-plus.test/stage", "broken").await;
    let broken = |world: &World| {
        world.pods.contains_key("web-0") && !world.is_ready_on("web-0", "app:1") && !world.is(Phase::Failed)
    };
    let broken = owned.until("both are broken", broken).await;
    assert!(broken.status().rejected_revisions.is_empty(), "not before all tries: {:?}", broken.status());
    if on_failure == "Rollback" {
        let leaves = |world: &World| {
            world.status().rejected_revisions == [world.update_revision()] && world.image("web-2") != "app:2-broken"
        };
        let rejected = owned.until("web-2 leaves the release", leaves).await;
        assert!(!rejected.is_ready_on("web-0", "app:1"), "while web-0 is broken");
        assert_eq!(owned.deleted(), ["web-2"]);
        owned.annotate("pod/web-0", "sts-plus.test/stage", "healthy").await;
        owned.until("rolled back", |world| world.is(Phase::RolledBack) && world.all_on("app:1")).await;
    } else {
        let failed = owned.until("failed", |world| world.is(Phase::Failed)).await;
        let message = failed.status().message;
        assert!(message.contains("web-2") && !message.contains("web-0"), "{message}");
        assert!(failed.condition(ConditionType::Stalled).starts_with("True/"), "{:?}", failed.status());
        assert!(!failed.is_ready_on("web-0", "app:1") && owned.deleted().is_empty());
    }
    owned.end().await;
}
