//! Pods that stand in the way: one that its StatefulSet does not select any more is let go and keeps its name, so that no other pod can be
//! made there. Reads and words, for every kind of object that a rollout belongs to; it must never decide.

use std::collections::BTreeMap;

use kube::api::ListParams;
use kube::{Api, Client};
use sts_plus_decide::Stray;

use crate::client::deadline;
use crate::errors::Error;
use crate::views::{PodObject, SetObject};

/// Pods that stand where a StatefulSet would make one, by the UID of the StatefulSet.
pub(super) type Strays = BTreeMap<String, Stray>;

/// The strays at the lowest missing place of each StatefulSet. Nobody is asked while no pod is missing.
pub(super) async fn strays(client: &Client, sets: &[SetObject], pods: &[PodObject]) -> Result<Strays, Error> {
    let mut strays = Strays::new();
    for set in sets.iter().filter(|set| set.metadata.deletion_timestamp.is_none()) {
        let Some(name) = lowest_missing(set, pods) else { continue };
        let api: Api<PodObject> = Api::namespaced(client.clone(), set.namespace());
        // By its name alone: what it was found by may be among the labels that it has lost.
        let one = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = deadline(format!("looking for pod {name}"), api.list(&one)).await?.items.into_iter().next();
        if let Some(words) = found.and_then(|pod| words(set, &pod)) {
            strays.insert(set.uid().to_owned(), Stray { name, words });
        }
    }
    Ok(strays)
}

fn lowest_missing(set: &SetObject, pods: &[PodObject]) -> Option<String> {
    let view = set.view();
    let is_there =
        |name: &String| pods.iter().any(|pod| pod.belongs_to(set.uid()) && pod.metadata.name.as_ref() == Some(name));
    (view.start..view.start.saturating_add(view.replicas))
        .map(|ordinal| format!("{}-{ordinal}", set.name()))
        .find(|name| !is_there(name))
}

/// Nothing for a pod that leaves, and for one that the StatefulSet is about to take.
fn words(set: &SetObject, pod: &PodObject) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() || pod.belongs_to(set.uid()) {
        return None;
    }
    let (name, owner) = (pod.metadata.name.as_deref().unwrap_or_default(), set.name());
    if let Some(other) = pod.controller() {
        return Some(format!("pod {name} is in the way, it belongs to {} {}: delete it", other.kind, other.name));
    }
    let labels = pod.metadata.labels.as_ref();
    let has = |key: &String, value: &String| labels.and_then(|labels| labels.get(key)) == Some(value);
    let wanted = set.selected_labels().into_iter().filter(|(key, value)| !has(key, value));
    let wanted: Vec<_> = wanted.map(|(key, value)| format!("{key}={value}")).collect();
    (!wanted.is_empty()).then(|| {
        let labels = wanted.join(" ");
        format!(
            "pod {name} is in the way, it does not carry {labels} and so StatefulSet {owner} has let go of it: put it back with \
             `kubectl label pod {name} --overwrite {labels}`, or delete the pod"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set() -> SetObject {
        serde_json::from_value(json!({
            "metadata": { "name": "db-v1", "uid": "s" },
            "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "db", "version": "1" } } },
        }))
        .unwrap()
    }

    fn pod(name: &str, more: &Value) -> PodObject {
        let mut pod = json!({ "metadata": { "name": name, "labels": { "app": "db", "version": "1" } } });
        json_patch::merge(&mut pod, &json!({ "metadata": more }));
        serde_json::from_value(pod).unwrap()
    }

    fn owned(uid: &str) -> Value {
        json!({ "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "other", "uid": uid, "controller": true }] })
    }

    #[test]
    fn the_lowest_place_without_a_pod_of_its_own_is_looked_at() {
        assert_eq!(lowest_missing(&set(), &[pod("db-v1-0", &owned("s"))]).as_deref(), Some("db-v1-1"));
        assert_eq!(lowest_missing(&set(), &[pod("db-v1-0", &json!({}))]).as_deref(), Some("db-v1-0"));
        assert_eq!(lowest_missing(&set(), &[pod("db-v1-0", &owned("s")), pod("db-v1-1", &owned("s"))]), None);
    }

    #[test]
    fn a_pod_in_the_way_is_named_with_the_label_that_it_lacks() {
        let told = words(&set(), &pod("db-v1-0", &json!({ "labels": { "version": "7" } }))).unwrap();
        assert!(told.contains("pod db-v1-0") && told.contains("does not carry version=1 "), "{told}");
        assert!(told.contains("kubectl label pod db-v1-0 --overwrite version=1"), "{told}");
        let told = words(&set(), &pod("db-v1-0", &owned("x"))).unwrap();
        assert!(told.contains("belongs to StatefulSet other"), "{told}");
        assert_eq!(words(&set(), &pod("db-v1-0", &json!({}))), None, "it is about to be taken");
    }
}
