//! InPlace through no pods at all, and in zones of which one has rejected a version: nothing starts on what failed.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase, names};
use sts_plus_e2e::{Seen, objects};

use crate::in_place::{all_at, carried, checked};
use crate::in_place_scaled::scale;
use crate::story::{Story, View};
use crate::zones::{label_nodes, zone_label};

/// The pods that ever carried version 2, each of its lives.
fn ever_at_two(story: &Story) -> BTreeSet<(String, String)> {
    let entries = story.scene.tape.entries();
    let pods = entries.iter().filter_map(|entry| match &entry.seen {
        Seen::Pod(pod) => Some(pod),
        _ => None,
    });
    let at_two = pods.filter(|pod| {
        pod.metadata.labels.as_ref().is_some_and(|labels| labels.get(names::VERSION).is_some_and(|at| at == "2"))
    });
    at_two.filter_map(|pod| Some((pod.metadata.name.clone()?, pod.metadata.uid.clone()?))).collect()
}

fn has_no_pods(view: &View) -> bool {
    view.world.pods.is_empty()
}

/// Version 2 was rejected at its first pod, and all pods are back on version 1.
async fn rejected(name: &str, more: &Value) -> Story {
    let mut check = json!({ "preflight": false, "onFailure": "Rollback" });
    json_patch::merge(&mut check, more);
    let story = Story::at_rest(name, &checked(&check).await).await;
    story.release("app:2-errors").await;
    story.until("back on version 1", |view| view.is(VersionPhase::Failed) && all_at(view, 1)).await;
    assert_eq!(ever_at_two(&story).len(), 1, "one pod was tried");
    story
}

#[tokio::test]
async fn a_rejected_version_stays_rejected_through_zero() {
    let mut story = rejected("through-zero", &json!({})).await;
    for is_slow in [true, false] {
        scale(&story, "extendedstatefulset/db", 0).await;
        if is_slow {
            let gone = story.until("no pods", |view| has_no_pods(view) && view.is(VersionPhase::Failed)).await;
            assert!(gone.status.message.contains("version 1 starts"), "{}", gone.status.message);
            story.scene.kill_operator();
            story.scene.start_operator();
        }
        scale(&story, "extendedstatefulset/db", 3).await;
        let is_held = |view: &View| view.is(VersionPhase::Failed) && view.condition("Stale") == "True/VersionStale";
        let back = story.until("version 1 again", |view| all_at(view, 1) && is_held(view)).await;
        assert_eq!((back.status.current_version, back.status.update_version), (Some(1), Some(2)));
        assert_eq!(ever_at_two(&story).len(), 1, "slow {is_slow}: nothing else started on version 2");
    }
    assert!(story.scene.events_of(Reason::PromotedUnverified).await.is_empty());
    let retry = json!({ "metadata": { "annotations": { names::RETRY_VERSION: "again" } } });
    story.change(&retry).await;
    story.until("tried again and rejected again", |view| ever_at_two(&story).len() == 2 && all_at(view, 1)).await;
    story.release("app:1").await;
    story.until("version 1 alone", |view| view.is_only(1) && all_at(view, 1)).await;
    story.end().await;
}

#[tokio::test]
async fn paused_in_mid_upgrade_the_version_in_charge_comes_back_from_zero() {
    let check = json!({ "preflight": false, "initialDelaySeconds": 3 });
    let story = Story::at_rest("paused-zero", &checked(&check).await).await;
    story.release("app:2").await;
    story.until("one pod is on version 2", |view| carried(view).get("db-2").is_some_and(|at| at == "2")).await;
    story.change(&json!({ "spec": { "paused": true } })).await;
    story.until("paused", |view| view.is(VersionPhase::Paused)).await;
    let before = ever_at_two(&story);
    scale(&story, "extendedstatefulset/db", 0).await;
    story.until("no pods", has_no_pods).await;
    scale(&story, "extendedstatefulset/db", 3).await;
    let back = story.until("version 1 again", |view| all_at(view, 1) && view.is(VersionPhase::Paused)).await;
    assert_eq!((back.status.current_version, ever_at_two(&story)), (Some(1), before));
    story.change(&json!({ "spec": { "paused": false } })).await;
    story.until("version 2 alone", |view| view.is_only(2) && all_at(view, 2)).await;
    story.end().await;
}

#[tokio::test]
async fn what_one_zone_rejected_is_rolled_in_no_other_whatever_becomes_of_the_list() {
    let story = Story::new("zone-rejects").await;
    label_nodes(&story, &["z1", "z2"]).await;
    let label = zone_label(&story);
    let check = json!({ "preflight": false, "onFailure": "Rollback" });
    let db = objects::with(checked(&check).await, "/spec/az", json!(["z1", "z2"]));
    story.scene.create(&objects::with(db, "/spec/zoneNodeLabel", json!(label))).await;
    story.until("version 1 is there", |view| view.is_only(1)).await;
    story.release("app:2-errors").await;
    let all_at_one = |view: &View, zones: &[&str]| {
        let carried = carried(view);
        let is_listed = |pod: &String| zones.iter().any(|zone| pod.starts_with(&format!("db-{zone}-")));
        carried.len() == 3 * zones.len() && carried.iter().all(|(pod, at)| at == "1" && is_listed(pod))
    };
    let is_failed =
        |view: &View| view.is(VersionPhase::Failed) && view.status.observed_generation == Some(view.generation);
    story.until("z1 went back", |view| is_failed(view) && all_at_one(view, &["z1", "z2"])).await;
    let before = ever_at_two(&story);
    assert_eq!(before.len(), 1, "one pod of z1 was tried: {before:?}");
    story.change(&json!({ "spec": { "az": ["z2", "z1"] } })).await;
    story.until("in another order", |view| is_failed(view) && all_at_one(view, &["z1", "z2"])).await;
    story.change(&json!({ "spec": { "az": ["z2"] } })).await;
    story.until("z1 is gone", |view| is_failed(view) && all_at_one(view, &["z2"]) && view.world.sets.len() == 1).await;
    story.change(&json!({ "spec": { "az": ["z1", "z2"] } })).await;
    story.until("z1 is there again", |view| is_failed(view) && all_at_one(view, &["z1", "z2"])).await;
    assert_eq!(ever_at_two(&story), before);
    story.release("app:3").await;
    let is_whole = |view: &View| view.is_only(3) && carried(view).len() == 6;
    story.until("version 3 alone", is_whole).await;
    story.end().await;
}

/// The label by which pods find their zone is in the pods: another one is another version, and the way back is one too.
#[tokio::test]
async fn a_label_that_no_node_has_costs_one_pod_and_is_taken_back() {
    let story = Story::new("zone-label").await;
    label_nodes(&story, &["z1"]).await;
    let label = zone_label(&story);
    let db = objects::with(checked(&json!({ "preflight": false })).await, "/spec/az", json!(["z1"]));
    story.scene.create(&objects::with(db, "/spec/zoneNodeLabel", json!(label))).await;
    let before = story.until("version 1 is there", |view| view.is_only(1)).await;
    story.change(&json!({ "spec": { "zoneNodeLabel": "example.com/none" } })).await;
    let is_tried = |view: &View| carried(view).get("db-z1-2").is_some_and(|at| at == "2");
    let tried = story.until("one pod is tried", |view| is_tried(view) && view.is_told()).await;
    assert_eq!(ever_at_two(&story).len(), 1);
    assert_eq!((tried.uids("db-z1-0"), tried.uids("db-z1-1")), (before.uids("db-z1-0"), before.uids("db-z1-1")));
    assert!(tried.message("ZoneUnschedulable").contains("example.com/none"), "{}", tried.message("ZoneUnschedulable"));
    story.change(&json!({ "spec": { "zoneNodeLabel": label } })).await;
    let back = story.until("version 1 alone", |view| view.is_only(1) && all_at(view, 1)).await;
    assert_eq!((back.uids("db-z1-0"), back.uids("db-z1-1")), (before.uids("db-z1-0"), before.uids("db-z1-1")));
    story.end().await;
}
