//! A StatefulSet as the API server sends it, through the view and a whole decision.

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::Value;
use sts_plus::views::SetObject;
use sts_plus_api::{PhasedRolloutSpec, PhasedRolloutStatus};

use crate::world::{now, observed, pods, rollout, settle};

/// # Panics
/// Something breaks.
pub fn run(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let object = serde_json::from_value::<SetObject>(value.clone());
    if let Ok(whole) = serde_json::from_value::<StatefulSet>(value) {
        agrees(&whole, object.as_ref().expect("what the whole type takes, the view takes"));
    }
    let Ok(object) = object else { return };
    let object = object.shrunk();
    if let Some(selector) = object.pod_selector() {
        assert!(!selector.is_empty(), "a selector of everything is no selector");
    }
    let mut set = object.view();
    assert_eq!(set.partition, object.partition());
    let spec: PhasedRolloutSpec = serde_json::from_value(serde_json::json!({ "targetRef": set.name })).expect("a spec");
    settle(observed(rollout(spec.clone(), PhasedRolloutStatus::default()), set.clone(), pods()), now());
    // Mostly the object is refused for one field; with these it is looked at closely.
    set.deleting = false;
    set.controller = None;
    set.annotations.insert(sts_plus_api::names::CLAIM.to_owned(), "gate".to_owned());
    set.update_revision.get_or_insert_with(|| "web-b".to_owned());
    settle(observed(rollout(spec, PhasedRolloutStatus::default()), set, pods()), now());
}

/// What a decision looks at is what the API server sent.
fn agrees(whole: &StatefulSet, object: &SetObject) {
    let view = object.view();
    let spec = whole.spec.as_ref();
    let rolling = spec.and_then(|spec| spec.update_strategy.as_ref()).and_then(|s| s.rolling_update.as_ref());
    let status = whole.status.as_ref();
    assert_eq!(view.replicas, spec.and_then(|spec| spec.replicas).unwrap_or(1));
    assert_eq!(view.min_ready_seconds, spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0));
    assert_eq!(view.partition, rolling.and_then(|rolling| rolling.partition));
    assert_eq!(view.has_rolling_update, rolling.is_some());
    assert_eq!(view.observed_generation, status.and_then(|status| status.observed_generation).unwrap_or(0));
    assert_eq!(view.generation, whole.metadata.generation.unwrap_or(0));
    assert_eq!(view.deleting, whole.metadata.deletion_timestamp.is_some());
    assert_eq!(view.update_revision.as_deref().unwrap_or(""), text(status.and_then(|s| s.update_revision.as_ref())));
    assert_eq!(view.current_revision.as_deref().unwrap_or(""), text(status.and_then(|s| s.current_revision.as_ref())));
}

fn text(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}
