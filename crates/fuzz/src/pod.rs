//! A pod as the API server sends it, through the view, the judgement of its health, and a whole decision.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use sts_plus::views::PodObject;
use sts_plus_api::{PhasedRolloutSpec, PhasedRolloutStatus};

use crate::world::{now, observed, pods, rollout, set, settle};

/// # Panics
/// Something breaks.
pub fn run(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let object = serde_json::from_value::<PodObject>(value.clone());
    if let Ok(whole) = serde_json::from_value::<Pod>(value) {
        agrees(&whole, object.as_ref().expect("what the whole type takes, the view takes"));
    }
    let Ok(object) = object else { return };
    let object = object.shrunk();
    let _ = (object.belongs_to("set"), object.owner_set());
    let Some(mut pod) = object.view() else { return };

    let spec: PhasedRolloutSpec = serde_json::from_value(serde_json::json!({ "targetRef": "web" })).expect("a spec");
    let rollout = rollout(spec, PhasedRolloutStatus::default());
    let beside = |pod| pods().into_iter().chain([pod]).collect();
    settle(observed(rollout.clone(), set(), beside(pod.clone())), now());
    // In the place of the pod that was rolled last.
    pod.ordinal = 2;
    let in_place = pods().into_iter().take(2).chain([pod]).collect();
    settle(observed(rollout, set(), in_place), now());
}

/// What a decision looks at is what the API server sent.
fn agrees(whole: &Pod, object: &PodObject) {
    let Some(view) = object.view() else { return };
    let status = whole.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    assert_eq!(view.ready, ready.next().is_some_and(|ready| ready.status == "True"));
    assert_eq!(view.deleting, whole.metadata.deletion_timestamp.is_some());
    assert_eq!(Some(&view.name), whole.metadata.name.as_ref());
    let phase = status.and_then(|status| status.phase.as_deref());
    assert_eq!(view.finished, matches!(phase, Some("Failed" | "Succeeded")));
    if let Some(problem) = &view.problem {
        assert!(whole.status.is_some() && !problem.reason.is_empty(), "{problem:?}");
    }
    assert!(view.ordinal >= 0, "an ordinal is never negative: {}", view.ordinal);
}
