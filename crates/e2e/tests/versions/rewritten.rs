//! A template that is written in another way and comes to the same, since the API server fills in what is not written.

use serde_json::{Value, json};

use crate::in_place::plain;
use crate::story::{Story, View, db};

/// Fields of pod and container as the API server would fill them in.
async fn write_defaults(story: &Story, image: &str) {
    let container = json!({ "name": "app", "image": image, "imagePullPolicy": "IfNotPresent", "resources": {} });
    let pod = json!({ "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "containers": [container] });
    story.change(&json!({ "spec": { "template": { "spec": { "template": { "spec": pod } } } } })).await;
}

fn generation(view: &View, set: &str) -> Option<i64> {
    view.world.sets[set].metadata.generation
}

async fn nothing_restarts(name: &str, db: &Value, set: &str) -> Story {
    let story = Story::at_rest(name, db).await;
    let before = story.view().await;
    write_defaults(&story, "app:1").await;
    let after = story.until("version 1 as it was", |view| view.is_only(1) && view.status.rewritten.is_some()).await;
    assert_eq!((after.uids(""), after.status.last_version), (before.uids(""), 1));
    assert_eq!(generation(&after, set), generation(&before, set), "the StatefulSet is not written");
    story
}

#[tokio::test]
async fn defaults_that_are_written_out_are_no_version() {
    let mut story = nothing_restarts("defaults", &db(), "db-v1").await;
    story.scene.kill_operator();
    story.scene.start_operator();
    let former = story.view().await.set_uid("db-v1");
    story.scene.kubectl_ok(&["delete", "statefulset", "db-v1"], "").await;
    let is_new = |view: &View| view.set_uid("db-v1").is_some_and(|uid| former.as_ref() != Some(&uid));
    let back = story.until("made anew", |view| is_new(view) && view.is_only(1)).await;
    assert_eq!(back.status.last_version, 1, "under its number");
    // Another image is a version, and without the defaults it stays the same one.
    write_defaults(&story, "app:2").await;
    let next = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(next.status.rewritten, None);
    let without = json!({ "restartPolicy": null, "dnsPolicy": null });
    story.change(&json!({ "spec": { "template": { "spec": { "template": { "spec": without } } } } })).await;
    let after = story.until("version 2 as it was", |view| view.is_only(2) && view.status.rewritten.is_some()).await;
    assert_eq!(after.uids(""), next.uids(""));
    story.end().await;
}

#[tokio::test]
async fn defaults_that_are_written_out_roll_nothing_in_place() {
    let story = nothing_restarts("defaults-in-place", &plain(), "db").await;
    write_defaults(&story, "app:2").await;
    let after = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(after.status.rewritten, None);
    story.end().await;
}

/// What somebody wrote into the StatefulSet is not what its version is.
#[tokio::test]
async fn a_template_that_somebody_wrote_into_the_child_before_is_a_version() {
    let mut story = Story::at_rest("written-before", &db()).await;
    story.scene.kill_operator();
    let containers = json!([{ "name": "app", "image": "app:2" }]);
    let edited = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    story.scene.patch("statefulset/db-v1", &edited).await;
    story.release("app:2").await;
    story.scene.start_operator();
    let after = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(after.status.rewritten, None);
    story.end().await;
}
