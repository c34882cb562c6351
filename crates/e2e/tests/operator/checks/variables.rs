//! Variables of an expression whose values come from live objects, as Prometheus gets to see them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use sts_plus_e2e::{Scene, Seen, World, objects};
use testcluster::{AuthProxy, SeenRequest};
use url::form_urlencoded;

/// A series of it never exists; each variable is the value of a label.
const EXPR: &str = r#"app_errors{namespace="${namespace}",set="${statefulset}",pod="${pod}",ordinal="${ordinal}",revision="${revision}",previous="${previousRevision}",zone="${zone}",node="${node}"}"#;

/// The labels of a query about the errors of the application, as it was sent.
pub fn asked(request: &SeenRequest) -> Option<BTreeMap<String, String>> {
    let mut form = form_urlencoded::parse(request.body.as_bytes());
    let query = form.find(|(key, _)| key == "query")?.1.into_owned();
    let labels = query.strip_prefix("app_errors{")?.strip_suffix('}')?;
    let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
    Some(pairs.map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned())).collect())
}

/// The zones of the nodes.
pub async fn zones(scene: &Scene) -> BTreeMap<String, String> {
    let nodes: Api<Node> = Api::all(scene.client.clone());
    let nodes = nodes.list(&ListParams::default()).await.expect("nodes can be listed").items;
    let zone = |node: &Node| node.labels().get("topology.kubernetes.io/zone").cloned().expect("a zone");
    nodes.iter().map(|node| (node.name_any(), zone(node))).collect()
}

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

/// On which nodes pods of these names have been on these revisions.
fn places(scene: &Scene) -> Vec<(String, String, String)> {
    let pods = scene.tape.entries().into_iter().filter_map(|entry| match entry.seen {
        Seen::Pod(pod) => Some(pod),
        _ => None,
    });
    let place = |pod: &Pod| {
        let revision = pod.labels().get("controller-revision-hash")?.clone();
        Some((pod.name_any(), node_of(pod)?, revision))
    };
    pods.filter_map(|pod| place(&pod)).collect()
}

// spec: pr§2, L069
#[tokio::test]
async fn zone_node_and_revisions_are_those_of_the_pod_that_is_asked_about() {
    let mut scene = Scene::new("variables").await;
    let proxy = AuthProxy::start(scene.ground.prometheus().await.url()).await.expect("the proxy starts");
    let gate = objects::with(objects::rollout(&proxy.url()), "/spec/check/query/expr", EXPR);
    scene.settle(&objects::set(3), &gate).await;
    let old = scene.world().update_revision();
    scene.release("app:2").await;
    let end = scene.until("complete", |world: &World| world.is_complete("app:2")).await;
    let new = end.update_revision();

    let (zones, places) = (zones(&scene).await, places(&scene));
    let mut about: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    // Whether the metric exists at all is asked too.
    for labels in proxy.seen().iter().filter_map(asked) {
        let (pod, node) = (labels["pod"].clone(), labels["node"].clone());
        assert_eq!(labels["zone"], zones[&node], "{labels:?}");
        assert_eq!((&labels["revision"], &labels["previous"]), (&new, &old), "{labels:?}");
        assert_eq!((labels["set"].as_str(), &labels["namespace"]), ("web", &scene.namespace));
        assert_eq!(format!("web-{}", labels["ordinal"]), pod);
        assert!(places.iter().any(|(name, on, _)| (name, on) == (&pod, &node)), "{pod} was never on {node}");
        about.insert(pod, labels);
    }
    // The last question about each is about the pod that came, not about the one that went.
    for (name, pod) in &end.pods {
        assert_eq!(Some(about[name]["node"].clone()), node_of(pod), "{name}");
    }
    scene.end().await;
}
