//! What the template comes to: the StatefulSet of one version and zone, as a body of server-side apply, and its digests. Pure, and
//! total: what has another shape than a StatefulSet stays as it is, so that the API server says what is wrong with it.

use kube::{Resource as _, ResourceExt as _};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};
use sts_plus_api::{ExtendedStatefulSet, ExtendedStatefulSetSpec, VersionStrategyType, names};
use sts_plus_decide::{TemplateView, claim};

use crate::controllers::partition;

/// What a StatefulSet keeps from its making to its end. With the pod template it makes a version.
pub(super) const FOR_LIFE: [&str; 4] = ["podManagementPolicy", "selector", "serviceName", "volumeClaimTemplates"];

/// The number of the first pod. Kubernetes takes a change of it, and moves all pods at once: to us it is for life as well.
pub(super) const FIRST_ORDINAL: &str = "ordinals.start";

/// The number of the first pod as the spec of a StatefulSet says it.
pub(super) fn first_ordinal(spec: Option<&Value>) -> i64 {
    spec.and_then(|spec| spec.pointer("/ordinals/start")?.as_i64()).unwrap_or(0)
}

/// One StatefulSet of a version.
#[derive(Clone, Copy, Debug)]
pub struct Child<'a> {
    /// Its name.
    pub name: &'a str,
    /// The number of the version.
    pub version: i32,
    /// The digest of the version.
    pub hash: &'a str,
    /// Its number of pods.
    pub replicas: i32,
    /// The index below which no pod is rolled.
    pub partition: i32,
    /// Its zone, and the place of the zone in the list when the StatefulSet was made, from 1.
    pub zone: Option<(&'a str, usize)>,
}

/// The digests of the template, and what decisions need of it.
#[must_use]
pub fn template_view(owner: &ExtendedStatefulSet) -> TemplateView {
    let template = &owner.spec.template;
    let empty = Map::new();
    let spec = template.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let part = |is_in: &dyn Fn(&str) -> bool| -> Map<String, Value> {
        spec.iter().filter(|(key, value)| is_in(key) && !value.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let is_fixed = |key: &str| key == "template" || FOR_LIFE.contains(&key);
    let mut fixed = part(&is_fixed);
    // 0 is what is not written.
    if let start @ 1.. = first_ordinal(template.get("spec")) {
        fixed.insert(FIRST_ORDINAL.to_owned(), json!(start));
    }
    // The affinity of the pods says it; the usual one is what is not written.
    let label = &owner.spec.zone_node_label;
    if !owner.spec.all_zones().is_empty() && *label != ExtendedStatefulSetSpec::default_zone_node_label() {
        fixed.insert("zoneNodeLabel".to_owned(), json!(label));
    }
    let settings = part(&|key| !is_fixed(key) && key != "replicas");
    let metadata = template.get("metadata").cloned().unwrap_or_default();
    let written = hash(&json!(fixed));
    let rewritten = owner.status.as_ref().and_then(|status| status.rewritten.as_ref());
    TemplateView {
        hash: rewritten
            .filter(|rewritten| rewritten.written == written)
            .map_or_else(|| written.clone(), |it| it.hash.clone()),
        written,
        settings: hash(&json!([settings, metadata])),
        min_ready_seconds: spec
            .get("minReadySeconds")
            .and_then(Value::as_i64)
            .and_then(|s| s.try_into().ok())
            .unwrap_or(0),
        has_claims: spec.get("volumeClaimTemplates").and_then(Value::as_array).is_some_and(|claims| !claims.is_empty()),
        problem: None,
    }
}

/// 64 bits of SHA-256. The keys of an object are sorted, so the same content gives the same digest.
fn hash(value: &Value) -> String {
    let digest = digest(&SHA256, value.to_string().as_bytes());
    let start = digest.as_ref().iter().take(8).fold(0_u64, |start, byte| (start << 8) | u64::from(*byte));
    format!("{start:016x}")
}

/// Everything of the StatefulSet that is ours. Only the rollout engine ever lowers its partition.
#[must_use]
pub fn body(owner: &ExtendedStatefulSet, child: Child<'_>) -> Value {
    let template = template_view(owner);
    let mut set = owner.spec.template.clone();
    let labels = labels(owner, child);
    for path in ["/metadata/labels", "/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        without(set.pointer_mut(path), &[names::OWNER, names::VERSION, names::ZONE]);
    }
    // One of them would switch the hold off, or allow a partition.
    without(set.pointer_mut("/metadata/annotations"), &names::OF_A_SET);
    let metadata = object_at(&mut set, &["metadata"]).map(std::mem::take).unwrap_or_default();
    let user = |key: &str| metadata.get(key).cloned().unwrap_or_else(|| json!({}));
    let mut body = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": child.name,
            "namespace": owner.metadata.namespace,
            "labels": user("labels"),
            "annotations": user("annotations"),
            "ownerReferences": [owner.controller_owner_ref(&())],
        },
        "spec": set.get("spec").cloned().unwrap_or_else(|| json!({})),
    });
    extend(&mut body, &["metadata", "labels"], &labels);
    let mut marks = json!({
        names::VERSION: child.version.to_string(),
        names::HASH: child.hash,
        names::SETTINGS: template.settings,
        // The admission policies keep its partition against everybody else.
        names::CLAIM: claim(&owner.name_any()),
    });
    if let Some((_, index)) = child.zone {
        extend(&mut marks, &[], &json!({ names::ZONE_INDEX: index.to_string() }));
    }
    extend(&mut body, &["metadata", "annotations"], &marks);
    let mut of_version = labels.clone();
    extend(&mut of_version, &[], &json!({ names::VERSION: child.version.to_string() }));
    // In place the pods of every version belong to the one StatefulSet.
    let selected = match owner.spec.update_strategy.kind {
        VersionStrategyType::SideBySide => &of_version,
        VersionStrategyType::InPlace => &labels,
    };
    extend(&mut body, &["spec", "selector", "matchLabels"], selected);
    extend(&mut body, &["spec", "template", "metadata", "labels"], &of_version);
    extend(&mut body, &["spec"], &json!({ "replicas": child.replicas }));
    hold(&mut body, child.partition);
    if let Some((zone, index)) = child.zone {
        place(&mut body, &owner.spec.zone_node_label, zone);
        tell_containers(&mut body, zone, index);
    }
    body
}

/// Labels and annotations that say what is ours are not a user's to write.
fn without(written: Option<&mut Value>, ours: &[&str]) {
    let Some(written) = written.and_then(Value::as_object_mut) else { return };
    written.retain(|key, _| !ours.contains(&key.as_str()));
}

/// What tells the children of one owner, and those of one zone, from others.
fn labels(owner: &ExtendedStatefulSet, child: Child<'_>) -> Value {
    let mut labels = json!({ names::OWNER: owner.metadata.name });
    if let Some((zone, _)) = child.zone {
        extend(&mut labels, &[], &json!({ names::ZONE: zone }));
    }
    labels
}

fn hold(body: &mut Value, partition: i32) {
    let strategy = partition::strategy(partition, partition::budget(body));
    extend(body, &["spec"], &json!({ "updateStrategy": strategy }));
}

/// Every term of the user that a node must meet gets the zone as well: terms are alternatives, what is in one must all be met.
fn place(body: &mut Value, label: &str, zone: &str) {
    let required =
        ["spec", "template", "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let Some(required) = object_at(body, &required) else { return };
    let is_in_zone = json!({ "key": label, "operator": "In", "values": [zone] });
    match required.get_mut("nodeSelectorTerms").and_then(Value::as_array_mut) {
        Some(terms) if !terms.is_empty() => {
            for term in terms {
                let Some(term) = term.as_object_mut() else { continue };
                match term.get_mut("matchExpressions").and_then(Value::as_array_mut) {
                    Some(expressions) => expressions.push(is_in_zone.clone()),
                    None => drop(term.insert("matchExpressions".to_owned(), json!([is_in_zone]))),
                }
            }
        }
        _ => {
            let terms = json!([{ "matchExpressions": [is_in_zone] }]);
            required.insert("nodeSelectorTerms".to_owned(), terms);
        }
    }
}

fn tell_containers(body: &mut Value, zone: &str, index: usize) {
    let Some(spec) = object_at(body, &["spec", "template", "spec"]) else { return };
    for kind in ["containers", "initContainers"] {
        for container in spec.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let env = container.entry("env").or_insert_with(|| json!([]));
            if env.is_null() {
                *env = json!([]);
            }
            let Some(env) = env.as_array_mut() else { continue };
            for (name, value) in [(names::ENV_ZONE, zone.to_owned()), (names::ENV_ZONE_INDEX, index.to_string())] {
                env.retain(|entry| entry.get("name").and_then(Value::as_str) != Some(name));
                env.push(json!({ "name": name, "value": value }));
            }
        }
    }
}

/// Puts the entries of `more` into the object at `path`, which is made if it is missing.
fn extend(value: &mut Value, path: &[&str], more: &Value) {
    if let (Some(object), Some(more)) = (object_at(value, path), more.as_object()) {
        object.extend(more.clone());
    }
}

/// The object at `path`; what is missing or null on the way is made. Nothing if something else is there.
fn object_at<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut at = value;
    for key in path {
        at = at.as_object_mut()?.entry(*key).or_insert(Value::Null);
        if at.is_null() {
            *at = json!({});
        }
    }
    at.as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(template: &Value) -> ExtendedStatefulSet {
        serde_json::from_value(json!({
            "apiVersion": "fissile.cloudfoundry.org/v1alpha1", "kind": "ExtendedStatefulSet",
            "metadata": {"name": "db", "namespace": "ns", "uid": "u"}, "spec": {"template": template},
        }))
        .unwrap()
    }

    fn template() -> Value {
        json!({
            "metadata": {"labels": {"mine": "1"}},
            "spec": {
                "replicas": 3, "serviceName": "db", "newer": {"field": [1]}, "updateStrategy": {"type": "OnDelete"},
                "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"newest": true,
                    "containers": [{"name": "a", "image": "a:1", "env": [{"name": "KUBE_AZ", "value": "x"}]}],
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}, {"matchFields": []}]}}}}},
            },
        })
    }

    fn rendered(template: &Value, zone: Option<(&str, usize)>) -> Value {
        let owner = owner(template);
        body(&owner, Child { name: "db-v2", version: 2, hash: "h2", replicas: 1, partition: names::HOLD, zone })
    }

    #[test]
    fn the_label_of_the_zones_makes_a_version_where_there_are_zones_and_it_is_not_the_usual_one() {
        let digest = |zones: &[&str], label: Option<&str>| {
            let mut owner = owner(&template());
            owner.spec.az = zones.iter().map(|zone| (*zone).to_owned()).collect();
            label.unwrap_or("topology.kubernetes.io/zone").clone_into(&mut owner.spec.zone_node_label);
            template_view(&owner).hash
        };
        let usual = digest(&["a"], None);
        assert_eq!((digest(&[], None), digest(&[], Some("rack"))), (usual.clone(), usual.clone()));
        assert_ne!(digest(&["a"], Some("rack")), usual);
    }

    #[test]
    fn a_version_is_told_by_labels_selector_and_annotations_and_held() {
        let body = rendered(&template(), None);
        let version = body.pointer("/spec/selector/matchLabels").unwrap();
        assert_eq!(version, &json!({"app": "db", names::OWNER: "db", names::VERSION: "2"}));
        assert_eq!(body.pointer("/spec/template/metadata/labels"), Some(version));
        assert_eq!(body.pointer("/metadata/labels"), Some(&json!({"mine": "1", names::OWNER: "db"})));
        assert_eq!(body["metadata"]["annotations"][names::VERSION], "2");
        assert_eq!(
            body["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": names::HOLD}})
        );
        assert_eq!(body["spec"]["replicas"], 1);
        assert_eq!(body["metadata"]["ownerReferences"][0]["controller"], true);
    }

    #[test]
    fn labels_that_say_what_is_ours_are_not_taken_from_a_user() {
        let wrong = json!({names::ZONE: "q", names::VERSION: "9", names::OWNER: "other", "app": "db"});
        let body = rendered(
            &json!({"metadata": {"labels": wrong}, "spec": {"selector": {"matchLabels": wrong},
                "template": {"metadata": {"labels": wrong}, "spec": {}}}}),
            None,
        );
        let pods = json!({"app": "db", names::OWNER: "db", names::VERSION: "2"});
        assert_eq!(body["metadata"]["labels"], json!({"app": "db", names::OWNER: "db"}));
        assert_eq!(body["spec"]["selector"]["matchLabels"], pods);
        assert_eq!(body["spec"]["template"]["metadata"]["labels"], pods);
    }

    #[test]
    fn annotations_that_would_open_the_hold_are_not_taken_from_a_user() {
        let mut wrong: Map<_, _> = names::OF_A_SET.iter().map(|name| ((*name).to_owned(), json!("off"))).collect();
        wrong.insert("mine".to_owned(), json!("1"));
        let body = rendered(&json!({"metadata": {"annotations": wrong}, "spec": {}}), None);
        let annotations = body["metadata"]["annotations"].as_object().unwrap();
        let found: Vec<_> = annotations.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
        let settings = annotations[names::SETTINGS].as_str().unwrap();
        let mut want = vec![
            (names::CLAIM, "ExtendedStatefulSet/db"),
            (names::VERSION, "2"),
            (names::HASH, "h2"),
            (names::SETTINGS, settings),
            ("mine", "1"),
        ];
        want.sort_unstable();
        assert_eq!(found, want);
        assert_ne!(settings, "off");
    }

    #[test]
    fn fields_that_nobody_knows_here_are_kept() {
        let body = rendered(&template(), Some(("z1", 1)));
        assert_eq!(body["spec"]["newer"], json!({"field": [1]}));
        assert_eq!(body["spec"]["template"]["spec"]["newest"], true);
    }

    /// L165: a zone beside the user's terms would be an alternative to them.
    // spec: es§7, L165
    #[test]
    fn the_zone_is_in_every_term_and_in_every_container() {
        let body = rendered(&template(), Some(("z2", 2)));
        let terms = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let terms = body.pointer(terms).unwrap().as_array().unwrap();
        let zone = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z2"]});
        assert_eq!(terms.len(), 2);
        assert!(terms.iter().all(|term| term["matchExpressions"].as_array().unwrap().contains(&zone)), "{terms:?}");
        assert!(terms[0]["matchExpressions"][0]["key"] == "disk");
        let env = &body["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!(env, &json!([{"name": "KUBE_AZ", "value": "z2"}, {"name": "AZ_INDEX", "value": "2"}]));
        assert_eq!(body["spec"]["selector"]["matchLabels"][names::ZONE], "z2");
    }

    // spec: es§3
    #[test]
    fn the_digest_is_about_what_restarts_pods() {
        let of = |change: Value| {
            let mut template = template();
            json_patch::merge(&mut template, &change);
            let view = template_view(&owner(&template));
            (view.hash, view.settings)
        };
        let same = of(json!({}));
        assert_eq!(of(json!({"spec": {"replicas": 5}})), same);
        let settings = of(json!({"spec": {"minReadySeconds": 5}}));
        assert!(settings.0 == same.0 && settings.1 != same.1);
        let labels = of(json!({"metadata": {"labels": {"mine": "2"}}}));
        assert!(labels.0 == same.0 && labels.1 != same.1);
        for change in [json!({"spec": {"template": {"spec": {"x": 1}}}}), json!({"spec": {"serviceName": "other"}})] {
            assert_ne!(of(change).0, same.0);
        }
    }

    #[test]
    fn another_first_ordinal_is_another_version_and_none_is_zero() {
        let of = |ordinals: Value| {
            let mut template = template();
            template["spec"]["ordinals"] = ordinals;
            template_view(&owner(&template)).hash
        };
        let none = template_view(&owner(&template())).hash;
        for same in [json!(null), json!({}), json!({"start": 0}), json!({"start": null}), json!("odd")] {
            assert_eq!(of(same.clone()), none, "{same}");
        }
        assert_ne!(of(json!({"start": 5})), none);
        assert_ne!(of(json!({"start": 5})), of(json!({"start": 6})));
    }

    // spec: es§1, L023
    #[test]
    fn what_has_another_shape_stays_for_the_api_server_to_refuse() {
        for odd in [
            json!({"spec": {"template": "text"}}),
            json!({"metadata": null, "spec": {"selector": null, "template": {"metadata": {"labels": 7}, "spec": {"containers": [1, null]}}}}),
            json!({"spec": {"template": {"spec": {"affinity": [], "containers": {"a": 1}}}}}),
            json!({"spec": null}),
        ] {
            let body = rendered(&odd, Some(("z1", 1)));
            assert_eq!(body["kind"], "StatefulSet", "{odd}");
        }
    }
}
