//! What is let go, by the real garbage collector: Services that no field names any more, and all of it at the end.

use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase, names};
use sts_plus_e2e::{Scene, View, World, eventually, objects};

use super::orphan;

/// `db` with an active and a preview Service, at rest.
async fn with_services(name: &str) -> Scene {
    let mut db = objects::extended("db");
    db["spec"]["updateStrategy"]["activeService"] = json!("live");
    db["spec"]["updateStrategy"]["previewService"] = json!("next");
    let scene = Scene::with_operator(name).await;
    for name in ["live", "next", "green"] {
        scene.create(&objects::service(name)).await;
    }
    scene.create(&db).await;
    scene
        .until_versions("both follow", |view| view.is_only(1) && view.condition("ServicesFollow").starts_with("True"))
        .await;
    scene
}

/// The version in its selector, and whether it carries our mark.
async fn state(scene: &Scene, name: &str) -> (Option<String>, bool) {
    let service = scene.api("service").get(name).await.expect("it is there");
    assert_eq!(service.data["spec"]["selector"]["app"], "db", "what the user wrote stays");
    let version = service.data["spec"]["selector"].get(names::VERSION).and_then(Value::as_str);
    let annotations = service.metadata.annotations.unwrap_or_default();
    (version.map(str::to_owned), annotations.contains_key(names::OWNER))
}

async fn until(scene: &Scene, name: &str, wanted: (Option<&str>, bool)) {
    let is_so = async || {
        let (version, is_ours) = state(scene, name).await;
        (version.as_deref(), is_ours) == wanted
    };
    eventually(&format!("{name} is {wanted:?}"), is_so).await;
}

const FREE: (Option<&str>, bool) = (None, false);

fn is_gone(world: &World) -> bool {
    !world.extended.contains_key("db")
}

#[tokio::test]
async fn a_service_that_is_not_named_any_more_is_free_also_after_a_restart() {
    let mut scene = with_services("renamed").await;
    assert_eq!(state(&scene, "live").await, (Some("1".to_owned()), true));
    assert!(scene.stop_operator().await.success());
    scene.change(&json!({ "spec": { "updateStrategy": { "activeService": "green" } } })).await;
    scene.start_operator();
    until(&scene, "live", FREE).await;
    until(&scene, "green", (Some("1"), true)).await;
    scene.change(&json!({ "spec": { "updateStrategy": { "previewService": null } } })).await;
    until(&scene, "next", FREE).await;
    scene.until_versions("one is left", |view| view.is_told() && view.status.services == ["green"]).await;
    scene.end().await;
}

// spec: es§8
#[tokio::test]
async fn deleted_its_services_are_free_and_its_pods_go() {
    let scene = with_services("deleted").await;
    scene.kubectl_ok(&["delete", "ests", "db"], "").await;
    assert_eq!(state(&scene, "live").await, (None, false), "before it is gone");
    assert_eq!(state(&scene, "next").await, (None, false), "before it is gone");
    scene.until("all is gone", |world: &World| world.sets.is_empty() && world.pods.is_empty()).await;
    scene.end().await;
}

// spec: es§8
#[tokio::test]
async fn a_deletion_ends_without_its_services_and_in_the_foreground() {
    let scene = with_services("without").await;
    scene.kubectl_ok(&["delete", "service", "live"], "").await;
    scene.kubectl_ok(&["annotate", "service", "next", "--overwrite", &format!("{}=other", names::OWNER)], "").await;
    scene.kubectl_ok(&["delete", "ests", "db", "--cascade=foreground"], "").await;
    assert!(is_gone(&scene.world()));
    assert_eq!(state(&scene, "next").await, (Some("1".to_owned()), true), "it is another one's now");
    scene.end().await;
}

// spec: es§8
#[tokio::test]
async fn deleted_while_no_operator_runs_it_waits_for_one() {
    let mut scene = with_services("waits").await;
    assert!(scene.stop_operator().await.success());
    scene.kubectl_ok(&["delete", "ests", "db", "--wait=false"], "").await;
    assert!(!is_gone(&scene.world()));
    scene.start_operator();
    scene.until("it goes", is_gone).await;
    assert_eq!(state(&scene, "live").await, (None, false));
    scene.until("all is gone", |world: &World| world.sets.is_empty() && world.pods.is_empty()).await;
    scene.end().await;
}

// spec: es§8
#[tokio::test]
async fn orphaned_in_mid_upgrade_no_pod_moves_and_the_service_keeps_to_the_version_in_charge() {
    let scene = with_services("orphans").await;
    scene.release_version("app:2-never-ready").await;
    let is_up = |view: &View| view.world.pods.contains_key("db-v2-0") && view.is(VersionPhase::Canary);
    let before = scene.until_versions("a canary of version 2", is_up).await;
    orphan(&scene, "extendedstatefulset/db").await;
    assert!(is_gone(&scene.world()));
    let is_free = |set: &k8s_openapi::api::apps::v1::StatefulSet| set.metadata.owner_references.is_none();
    let after = scene.until("both are free", |world| world.sets.values().all(is_free)).await;
    assert_eq!((after.sets.len(), after.uids()), (2, before.world.uids()));
    assert_eq!(state(&scene, "live").await.0.as_deref(), Some("1"));
    scene.end().await;
}

/// The garbage collector has taken all that says so away before the operator looks.
#[tokio::test]
async fn an_operator_that_comes_late_still_sees_that_it_was_deleted_with_orphan() {
    let mut scene = with_services("late").await;
    scene.release_version("app:2-never-ready").await;
    let is_up = |view: &View| view.world.pods.contains_key("db-v2-0") && view.is(VersionPhase::Canary);
    let before = scene.until_versions("a canary of version 2", is_up).await;
    scene.kill_operator();
    scene.kubectl_ok(&["delete", "ests", "db", "--cascade=orphan", "--wait=false"], "").await;
    let ours_alone = async || {
        let finalizers = scene.api("extendedstatefulset").get("db").await.ok()?.metadata.finalizers?;
        (finalizers == [names::FINALIZER_VERSIONS]).then_some(())
    };
    eventually("the garbage collector is done", async || ours_alone().await.is_some()).await;
    scene.start_operator();
    scene.until("it goes", is_gone).await;
    let world = scene.world();
    assert_eq!((world.sets.len(), world.uids()), (2, before.world.uids()));
    assert_eq!(state(&scene, "live").await.0.as_deref(), Some("1"));
    scene.end().await;
}

// spec: es§8
#[tokio::test]
async fn what_stayed_is_taken_in_by_the_next_object_of_the_name_and_no_pod_moves() {
    for kind in ["SideBySide", "InPlace"] {
        let mut db = objects::extended("db");
        db["spec"]["updateStrategy"]["type"] = json!(kind);
        let scene = Scene::with_versions(&format!("back-{}", kind.to_lowercase()), &db).await;
        let before = scene.view();
        orphan(&scene, "extendedstatefulset/db").await;
        scene.create(&db).await;
        let after = scene.until_versions("it is there again", |view| view.is_only(1)).await;
        assert_eq!(after.world.uids(), before.world.uids(), "{kind}: the very same pods");
        let owners = after.world.sets.values().filter_map(|set| set.metadata.owner_references.as_ref());
        assert_eq!(owners.map(Vec::len).collect::<Vec<_>>(), [1], "{kind}");
        assert_eq!(scene.until_events(Reason::ChildAdopted, 1).await.len(), 1);
        scene.release_version("app:2").await;
        scene.until_versions("it goes on", |view| view.is_only(2)).await;
        scene.end().await;
    }
}

/// What the object before it has left behind does not stand in for its own templates.
#[tokio::test]
async fn a_version_that_was_taken_in_is_put_back_in_mid_upgrade() {
    let scene = Scene::with_versions("taken-in", &objects::extended("db")).await;
    orphan(&scene, "extendedstatefulset/db").await;
    let kept = scene.kubectl_ok(&["get", "controllerrevision", "db-v1", "--ignore-not-found"], "").await;
    assert_eq!(kept.stdout, "", "the template of a version goes with the object");
    // One that somebody left there is not ours.
    let left = json!({ "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": { "name": "db-v1" }, "revision": 1,
        "data": { "template": {} } });
    scene.create(&left).await;
    scene.create(&objects::extended("db")).await;
    scene.until_versions("it is there again", |view| view.is_only(1)).await;
    scene.release_version("app:2-never-ready").await;
    let is_up = |view: &View| view.world.pods.contains_key("db-v2-0") && view.is(VersionPhase::Canary);
    let before = scene.until_versions("a canary of version 2", is_up).await;
    orphan(&scene, "statefulset/db-v1").await;
    scene.until_events(Reason::ChildGone, 1).await;
    let is_back = |view: &View| view.world.sets.contains_key("db-v1") && is_up(view) && view.status.ready == "3/3";
    let after = scene.until_versions("version 1 is put back", is_back).await;
    assert_eq!(after.uids("db-v1-"), before.uids("db-v1-"));
    assert_eq!((after.status.current_version, after.status.update_version), (Some(1), Some(2)));
    scene.end().await;
}

#[tokio::test]
async fn paused_from_the_start_nothing_is_started() {
    let scene = Scene::with_operator("asleep").await;
    let mut asleep = objects::extended("db");
    asleep["spec"]["paused"] = json!(true);
    scene.create(&asleep).await;
    let paused = scene.until_versions("paused", |view| view.is(VersionPhase::Paused)).await;
    assert!(paused.status.message.contains("nothing is started"), "{}", paused.status.message);
    assert!(paused.world.sets.is_empty());
    scene.change(&json!({ "spec": { "paused": false } })).await;
    scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    assert_eq!(scene.trace(), ["db-v1 3"], "made once, when it went on");
    scene.end().await;
}

/// What stays of one that was rolled in place is a plain StatefulSet: nobody holds it any more but its partition.
// spec: es§8
#[tokio::test]
async fn in_place_what_stays_is_held_by_its_partition_alone() {
    let in_place = objects::with(objects::extended("db"), "/spec/updateStrategy", json!({ "type": "InPlace" }));
    let scene = Scene::with_versions("stays", &in_place).await;
    let before = scene.view();
    orphan(&scene, "extendedstatefulset/db").await;
    let is_free = |world: &World| {
        let set = &world.sets["db"].metadata;
        let annotations = set.annotations.clone().unwrap_or_default();
        set.owner_references.is_none() && names::OF_A_CLAIM.iter().all(|name| !annotations.contains_key(*name))
    };
    scene.until("it is let go", is_free).await;
    scene.kubectl_ok(&["set", "image", "statefulset/db", "app=app:2"], "").await;
    let remove = json!([{ "op": "remove", "path": "/spec/updateStrategy/rollingUpdate/partition" }]).to_string();
    scene.kubectl_ok(&["patch", "statefulset", "db", "--type=json", "-p", &remove], "").await;
    let all = |world: &World| ["db-0", "db-1", "db-2"].iter().all(|pod| world.is_ready_on(pod, "app:2"));
    let after = scene.until("Kubernetes rolls it", all).await;
    assert!(before.uids("db-").iter().all(|(name, uid)| after.uids()[name] != *uid));
    scene.end().await;
}
