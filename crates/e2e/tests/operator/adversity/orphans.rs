//! An ExtendedStatefulSet that is deleted with `--cascade=orphan` in the very moment in which its operator adopts what belongs to
//! nobody: the garbage collector frees its StatefulSets, and what is adopted again then would be deleted with it.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::json;
use sts_plus_e2e::proxy::{Barrier, Call, Fault};
use sts_plus_e2e::{Ground, Policies, World, eventually, objects, turn};

use super::supervised::is_quiet;
use super::upgrade::{Stage, Way};

/// The operator waits for an answer for ten seconds; with this it still waits for sure.
const STILL_AWAITED: SignedDuration = SignedDuration::from_secs(8);
/// How often it is tried, since the machine may be busy.
const ROUNDS: usize = 3;

fn is_free(set: &StatefulSet) -> bool {
    set.metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
}

/// The garbage collector has done its part.
fn is_orphaned(world: &World) -> bool {
    let owner = &world.extended["db"].metadata;
    let is_pending = owner.finalizers.iter().flatten().any(|finalizer| finalizer == "orphan");
    owner.deletion_timestamp.is_some() && !is_pending && world.sets.get("db-v1").is_some_and(is_free)
}

/// Deletes it while the first such request of the operator, which follows from `cause`, is on its way. False if the operator had given
/// up waiting by the time at which the request was answered, so that nothing is shown.
async fn deleted_while(name: &str, cause: impl AsyncFn(&Stage), is_it: fn(&Call) -> bool) -> bool {
    let stage = Stage::at_rest(Way::Promoted, name, Some(turn().await)).await;
    let (done, barrier) = (AtomicBool::new(false), Barrier::default());
    let held = barrier.clone();
    stage.proxy.on(move |call| (is_it(call) && !done.swap(true, Ordering::Relaxed)).then(|| Fault::Held(held.clone())));
    cause(&stage).await;
    let request = || stage.proxy.records().into_iter().rfind(|record| record.fault.is_some());
    eventually("the request is on its way", async || request().is_some()).await;

    let scene = &stage.scene;
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    scene.api("extendedstatefulset").delete("db", &orphan).await.expect("it can be deleted");
    scene.until("the garbage collector frees its sets", is_orphaned).await;
    let waited = Timestamp::now().duration_since(request().expect("it came").at);
    let before = stage.proxy.records().len();
    barrier.open();
    eventually("the request is answered", async || request().is_some_and(|request| request.answered.is_some())).await;
    scene.until("it is gone", |world| world.extended.is_empty()).await;
    // A set that names the object again would be deleted a moment after it.
    eventually("the operator has nothing more to do", async || is_quiet(&stage.proxy)).await;
    scene.catch_up().await;
    let kept = scene.world();
    assert!(kept.sets.get("db-v1").is_some_and(is_free), "{:?}", kept.sets);
    assert_eq!(kept.uids(), stage.born, "no pod has moved");
    // A dry run keeps nothing, and an owner is taken out by its UID alone.
    let adopts = |call: &Call| !call.dry_run && call.body.pointer("/metadata/ownerReferences/0/controller").is_some();
    let later = stage.proxy.records().split_off(before);
    let adopted = later.iter().filter(|record| adopts(&record.call) && record.answered.is_some_and(|code| code < 300));
    assert_eq!(adopted.count(), 0, "{later:#?}");
    waited < STILL_AWAITED
}

/// The garbage collector finds out about our CRD within half a minute, and frees nothing before.
async fn until_garbage_is_collected() {
    let cluster = Ground::get(Policies::Installed).await.cluster;
    // Nobody looks after this one.
    let probe = objects::with(objects::extended("collected"), "/metadata/namespace", "default");
    cluster.apply(&probe.to_string()).await.expect("it is created");
    let delete = ["delete", "ests", "collected", "--namespace=default", "--cascade=orphan", "--timeout=50s"];
    cluster.kubectl_ok(&delete).await.expect("it is deleted");
}

async fn shown(name: &str, cause: impl AsyncFn(&Stage), is_it: fn(&Call) -> bool) {
    for _ in 0..ROUNDS {
        if deleted_while(name, &cause, is_it).await {
            return;
        }
    }
    panic!("{name}: the garbage collector took too long {ROUNDS} times");
}

// spec: es§8
#[tokio::test(flavor = "multi_thread")]
async fn what_the_garbage_collector_frees_is_not_adopted_again() {
    until_garbage_is_collected().await;
    let seen_late = shown(
        "late",
        async |stage| {
            let mark = json!({ "metadata": { "annotations": { "a-person": "was here" }, "labels": { "a": "b" } } });
            stage.scene.patch("statefulset/db-v1", &mark).await;
            let more = json!({ "spec": { "updateStrategy": { "canaries": 2 } } });
            stage.scene.patch("extendedstatefulset/db", &more).await;
        },
        |call| call.is("list", "statefulsets"),
    );
    let written_late = shown(
        "taken",
        async |stage| {
            let free = json!({ "metadata": { "ownerReferences": null } });
            stage.scene.patch("statefulset/db-v1", &free).await;
        },
        |call| {
            call.is("patch", "statefulsets") && call.body.pointer("/metadata/ownerReferences/0/controller").is_some()
        },
    );
    join(seen_late, written_late).await;
}
