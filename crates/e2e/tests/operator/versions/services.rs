//! Blue/green: the active Service follows the version that is in charge, the preview Service the newest one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::{Scene, View, eventually, objects};
use tokio::task::JoinSet;

fn with_services(delay: i32) -> Value {
    let mut db = objects::extended("db");
    let strategy = &mut db["spec"]["updateStrategy"];
    strategy["activeService"] = json!("live");
    strategy["previewService"] = json!("next");
    strategy["scaleDownDelaySeconds"] = json!(delay);
    db
}

/// Version 1 is there, and the Services select it.
fn follows(view: &View) -> bool {
    view.is_only(1) && view.condition("ServicesFollow") == "True/ServiceSwitched"
}

/// Version 1 is there, and stays for long when the next one is in charge.
async fn with_a_long_delay(name: &str) -> Scene {
    let scene = Scene::with_operator(name).await;
    scene.create(&objects::service("live")).await;
    scene.create(&objects::service("next")).await;
    scene.create(&with_services(600)).await;
    scene.until_versions("version 1 is there", follows).await;
    scene
}

async fn selected(scene: &Scene, service: &str) -> Option<String> {
    let service = scene.api("service").get(service).await.expect("it is there");
    Some(service.data["spec"]["selector"].get(names::VERSION)?.as_str()?.to_owned())
}

/// Every version of the objects of a kind, those of the beginning first, in the order in which a watch brings them; and whether it was the
/// last one of its object.
struct Watched<K> {
    versions: Arc<Mutex<Vec<(K, bool)>>>,
    _watch: JoinSet<()>,
}

impl<K> Watched<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    async fn start(scene: &Scene) -> Self {
        let api: Api<K> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let list = api.list(&ListParams::default()).await.expect("a list");
        let from = list.metadata.resource_version.expect("a list has a version");
        let versions = Arc::new(Mutex::new(list.items.into_iter().map(|object| (object, false)).collect::<Vec<_>>()));
        let (all, mut watch) = (Arc::clone(&versions), JoinSet::new());
        watch.spawn(async move {
            let events = api.watch(&WatchParams::default(), &from).await.expect("a watch");
            futures::pin_mut!(events);
            while let Ok(Some(event)) = events.try_next().await {
                let version = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                    WatchEvent::Deleted(object) => (object, true),
                    _ => continue,
                };
                all.lock().expect("nobody has panicked").push(version);
            }
        });
        Self { versions, _watch: watch }
    }

    fn versions(&self) -> Vec<(K, bool)> {
        self.versions.lock().expect("nobody has panicked").clone()
    }
}

/// The versions that `live` and `next` selected, one after the other.
fn selections(services: &Watched<Service>) -> Vec<[String; 2]> {
    let (mut now, mut all) = ([const { String::new() }; 2], Vec::new());
    for (service, _) in services.versions() {
        let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
        let version = selector.get(names::VERSION).cloned().unwrap_or_default();
        now[usize::from(service.metadata.name.as_deref() == Some("next"))] = version;
        all.push(now.clone());
    }
    all.dedup();
    all
}

/// The Ready pods behind `live`, one set of names after the other.
fn behind_live(slices: &Watched<EndpointSlice>) -> Vec<BTreeSet<String>> {
    let (mut now, mut all) = (BTreeMap::new(), Vec::new());
    for (slice, is_gone) in slices.versions() {
        let labels = slice.metadata.labels.unwrap_or_default();
        if labels.get("kubernetes.io/service-name").is_none_or(|of| of != "live") {
            continue;
        }
        let ready = slice
            .endpoints
            .into_iter()
            .filter(|endpoint| endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true)));
        let pods: BTreeSet<String> = ready.filter_map(|endpoint| endpoint.target_ref?.name).collect();
        now.insert(slice.metadata.name, if is_gone { BTreeSet::new() } else { pods });
        all.push(now.values().flatten().cloned().collect());
    }
    all
}

// spec: es§3, L024
#[tokio::test]
async fn the_active_service_changes_hands_at_once_and_is_never_empty() {
    let scene = with_a_long_delay("green").await;
    let (services, slices) = (Watched::<Service>::start(&scene).await, Watched::<EndpointSlice>::start(&scene).await);
    let has = async |version: i32| {
        let pods = BTreeSet::from([0, 1, 2].map(|ordinal| format!("db-v{version}-{ordinal}")));
        eventually("live has its pods", async || behind_live(&slices).last() == Some(&pods)).await;
    };
    has(1).await;
    let filled = behind_live(&slices).len();

    scene.release_version("app:2-ready-after-1s").await;
    let stays = |view: &View| view.status.message.contains("scaleDownDelaySeconds");
    let both = scene.until_versions("the old one stays for a while", stays).await;
    assert_eq!((both.uids("db-v1-").len(), both.uids("db-v2-").len()), (3, 3));
    scene.change(&json!({ "spec": { "updateStrategy": { "scaleDownDelaySeconds": 1 } } })).await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    has(2).await;
    assert!(behind_live(&slices)[filled..].iter().all(|pods| !pods.is_empty()), "{:?}", behind_live(&slices));
    let shown = [["1", "1"], ["1", "2"], ["2", "2"]];
    assert_eq!(selections(&services)[1..], shown, "version 2 was shown before it was in charge");
    assert_eq!(scene.trace(), ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 3", "db-v1 0", "db-v1 gone"]);
    scene.assert_never_fewer_than(3);
    scene.end().await;
}

// spec: es§3, L024
#[tokio::test]
async fn within_the_delay_the_next_version_does_not_wait() {
    let scene = with_a_long_delay("further").await;
    scene.release_version("app:2").await;
    scene.until_versions("version 2 is in charge", |view| view.status.message.contains("scaleDownDelaySeconds")).await;
    scene.release_version("app:3").await;
    let is_in_charge =
        |view: &View| view.status.current_version == Some(3) && view.status.message.contains("version 2 stays until");
    let after = scene.until_versions("version 3 is in charge, and version 1 is gone", |view| {
        is_in_charge(view) && !view.world.sets.contains_key("db-v1")
    });
    assert_eq!(after.await.uids("db-v2-").len(), 3, "the way back is there");
    scene.assert_never_fewer_than(3);
    scene.end().await;
}

// spec: es§3, L024
#[tokio::test]
async fn within_the_delay_the_way_back_is_at_once() {
    let scene = with_a_long_delay("blue").await;
    let first = scene.view();
    scene.release_version("app:2").await;
    scene.until_versions("version 2 is in charge", |view| view.status.message.contains("scaleDownDelaySeconds")).await;
    scene.release_version("app:1").await;
    let back = scene.until_versions("version 1 alone", |view| view.is_only(1)).await;
    assert_eq!(back.uids(""), first.uids(""), "the very same pods");
    assert_eq!(selected(&scene, "live").await.as_deref(), Some("1"));
    scene.end().await;
}

// spec: es§3
#[tokio::test]
async fn a_service_that_cannot_be_used_is_named_with_the_cure() {
    let scene = Scene::with_operator("unusable").await;
    let mut theirs = objects::service("live");
    theirs["spec"]["selector"][names::VERSION] = json!("7");
    scene.create(&theirs).await;
    scene.create(&with_services(0)).await;
    let told = scene.until_versions("told", |view| view.condition("ServicesFollow") == "False/ServiceUnusable").await;
    assert!(told.message("ServicesFollow").contains("live selects a version that somebody else wrote"));
    scene.until_versions("version 1 is there all the same", |view| view.is_only(1)).await;
    assert_eq!(selected(&scene, "live").await.as_deref(), Some("7"), "not touched");
    let free = json!([{ "op": "remove", "path": format!("/spec/selector/{}", names::VERSION.replace('/', "~1")) }]);
    scene.kubectl_ok(&["patch", "service", "live", "--type=json", "--patch", &free.to_string()], "").await;
    scene.create(&objects::service("next")).await;
    scene.until_versions("both follow", |view| view.condition("ServicesFollow") == "True/ServiceSwitched").await;
    assert_eq!(selected(&scene, "live").await.as_deref(), Some("1"));
    scene.until_versions("at rest", |view| view.is_only(1)).await;
    scene.patch("service/live", &json!({ "spec": { "selector": { names::VERSION: "9" } } })).await;
    scene.delete("service/next").await;
    eventually("put back", async || selected(&scene, "live").await.as_deref() == Some("1")).await;
    scene.until_versions("told", |view| view.condition("ServicesFollow") == "False/ServiceUnusable").await;
    scene.end().await;
}

/// At rest the operator looks by itself after minutes only.
// spec: es§3
#[tokio::test]
async fn a_selector_that_somebody_changes_is_put_back_at_once() {
    let scene = with_a_long_delay("put-back").await;
    for value in [json!("9"), json!(null)] {
        for name in ["live", "next"] {
            scene.until_versions("they follow", follows).await;
            let patch = json!({ "spec": { "selector": { names::VERSION: value } } });
            scene.patch(&format!("service/{name}"), &patch).await;
            eventually("put back", async || selected(&scene, name).await.as_deref() == Some("1")).await;
        }
    }
    // Also when its mark is gone with it, which makes it somebody else's.
    let patch = json!({
        "metadata": { "annotations": { names::OWNER: null } }, "spec": { "selector": { names::VERSION: "9" } },
    });
    scene.patch("service/live", &patch).await;
    scene.until_versions("told", |view| view.condition("ServicesFollow") == "False/ServiceUnusable").await;
    scene.end().await;
}
