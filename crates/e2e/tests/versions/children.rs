//! Somebody else changes, scales, deletes or takes a StatefulSet of ours.

use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase, names};

use crate::story::{Story, View, db};

fn set(view: &View, name: &str) -> Value {
    serde_json::to_value(&view.world.sets[name]).expect("JSON")
}

#[tokio::test]
async fn a_child_that_is_scaled_or_edited_is_put_back_and_no_pod_restarts() {
    let story = Story::at_rest("drift", &db()).await;
    let before = story.view().await;
    story.scene.kubectl_ok(&["scale", "statefulset", "db-v1", "--replicas=4"], "").await;
    story.until("put back", |view| set(view, "db-v1")["spec"]["replicas"] == 3 && view.is_only(1)).await;
    let edited =
        json!({ "spec": { "minReadySeconds": 7, "template": { "spec": { "terminationGracePeriodSeconds": 9 } } } });
    story.scene.patch("statefulset/db-v1", &edited).await;
    let is_back = |view: &View| {
        let set = set(view, "db-v1");
        set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 1
    };
    story.until("the template is back", is_back).await;
    let after = story.until("at rest", |view| view.is_only(1)).await;
    assert_eq!(after.uids("db-v1-"), before.uids("db-v1-"));
    assert!(story.scene.events_of(Reason::ChildDrift).await.len() >= 2);
    story.end().await;
}

#[tokio::test]
async fn a_child_that_is_deleted_is_made_anew_under_its_number() {
    let story = Story::at_rest("deleted", &db()).await;
    story.scene.kubectl_ok(&["delete", "statefulset", "db-v1"], "").await;
    story.scene.until_events(Reason::ChildGone, 1).await;
    let after = story.until("it is back", |view| view.is_only(1) && view.uids("db-v1-").len() == 3).await;
    assert_eq!((after.status.current_version, after.status.last_version), (Some(1), 1));
    story.end().await;
}

/// What can be changed in place is, without a version and without a restart.
#[tokio::test]
async fn settings_beside_the_pod_template_are_changed_in_place() {
    let story = Story::at_rest("settings", &db()).await;
    let before = story.view().await;
    let change = json!({ "spec": { "template": { "metadata": { "labels": { "mine": "changed" } }, "spec": { "minReadySeconds": 1 } } } });
    story.change(&change).await;
    let is_changed = |view: &View| {
        let set = set(view, "db-v1");
        set["spec"]["minReadySeconds"] == 1 && set["metadata"]["labels"]["mine"] == "changed"
    };
    story.until("changed", is_changed).await;
    let after = story.until("at rest", |view| view.is_only(1)).await;
    assert_eq!(after.uids(""), before.uids(""));
    let set = set(&after, "db-v1");
    assert_eq!(set["spec"]["updateStrategy"]["rollingUpdate"]["partition"], names::HOLD);
    story.end().await;
}

#[tokio::test]
async fn a_name_that_somebody_else_has_is_told_and_nothing_of_it_is_touched() {
    let story = Story::at_rest("conflict", &db()).await;
    let theirs = sts_plus_e2e::objects::named(sts_plus_e2e::objects::set(1), "db-v2");
    story.scene.create(&theirs).await;
    story.scene.until("theirs runs", |world| world.is_ready_on("db-v2-0", "app:1")).await;
    let before = story.view().await;
    story.release("app:2").await;
    let told = story.until("told", |view| view.condition("Stalled") == "True/NameConflict").await;
    assert!(told.status.message.contains("StatefulSet db-v2"), "{}", told.status.message);
    assert_eq!(
        (told.uids(""), set(&told, "db-v2")["metadata"]["uid"].clone()),
        (before.uids(""), set(&before, "db-v2")["metadata"]["uid"].clone())
    );
    story.scene.kubectl_ok(&["delete", "statefulset", "db-v2"], "").await;
    story.until("version 2 alone", |view| view.is_only(2)).await;
    story.end().await;
}

#[tokio::test]
async fn a_phased_rollout_of_a_child_is_refused_with_the_cure() {
    let story = Story::at_rest("gated", &db()).await;
    let gate = sts_plus_e2e::objects::with(sts_plus_e2e::Scene::gate().await, "/spec/targetRef", "db-v1");
    story.scene.create(&gate).await;
    let told =
        |world: &sts_plus_e2e::World| world.status().message.contains("put the check into its updateStrategy.check");
    let world = story.scene.until("told", told).await;
    assert!(world.status().message.contains("ExtendedStatefulSet db controls StatefulSet db-v1"));
    assert_eq!(world.annotation_of("db-v1", names::CLAIM), Some("ExtendedStatefulSet/db"), "nobody else took it");
    story.end().await;
}

/// Children go with their owner; who deletes with orphan keeps them.
#[tokio::test]
async fn deletion_takes_the_children_along_and_orphan_keeps_them() {
    let story = Story::at_rest("deletion", &db()).await;
    story.scene.kubectl_ok(&["delete", "ests", "db", "--cascade=orphan"], "").await;
    let kept = story
        .scene
        .until("kept", |world| world.sets["db-v1"].metadata.owner_references.as_ref().is_none_or(Vec::is_empty))
        .await;
    assert_eq!(kept.pods.len(), 3);
    // Without our label it is not taken in.
    story.scene.kubectl_ok(&["label", "statefulset", "db-v1", &format!("{}-", names::OWNER)], "").await;
    story.scene.create(&db()).await;
    let told = story.until("told", |view| view.condition("Stalled") == "True/NameConflict").await;
    assert!(told.status.message.contains("db-v1"), "what it does not own is not taken: {}", told.status.message);
    story.scene.kubectl_ok(&["delete", "statefulset", "db-v1"], "").await;
    story.until("version 1 is there", |view| view.is_only(1)).await;
    story.scene.kubectl_ok(&["delete", "ests", "db"], "").await;
    story.scene.until("all are gone", |world| world.sets.is_empty() && world.pods.is_empty()).await;
    story.scene.end().await;
}

/// What a version is made from is kept while the version is there, so that the running one is put back whatever the template says by then.
#[tokio::test]
async fn in_mid_upgrade_the_running_version_is_put_back_as_it_was() {
    let story = Story::at_rest("kept", &db()).await;
    // The canary never comes up, so the upgrade stays where it is.
    story.release("app:2-nopull").await;
    story.until("the canary is waited for", |view| view.is(VersionPhase::Canary)).await;
    story.scene.kubectl_ok(&["set", "image", "statefulset/db-v1", "app=app:9"], "").await;
    let image = |view: &View| {
        let set = view.world.sets.get("db-v1")?.spec.clone()?.template.spec?;
        set.containers.into_iter().next()?.image
    };
    story.until("its image is put back", |view| image(view).as_deref() == Some("app:1")).await;
    let before = story.view().await;
    story.scene.kubectl_ok(&["delete", "statefulset", "db-v1"], "").await;
    let again = |view: &View| {
        let ready = view.status.details.iter().find(|detail| detail.version == 1).map(|detail| detail.ready);
        view.world.sets.get("db-v1").is_some_and(|set| set.metadata.uid != before.world.sets["db-v1"].metadata.uid)
            && (ready, image(view).as_deref()) == (Some(3), Some("app:1"))
    };
    let after = story.until("it is made anew from its own template", again).await;
    assert_eq!((after.status.current_version, after.status.last_version), (Some(1), 2));
    story.release("app:3").await;
    story.until("version 3 alone", |view| view.is_only(3)).await;
    let kept = ["get", "controllerrevisions", "-l", "!controller.kubernetes.io/hash", "-o", "name"];
    let only = async || {
        let kept = story.scene.kubectl_ok(&kept, "").await.stdout;
        kept.trim() == "controllerrevision.apps/db-v3"
    };
    sts_plus_e2e::eventually("the templates of the others are dropped", only).await;
    story.end().await;
}

/// One write of another template that opens the partition as well would move every pod before anybody could put it back.
#[tokio::test]
async fn a_hand_that_opens_the_partition_moves_no_pod() {
    let story = Story::at_rest("opened", &db()).await;
    let before = story.view().await;
    let containers = json!([{ "name": "app", "image": "app:77" }]);
    let write = json!({ "spec": {
        "updateStrategy": { "rollingUpdate": { "partition": 0 } },
        "template": { "spec": { "containers": containers } },
    } });
    let args = ["patch", "statefulset", "db-v1", "--type=strategic", "-p", &write.to_string()];
    let answer = story.scene.kubectl_ok(&args, "").await;
    let cure = "Change ExtendedStatefulSet db instead: what others write to its StatefulSets is put back.";
    assert!(answer.stderr.contains(cure) && !answer.stderr.contains("PhasedRollout"), "{}", answer.stderr);
    story.scene.until_events(Reason::ChildDrift, 1).await;
    let after = story.until("put back", |view| view.is_only(1)).await;
    assert_eq!(after.uids("db-v1-"), before.uids("db-v1-"));
    assert!(["db-v1-0", "db-v1-1", "db-v1-2"].iter().all(|pod| after.world.is_ready_on(pod, "app:1")));
    story.end().await;
}

/// At rest, when nothing else would bring it to our attention for minutes.
#[tokio::test]
async fn a_status_that_somebody_wipes_is_written_anew_at_once() {
    let story = Story::at_rest("wiped", &db()).await;
    let before = story.view().await;
    let patch = r#"{"status": null}"#;
    let wipe = ["patch", "ests", "db", "--subresource=status", "--type=merge", "-p", patch];
    story.scene.kubectl_ok(&wipe, "").await;
    let after = story.until("known again", |view| view.is_only(1)).await;
    assert_eq!((after.uids(""), after.status.current_version), (before.uids(""), Some(1)));
    assert_eq!(story.trace(), ["db-v1 3"]);
    story.end().await;
}
