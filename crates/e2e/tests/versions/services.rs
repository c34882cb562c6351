//! Blue/green: the active Service follows the version that is in charge, the preview Service the newest one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::eventually;
use sts_plus_e2e::objects::service;

use crate::story::{Story, View, db};

fn with_services(delay: i32) -> Value {
    let mut db = db();
    let strategy = &mut db["spec"]["updateStrategy"];
    strategy["activeService"] = json!("live");
    strategy["previewService"] = json!("next");
    strategy["scaleDownDelaySeconds"] = json!(delay);
    db
}

/// Version 1 is there, and stays for long when the next one is in charge.
async fn with_a_long_delay(name: &str) -> Story {
    let story = Story::new(name).await;
    story.scene.create(&service("live")).await;
    story.scene.create(&service("next")).await;
    story.scene.create(&with_services(600)).await;
    story.until("version 1 is there", |view| view.is_only(1)).await;
    story
}

async fn selected(story: &Story, service: &str) -> Option<String> {
    let service = story.scene.api("service").get(service).await.expect("it is there");
    Some(service.data["spec"]["selector"].get(names::VERSION)?.as_str()?.to_owned())
}

/// Names of the pods behind a Service that are ready.
async fn behind(story: &Story, service: &str) -> BTreeSet<String> {
    let label = format!("kubernetes.io/service-name={service}");
    let slices = story.scene.kubectl_ok(&["get", "endpointslices", "-l", &label, "-o", "json"], "").await;
    let slices: Value = serde_json::from_str(&slices.stdout).expect("JSON");
    let endpoints = slices["items"].as_array().into_iter().flatten().filter_map(|slice| slice["endpoints"].as_array());
    let ready = endpoints.flatten().filter(|endpoint| endpoint["conditions"]["ready"] == true);
    ready.filter_map(|endpoint| endpoint["targetRef"]["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn the_active_service_changes_hands_at_once_and_is_never_empty() {
    let story = with_a_long_delay("green").await;
    sts_plus_e2e::eventually("live has its pods", async || behind(&story, "live").await.len() == 3).await;
    assert_eq!(selected(&story, "live").await.as_deref(), Some("1"));

    story.release("app:2-ready-after-1s").await;
    let mut previewed = false;
    loop {
        let (live, next) = (selected(&story, "live").await, selected(&story, "next").await);
        previewed |= (live.as_deref(), next.as_deref()) == (Some("1"), Some("2"));
        let pods = behind(&story, "live").await;
        assert!(!pods.is_empty(), "nobody answers");
        if live.as_deref() == Some("2") {
            break;
        }
    }
    assert!(previewed, "version 2 was shown before it was in charge");
    let stays = |view: &View| view.status.message.contains("scaleDownDelaySeconds");
    let both = story.until("the old one stays for a while", stays).await;
    assert_eq!((both.uids("db-v1-").len(), both.uids("db-v2-").len()), (3, 3));
    story.change(&json!({ "spec": { "updateStrategy": { "scaleDownDelaySeconds": 1 } } })).await;
    story.until("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(behind(&story, "live").await.len(), 3);
    assert_eq!(story.trace(), ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 3", "db-v1 0", "db-v1 gone"]);
    story.assert_never_fewer_than(3);
    story.end().await;
}

#[tokio::test]
async fn within_the_delay_the_next_version_does_not_wait() {
    let story = with_a_long_delay("further").await;
    story.release("app:2").await;
    story.until("version 2 is in charge", |view| view.status.message.contains("scaleDownDelaySeconds")).await;
    story.release("app:3").await;
    let is_in_charge =
        |view: &View| view.status.current_version == Some(3) && view.status.message.contains("version 2 stays until");
    let after = story.until("version 3 is in charge, and version 1 is gone", |view| {
        is_in_charge(view) && !view.world.sets.contains_key("db-v1")
    });
    assert_eq!(after.await.uids("db-v2-").len(), 3, "the way back is there");
    story.assert_never_fewer_than(3);
    story.end().await;
}

#[tokio::test]
async fn within_the_delay_the_way_back_is_at_once() {
    let story = with_a_long_delay("blue").await;
    let first = story.view().await;
    story.release("app:2").await;
    story.until("version 2 is in charge", |view| view.status.message.contains("scaleDownDelaySeconds")).await;
    story.release("app:1").await;
    let back = story.until("version 1 alone", |view| view.is_only(1)).await;
    assert_eq!(back.uids(""), first.uids(""), "the very same pods");
    assert_eq!(selected(&story, "live").await.as_deref(), Some("1"));
    story.end().await;
}

#[tokio::test]
async fn a_service_that_cannot_be_used_is_named_with_the_cure() {
    let story = Story::new("unusable").await;
    let mut theirs = service("live");
    theirs["spec"]["selector"][names::VERSION] = json!("7");
    story.scene.create(&theirs).await;
    story.scene.create(&with_services(0)).await;
    let told = story.until("told", |view| view.condition("ServicesFollow") == "False/ServiceUnusable").await;
    assert!(told.message("ServicesFollow").contains("live selects a version that somebody else wrote"));
    story.until("version 1 is there all the same", |view| view.is_only(1)).await;
    assert_eq!(selected(&story, "live").await.as_deref(), Some("7"), "not touched");
    let free = json!([{ "op": "remove", "path": format!("/spec/selector/{}", names::VERSION.replace('/', "~1")) }]);
    story.scene.kubectl_ok(&["patch", "service", "live", "--type=json", "--patch", &free.to_string()], "").await;
    story.scene.create(&service("next")).await;
    story.until("both follow", |view| view.condition("ServicesFollow") == "True/ServiceSwitched").await;
    assert_eq!(selected(&story, "live").await.as_deref(), Some("1"));
    story.until("at rest", |view| view.is_only(1)).await;
    story.scene.patch("service/live", &json!({ "spec": { "selector": { names::VERSION: "9" } } })).await;
    story.scene.kubectl_ok(&["delete", "service", "next"], "").await;
    eventually("put back", async || selected(&story, "live").await.as_deref() == Some("1")).await;
    story.until("told", |view| view.condition("ServicesFollow") == "False/ServiceUnusable").await;
    story.end().await;
}

/// At rest the operator looks by itself after minutes only.
#[tokio::test]
async fn a_selector_that_somebody_changes_is_put_back_at_once() {
    let story = with_a_long_delay("put-back").await;
    story.until("they follow", |view| view.condition("ServicesFollow") == "True/ServiceSwitched").await;
    story.scene.catch_up().await;
    for value in [json!("9"), json!(null)] {
        for name in ["live", "next"] {
            let patch = json!({ "spec": { "selector": { names::VERSION: value } } });
            story.scene.patch(&format!("service/{name}"), &patch).await;
            let changed = Instant::now();
            eventually("put back", async || selected(&story, name).await.as_deref() == Some("1")).await;
            assert!(changed.elapsed() < Duration::from_secs(8), "{name} {value}: after {:?}", changed.elapsed());
        }
    }
    // Also when its mark is gone with it, which makes it somebody else's.
    let patch = json!({
        "metadata": { "annotations": { names::OWNER: null } }, "spec": { "selector": { names::VERSION: "9" } },
    });
    story.scene.patch("service/live", &patch).await;
    story.until("told", |view| view.condition("ServicesFollow") == "False/ServiceUnusable").await;
    story.end().await;
}
