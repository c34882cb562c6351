//! The PhasedRollout as a decision sees it.

use jiff::Timestamp;
use sts_plus_api::{PhasedRollout, names};
use sts_plus_decide::RolloutView;

/// What a decision looks at.
#[must_use]
pub fn rollout_view(rollout: &PhasedRollout) -> RolloutView {
    let meta = &rollout.metadata;
    RolloutView {
        name: meta.name.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        deleting: meta.deletion_timestamp.is_some(),
        has_finalizer: meta.finalizers.iter().flatten().any(|finalizer| finalizer == names::FINALIZER),
        annotations: meta.annotations.clone().unwrap_or_default(),
        spec: rollout.spec.clone(),
        status: rollout.status.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizer_and_deletion_are_seen() {
        let rollout: PhasedRollout = serde_json::from_value(serde_json::json!({
            "apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout",
            "metadata": {"name": "pr", "namespace": "default", "uid": "u", "generation": 4,
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:05:05Z",
                "finalizers": ["other/one", names::FINALIZER]},
            "spec": {"targetRef": "web", "skipCheck": true},
        }))
        .unwrap();
        let view = rollout_view(&rollout);
        assert!(view.deleting && view.has_finalizer);
        assert_eq!((view.generation, view.created.to_string().as_str()), (4, "2026-01-02T03:04:05Z"));
        assert_eq!(view.spec.check.period_seconds, 60, "defaults of the schema");
    }
}
