//! What a StatefulSet keeps for life: in place it cannot change, which is said in one sentence; side by side it makes a version.

use serde_json::{Value, json};
use sts_plus_e2e::{Scene, View, objects};

use super::{all_at, carried, plain};
use crate::versions::orphan;
use crate::versions::zones::{label_nodes, zone_label};

fn claims(size: &str) -> Value {
    json!([{
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } },
    }])
}

fn spec(field: &str, value: &Value) -> Value {
    json!({ "spec": { "template": { "spec": { field: value } } } })
}

fn is_refused(view: &View) -> bool {
    view.is_told() && view.condition("TemplateValid") == "False/TemplateRefused"
}

/// Claims that are asked to be larger: at rest before, and when that is refused.
async fn larger_claims(name: &str) -> (Scene, View, View) {
    let db = objects::with(plain(), "/spec/template/spec/volumeClaimTemplates", claims("1Gi"));
    let scene = Scene::with_versions(name, &db).await;
    let before = scene.view();
    scene.change(&spec("volumeClaimTemplates", &claims("2Gi"))).await;
    let told = scene.until_versions("refused", is_refused).await;
    (scene, before, told)
}

/// Nothing of what runs was written to since.
fn assert_untouched(before: &View, after: &View) {
    assert_eq!(after.uids(""), before.uids(""));
    let generation = |view: &View| view.world.sets["db"].metadata.generation;
    assert_eq!((generation(after), carried(after)), (generation(before), carried(before)));
    assert_eq!(after.status.last_version, before.status.last_version);
}

#[tokio::test]
async fn changed_claim_templates_are_refused_in_one_sentence_and_nothing_is_touched() {
    let (scene, before, told) = larger_claims("claims").await;
    let message = told.message("TemplateValid");
    assert!(message.starts_with("spec.template.spec.volumeClaimTemplates cannot be changed in place"), "{message}");
    assert!(message.contains("take the change back") && message.contains("--cascade=orphan"), "{message}");
    assert!(!message.contains("serviceName") && !message.contains("forbidden"), "{message}");
    assert!(told.status.message.contains(message), "{}", told.status.message);
    // Together with another image nothing of it happens, and one pod that dies comes back as it was.
    scene.release_version("app:2").await;
    scene.delete("pod/db-2").await;
    let is_back = |view: &View| {
        is_refused(view) && view.world.is_ready_on("db-2", "app:1") && view.uids("db-2") != before.uids("db-2")
    };
    let after = scene.until_versions("the pod is back", is_back).await;
    let others = |view: &View| [view.uids("db-0"), view.uids("db-1")];
    assert_eq!((others(&after), all_at(&after, 1)), (others(&before), true));
    scene.change(&spec("volumeClaimTemplates", &claims("1Gi"))).await;
    let accepted = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(accepted.condition("TemplateValid"), "True/TemplateAccepted");
    assert!(all_at(&accepted, 2));
    scene.end().await;
}

/// The cure that the sentence gives.
#[tokio::test]
async fn a_set_that_is_deleted_with_orphan_is_recreated_with_other_claim_templates() {
    let (scene, before, _) = larger_claims("claims-other").await;
    orphan(&scene, "statefulset/db").await;
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert!(all_at(&after, 2));
    assert_ne!(after.set_uid("db"), before.set_uid("db"));
    // One at a time: whenever one was gone the others were there.
    assert!(scene.fewest_ready() >= 2);
    scene.end().await;
}

#[tokio::test]
async fn each_field_that_is_kept_for_life_is_named_in_place() {
    let scene = Scene::with_versions("for-life", &plain()).await;
    let before = scene.view();
    let labels = json!({ "app": "db", "more": "yes" });
    let selector = json!({ "spec": { "template": { "spec": {
        "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels } } } } } });
    let back = json!({ "spec": { "template": { "spec": {
        "selector": { "matchLabels": { "more": null } }, "template": { "metadata": { "labels": { "more": null } } } } } } });
    let changes = [
        ("serviceName", spec("serviceName", &json!("other")), spec("serviceName", &json!("db"))),
        (
            "podManagementPolicy",
            spec("podManagementPolicy", &json!("Parallel")),
            spec("podManagementPolicy", &json!(null)),
        ),
        (
            "volumeClaimTemplates",
            spec("volumeClaimTemplates", &claims("1Gi")),
            spec("volumeClaimTemplates", &json!(null)),
        ),
        ("ordinals.start", spec("ordinals", &json!({ "start": 5 })), spec("ordinals", &json!(null))),
        ("selector", selector, back),
    ];
    for (field, change, back) in changes {
        scene.change(&change).await;
        let named = format!("spec.template.spec.{field} cannot be changed in place, StatefulSet db keeps it for life");
        let told = scene.until_versions(field, |view| is_refused(view) && view.status.message.contains(&named)).await;
        assert_untouched(&before, &told);
        scene.change(&back).await;
        scene.until_versions("accepted again", |view| view.is_only(1)).await;
    }
    // What can change does.
    scene.change(&spec("revisionHistoryLimit", &json!(4))).await;
    let has_it = |view: &View| {
        view.is_only(1) && view.world.sets["db"].spec.as_ref().and_then(|spec| spec.revision_history_limit) == Some(4)
    };
    let after = scene.until_versions("the history is shorter", has_it).await;
    assert_eq!(after.uids(""), before.uids(""));
    scene.end().await;
}

/// In zones the template is tried on a StatefulSet that is there, whatever the list begins with.
#[tokio::test]
async fn a_zone_that_comes_with_the_change_hides_no_refusal() {
    let scene = Scene::with_operator("for-life-zones").await;
    label_nodes(&scene, &["z1", "z2"]).await;
    let label = zone_label(&scene);
    let db = objects::with(plain(), "/spec/az", json!(["z2"]));
    scene.create(&objects::with(db, "/spec/zoneNodeLabel", json!(label))).await;
    scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    let mut change = spec("serviceName", &json!("other"));
    change["spec"]["az"] = json!(["z1", "z2"]);
    scene.change(&change).await;
    let told = scene.until_versions("refused", is_refused).await;
    assert!(told.status.message.contains("StatefulSet db-z2 keeps it for life"), "{}", told.status.message);
    assert!(!told.world.sets.contains_key("db-z1"));
    scene.change(&spec("serviceName", &json!("db"))).await;
    let after = scene.until_versions("both zones", |view| view.is_only(1) && view.uids("db-z").len() == 6).await;
    assert_eq!(after.uids("db-z2-"), told.uids("db-z2-"));
    scene.end().await;
}

#[tokio::test]
async fn side_by_side_each_of_them_makes_a_version() {
    let scene = Scene::with_versions("for-life-beside", &objects::extended("db")).await;
    let changes = [
        spec("serviceName", &json!("other")),
        spec("podManagementPolicy", &json!("Parallel")),
        // Kubernetes would move the pods of a StatefulSet at once.
        spec("ordinals", &json!({ "start": 2 })),
        spec("ordinals", &json!({ "start": 1 })),
    ];
    for (version, change) in (2..).zip(changes) {
        scene.change(&change).await;
        scene.until_versions("the next version alone", |view| view.is_only(version)).await;
    }
    let before = scene.view();
    assert_eq!(before.uids("").into_keys().collect::<Vec<_>>(), ["db-v5-1", "db-v5-2", "db-v5-3"]);
    scene.assert_never_fewer_than(3);
    // And what can change does, without one.
    scene.change(&spec("revisionHistoryLimit", &json!(4))).await;
    let has_it = |view: &View| {
        view.is_only(5)
            && view.world.sets["db-v5"].spec.as_ref().and_then(|spec| spec.revision_history_limit) == Some(4)
    };
    let after = scene.until_versions("the history is shorter", has_it).await;
    assert_eq!(after.uids(""), before.uids(""));
    scene.end().await;
}
