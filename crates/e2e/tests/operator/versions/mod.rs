//! Versions of an ExtendedStatefulSet on the real control plane.

mod autoscaler;
mod checks;
mod children;
mod deletion;
mod edits;
mod in_place;
mod input;
mod labels;
mod marks;
mod mutated;
mod ordinals;
mod pods;
mod prometheus;
mod rendered;
mod rewritten;
mod scaling;
mod services;
mod side_by_side;
mod zones;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use sts_plus_e2e::{Scene, View, audit};
use testcluster::AuditEntry;

/// How long nothing may be written. This wait is the matter itself.
const QUIET: Duration = Duration::from_secs(3);

/// What an autoscaler writes to `/scale` of an object such as `statefulset/db`.
async fn scale(scene: &Scene, object: &str, count: i32) {
    let (kind, name) = object.split_once('/').expect("kind/name");
    let body = json!({ "spec": { "replicas": count } });
    let scaled = scene.api(kind).patch_scale(name, &PatchParams::default(), &Patch::Merge(body)).await;
    scaled.unwrap_or_else(|error| panic!("{object} is not scaled: {error}"));
    scene.catch_up().await;
}

/// Deletes an object such as `statefulset/db`, lets what belongs to it stay, and waits until it is gone.
async fn orphan(scene: &Scene, object: &str) {
    let (kind, name) = object.split_once('/').expect("kind/name");
    let before = scene.api(kind).get(name).await.expect("it is there").metadata.uid;
    scene.api(kind).delete(name, &DeleteParams::orphan()).await.expect("it can be deleted");
    let is_gone = |uid: Option<&String>| uid.is_none() || uid != before.as_ref();
    let world = |world: &sts_plus_e2e::World| match kind {
        "statefulset" => is_gone(world.sets.get(name).and_then(|set| set.metadata.uid.as_ref())),
        _ => is_gone(world.extended.get(name).and_then(|owner| owner.metadata.uid.as_ref())),
    };
    scene.until(&format!("{object} is gone"), world).await;
}

/// Started again, the operator looks at `db`, and nobody writes anything then: no request of it changes anything, and pods, StatefulSets
/// and status are what they were.
async fn assert_quiet(scene: &mut Scene, what: &str) {
    assert!(scene.stop_operator().await.success());
    let (before, start) = (scene.view(), Timestamp::now());
    scene.start_operator();
    let looks =
        |entry: &AuditEntry| entry.resource == "extendedstatefulsets" && entry.verb == "get" && entry.received >= start;
    scene.until_requests("it looks again", 0, looks).await;
    scene.change(&json!({ "metadata": { "annotations": { "a-person": format!("was here at {start}") } } })).await;
    tokio::time::sleep(QUIET).await;
    let mut since = scene.requests();
    since.retain(|entry| entry.received >= start);
    assert_eq!(audit::writes(&since).len(), 0, "{what}:\n{}", audit::tell(&since));
    let after = scene.view();
    let generations = |view: &View| -> BTreeMap<String, Option<i64>> {
        view.world.sets.iter().map(|(name, set)| (name.clone(), set.metadata.generation)).collect()
    };
    assert_eq!((after.uids(""), generations(&after)), (before.uids(""), generations(&before)), "{what}");
    assert_eq!(after.status, before.status, "{what}");
}
