//! What a StatefulSet keeps for life: in place it cannot change, which is said in one sentence; side by side it makes a version.

use serde_json::{Value, json};
use sts_plus_e2e::objects;

use crate::in_place::{all_at, carried, plain};
use crate::story::{Story, View, db};

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
async fn larger_claims(name: &str) -> (Story, View, View) {
    let db = objects::with(plain(), "/spec/template/spec/volumeClaimTemplates", claims("1Gi"));
    let story = Story::at_rest(name, &db).await;
    let before = story.view().await;
    story.change(&spec("volumeClaimTemplates", &claims("2Gi"))).await;
    let told = story.until("refused", is_refused).await;
    (story, before, told)
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
    let (story, before, told) = larger_claims("claims").await;
    let message = told.message("TemplateValid");
    assert!(message.starts_with("spec.template.spec.volumeClaimTemplates cannot be changed in place"), "{message}");
    assert!(message.contains("take the change back") && message.contains("--cascade=orphan"), "{message}");
    assert!(!message.contains("serviceName") && !message.contains("forbidden"), "{message}");
    assert!(told.status.message.contains(message), "{}", told.status.message);
    // Together with another image nothing of it happens, and one pod that dies comes back as it was.
    story.release("app:2").await;
    story.scene.kubectl_ok(&["delete", "pod", "db-2"], "").await;
    let is_back = |view: &View| {
        is_refused(view) && view.world.is_ready_on("db-2", "app:1") && view.uids("db-2") != before.uids("db-2")
    };
    let after = story.until("the pod is back", is_back).await;
    let others = |view: &View| [view.uids("db-0"), view.uids("db-1")];
    assert_eq!((others(&after), all_at(&after, 1)), (others(&before), true));
    story.change(&spec("volumeClaimTemplates", &claims("1Gi"))).await;
    let accepted = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(accepted.condition("TemplateValid"), "True/TemplateAccepted");
    assert!(all_at(&accepted, 2));
    story.end().await;
}

/// The cure that the sentence gives.
#[tokio::test]
async fn a_set_that_is_deleted_with_orphan_is_made_anew_with_other_claim_templates() {
    let (story, before, _) = larger_claims("claims-anew").await;
    story.scene.kubectl_ok(&["delete", "statefulset", "db", "--cascade=orphan"], "").await;
    let after = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert!(all_at(&after, 2));
    assert_ne!(after.set_uid("db"), before.set_uid("db"));
    // One at a time: whenever one was gone the others were there.
    assert!(story.fewest_ready() >= 2);
    story.end().await;
}

#[tokio::test]
async fn each_field_that_is_kept_for_life_is_named_in_place() {
    let story = Story::at_rest("for-life", &plain()).await;
    let before = story.view().await;
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
        story.change(&change).await;
        let named = format!("spec.template.spec.{field} cannot be changed in place, StatefulSet db keeps it for life");
        let told = story.until(field, |view| is_refused(view) && view.status.message.contains(&named)).await;
        assert_untouched(&before, &told);
        story.change(&back).await;
        story.until("accepted again", |view| view.is_only(1)).await;
    }
    // What can change does.
    story.change(&spec("revisionHistoryLimit", &json!(4))).await;
    let has_it = |view: &View| {
        view.is_only(1) && view.world.sets["db"].spec.as_ref().and_then(|spec| spec.revision_history_limit) == Some(4)
    };
    let after = story.until("the history is shorter", has_it).await;
    assert_eq!(after.uids(""), before.uids(""));
    story.end().await;
}

/// In zones the template is tried on a StatefulSet that is there, whatever the list begins with.
#[tokio::test]
async fn a_zone_that_comes_with_the_change_hides_no_refusal() {
    let story = Story::new("for-life-zones").await;
    crate::zones::label_nodes(&story, &["z1", "z2"]).await;
    let label = crate::zones::zone_label(&story);
    let db = objects::with(plain(), "/spec/az", json!(["z2"]));
    story.scene.create(&objects::with(db, "/spec/zoneNodeLabel", json!(label))).await;
    story.until("version 1 is there", |view| view.is_only(1)).await;
    let mut change = spec("serviceName", &json!("other"));
    change["spec"]["az"] = json!(["z1", "z2"]);
    story.change(&change).await;
    let told = story.until("refused", is_refused).await;
    assert!(told.status.message.contains("StatefulSet db-z2 keeps it for life"), "{}", told.status.message);
    assert!(!told.world.sets.contains_key("db-z1"));
    story.change(&spec("serviceName", &json!("db"))).await;
    let after = story.until("both zones", |view| view.is_only(1) && view.uids("db-z").len() == 6).await;
    assert_eq!(after.uids("db-z2-"), told.uids("db-z2-"));
    story.end().await;
}

#[tokio::test]
async fn side_by_side_each_of_them_makes_a_version() {
    let story = Story::at_rest("for-life-beside", &db()).await;
    let changes = [
        spec("serviceName", &json!("other")),
        spec("podManagementPolicy", &json!("Parallel")),
        // Kubernetes would move the pods of a StatefulSet at once.
        spec("ordinals", &json!({ "start": 2 })),
        spec("ordinals", &json!({ "start": 1 })),
    ];
    for (version, change) in (2..).zip(changes) {
        story.change(&change).await;
        story.until("the next version alone", |view| view.is_only(version)).await;
    }
    let before = story.view().await;
    assert_eq!(before.uids("").into_keys().collect::<Vec<_>>(), ["db-v5-1", "db-v5-2", "db-v5-3"]);
    story.assert_never_fewer_than(3);
    // And what can change does, without one.
    story.change(&spec("revisionHistoryLimit", &json!(4))).await;
    let has_it = |view: &View| {
        view.is_only(5)
            && view.world.sets["db-v5"].spec.as_ref().and_then(|spec| spec.revision_history_limit) == Some(4)
    };
    let after = story.until("the history is shorter", has_it).await;
    assert_eq!(after.uids(""), before.uids(""));
    story.end().await;
}
