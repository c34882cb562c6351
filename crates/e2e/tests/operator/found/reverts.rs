//! The template goes back before any pod has moved.

use jiff::Timestamp;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Step};
use sts_plus_e2e::{Seen, World, eventually, objects};

use super::Owned;
use crate::rollout::gate;

/// Whether a status since this version tells of a final cycle.
fn was_final(owned: &Owned, from: u64) -> bool {
    owned.tape.entries().iter().any(|entry| match &entry.seen {
        Seen::Rollout(gate) if entry.version > from => {
            let current = gate.status.as_ref().and_then(|status| status.current.as_ref());
            current.is_some_and(|current| current.step == Step::Final)
        }
        _ => false,
    })
}

/// A backup runs and the preflight is refused; the template goes back. Nothing was rolled, so nothing is to be checked: it is over at once,
/// while the metric goes on refusing.
// spec: pr§4, pr§9
#[tokio::test]
async fn a_revert_before_any_pod_moved_has_nothing_to_check() {
    let owned = Owned::at_rest("revert", &objects::set(3), &gate(json!({ "maxTries": 2 })).await).await;
    let born = owned.world();
    // Pods that were made in the second of the release could have been made for it.
    let last = born.pods.values().filter_map(|pod| pod.metadata.creation_timestamp.as_ref()).map(|time| time.0).max();
    let last = last.expect("there are pods").as_second();
    eventually("the next second", async || Timestamp::now().as_second() > last).await;
    owned.errors(true).await;
    owned.release("app:2").await;
    let failed = owned.until("the preflight has failed", |world| world.is(Phase::Failed)).await;
    assert!(failed.is_held() && failed.uids() == born.uids());

    let from = failed.latest_version();
    owned.kubectl(&["rollout", "undo", "statefulset/web"]).await;
    let over = |world: &World| {
        world.update_revision() == born.update_revision()
            && world.is_told()
            && matches!(world.status().phase, Phase::Idle | Phase::Completed)
            && world.condition(ConditionType::RolledOut).starts_with("True/")
            && world.partition() == Some(3)
    };
    let end = owned.until_settled("it is over", over).await;
    assert!(end.condition(ConditionType::Ready).starts_with("True/"), "{:?}", end.status());
    assert_eq!(end.uids(), born.uids());
    let asked = owned.asked().len();
    let still = owned.until_looked_at_again().await;
    assert!(over(&still) && !was_final(&owned, from), "{}", owned.story());
    assert_eq!(owned.asked().len(), asked, "nothing is asked any more");
    owned.end().await;
}
