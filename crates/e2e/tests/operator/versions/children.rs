//! Somebody else changes, scales, deletes or takes a StatefulSet of ours.

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Reason, VersionPhase, names};
use sts_plus_e2e::{Scene, View, World, eventually, objects, template_image};

use super::in_place::plain;
use super::{orphan, scale};

fn set(view: &View, name: &str) -> Value {
    serde_json::to_value(&view.world.sets[name]).expect("JSON")
}

// spec: es§2, es§3
#[tokio::test]
async fn a_child_that_is_scaled_or_edited_is_put_back_and_no_pod_restarts() {
    let db = objects::with(objects::extended("db"), "/spec/template/spec/minReadySeconds", 1);
    let scene = Scene::with_versions("drift", &db).await;
    let before = scene.view();
    scale(&scene, "statefulset/db-v1", 4).await;
    scene.until_versions("put back", |view| set(view, "db-v1")["spec"]["replicas"] == 3 && view.is_only(1)).await;
    let edited =
        json!({ "spec": { "minReadySeconds": 7, "template": { "spec": { "terminationGracePeriodSeconds": 9 } } } });
    scene.patch("statefulset/db-v1", &edited).await;
    let is_back = |view: &View| {
        let spec = set(view, "db-v1")["spec"].clone();
        spec["minReadySeconds"] == 1 && spec["template"]["spec"]["terminationGracePeriodSeconds"] == 1
    };
    scene.until_versions("both are back", is_back).await;
    let after = scene.until_versions("at rest", |view| view.is_only(1) && view.uids("").len() == 3).await;
    assert_eq!(after.uids("db-v1-"), before.uids("db-v1-"));
    assert!(scene.events_of(Reason::ChildDrift).await.len() >= 2);
    scene.end().await;
}

// spec: es§3
#[tokio::test]
async fn a_child_that_is_deleted_is_recreated_under_its_number() {
    let scene = Scene::with_versions("deleted", &objects::extended("db")).await;
    let before = scene.view();
    scene.delete("statefulset/db-v1").await;
    scene.until_events(Reason::ChildGone, 1).await;
    let is_new = |view: &View| {
        let pods = view.uids("db-v1-");
        pods.len() == 3 && pods.iter().all(|(name, uid)| before.uids("")[name] != *uid)
    };
    let after = scene.until_versions("it is back", |view| view.is_only(1) && is_new(view)).await;
    assert_eq!((after.status.current_version, after.status.last_version), (Some(1), 1));
    scene.end().await;
}

/// What can be changed in place is, without a version and without a restart.
// spec: es§3
#[tokio::test]
async fn settings_beside_the_pod_template_are_changed_in_place() {
    let scene = Scene::with_versions("settings", &objects::extended("db")).await;
    let before = scene.view();
    let change = json!({ "spec": { "template": { "metadata": { "labels": { "mine": "changed" } }, "spec": { "minReadySeconds": 1 } } } });
    scene.change(&change).await;
    let is_changed = |view: &View| {
        let set = set(view, "db-v1");
        set["spec"]["minReadySeconds"] == 1 && set["metadata"]["labels"]["mine"] == "changed"
    };
    scene.until_versions("changed", is_changed).await;
    let after = scene.until_versions("at rest", |view| view.is_only(1)).await;
    assert_eq!(after.uids(""), before.uids(""));
    let set = set(&after, "db-v1");
    assert_eq!(set["spec"]["updateStrategy"]["rollingUpdate"]["partition"], names::HOLD);
    scene.end().await;
}

// spec: es§3
#[tokio::test]
async fn a_name_that_somebody_else_has_is_told_and_nothing_of_it_is_touched() {
    let scene = Scene::with_versions("conflict", &objects::extended("db")).await;
    let theirs = objects::named(objects::set(1), "db-v2");
    scene.create(&theirs).await;
    scene.until("theirs runs", |world| world.is_ready_on("db-v2-0", "app:1")).await;
    let before = scene.view();
    scene.release_version("app:2").await;
    let told = scene.until_versions("told", |view| view.condition("Stalled") == "True/NameConflict").await;
    assert!(told.status.message.contains("StatefulSet db-v2"), "{}", told.status.message);
    assert_eq!(
        (told.uids(""), set(&told, "db-v2")["metadata"]["uid"].clone()),
        (before.uids(""), set(&before, "db-v2")["metadata"]["uid"].clone())
    );
    scene.delete("statefulset/db-v2").await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    scene.end().await;
}

// spec: pr§7
#[rstest]
#[case::side_by_side(objects::extended("db"), "db-v1")]
#[case::in_place(plain(), "db")]
#[tokio::test]
async fn a_phased_rollout_of_a_child_is_refused_with_the_cure(#[case] db: Value, #[case] child: &str) {
    let scene = Scene::with_versions("gated", &db).await;
    let gate = objects::with(objects::rollout("http://prom.example"), "/spec/targetRef", child);
    scene.create(&gate).await;
    let told = |world: &World| {
        let is_refused = world.condition(ConditionType::TargetAccepted).starts_with("False/");
        is_refused && world.status().message.contains("put the check into its updateStrategy.check")
    };
    let world = scene.until("told", told).await;
    let whose = format!("ExtendedStatefulSet db controls StatefulSet {child}");
    assert!(world.status().message.contains(&whose), "{}", world.status().message);
    assert_eq!(world.annotation_of(child, names::CLAIM), Some("ExtendedStatefulSet/db"), "nobody else took it");
    scene.end().await;
}

/// What a former object of the name left is taken in by its label alone (see `deletion`).
// spec: es§8
#[tokio::test]
async fn what_was_left_and_has_lost_our_label_is_not_taken_in() {
    let scene = Scene::with_versions("unlabelled", &objects::extended("db")).await;
    orphan(&scene, "extendedstatefulset/db").await;
    let is_free = |world: &World| world.sets["db-v1"].metadata.owner_references.as_ref().is_none_or(Vec::is_empty);
    let left = scene.until("left", is_free).await;
    scene.patch("statefulset/db-v1", &json!({ "metadata": { "labels": { names::OWNER: null } } })).await;
    scene.create(&objects::extended("db")).await;
    let told = scene.until_versions("told", |view| view.condition("Stalled") == "True/NameConflict").await;
    assert!(told.status.message.contains("db-v1"), "what it does not own is not taken: {}", told.status.message);
    assert_eq!((told.uids(""), told.set_uid("db-v1")), (left.uids(), left.sets["db-v1"].metadata.uid.clone()));
    scene.delete("statefulset/db-v1").await;
    scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    scene.end().await;
}

/// What a version is made from is kept while the version is there, so that the running one is put back whatever the template says by then.
// spec: es§3
#[tokio::test]
async fn in_mid_upgrade_the_running_version_is_put_back_as_it_was() {
    let scene = Scene::with_versions("kept", &objects::extended("db")).await;
    // The canary never comes up, so the upgrade stays where it is.
    scene.release_version("app:2-nopull").await;
    scene.until_versions("the canary is waited for", |view| view.is(VersionPhase::Canary)).await;
    scene.release_of("db-v1", "app:9").await;
    let image = |view: &View| view.world.sets.get("db-v1").map(|set| template_image(set).to_owned());
    scene.until_versions("its image is put back", |view| image(view).as_deref() == Some("app:1")).await;
    let before = scene.view();
    scene.delete("statefulset/db-v1").await;
    let again = |view: &View| {
        let ready = view.status.details.iter().find(|detail| detail.version == 1).map(|detail| detail.ready);
        view.world.sets.get("db-v1").is_some_and(|set| set.metadata.uid != before.world.sets["db-v1"].metadata.uid)
            && (ready, image(view).as_deref()) == (Some(3), Some("app:1"))
    };
    let after = scene.until_versions("it is recreated from its own template", again).await;
    assert_eq!((after.status.current_version, after.status.last_version), (Some(1), 2));
    scene.release_version("app:3").await;
    scene.until_versions("version 3 alone", |view| view.is_only(3)).await;
    let kept = ["get", "controllerrevisions", "-l", "!controller.kubernetes.io/hash", "-o", "name"];
    let only = async || {
        let kept = scene.kubectl_ok(&kept, "").await.stdout;
        kept.trim() == "controllerrevision.apps/db-v3"
    };
    eventually("the templates of the others are dropped", only).await;
    scene.end().await;
}

/// One write of another template that opens the partition as well would move every pod before anybody could put it back.
// spec: es§3
#[tokio::test]
async fn a_hand_that_opens_the_partition_moves_no_pod() {
    let scene = Scene::with_versions("opened", &objects::extended("db")).await;
    let before = scene.view();
    let containers = json!([{ "name": "app", "image": "app:77" }]);
    let write = json!({ "spec": {
        "updateStrategy": { "rollingUpdate": { "partition": 0 } },
        "template": { "spec": { "containers": containers } },
    } });
    let args = ["patch", "statefulset", "db-v1", "--type=strategic", "-p", &write.to_string()];
    let answer = scene.kubectl_ok(&args, "").await;
    let cure = "Change ExtendedStatefulSet db instead: what others write to its StatefulSets is put back.";
    assert!(answer.stderr.contains(cure) && !answer.stderr.contains("PhasedRollout"), "{}", answer.stderr);
    scene.until_events(Reason::ChildDrift, 1).await;
    let is_put_back = |view: &View| {
        let set = &view.world.sets["db-v1"];
        let is_seen = set.status.as_ref().and_then(|status| status.observed_generation) == set.metadata.generation;
        is_seen && template_image(set) == "app:1" && view.world.partition_of("db-v1") == Some(names::HOLD)
    };
    let after = scene.until_versions("put back", |view| view.is_only(1) && is_put_back(view)).await;
    assert_eq!(after.uids("db-v1-"), before.uids("db-v1-"));
    assert!(["db-v1-0", "db-v1-1", "db-v1-2"].iter().all(|pod| after.world.is_ready_on(pod, "app:1")));
    scene.end().await;
}

/// At rest, when nothing else would bring it to our attention for minutes.
// spec: es§8
#[tokio::test]
async fn a_status_that_somebody_wipes_is_written_again_at_once() {
    let scene = Scene::with_versions("wiped", &objects::extended("db")).await;
    let before = scene.view();
    let patch = r#"{"status": null}"#;
    let wipe = ["patch", "ests", "db", "--subresource=status", "--type=merge", "-p", patch];
    scene.kubectl_ok(&wipe, "").await;
    let after = scene.until_versions("known again", |view| view.is_only(1)).await;
    assert_eq!((after.uids(""), after.status.current_version), (before.uids(""), Some(1)));
    assert_eq!(scene.trace(), ["db-v1 3"]);
    scene.end().await;
}
