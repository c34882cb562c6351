//! What a message or the guide tells a user to do is done, in the states in which it can be read, and ends as it says. The ways in which a
//! set is first held are in `begins_held`.

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Scene, World, moves, objects};

use super::{approve, gate, gate_that_fails_after, gate_that_waits_before, is_awaiting, release_until_awaited, scale};

/// In mid-rollout: web-2 is on `app:2`, and a person is awaited.
async fn awaiting(name: &str) -> Scene {
    let scene = Scene::at_rest(name, 3, &gate_that_waits_before(1).await).await;
    release_until_awaited(&scene, "app:2").await;
    scene
}

/// web-2 is on `app:2`, whose checks fail, and the set is fully held.
async fn failed(name: &str) -> Scene {
    let scene = Scene::at_rest(name, 3, &gate_that_fails_after(1).await).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    let failed = |world: &World| world.is(Phase::Failed) && world.is_held() && world.is_ready_on("web-2", "app:2");
    scene.until_settled("failed", failed).await;
    scene
}

/// A state in which a user can want something else than the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Awaiting,
    Failed,
    Paused,
}

async fn in_state(state: State, name: &str) -> Scene {
    let scene = if state == State::Failed { failed(name).await } else { awaiting(name).await };
    if state == State::Paused {
        scene.configure(&json!({ "paused": true })).await;
        scene
            .until_settled("paused", |world| {
                world.is(Phase::Paused) && world.condition(ConditionType::Held) == "True/Paused"
            })
            .await;
    }
    scene
}

/// "keeps its partition …; remove it to let pods roll", with the command of the guide.
// spec: pr§8, cure-kept-partition
#[rstest]
#[tokio::test]
async fn the_partition_that_a_deleted_rollout_has_left_is_removed(
    #[values(State::Awaiting, State::Failed, State::Paused)] state: State,
) {
    let scene = in_state(state, "cure-kept").await;
    let before = scene.world();
    scene.delete("phasedrollout/gate").await;
    let left = scene.until_settled("gone", |world| world.rollouts.is_empty()).await;
    assert_eq!((left.partition(), left.uids()), (before.partition(), before.uids()), "nothing rolls");
    let told = scene.until_events(Reason::Released, 2).await;
    let note = told[0].note.clone().unwrap_or_default();
    assert!(note.contains(&format!("keeps its partition {}; remove it", before.partition().unwrap_or(0))), "{note}");
    let remove = r#"[{"op":"remove","path":"/spec/updateStrategy/rollingUpdate/partition"}]"#;
    scene.kubectl_ok(&["patch", "statefulset", "web", "--type", "json", "-p", remove], "").await;
    scene.until("it rolls as usual", |world| world.all_on("app:2") && world.partition().unwrap_or(0) == 0).await;
    scene.end().await;
}

/// The guide's command takes the set away, and the message says how it comes back.
// spec: pr§7, hold, cure-Released
#[rstest]
#[tokio::test]
async fn a_set_is_taken_away_with_its_partition_and_comes_back(
    #[values(State::Awaiting, State::Failed, State::Paused)] state: State,
) {
    let scene = in_state(state, "cure-away").await;
    let take = json!({
        "metadata": { "annotations": { names::CLAIM: null, names::RELEASE: "true" } },
        "spec": { "updateStrategy": { "rollingUpdate": null } },
    });
    scene.kubectl_ok(&["patch", "statefulset", "web", "--type", "merge", "-p", &take.to_string()], "").await;
    scene.until("it rolls as usual", |world| world.all_on("app:2")).await;
    let is_released = |world: &World| world.condition(ConditionType::TargetAccepted) == "False/Released";
    let message = scene.until("it says so", is_released).await.message(ConditionType::TargetAccepted);
    assert!(message.contains("has no partition; remove the annotation, and it is held again"), "{message}");
    scene.release("app:3").await;
    scene.until("the next one rolls as usual too", |world| world.all_on("app:3")).await;
    assert_eq!(scene.world().annotation(names::CLAIM), None);

    scene.errors(false).await;
    scene.configure(&json!({ "paused": false, "pauseBefore": null, "check": { "preflight": true } })).await;
    scene.kubectl_ok(&["annotate", "statefulset", "web", &format!("{}-", names::RELEASE)], "").await;
    let rests = |world: &World| {
        let is_known = world.is(Phase::Idle) || world.is(Phase::Completed);
        is_known && world.partition() == Some(3) && world.annotation(names::CLAIM) == Some("gate")
    };
    let back = scene.until_settled("it is held again", rests).await;
    assert!(back.all_on("app:3") && back.is_told());
    scene.release("app:4").await;
    scene.until("complete", |world| world.is_complete("app:4")).await;
    moves::assert_gated(&scene, "app:3", 1);
    scene.end().await;
}

/// The command of the guide: exactly the pods from the index up roll, once, in whatever state the rollout is.
// spec: hold, pr§4, cure-allow-partition
#[rstest]
#[tokio::test]
async fn pods_from_an_index_up_are_allowed_to_roll(
    #[values(State::Awaiting, State::Failed, State::Paused)] state: State,
) {
    let scene = in_state(state, "cure-allow").await;
    let before = scene.world().uids();
    allow(&scene, 1).await;
    let used =
        |world: &World| world.is_ready_on("web-1", "app:2") && world.annotation(names::ALLOW_PARTITION).is_none();
    scene.until_settled("web-1 rolls, and the word is used up", used).await;
    let told = scene.until_events(Reason::PartitionAllowed, 1).await;
    assert!(format!("{told:?}").contains("allowed partition 1"), "{told:?}");
    let after = scene.world().uids();
    assert_eq!((&after["web-0"], &after["web-2"]), (&before["web-0"], &before["web-2"]), "no other pod moves");

    scene.errors(false).await;
    scene.configure(&json!({ "paused": false, "pauseBefore": null })).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    // web-2 went by a step, web-1 by a person's word.
    let moved = moves::of(&scene.tape.entries());
    assert_eq!(moved.len(), 3, "{moved:?}");
    moves::assert_passed(moved.iter().filter(|moved| moved.pod == "web-0"), &scene.asked(), 1);
    scene.end().await;
}

async fn allow(scene: &Scene, index: i32) {
    let body = json!({
        "metadata": { "annotations": { names::ALLOW_PARTITION: index.to_string() } },
        "spec": { "updateStrategy": { "rollingUpdate": { "partition": index } } },
    });
    scene.kubectl_ok(&["patch", "statefulset", "web", "--type", "merge", "-p", &body.to_string()], "").await;
}

/// "To let exactly this partition through without checks, write it together with the annotation": what was not granted, once more.
// spec: hold, cure-allow-partition
#[tokio::test]
async fn a_partition_that_was_not_granted_is_written_with_the_annotation_that_the_warning_names() {
    let scene = failed("cure-warning").await;
    let zero = r#"{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}"#;
    let kept = scene.kubectl_ok(&["patch", "statefulset", "web", "--type", "merge", "-p", zero], "").await;
    let cure = format!("write it together with the annotation {}: \"0\"", names::ALLOW_PARTITION);
    assert!(kept.stderr.contains("partition 0 was not granted") && kept.stderr.contains(&cure), "{}", kept.stderr);
    allow(&scene, 0).await;
    scene.until("all roll", |world| world.all_on("app:2")).await;
    scene.errors(false).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

/// After a rollback: "the pods that you allowed go to the revision, no other does, and the revision stays rejected until you retry it".
// spec: hold, pr§5, cure-allow-partition, cure-RevisionRejected
#[tokio::test]
async fn after_a_rollback_a_pod_is_allowed_to_roll_and_the_rest_waits_for_a_retry() {
    let scene = rejected("cure-back").await;
    let before = scene.world().uids();
    allow(&scene, 2).await;
    let rolled =
        |world: &World| world.is_ready_on("web-2", "app:2") && world.annotation(names::ALLOW_PARTITION).is_none();
    let after = scene.until_settled("web-2 rolls", rolled).await;
    assert!(["web-0", "web-1"].iter().all(|pod| after.uids()[*pod] == before[*pod]), "no other does");
    let stays = |world: &World| world.condition(ConditionType::Stalled) == "True/RevisionRejected" && world.is_told();
    scene.until("it stays rejected", stays).await;
    scene.errors(false).await;
    scene.annotate(names::RETRY, "again").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_allowed(&scene.tape.entries(), "app:1");
    scene.end().await;
}

/// `app:2` has failed, and its pod is back on `app:1`.
async fn rejected(name: &str) -> Scene {
    let check =
        json!({ "preflight": false, "final": false, "successThreshold": 1, "maxTries": 1, "onFailure": "Rollback" });
    let scene = Scene::at_rest(name, 3, &gate(check).await).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    scene.until_settled("rolled back", |world| world.is(Phase::RolledBack) && world.all_on("app:1")).await;
    scene
}

/// What the message of a rejected revision offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    /// A mended template.
    Mended,
    /// The retry annotation.
    Retry,
}

/// "change the template, or set the annotation … to try it again"; through zero replicas, where nothing can hold it any more: "change
/// the template back … or to a mended one, or set the annotation … to have it checked again". Back is in `scaling`.
// spec: pr§5, cure-RevisionRejected
#[rstest]
#[tokio::test]
async fn a_rejected_revision_is_mended_or_tried_again(
    #[values(Offer::Mended, Offer::Retry)] offer: Offer,
    #[values(false, true)] over_zero: bool,
) {
    let scene = rejected("cure-rejected").await;
    if over_zero {
        scale(&scene, 0).await;
        let warns = |world: &World| world.status().message.contains("which was rejected, when it is scaled up");
        scene.until_settled("it warns", |world| world.pods.is_empty() && warns(world)).await;
        scale(&scene, 3).await;
        scene.until_settled("it runs", |world| world.all_on("app:2") && world.is_held()).await;
    }
    let words = if over_zero { "to have it checked again" } else { "to try it again" };
    let is_told = |world: &World| world.status().message.contains(words);
    let told = scene.until("the cure is told", is_told).await;
    assert_eq!(told.condition(ConditionType::Stalled), "True/RevisionRejected");
    let born = told.uids();
    scene.errors(false).await;
    let image = if offer == Offer::Mended { "app:3" } else { "app:2" };
    match offer {
        Offer::Mended => scene.release(image).await,
        Offer::Retry => scene.annotate(names::RETRY, "again").await,
    }
    let end = scene.until("complete", |world| world.is_complete(image)).await;
    if over_zero && offer == Offer::Retry {
        assert_eq!(end.uids(), born, "there is nothing to roll");
    } else if !over_zero {
        let moved = moves::of(&scene.tape.entries());
        let last = moved.iter().filter(|moved| moved.to == image && moved.pod != "web-2");
        moves::assert_passed(last, &scene.asked(), 1);
    }
    scene.end().await;
}

/// What the API server says to who leaves RollingUpdate in mid-rollout.
#[derive(Clone, Copy, Debug)]
enum Leave {
    /// "delete PhasedRollout gate first".
    Delete,
    /// "remove the annotation … and set … in one write".
    Release,
}

// spec: hold, cure-strategy
#[rstest]
#[tokio::test]
async fn the_strategy_leaves_rolling_update_in_mid_rollout_as_the_refusal_says(
    #[values(Leave::Delete, Leave::Release)] leave: Leave,
    #[values(State::Awaiting, State::Failed)] state: State,
) {
    let scene = in_state(state, "cure-leave").await;
    let before = scene.world().uids();
    let on_delete = json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } });
    let sentence = scene.try_patch("statefulset/web", &on_delete).await.expect_err("refused").to_string();
    assert!(sentence.contains("delete PhasedRollout gate first"), "{sentence}");
    match leave {
        Leave::Delete => {
            scene.delete("phasedrollout/gate").await;
            scene.until("gone", |world| world.rollouts.is_empty()).await;
            scene.patch("statefulset/web", &on_delete).await;
        }
        Leave::Release => {
            let annotations = json!({ names::CLAIM: null, names::RELEASE: "true" });
            scene.patch("statefulset/web", &objects::with(on_delete, "/metadata/annotations", annotations)).await;
        }
    }
    scene.until_looked_at_again().await;
    assert_eq!(scene.world().uids(), before, "no pod moves");
    scene.end().await;
}

/// "put it back …, or delete the pod": the second.
// spec: pr§6, cure-in-the-way
#[rstest]
#[tokio::test]
async fn a_pod_that_is_not_selected_any_more_is_deleted(#[values(true, false)] in_mid_rollout: bool) {
    let scene = if in_mid_rollout {
        awaiting("cure-label").await
    } else {
        Scene::at_rest("cure-label", 3, &Scene::quick_gate().await).await
    };
    let born = scene.world().uids();
    scene.patch("pod/web-1", &json!({ "metadata": { "labels": { "app": "other" } } })).await;
    scene.until("told", |world| world.status().message.contains("pod web-1 is in the way")).await;
    scene.delete("pod/web-1").await;
    let back = |world: &World| world.is_ready_on("web-1", "app:1") && world.uids()["web-1"] != born["web-1"];
    let back = scene.until_settled("it is back on the release that has passed", back).await;
    assert!(["web-0", "web-2"].iter().all(|pod| back.uids()[*pod] == born[*pod]), "no other pod moves");
    if in_mid_rollout {
        scene.until("a person is awaited again", is_awaiting).await;
        approve(&scene, 1).await;
        scene.until("complete", |world| world.is_complete("app:2")).await;
    } else {
        scene.until("at rest", |world| world.is(Phase::Idle) || world.is(Phase::Completed)).await;
    }
    scene.end().await;
}

/// "restore" what is named: an expression, a Secret. Nothing rolls before, and everything through the gate after.
// spec: pr§1, pr§2, pr§3, cure-checks
#[rstest]
#[case::an_expression("InvalidQuery", json!({ "expr": "up{" }), "is not valid PromQL")]
#[case::a_variable("InvalidQuery", json!({ "expr": "up{pod=\"${podd}\"}" }), "known are pod,")]
#[case::an_address("InvalidUrl", json!({ "url": "http://169.254.169.254" }), "give the address of Prometheus")]
#[case::a_secret("InvalidCredentials", json!({ "secretRef": "half" }), "but no key username: add it")]
#[tokio::test]
async fn a_check_that_cannot_be_made_is_mended(
    #[case] reason: &str,
    #[case] query: Value,
    #[case] words: &str,
    #[values(true, false)] from_the_start: bool,
) {
    let good = Scene::quick_gate().await;
    let right = good["spec"]["check"]["query"].clone();
    let mut bad = good.clone();
    json_patch::merge(&mut bad["spec"]["check"]["query"], &query);
    let scene = if from_the_start {
        let mut scene = Scene::new("cure-check").await;
        scene.create(&objects::secret("half", &[("password", "word")])).await;
        scene.settle(&objects::set(3), &bad).await;
        scene
    } else {
        let scene = Scene::at_rest("cure-check", 3, &good).await;
        scene.create(&objects::secret("half", &[("password", "word")])).await;
        scene.configure(&json!({ "check": { "query": query } })).await;
        scene
    };
    let is_told = |world: &World| world.condition(ConditionType::ChecksValid) == format!("False/{reason}");
    let told = scene.until("told", is_told).await;
    let message = told.message(ConditionType::ChecksValid);
    assert!(message.contains("spec.check.query") && message.contains(words), "{message}");
    scene.release("app:2").await;
    let held = scene.until_settled("held", World::is_held).await;
    assert_eq!(held.uids(), told.uids(), "nothing rolls");
    if reason == "InvalidCredentials" {
        let body = json!({ "stringData": { "username": "jane" } });
        scene.patch("secret/half", &body).await;
    } else {
        scene.configure(&json!({ "check": { "query": right } })).await;
    }
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_eq!(moves::assert_gated(&scene, "app:1", 1).len(), 3);
    scene.end().await;
}
