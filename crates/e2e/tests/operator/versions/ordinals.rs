//! The ordinal of a pod is that of its StatefulSet, whatever the order in which pods were started.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use rstest::rstest;
use serde_json::json;
use sts_plus_e2e::{Scene, View, objects};

use super::in_place::plain;
use super::zones::{label_nodes, zone_label};

const RESTARTS: usize = 5;

/// How the pods are owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    SideBySide,
    InPlace,
    Zones,
}

/// What tells a pod which one it is: its host name, its index, its zone and the number of that.
fn identities(view: &View) -> BTreeMap<String, [String; 4]> {
    let identity = |pod: &Pod| {
        let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        let spec = pod.spec.clone().unwrap_or_default();
        let variables = spec.containers[0].env.clone().unwrap_or_default();
        let variable = |name: &str| variables.iter().find(|variable| variable.name == name)?.value.clone();
        [
            spec.hostname.unwrap_or_default(),
            label("apps.kubernetes.io/pod-index").unwrap_or_default(),
            variable("KUBE_AZ").unwrap_or_default(),
            variable("AZ_INDEX").unwrap_or_default(),
        ]
    };
    view.world.pods.iter().map(|(name, pod)| (name.clone(), identity(pod))).collect()
}

async fn installed(kind: Kind) -> Scene {
    let scene = Scene::with_operator("ordinals").await;
    let db = match kind {
        Kind::SideBySide => objects::extended("db"),
        Kind::InPlace => plain(),
        Kind::Zones => {
            label_nodes(&scene, &["b", "a"]).await;
            let db = objects::with(objects::extended("db"), "/spec/az", json!(["b", "a"]));
            objects::with(db, "/spec/zoneNodeLabel", zone_label(&scene))
        }
    };
    let db = objects::with(db, "/spec/template/spec/podManagementPolicy", "Parallel");
    scene.create(&db).await;
    scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    scene
}

// spec: es§7, L010, L014
#[rstest]
#[case::side_by_side(Kind::SideBySide, &["db-v1-0", "db-v1-1", "db-v1-2"])]
#[case::in_place(Kind::InPlace, &["db-0", "db-1", "db-2"])]
#[case::zones(Kind::Zones, &["db-a-v1-0", "db-a-v1-1", "db-a-v1-2", "db-b-v1-0", "db-b-v1-1", "db-b-v1-2"])]
#[tokio::test]
async fn a_pod_has_the_ordinal_of_its_name_over_restarts_in_any_order(#[case] kind: Kind, #[case] names: &[&str]) {
    let scene = installed(kind).await;
    let first = identities(&scene.view());
    assert_eq!(first.keys().map(String::as_str).collect::<Vec<_>>(), names);
    for (name, [host, index, zone, number]) in &first {
        assert_eq!((host.as_str(), name.rsplit('-').next()), (name.as_str(), Some(index.as_str())));
        let of_zone = match zone.as_str() {
            "b" => "1",
            "a" => "2",
            _ => "",
        };
        assert_eq!((number.as_str(), zone.is_empty()), (of_zone, kind != Kind::Zones), "{name}");
    }
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    for round in 0..RESTARTS {
        // Another one is the first to go, and so the first to come back, each time.
        let before = scene.view().world.uids();
        let mut order: Vec<_> = names.to_vec();
        order.rotate_left(round % names.len());
        for name in order {
            pods.delete(name, &DeleteParams::default()).await.expect("it can be deleted");
        }
        let are_new = |view: &View| {
            let now = view.world.uids();
            view.is_only(1) && now.len() == before.len() && now.iter().all(|(name, uid)| before.get(name) != Some(uid))
        };
        let after = scene.until_versions("all are back", are_new).await;
        assert_eq!(identities(&after), first, "after restart {}", round + 1);
    }
    scene.end().await;
}
