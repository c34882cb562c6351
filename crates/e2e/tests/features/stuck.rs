//! Pods of a failed release that the native controller never replaces: deleted once, and only after the partition was written and seen;
//! or named, with stuckPods Wait.

use std::time::Duration;

use serde_json::{Value, json};
use sts_plus_api::{Phase, Reason};
use sts_plus_e2e::{Entry, Scene, Seen, World, objects};

use crate::{gate, left, set, template};

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
    let gate = objects::with(
        gate(json!({ "preflight": false, "final": false, "maxTries": 1000 })).await,
        "/spec/targetRef",
        name,
    );
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
    scene
        .kubectl_ok(&["patch", "pod", pod, "--subresource=status", "--type=merge", "-p", &status.to_string()], "")
        .await;
}

/// Much sooner than the 60 s after which any pod that is not Ready counts as broken.
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
        let told = |world: &World| world.status_of(name).message.contains(&format!("container app: {reason}"));
        let told = scene.until(reason, told).await.status_of(name);
        assert!(told.message.contains(&format!("{pod} is not Ready since 20")), "{}", told.message);
        assert_eq!(told.phase, Phase::Held);
    }
    let unschedulable = |world: &World| world.status_of("nowhere").message.contains("Unschedulable: ");
    let told = scene.until("unschedulable", unschedulable).await.status_of("nowhere");
    assert!(told.message.contains("nodes are available") || told.message.contains("node(s)"), "{}", told.message);
    assert!(scene.deleted().is_empty(), "nothing to put in their place yet");

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
    scene.until("all are mended", done).await;
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

/// When the pod begins to leave, the set has the opened partition, and its controller has seen it.
fn assert_after_the_write(entries: &[Entry], name: &str, from: u64) {
    let gone = left(entries, &format!("{name}-0"), from).expect("it was deleted");
    let is_it = |entry: &&Entry| match &entry.seen {
        Seen::Set(set) => entry.version < gone && set.metadata.name.as_deref() == Some(name),
        _ => false,
    };
    let Some(Entry { seen: Seen::Set(last), .. }) = entries.iter().rfind(is_it) else { panic!("{name} was not seen") };
    assert_eq!(sts_plus_e2e::partition_of(last), Some(0), "{name}: opened before the delete");
    let seen = last.status.as_ref().and_then(|status| status.observed_generation);
    assert_eq!(seen, last.metadata.generation, "{name}: and seen by its controller");
}

#[tokio::test]
async fn with_wait_the_pod_is_named_and_left_to_a_person() {
    let gate = objects::with(gate(json!({ "maxTries": 2 })).await, "/spec/stuckPods", "Wait");
    let scene = Scene::at_rest_with("stuck-wait", &set(2, "OrderedReady"), &gate).await;
    scene.release("app:2-nopull").await;
    scene.until("failed", |world| world.is(Phase::Failed)).await;
    scene.release("app:3").await;
    let named = scene.until("named", |world| world.status().message.contains("delete pod web-1 to go on")).await;
    let message = named.status().message;
    assert!(
        message.contains("web-1 is not Ready since 20") && message.contains("container app: ImagePullBackOff"),
        "{message}"
    );
    assert!(named.is(Phase::Held) && named.condition(sts_plus_api::ConditionType::Held) == "True/BlockedByPod");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(scene.deleted().is_empty(), "nothing is deleted however long it takes");
    assert!(!scene.events_of(Reason::BlockedByPod).await.is_empty());
    scene.kubectl_ok(&["delete", "pod", "web-1", "--wait=false"], "").await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    assert!(scene.deleted().is_empty());
    scene.end().await;
}
