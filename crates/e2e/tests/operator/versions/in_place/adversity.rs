//! InPlace under hands, crashes and silence.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase, names};
use sts_plus_e2e::{Scene, Seen, View, World, image_of, template_image};

use super::{all_at, carried, checked, plain};
use crate::versions::{assert_quiet, scale};

/// Pods at the version, whatever they are called.
fn count_at(view: &View, version: &str) -> usize {
    carried(view).values().filter(|at| *at == version).count()
}

/// The pods that were ever seen, by their versions and names.
fn lives(scene: &Scene) -> BTreeMap<(String, String), usize> {
    let mut uids: BTreeMap<String, (String, String)> = BTreeMap::new();
    for entry in scene.tape.entries() {
        let Seen::Pod(pod) = &entry.seen else { continue };
        let version = pod.metadata.labels.as_ref().and_then(|labels| labels.get(names::VERSION)).cloned();
        let (Some(uid), Some(name)) = (pod.metadata.uid.clone(), pod.metadata.name.clone()) else { continue };
        uids.insert(uid, (version.unwrap_or_default(), name));
    }
    let mut lives = BTreeMap::new();
    for pod in uids.into_values() {
        *lives.entry(pod).or_default() += 1;
    }
    lives
}

// spec: es§1, L100
#[tokio::test]
async fn kills_in_a_rollout_and_in_a_rollback_change_nothing_in_the_story() {
    let check = json!({ "onFailure": "Rollback" });
    let mut scene = Scene::with_versions("in-place-kills", &checked(&check).await).await;
    scene.release_version("app:2").await;
    for count in 1..=3 {
        scene.until_versions("one more", |view| count_at(view, "2") >= count).await;
        scene.kill_operator();
        scene.start_operator();
    }
    scene.until_versions("version 2 alone", |view| view.is_only(2) && all_at(view, 2)).await;
    scene.release_version("app:3-errors").await;
    let failing = |world: &World| world.pods.values().filter(|pod| image_of(pod) == "app:3-errors").count();
    for count in [1, 0] {
        scene.until("on the way there and back", |world| failing(world) == count).await;
        scene.kill_operator();
        scene.start_operator();
    }
    scene.until_versions("back and stale", |view| view.is(VersionPhase::Failed) && all_at(view, 2)).await;
    let lives = lives(&scene);
    let count = |version: &str, pod: &str| lives.get(&(version.to_owned(), pod.to_owned())).copied().unwrap_or(0);
    for pod in ["db-0", "db-1", "db-2"] {
        let expected = if pod == "db-2" { (1, 2, 1) } else { (1, 1, 0) };
        assert_eq!((count("1", pod), count("2", pod), count("3", pod)), expected, "{pod}: {lives:?}");
    }
    assert!(scene.events_of(Reason::ChildDrift).await.is_empty(), "nobody else wrote anything");
    scene.end().await;
}

// spec: es§8
#[tokio::test]
async fn nothing_is_written_at_rest_paused_or_stale() {
    let check = json!({ "onFailure": "Rollback" });
    let mut scene = Scene::with_versions("in-place-quiet", &checked(&check).await).await;
    assert_quiet(&mut scene, "at rest").await;
    scene.change(&json!({ "spec": { "paused": true } })).await;
    scene.release_version("app:2-errors").await;
    scene.until_versions("paused", |view| view.is(VersionPhase::Paused)).await;
    assert_quiet(&mut scene, "paused").await;
    scene.change(&json!({ "spec": { "paused": false } })).await;
    scene.until_versions("stale", |view| view.is(VersionPhase::Failed) && all_at(view, 1)).await;
    assert_quiet(&mut scene, "stale").await;
    scene.end().await;
}

#[tokio::test]
async fn hands_and_a_lost_status_in_mid_rollout_let_no_pod_slip() {
    let scene = Scene::with_versions("in-place-hands", &checked(&json!({})).await).await;
    let before = scene.view();
    scene.release_version("app:2-errors").await;
    scene.until_versions("failed", |view| view.is(VersionPhase::Failed) && count_at(view, "2") == 1).await;
    // An autoscaler at the StatefulSet itself.
    for count in [5, 1] {
        scale(&scene, "statefulset/db", count).await;
        let is_back = |view: &View| view.world.sets["db"].spec.as_ref().and_then(|spec| spec.replicas) == Some(3);
        let is_whole = |view: &View| is_back(view) && view.is(VersionPhase::Failed) && carried(view).len() == 3;
        let whole = scene.until_versions("put back", is_whole).await;
        assert!(["db-0", "db-1"].iter().all(|pod| carried(&whole)[*pod] == "1"), "{:?}", carried(&whole));
        assert_eq!(whole.uids("db-0"), before.uids("db-0"));
    }
    assert!(!scene.events_of(Reason::ChildDrift).await.is_empty());
    let scaled =
        scene.until_versions("failed again", |view| view.is(VersionPhase::Failed) && count_at(view, "2") == 1).await;
    let open = json!({ "spec": { "replicas": 5, "updateStrategy": { "rollingUpdate": { "partition": 0 } } } });
    scene.patch("statefulset/db", &open).await;
    scene.release_of("db", "app:9").await;
    let is_put_back = |view: &View| {
        let set = view.world.sets["db"].spec.clone().unwrap_or_default();
        let image = template_image(&view.world.sets["db"]);
        set.replicas == Some(3) && image == "app:2-errors" && view.world.partition_of("db") != Some(0)
    };
    scene.until_versions("put back", |view| is_put_back(view) && view.is(VersionPhase::Failed)).await;
    let wiped: Value = json!({ "status": null });
    let wipe = wiped.to_string();
    let patch = ["patch", "extendedstatefulset/db", "--subresource=status", "--type=merge", "-p", wipe.as_str()];
    scene.kubectl_ok(&patch, "").await;
    let again = |view: &View| view.is(VersionPhase::Failed) && view.status.last_version == 2;
    let after = scene.until_versions("known again", |view| again(view) && carried(view).len() == 3).await;
    assert_eq!((after.status.current_version, after.status.update_version), (Some(1), Some(2)));
    for pod in ["db-0", "db-1"] {
        assert_eq!(after.uids(pod), scaled.uids(pod));
    }
    assert_eq!(carried(&after), carried(&scaled));
    // What version 1 was is kept beside the status.
    scene.release_version("app:1").await;
    scene.until_versions("version 1 alone", |view| view.is_only(1) && all_at(view, 1)).await;
    scene.end().await;
}

#[tokio::test]
async fn deleted_in_mid_rollout_all_of_it_goes() {
    let scene = Scene::with_versions("in-place-deleted", &plain()).await;
    scene.release_version("app:2").await;
    scene.until("in the middle", |world| world.image("db-2") == "app:2" && world.image("db-0") == "app:1").await;
    scene.delete("extendedstatefulset/db").await;
    let is_gone = |world: &World| world.extended.is_empty() && world.sets.is_empty() && world.pods.is_empty();
    scene.until("all is gone", is_gone).await;
    scene.end().await;
}

/// A StatefulSet that is deleted takes its revisions along; deleting it approves nothing.
#[tokio::test]
async fn a_set_that_is_deleted_in_mid_upgrade_comes_back_as_the_version_in_charge() {
    let scene = Scene::with_versions("in-place-gone", &checked(&json!({})).await).await;
    scene.release_version("app:2-errors").await;
    scene.until_versions("failed", |view| view.is(VersionPhase::Failed) && count_at(view, "2") == 1).await;
    let former = scene.view().set_uid("db");
    scene.delete("statefulset/db").await;
    let is_new = |view: &View| view.set_uid("db").is_some_and(|uid| former.as_ref() != Some(&uid));
    let is_held = |view: &View| view.is(VersionPhase::Failed) && carried(view).len() == 3;
    let after = scene.until_versions("recreated and held", |view| is_new(view) && is_held(view)).await;
    assert!(count_at(&after, "2") <= 1, "one pod at most is tried: {:?}", carried(&after));
    assert_eq!((after.status.current_version, after.status.update_version), (Some(1), Some(2)));
    scene.release_version("app:1").await;
    let back = scene.until_versions("version 1 alone", |view| view.is_only(1) && all_at(view, 1)).await;
    assert_eq!(back.status.last_version, 2, "no new number");
    scene.end().await;
}
