//! An `ExtendedStatefulSet` as JSON or YAML, through the type, the rendering of its StatefulSets, the view of what was rendered, and a
//! whole decision. Its template is raw: anything may be in it, whether or not the API server would take it.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};
use sts_plus::render::{Child, body, template_view};
use sts_plus::views::{SetObject, owner_view};
use sts_plus_api::{ExtendedStatefulSet, VersionStrategyType, names};
use sts_plus_decide::{
    ChildView, ConfigProblem, TemplateView, VersionAction, VersionsObserved, VersionsPlan, decide_versions,
};
use sts_plus_gates::{Policy, validate};

use crate::world::{answer, now, pods};

/// Longest note of an event that the API server takes, in bytes.
const NOTE: usize = 1024;
/// Decisions in a row, each with what the one before has put into the status.
const ROUNDS: usize = 4;
/// Zones that are rendered.
const ZONES: usize = 3;

/// # Panics
/// Something breaks.
pub fn run(bytes: &[u8]) {
    let Some(mut owner) = crate::object::<ExtendedStatefulSet>(bytes) else { return };
    let again = serde_json::to_value(&owner).ok().and_then(|value| serde_json::from_value(value).ok());
    let again: ExtendedStatefulSet = again.expect("what was read can be written and read again");
    assert_eq!(again.spec, owner.spec);

    // No API server gives one without them.
    owner.metadata.name.get_or_insert_with(|| "web".to_owned());
    owner.metadata.uid.get_or_insert_with(|| "owner".to_owned());
    let template = template_view(&owner);
    assert_eq!(template_view(&scaled(&owner)), template, "the number of pods is part of a version");

    let zones: Vec<_> = owner.spec.all_zones().iter().map(String::as_str).zip(1..).map(Some).collect();
    let zones = if zones.is_empty() { vec![None] } else { zones };
    let children: Vec<_> = zones.into_iter().take(ZONES).filter_map(|zone| child(&owner, &template, zone)).collect();
    for children in [Vec::new(), children] {
        decide(observed(&owner, &template, children));
    }
}

/// The same with another number of pods.
fn scaled(owner: &ExtendedStatefulSet) -> ExtendedStatefulSet {
    let mut owner = owner.clone();
    if let Some(spec) = owner.spec.template.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("replicas".to_owned(), json!(7));
    }
    owner
}

/// The StatefulSet of a zone, as it comes back from the API server.
fn child(owner: &ExtendedStatefulSet, template: &TemplateView, zone: Option<(&str, usize)>) -> Option<ChildView> {
    let name = zone.map_or_else(|| "web-v1".to_owned(), |(zone, _)| format!("web-{zone}-v1"));
    let child = Child { name: &name, version: 1, hash: &template.hash, replicas: 3, partition: names::HOLD, zone };
    let mut written = body(owner, child);
    assert_eq!(written, body(owner, child), "the same template comes to something else");
    assert_eq!((&written["kind"], &written["metadata"]["name"]), (&json!("StatefulSet"), &json!(name)));
    // What has another shape is for the API server to refuse.
    let set: StatefulSet = serde_json::from_value(written.clone()).ok()?;
    is_ours(owner, &set, child);
    written["metadata"]["uid"] = json!("set");
    let object: SetObject = serde_json::from_value(written).expect("what the whole type takes, the view takes");
    let view = object.child_view(pods()).expect("a version is known by its marks");
    let known = (view.version, view.hash.as_str(), view.settings.as_str(), view.replicas, view.zone.as_deref());
    let zone = zone.map(|(zone, _)| zone);
    assert_eq!(known, (1, template.hash.as_str(), template.settings.as_str(), 3, zone));
    assert_eq!(object.partition(), Some(names::HOLD));
    let is_in_place = owner.spec.update_strategy.kind == VersionStrategyType::InPlace;
    Some(ChildView { set: is_in_place.then(|| Box::new(object.view())), ..view })
}

/// What makes it one of ours is there, whatever the user wrote in its place.
fn is_ours(owner: &ExtendedStatefulSet, set: &StatefulSet, child: Child<'_>) {
    let spec = set.spec.as_ref().expect("it has a spec");
    let selected = spec.selector.match_labels.as_ref().expect("it selects by labels");
    let pod = spec.template.metadata.as_ref().and_then(|meta| meta.labels.as_ref()).expect("its pods have labels");
    let is_side_by_side = owner.spec.update_strategy.kind == VersionStrategyType::SideBySide;
    let zone = child.zone.map(|(zone, _)| zone.to_owned());
    for labels in [selected, pod] {
        assert_eq!(labels.get(names::OWNER), owner.metadata.name.as_ref());
        assert_eq!(labels.get(names::ZONE), zone.as_ref());
    }
    assert_eq!(pod.get(names::VERSION).map(String::as_str), Some("1"));
    assert_eq!(selected.get(names::VERSION).map(String::as_str), is_side_by_side.then_some("1"));
    assert_eq!(spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()), Some("RollingUpdate"));
    if let Some(zone) = zone {
        is_in_zone(owner, set, &zone);
    }
}

/// Every alternative for its nodes has the zone, and every container knows it once.
fn is_in_zone(owner: &ExtendedStatefulSet, set: &StatefulSet, zone: &str) {
    let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).expect("it has pods");
    let nodes = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let nodes = nodes.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = &nodes.expect("its nodes are chosen").node_selector_terms;
    assert!(!terms.is_empty(), "no term, no node");
    for term in terms {
        let is_it = |values: &Option<Vec<String>>| values.as_deref() == Some(&[zone.to_owned()]);
        let expressions = term.match_expressions.iter().flatten();
        let mut here = expressions.filter(|expression| expression.key == owner.spec.zone_node_label);
        assert!(here.any(|expression| expression.operator == "In" && is_it(&expression.values)), "{term:?}");
    }
    for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
        let told = container.env.iter().flatten().filter(|entry| entry.name == names::ENV_ZONE);
        let told: Vec<_> = told.map(|entry| entry.value.as_deref()).collect();
        assert_eq!(told, [Some(zone)]);
    }
}

fn observed(owner: &ExtendedStatefulSet, template: &TemplateView, children: Vec<ChildView>) -> VersionsObserved {
    let check = owner.spec.update_strategy.check.as_ref().map(|check| validate(&check.to_check(), &Policy::default()));
    let problems = check.into_iter().flatten();
    VersionsObserved {
        owner: owner_view(owner),
        template: template.clone(),
        children,
        kept: BTreeMap::new(),
        orphans: Vec::new(),
        abandoned: Vec::new(),
        foreign: Vec::new(),
        active: None,
        preview: None,
        former: Vec::new(),
        keeps_children: false,
        serves_policies: true,
        config: problems.map(|it| ConfigProblem { reason: it.reason, message: it.message }).collect(),
        empty_zones: Vec::new(),
        tried: None,
    }
}

/// Decides a few times at the same second; nothing is carried out but the finalizer and the status.
fn decide(mut observed: VersionsObserved) {
    for _ in 0..ROUNDS {
        let plan = decide_versions(&observed, now());
        assert_eq!(plan, decide_versions(&observed, now()), "the same input gave another plan");
        holds(&observed, &plan);
        observed.owner.has_finalizer |= plan.actions.contains(&VersionAction::AddFinalizer);
        observed.tried = plan.check.map(|request| answer(request, now()));
        observed.owner.status = plan.status;
    }
}

/// What must hold for a plan.
fn holds(observed: &VersionsObserved, plan: &VersionsPlan) {
    for event in &plan.events {
        assert!(!event.note.is_empty() && event.note.len() <= NOTE, "{event:?}");
    }
    let (before, after) = (&observed.owner.status, &plan.status);
    assert!(after.last_version >= before.last_version, "numbers grow");
    if plan.check.is_some() {
        assert!(plan.actions.is_empty() && plan.events.is_empty() && before == after, "a question comes alone");
        assert!(observed.tried.is_none(), "an answer is followed by a question");
        return;
    }
    // What comes before anything is said: the finalizer, and the end.
    if observed.owner.deleting || plan.actions == [VersionAction::AddFinalizer] {
        return;
    }
    assert!(!after.message.is_empty(), "no word about it: {plan:#?}");
    let is_true = |kind: &&str| after.conditions.iter().any(|it| it.type_ == *kind && it.status == "True");
    assert_eq!(["Ready", "Reconciling", "Stalled"].iter().filter(|kind| is_true(kind)).count(), 1, "{after:?}");
}
