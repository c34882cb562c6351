//! A cycle fails only if an answer refused, or a pod was broken: what breaks a streak and is no refusal gives its tries back.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason};
use sts_plus_e2e::{Scene, Seen, World, eventually, moves, objects};
use testcluster::AuthProxy;

use super::Owned;
use crate::rollout::gate;

/// A pass is good for a period, which is 1 s here, and a minute.
const GOOD_FOR: SignedDuration = SignedDuration::from_secs(61);

/// Nothing of this release has failed, was rejected, or went back.
async fn assert_never_failed(scene: &Scene) {
    for entry in scene.tape.entries() {
        let Seen::Rollout(gate) = entry.seen else { continue };
        let status = gate.status.clone().unwrap_or_default();
        assert!(status.phase != Phase::Failed && status.rejected_revisions.is_empty(), "{status:#?}");
    }
    assert!(scene.events_of(Reason::ChecksFailed).await.is_empty());
    assert!(scene.deleted().is_empty(), "no pod went back: {:?}", scene.deleted());
}

/// Two checks are allowed and two passes are needed; both pass, and the person needs more than a minute to approve. The passes are stale by
/// then: the checks are made once more, and the release, which no check has refused, is neither rolled back nor stopped.
// spec: pr§1, pr§3, pr§5
#[rstest]
#[case::before_the_first_pod(1, "Pause")]
#[case::before_the_second_pod(0, "Rollback")]
#[tokio::test]
async fn passes_that_are_stale_when_a_person_approves_are_no_failure(#[case] index: i32, #[case] policy: &str) {
    let gate = gate(json!({ "maxTries": 2, "successThreshold": 2, "final": false, "onFailure": policy })).await;
    let gate = objects::with(gate, "/spec/pauseBefore", json!([index]));
    let owned = Owned::at_rest("stale", &objects::set(2), &gate).await;
    owned.release("app:2").await;
    let awaited = |world: &World| {
        world.condition(ConditionType::Held) == "True/AwaitingApproval"
            && world.status().message.contains(&format!("/{index}"))
    };
    owned.until_settled("a person is awaited", awaited).await;
    // This time is what the scenario is about.
    let last = owned.asked().pop().expect("a check was made").at;
    let rest = (last + GOOD_FOR + SignedDuration::from_secs(1)).duration_since(Timestamp::now());
    tokio::time::sleep(rest.try_into().unwrap_or_default()).await;
    let still = owned.world();
    assert!(awaited(&still) && still.image(&format!("web-{index}")) == "app:1");
    owned.approve(index).await;
    owned.until("complete", |world| world.is_complete("app:2")).await;
    assert_never_failed(&owned).await;

    let (steps, asked) = (moves::steps(&owned.tape.entries()), owned.asked());
    let step = steps.iter().find(|step| step.partition == index).expect("the step was made");
    let fresh = asked.iter().filter(|asked| asked.has_passed() && asked.at > last && asked.at < step.seen);
    assert!(fresh.count() >= 2, "on passes that are not stale: {step:?}\n{asked:#?}");
    moves::assert_gated(&owned, "app:1", 2);
    owned.end().await;
}

/// Three passes in a row are needed and four checks are allowed, and each third request to Prometheus is answered with an error. Nothing is
/// refused, so it is held until Prometheus is well, and not rolled back. Nor does it go on if somebody edits the rollout whenever an error is
/// on its way: what an edit of something else would lose would join the passes around it.
// spec: pr§3, L066, L067
#[rstest]
#[case::and_nobody_edits(Duration::ZERO)]
#[case::and_somebody_edits_while_it_answers(Duration::from_millis(800))]
#[tokio::test]
async fn a_prometheus_that_answers_two_times_of_three_never_fails_a_rollout(#[case] after: Duration) {
    let proxy = AuthProxy::start(&Scene::prometheus().await).await.expect("the proxy starts");
    let check = json!({ "preflight": false, "successThreshold": 3, "maxTries": 4, "onFailure": "Rollback" });
    let gate = objects::with(gate(check).await, "/spec/check/query/url", proxy.url());
    let owned = Owned::at_rest("flaky", &objects::set(2), &gate).await;
    // A quotation mark in a form. Whether the metric exists at all is asked without a namespace.
    let part = format!("%22{}%22", owned.namespace);
    proxy.fail_each(3, &part, after);
    owned.release("app:2").await;
    let errors = || proxy.seen_about(&part).iter().filter(|request| request.status == 503).count();
    let enough = async || {
        if !after.is_zero() {
            owned.edit_something_else().await;
        }
        errors() >= 5
    };
    eventually("as many errors as would use up all tries", enough).await;
    let held = owned.until_looked_at_again().await;
    assert_eq!((held.image("web-1"), held.image("web-0"), held.partition()), ("app:2", "app:1", Some(1)));
    assert_never_failed(&owned).await;

    proxy.forward();
    owned.until("complete", |world| world.is_complete("app:2")).await;
    assert_never_failed(&owned).await;
    let moved = moves::assert_allowed(&owned.tape.entries(), "app:1");
    moves::assert_passed(moved.iter().filter(|moved| moved.pod == "web-0"), &owned.asked(), 3);
    owned.end().await;
}
