//! Pods of a failed release that the native controller never replaces: deleted once, and only after the partition was written and seen;
//! or named, with stuckPods Wait.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, Reason};
use sts_plus_e2e::{Entry, Scene, Seen, World, objects};
use testcluster::AuditEntry;

use super::{annotate_pod, gate, left, set, template};

/// Every reason of phased-rollout §6 for which a container waits, as the name of a set.
const REASONS: [(&str, &str); 7] = [
    ("crash", "CrashLoopBackOff"),
    ("backoff", "ImagePullBackOff"),
    ("pull", "ErrImagePull"),
    ("name", "InvalidImageName"),
    ("config", "CreateContainerConfigError"),
    ("create", "CreateContainerError"),
    ("run", "RunContainerError"),
];

async fn rollout_of(name: &str) -> Value {
    let check = json!({ "preflight": false, "final": false, "successThreshold": 1, "maxTries": 1000 });
    let gate = objects::with(gate(check).await, "/spec/targetRef", name);
    objects::with(gate, "/metadata/name", name)
}

fn image_of_template(image: &str) -> Value {
    template(&json!({ "containers": [{ "name": "app", "image": image }] }))
}

/// A container that waits for `reason`, as a kubelet would write it.
async fn make_wait(scene: &Scene, pod: &str, reason: &str) {
    let status = json!({ "status": { "containerStatuses": [{
        "name": "app", "image": "app", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": reason, "message": format!("because of {reason}") } },
    }] } });
    let pods = scene.api("pod");
    pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(&status)).await.expect("a status can be written");
}

/// Any pod that is not Ready for so long counts as broken, whatever its containers wait for.
const BROKEN: SignedDuration = SignedDuration::from_secs(60);

// spec: pr§6, L048
#[tokio::test]
async fn a_pod_stuck_for_any_reason_is_deleted_once_after_the_partition_write() {
    let mut scene = Scene::new("stuck").await;
    let names = || REASONS.iter().map(|(name, _)| *name).chain(["nowhere"]);
    for name in names() {
        scene.create(&objects::named(objects::set(1), name)).await;
        scene.create(&rollout_of(name).await).await;
    }
    scene
        .until("all pods are Ready", |world| world.pods.len() == 8 && world.pods.values().all(sts_plus_e2e::is_ready))
        .await;
    scene.start_operator();
    scene.until("at rest", |world| names().all(|name| world.partition_of(name) == Some(1))).await;
    for (name, _) in REASONS {
        scene.patch(&format!("statefulset/{name}"), &image_of_template("app:2-never-ready")).await;
    }
    scene.patch("statefulset/nowhere", &template(&json!({ "nodeSelector": { "no": "such" } }))).await;
    for (name, reason) in REASONS {
        let pod = format!("{name}-0");
        scene.until("it runs", |world| world.image(&pod) == "app:2-never-ready" && has_run(world, &pod)).await;
        make_wait(&scene, &pod, reason).await;
    }
    for (name, reason) in REASONS {
        let named = |world: &World| world.status_of(name).message.contains(&format!("container app: {reason}"));
        let named = scene.until(reason, named).await.status_of(name);
        assert!(named.message.contains(&format!("{name}-0 is not Ready since 20")), "{}", named.message);
        assert_eq!(named.phase, Phase::Held);
    }
    let unschedulable = |world: &World| world.status_of("nowhere").message.contains("Unschedulable: ");
    let named = scene.until("unschedulable", unschedulable).await.status_of("nowhere");
    assert!(named.message.contains("nodes are available"), "{}", named.message);
    assert!(scene.deleted().is_empty(), "there is nothing to put in their place yet");

    let before = scene.world().latest_version();
    for (name, _) in REASONS {
        scene.patch(&format!("statefulset/{name}"), &image_of_template("app:3")).await;
    }
    // Another template than the first: a revert would have it deleted under the hold.
    let cure = json!({ "nodeSelector": null, "containers": [{ "name": "app", "image": "app:3" }] });
    scene.patch("statefulset/nowhere", &template(&cure)).await;
    let done = |world: &World| {
        names().all(|name| world.status_of(name).phase == Phase::Completed && world.partition_of(name) == Some(1))
    };
    scene.until("all are fixed", done).await;
    let mut deleted = scene.deleted();
    deleted.sort();
    let mut wanted: Vec<_> = names().map(|name| format!("{name}-0")).collect();
    wanted.sort();
    assert_eq!(deleted, wanted, "each once");
    for name in names() {
        assert_after_the_write(&scene.tape.entries(), name, before);
    }
    scene.end().await;
}

fn has_run(world: &World, pod: &str) -> bool {
    let phase = world.pods.get(pod).and_then(|pod| pod.status.as_ref()?.phase.clone());
    phase.as_deref() == Some("Running")
}

/// When the pod begins to leave, the set has the opened partition, and its controller has seen it. By the times of the API server it
/// leaves before it counts as broken for its age.
fn assert_after_the_write(entries: &[Entry], name: &str, from: u64) {
    let gone = left(entries, &format!("{name}-0"), from).expect("it was deleted");
    let leaving = entries.iter().find_map(|entry| match &entry.seen {
        Seen::Pod(pod) if entry.version == gone => Some(pod),
        _ => None,
    });
    let pod = &leaving.expect("it was seen").metadata;
    let (created, deleted) = (pod.creation_timestamp.as_ref(), pod.deletion_timestamp.as_ref());
    let age = created.zip(deleted).map(|(created, deleted)| deleted.0.duration_since(created.0));
    assert!(age.is_some_and(|age| age < BROKEN), "{name}: deleted at the age of {age:?}");
    let is_it = |entry: &&Entry| match &entry.seen {
        Seen::Set(set) => entry.version < gone && set.metadata.name.as_deref() == Some(name),
        _ => false,
    };
    let Some(Entry { seen: Seen::Set(last), .. }) = entries.iter().rfind(is_it) else { panic!("{name} was not seen") };
    assert_eq!(sts_plus_e2e::partition_of(last), Some(0), "{name}: opened before the delete");
    let seen = last.status.as_ref().and_then(|status| status.observed_generation);
    assert_eq!(seen, last.metadata.generation, "{name}: and seen by its controller");
}

/// For longer than anything that the operator waits for by itself: each time it reconciles.
// spec: pr§6, L009, L047
#[tokio::test]
async fn with_wait_the_pod_is_named_and_left_to_a_person() {
    let check = json!({ "preflight": false, "final": false, "successThreshold": 1, "maxTries": 1 });
    let gate = objects::with(gate(check).await, "/spec/stuckPods", "Wait");
    let scene = Scene::at_rest_with("stuck-wait", &set(2, "OrderedReady"), &gate).await;
    scene.release("app:2-nopull").await;
    scene.until("failed", |world| world.is(Phase::Failed)).await;
    scene.release("app:3").await;
    let named = |world: &World| world.status().message.contains("delete pod web-1 to go on");
    let found = scene.until("named", named).await;
    let message = found.status().message;
    assert!(
        message.contains("web-1 is not Ready since 20") && message.contains("container app: ImagePullBackOff"),
        "{message}"
    );
    assert!(found.is(Phase::Held) && found.condition(ConditionType::Held) == "True/BlockedByPod");
    // A write of the pod, of the set, and of the spec: each is a reason to reconcile, and the last one is answered.
    let mark = json!({ "metadata": { "annotations": { "marked": "by a person" } } });
    for object in ["pod/web-1", "statefulset/web"] {
        scene.patch(object, &mark).await;
    }
    scene.configure(&json!({ "progressDeadlineSeconds": 86400 })).await;
    scene.until("still named", |world| world.is(Phase::Held) && named(world)).await;
    // And twice by itself, at the API server.
    let since = Timestamp::now();
    let is_read = |it: &AuditEntry| it.verb == "get" && it.resource == "phasedrollouts" && it.received >= since;
    let reads = || scene.requests().iter().filter(|it| is_read(it)).count();
    sts_plus_e2e::eventually("it reconciles by itself", async || reads() >= 2).await;
    let uid = &found.uids()["web-1"];
    assert!(scene.deleted().is_empty() && scene.world().uids().get("web-1") == Some(uid), "nothing is deleted");
    assert!(!scene.events_of(Reason::BlockedByPod).await.is_empty());
    scene.delete("pod/web-1").await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    assert!(scene.deleted().is_empty());
    scene.end().await;
}

/// Nothing but the pod itself says so: its StatefulSet has known before that it is not Ready. By itself the operator looks when the pod
/// has not been Ready for [`BROKEN`].
// spec: pr§6
#[tokio::test]
async fn what_a_pod_begins_to_wait_for_at_rest_is_reported_without_a_change_of_its_set() {
    let scene = Scene::at_rest("stuck-rest", 2, &Scene::gate().await).await;
    let says = |what: &'static str| move |world: &World| world.status().message.contains(what);
    annotate_pod(&scene, "web-1", "sts-plus.test/ready", "false").await;
    scene.until_settled("it is named", says("web-1 is not Ready since 20")).await;
    // Twice: the first time the set may still be on its way to say so as well.
    let soon = Duration::from_secs(40);
    make_wait(&scene, "web-1", "CreateContainerConfigError").await;
    scene.until_within(soon, "the reason is named", says("container app: CreateContainerConfigError")).await;
    make_wait(&scene, "web-1", "RunContainerError").await;
    scene.until_within(soon, "the next reason is named", says("container app: RunContainerError")).await;
    scene.end().await;
}
