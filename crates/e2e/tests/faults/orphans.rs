//! An ExtendedStatefulSet that is deleted with `--cascade=orphan` in the very moment in which its operator takes in what belongs to
//! nobody: the garbage collector makes its StatefulSets so, and what is taken in again then would be deleted with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join;
use serde_json::json;
use sts_plus_e2e::proxy::{Call, Fault};
use sts_plus_e2e::{Ground, Policies, objects};

use super::supervised::turn;
use super::upgrade::{Stage, Way};

/// Long enough for the garbage collector.
const WHILE: Duration = Duration::from_secs(4);

/// Deletes it while the first such request of the operator, which follows from `cause`, is on its way.
async fn deleted_while(name: &str, cause: impl AsyncFnOnce(&Stage), is_it: fn(&Call) -> bool) {
    let stage = Stage::at_rest(Way::Promoted, name, Some(turn().await)).await;
    let done = AtomicBool::new(false);
    stage.proxy.on(move |call| (is_it(call) && !done.swap(true, Ordering::Relaxed)).then_some(Fault::Delayed(WHILE)));
    let before = stage.proxy.records().len();
    cause(&stage).await;
    let is_delayed = async || stage.proxy.records().split_off(before).iter().any(|record| record.fault.is_some());
    sts_plus_e2e::eventually("the request is on its way", is_delayed).await;
    let scene = &stage.scene;
    scene.kubectl_ok(&["delete", "ests", "db", "--cascade=orphan", "--timeout=30s"], "").await;
    let is_free = |set: &k8s_openapi::api::apps::v1::StatefulSet| {
        set.metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
    };
    // A set that still named the object would go a moment after it.
    let kept = scene.until("it is gone", |world| world.sets.get("db-v1").is_some_and(is_free)).await;
    assert_eq!(kept.uids(), stage.born, "no pod has moved");
}

/// The garbage collector finds out about our definition within half a minute, and lets go of nothing before.
async fn until_garbage_is_collected() {
    let cluster = Ground::get(Policies::Installed).await.cluster;
    // Nobody looks after this one.
    let probe = objects::with(objects::extended("collected"), "/metadata/namespace", "default");
    cluster.apply(&probe.to_string()).await.expect("it is made");
    let delete = ["delete", "ests", "collected", "--namespace=default", "--cascade=orphan", "--timeout=50s"];
    cluster.kubectl_ok(&delete).await.expect("it goes");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_garbage_collector_lets_go_of_is_not_taken_in_again() {
    until_garbage_is_collected().await;
    let seen_late = deleted_while(
        "late",
        async |stage| {
            let mark = json!({ "metadata": { "annotations": { "a-person": "was here" }, "labels": { "a": "b" } } });
            stage.scene.patch("statefulset/db-v1", &mark).await;
            let more = json!({ "spec": { "updateStrategy": { "canaries": 2 } } });
            stage.scene.patch("extendedstatefulset/db", &more).await;
        },
        |call| call.is("list", "statefulsets"),
    );
    let written_late = deleted_while(
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
