//! A template that is written in another way and comes to the same, since the API server fills in what is not written.

use serde_json::{Value, json};
use sts_plus_e2e::{Scene, View, objects};

use crate::versions::in_place::plain;

/// Fields of pod and container as the API server would fill them in.
async fn write_defaults(scene: &Scene, image: &str) {
    let container = json!({ "name": "app", "image": image, "imagePullPolicy": "IfNotPresent", "resources": {} });
    let pod = json!({ "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "containers": [container] });
    scene.change(&json!({ "spec": { "template": { "spec": { "template": { "spec": pod } } } } })).await;
}

fn generation(view: &View, set: &str) -> Option<i64> {
    view.world.sets[set].metadata.generation
}

async fn nothing_restarts(name: &str, db: &Value, set: &str) -> Scene {
    let scene = Scene::with_versions(name, db).await;
    let before = scene.view();
    write_defaults(&scene, "app:1").await;
    let after =
        scene.until_versions("version 1 as it was", |view| view.is_only(1) && view.status.rewritten.is_some()).await;
    assert_eq!((after.uids(""), after.status.last_version), (before.uids(""), 1));
    assert_eq!(generation(&after, set), generation(&before, set), "the StatefulSet is not written");
    scene
}

// spec: es§3
#[tokio::test]
async fn defaults_that_are_written_out_are_no_version() {
    let mut scene = nothing_restarts("defaults", &objects::extended("db"), "db-v1").await;
    scene.kill_operator();
    scene.start_operator();
    let former = scene.view().set_uid("db-v1");
    scene.delete("statefulset/db-v1").await;
    let is_new = |view: &View| view.set_uid("db-v1").is_some_and(|uid| former.as_ref() != Some(&uid));
    let back = scene.until_versions("recreated", |view| is_new(view) && view.is_only(1)).await;
    assert_eq!(back.status.last_version, 1, "under its number");
    // Another image is a version, and without the defaults it stays the same one.
    write_defaults(&scene, "app:2").await;
    let next = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(next.status.rewritten, None);
    let without = json!({ "restartPolicy": null, "dnsPolicy": null });
    scene.change(&json!({ "spec": { "template": { "spec": { "template": { "spec": without } } } } })).await;
    let after =
        scene.until_versions("version 2 as it was", |view| view.is_only(2) && view.status.rewritten.is_some()).await;
    assert_eq!(after.uids(""), next.uids(""));
    scene.end().await;
}

// spec: es§3
#[tokio::test]
async fn defaults_that_are_written_out_roll_nothing_in_place() {
    let scene = nothing_restarts("defaults-in-place", &plain(), "db").await;
    write_defaults(&scene, "app:2").await;
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(after.status.rewritten, None);
    scene.end().await;
}

/// What somebody wrote into the StatefulSet is not what its version is.
#[tokio::test]
async fn a_template_that_somebody_wrote_into_the_child_before_is_a_version() {
    let mut scene = Scene::with_versions("written-before", &objects::extended("db")).await;
    scene.kill_operator();
    let containers = json!([{ "name": "app", "image": "app:2" }]);
    let edited = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    scene.patch("statefulset/db-v1", &edited).await;
    scene.release_version("app:2").await;
    scene.start_operator();
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(after.status.rewritten, None);
    scene.end().await;
}
