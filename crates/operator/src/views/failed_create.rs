//! An event of the StatefulSet controller that says why it could not make a pod, projected.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;
use sts_plus_decide::RefusedPod;

/// Selects these events and no others.
pub const REFUSALS: &str = "involvedObject.kind=StatefulSet,reason=FailedCreate";

/// What is read of an event.
#[derive(Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Event)]
#[serde(rename_all = "camelCase")]
pub struct RefusalObject {
    /// Metadata; after [`RefusalObject::shrunk`] without managed fields.
    #[serde(default, deserialize_with = "super::or_default")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "super::or_default")]
    involved_object: Involved,
    message: Option<String>,
    first_timestamp: Option<Time>,
    last_timestamp: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Involved {
    name: Option<String>,
    uid: Option<String>,
}

impl RefusalObject {
    /// Without managed fields.
    #[must_use]
    pub fn shrunk(mut self) -> Self {
        self.metadata.managed_fields = None;
        self
    }

    /// Name of the StatefulSet.
    #[must_use]
    pub fn set(&self) -> Option<&str> {
        self.involved_object.name.as_deref()
    }

    /// UID of the StatefulSet.
    #[must_use]
    pub fn set_uid(&self) -> Option<&str> {
        self.involved_object.uid.as_deref()
    }

    /// True if it is about the StatefulSet with this UID.
    #[must_use]
    pub fn is_about(&self, set_uid: &str) -> bool {
        self.set_uid() == Some(set_uid)
    }

    /// What a decision looks at. Missing if the text is not as the controller writes it: `create Pod web-2 in StatefulSet web failed
    /// error: …`, or with `Claim data-web-2 Pod web-2` (kubernetes, `pkg/controller/statefulset/stateful_pod_control.go`).
    #[must_use]
    pub fn view(&self) -> Option<RefusedPod> {
        let (what, message) = self.message.as_deref()?.split_once(" failed error: ")?;
        let (_, pod) = what.split_once("Pod ")?;
        let name = pod.split(' ').next().filter(|name| !name.is_empty())?;
        let created = self.metadata.creation_timestamp.as_ref();
        let since = self.first_timestamp.as_ref().or(created).map_or(Timestamp::MIN, |time| time.0);
        Some(RefusedPod {
            name: name.to_owned(),
            since,
            last: self.last_timestamp.as_ref().map_or(since, |time| time.0),
            message: message.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(message: &str) -> Option<RefusedPod> {
        let event = json!({
            "metadata": {"name": "web.1", "namespace": "ns"},
            "involvedObject": {"kind": "StatefulSet", "name": "web", "uid": "u"}, "reason": "FailedCreate",
            "message": message, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:00Z",
        });
        serde_json::from_value::<RefusalObject>(event).unwrap().view()
    }

    #[test]
    fn pod_and_cause_are_read_from_the_text_of_the_controller() {
        let pod =
            view("create Pod web-2 in StatefulSet web failed error: pods \"web-2\" is forbidden: exceeded quota: few")
                .unwrap();
        assert_eq!(
            (pod.name.as_str(), pod.message.as_str()),
            ("web-2", "pods \"web-2\" is forbidden: exceeded quota: few")
        );
        assert_eq!(pod.last.duration_since(pod.since).as_secs(), 60);
        let claim = view("create Claim data-web-1 Pod web-1 in StatefulSet web failed error: no").unwrap();
        assert_eq!((claim.name.as_str(), claim.message.as_str()), ("web-1", "no"));
    }

    #[test]
    fn another_text_says_nothing() {
        assert_eq!(view("something else"), None);
        assert_eq!(view(""), None);
        assert_eq!(view("create Pod  in StatefulSet web failed error: no"), None);
    }
}
