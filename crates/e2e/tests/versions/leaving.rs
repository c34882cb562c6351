//! What is let go, by the real garbage collector: Services that no field names any more, and all of it at the end.

use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase, names};
use sts_plus_e2e::objects::{self, service};
use sts_plus_e2e::{World, eventually};

use crate::story::{Story, View, db};

/// `db` with an active and a preview Service, at rest.
async fn with_services(name: &str) -> Story {
    let mut db = db();
    db["spec"]["updateStrategy"]["activeService"] = json!("live");
    db["spec"]["updateStrategy"]["previewService"] = json!("next");
    let story = Story::new(name).await;
    for name in ["live", "next", "green"] {
        story.scene.create(&service(name)).await;
    }
    story.scene.create(&db).await;
    story.until("both follow", |view| view.is_only(1) && view.condition("ServicesFollow").starts_with("True")).await;
    story
}

/// The version in its selector, and whether it carries our mark.
async fn state(story: &Story, name: &str) -> (Option<String>, bool) {
    let service = story.scene.api("service").get(name).await.expect("it is there");
    assert_eq!(service.data["spec"]["selector"]["app"], "db", "what the user wrote stays");
    let version = service.data["spec"]["selector"].get(names::VERSION).and_then(Value::as_str);
    let annotations = service.metadata.annotations.unwrap_or_default();
    (version.map(str::to_owned), annotations.contains_key(names::OWNER))
}

async fn until(story: &Story, name: &str, wanted: (Option<&str>, bool)) {
    let is_so = async || {
        let (version, is_ours) = state(story, name).await;
        (version.as_deref(), is_ours) == wanted
    };
    eventually(&format!("{name} is {wanted:?}"), is_so).await;
}

const FREE: (Option<&str>, bool) = (None, false);

impl Story {
    async fn is_there(&self) -> bool {
        self.scene.api("extendedstatefulset").get_opt("db").await.expect("an answer").is_some()
    }
}

#[tokio::test]
async fn a_service_that_is_not_named_any_more_is_free_also_after_a_restart() {
    let mut story = with_services("renamed").await;
    assert_eq!(state(&story, "live").await, (Some("1".to_owned()), true));
    assert!(story.scene.stop_operator().await.success());
    story.change(&json!({ "spec": { "updateStrategy": { "activeService": "green" } } })).await;
    story.scene.start_operator();
    until(&story, "live", FREE).await;
    until(&story, "green", (Some("1"), true)).await;
    story.change(&json!({ "spec": { "updateStrategy": { "previewService": null } } })).await;
    until(&story, "next", FREE).await;
    story.until("one is left", |view| view.is_told() && view.status.services == ["green"]).await;
    story.end().await;
}

#[tokio::test]
async fn deleted_its_services_are_free_and_its_pods_go() {
    let story = with_services("deleted").await;
    story.scene.kubectl_ok(&["delete", "ests", "db"], "").await;
    assert_eq!(state(&story, "live").await, (None, false), "before it is gone");
    assert_eq!(state(&story, "next").await, (None, false), "before it is gone");
    story.scene.until("all is gone", |world: &World| world.sets.is_empty() && world.pods.is_empty()).await;
    story.end().await;
}

#[tokio::test]
async fn a_deletion_ends_without_its_services_and_in_the_foreground() {
    let story = with_services("without").await;
    story.scene.kubectl_ok(&["delete", "service", "live"], "").await;
    story
        .scene
        .kubectl_ok(&["annotate", "service", "next", "--overwrite", &format!("{}=other", names::OWNER)], "")
        .await;
    story.scene.kubectl_ok(&["delete", "ests", "db", "--cascade=foreground"], "").await;
    assert!(!story.is_there().await);
    assert_eq!(state(&story, "next").await, (Some("1".to_owned()), true), "it is another one's now");
    story.end().await;
}

#[tokio::test]
async fn deleted_while_no_operator_runs_it_waits_for_one() {
    let mut story = with_services("waits").await;
    assert!(story.scene.stop_operator().await.success());
    story.scene.kubectl_ok(&["delete", "ests", "db", "--wait=false"], "").await;
    assert!(story.is_there().await);
    story.scene.start_operator();
    eventually("it goes", async || !story.is_there().await).await;
    assert_eq!(state(&story, "live").await, (None, false));
    story.scene.until("all is gone", |world: &World| world.sets.is_empty() && world.pods.is_empty()).await;
    story.end().await;
}

#[tokio::test]
async fn orphaned_in_mid_upgrade_no_pod_moves_and_the_service_keeps_to_the_version_in_charge() {
    let story = with_services("orphans").await;
    story.release("app:2-never-ready").await;
    let is_up = |view: &View| view.world.pods.contains_key("db-v2-0") && view.is(VersionPhase::Canary);
    let before = story.until("a canary of version 2", is_up).await;
    story.scene.kubectl_ok(&["delete", "ests", "db", "--cascade=orphan"], "").await;
    assert!(!story.is_there().await);
    let is_free = |set: &k8s_openapi::api::apps::v1::StatefulSet| set.metadata.owner_references.is_none();
    let after = story.scene.until("both are free", |world| world.sets.values().all(is_free)).await;
    assert_eq!((after.sets.len(), after.uids()), (2, before.world.uids()));
    assert_eq!(state(&story, "live").await.0.as_deref(), Some("1"));
    story.end().await;
}

/// The garbage collector has taken all that says so away before the operator looks.
#[tokio::test]
async fn an_operator_that_comes_late_still_sees_that_it_was_deleted_with_orphan() {
    let mut story = with_services("late").await;
    story.release("app:2-never-ready").await;
    let is_up = |view: &View| view.world.pods.contains_key("db-v2-0") && view.is(VersionPhase::Canary);
    let before = story.until("a canary of version 2", is_up).await;
    story.scene.kill_operator();
    story.scene.kubectl_ok(&["delete", "ests", "db", "--cascade=orphan", "--wait=false"], "").await;
    let ours_alone = async || {
        let finalizers = story.scene.api("extendedstatefulset").get("db").await.ok()?.metadata.finalizers?;
        (finalizers == [names::FINALIZER_VERSIONS]).then_some(())
    };
    eventually("the garbage collector is done", async || ours_alone().await.is_some()).await;
    story.scene.start_operator();
    eventually("it goes", async || !story.is_there().await).await;
    let world = story.scene.world();
    assert_eq!((world.sets.len(), world.uids()), (2, before.world.uids()));
    assert_eq!(state(&story, "live").await.0.as_deref(), Some("1"));
    story.end().await;
}

#[tokio::test]
async fn what_stayed_is_taken_in_by_the_next_object_of_the_name_and_no_pod_moves() {
    for kind in ["SideBySide", "InPlace"] {
        let mut db = db();
        db["spec"]["updateStrategy"]["type"] = json!(kind);
        let story = Story::at_rest(&format!("back-{}", kind.to_lowercase()), &db).await;
        let before = story.view().await;
        story.scene.kubectl_ok(&["delete", "ests", "db", "--cascade=orphan"], "").await;
        story.scene.create(&db).await;
        let after = story.until("it is there again", |view| view.is_only(1)).await;
        assert_eq!(after.world.uids(), before.world.uids(), "{kind}: the very same pods");
        let owners = after.world.sets.values().filter_map(|set| set.metadata.owner_references.as_ref());
        assert_eq!(owners.map(Vec::len).collect::<Vec<_>>(), [1], "{kind}");
        assert_eq!(story.scene.until_events(Reason::ChildAdopted, 1).await.len(), 1);
        story.release("app:2").await;
        story.until("it goes on", |view| view.is_only(2)).await;
        story.end().await;
    }
}

/// What the object before it has left behind does not stand in for its own templates.
#[tokio::test]
async fn a_version_that_was_taken_in_is_put_back_in_mid_upgrade() {
    let story = Story::at_rest("taken-in", &db()).await;
    story.scene.kubectl_ok(&["delete", "ests", "db", "--cascade=orphan"], "").await;
    let kept = story.scene.kubectl_ok(&["get", "controllerrevision", "db-v1", "--ignore-not-found"], "").await;
    assert_eq!(kept.stdout, "", "the template of a version goes with the object");
    // One that somebody left there is not ours.
    let left = json!({ "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": { "name": "db-v1" }, "revision": 1,
        "data": { "template": {} } });
    story.scene.create(&left).await;
    story.scene.create(&db()).await;
    story.until("it is there again", |view| view.is_only(1)).await;
    story.release("app:2-never-ready").await;
    let is_up = |view: &View| view.world.pods.contains_key("db-v2-0") && view.is(VersionPhase::Canary);
    let before = story.until("a canary of version 2", is_up).await;
    story.scene.kubectl_ok(&["delete", "statefulset", "db-v1", "--cascade=orphan"], "").await;
    story.scene.until_events(Reason::ChildGone, 1).await;
    let is_back = |view: &View| view.world.sets.contains_key("db-v1") && is_up(view) && view.status.ready == "3/3";
    let after = story.until("version 1 is put back", is_back).await;
    assert_eq!(after.uids("db-v1-"), before.uids("db-v1-"));
    assert_eq!((after.status.current_version, after.status.update_version), (Some(1), Some(2)));
    story.end().await;
}

#[tokio::test]
async fn paused_from_the_start_nothing_is_started() {
    let story = Story::new("asleep").await;
    let mut asleep = db();
    asleep["spec"]["paused"] = json!(true);
    story.scene.create(&asleep).await;
    let paused = story.until("paused", |view| view.is(VersionPhase::Paused)).await;
    assert!(paused.status.message.contains("nothing is started"), "{}", paused.status.message);
    assert!(paused.world.sets.is_empty());
    story.change(&json!({ "spec": { "paused": false } })).await;
    story.until("version 1 is there", |view| view.is_only(1)).await;
    assert_eq!(story.trace(), ["db-v1 3"], "made once, when it went on");
    story.end().await;
}

/// What stays of one that was rolled in place is a plain StatefulSet: nobody holds it any more but its partition.
#[tokio::test]
async fn in_place_what_stays_is_held_by_its_partition_alone() {
    let in_place = objects::with(db(), "/spec/updateStrategy", json!({ "type": "InPlace" }));
    let story = Story::at_rest("stays", &in_place).await;
    let before = story.view().await;
    story.scene.kubectl_ok(&["delete", "ests", "db", "--cascade=orphan"], "").await;
    let is_free = |world: &World| {
        let set = &world.sets["db"].metadata;
        let annotations = set.annotations.clone().unwrap_or_default();
        set.owner_references.is_none() && names::OF_A_CLAIM.iter().all(|name| !annotations.contains_key(*name))
    };
    story.scene.until("it is let go", is_free).await;
    story.scene.kubectl_ok(&["set", "image", "statefulset/db", "app=app:2"], "").await;
    let remove = json!([{ "op": "remove", "path": "/spec/updateStrategy/rollingUpdate/partition" }]).to_string();
    story.scene.kubectl_ok(&["patch", "statefulset", "db", "--type=json", "-p", &remove], "").await;
    let all = |world: &World| ["db-0", "db-1", "db-2"].iter().all(|pod| world.is_ready_on(pod, "app:2"));
    let after = story.scene.until("Kubernetes rolls it", all).await;
    assert!(before.uids("db-").iter().all(|(name, uid)| after.uids()[name] != *uid));
    story.end().await;
}
