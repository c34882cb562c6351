//! An event that says why a pod could not be made, as the API server sends it, through the view and a whole decision.

use k8s_openapi::api::core::v1::Event;
use serde_json::Value;
use sts_plus::views::RefusalObject;
use sts_plus_api::{PhasedRolloutSpec, PhasedRolloutStatus};

use crate::world::{now, observed, pods, rollout, set, settle};

/// # Panics
/// Something breaks.
pub fn run(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let object = serde_json::from_value::<RefusalObject>(value.clone());
    if let Ok(whole) = serde_json::from_value::<Event>(value) {
        let object = object.as_ref().expect("what the whole type takes, the view takes");
        assert_eq!(object.set(), whole.involved_object.name.as_deref());
    }
    let Ok(object) = object else { return };
    let Some(mut refused) = object.shrunk().view() else { return };
    assert!(!refused.name.is_empty(), "a pod without a name: {refused:?}");

    let spec: PhasedRolloutSpec = serde_json::from_value(serde_json::json!({ "targetRef": "web" })).expect("a spec");
    let rollout = rollout(spec, PhasedRolloutStatus::default());
    let mut set = set();
    for name in [refused.name.clone(), "web-2".to_owned()] {
        refused.name = name;
        set.refused_pods = vec![refused.clone()];
        settle(observed(rollout.clone(), set.clone(), pods().into_iter().take(2).collect()), now());
    }
}
