//! A person's write against those of the operator: `kubectl replace` of something old is a conflict that says so, `kubectl edit` of
//! something old changes what the person changed, and nothing of either is lost.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use sts_plus_e2e::{Scene, World, eventually, moves, objects};

use super::{approve, gate_that_waits_before, release_until_awaited};

/// The object as kubectl prints it.
async fn printed(scene: &Scene, object: &str) -> Value {
    let reply = scene.kubectl_ok(&["get", object, "-o", "json"], "").await;
    serde_json::from_str(&reply.stdout).expect("kubectl prints JSON")
}

/// Fails unless the replacement is refused as a conflict.
async fn is_a_conflict(scene: &Scene, old: &Value) {
    let reply = scene.kubectl(&["replace", "-f", "-"], &old.to_string()).await;
    let clear = "the object has been modified; please apply your changes to the latest version and try again";
    assert!(!reply.ok && reply.stderr.contains("(Conflict)") && reply.stderr.contains(clear), "{reply:?}");
}

// spec: L095
#[tokio::test]
async fn a_replacement_of_what_the_operator_has_written_since_is_a_clear_conflict() {
    let scene = Scene::at_rest("replace", 3, &gate_that_waits_before(1).await).await;
    let (old_set, old_gate) = (printed(&scene, "statefulset/web").await, printed(&scene, "phasedrollout/gate").await);
    let awaited = release_until_awaited(&scene, "app:2").await;

    is_a_conflict(&scene, &objects::with(old_set, "/spec/replicas", 5)).await;
    is_a_conflict(&scene, &objects::with(old_gate, "/spec/paused", true)).await;
    let now = scene.world();
    let spec = |world: &World| (world.sets["web"].spec.clone(), world.rollouts["gate"].spec.clone());
    assert_eq!(spec(&now), spec(&awaited), "nothing of them was taken");
    assert_eq!((now.partition(), now.image("web-2")), (Some(2), "app:2"));

    // The same on what is there now is accepted, and the operator goes on from where it was.
    let set =
        objects::with(printed(&scene, "statefulset/web").await, "/metadata/annotations/example.com~1mine", "kept");
    scene.kubectl_ok(&["replace", "-f", "-"], &set.to_string()).await;
    let gate = objects::with(printed(&scene, "phasedrollout/gate").await, "/spec/pauseBefore", json!([0]));
    scene.kubectl_ok(&["replace", "-f", "-"], &gate.to_string()).await;
    let next = |world: &World| world.is_ready_on("web-1", "app:2") && super::is_awaiting(world);
    let next = scene.until("it waits before 0", next).await;
    assert_eq!((next.image("web-0"), next.annotation("example.com/mine")), ("app:1", Some("kept")));
    approve(&scene, 0).await;
    let end = scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_eq!(end.annotation("example.com/mine"), Some("kept"));
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

/// An editor that changes the image, and ends when a file is there.
fn editor(dir: &Path) -> std::path::PathBuf {
    let program = dir.join("editor");
    let script = format!(
        "#!/bin/sh\nsed -i 's/image: app:2/image: app:3/' \"$1\"\ntouch {dir}/open\nuntil [ -e {dir}/close ]; do sleep 0.05; done\n",
        dir = dir.display()
    );
    std::fs::write(&program, script).expect("it can be written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it can be made a program");
    program
}

// spec: hold, L095
#[tokio::test]
async fn an_edit_that_was_open_while_pods_were_rolled_changes_the_image_and_nothing_else() {
    let scene = Scene::at_rest("edit", 3, &gate_that_waits_before(1).await).await;
    release_until_awaited(&scene, "app:2").await;
    let dir = tempfile::tempdir().expect("a folder");
    let cluster = scene.ground.cluster;
    let edit = tokio::process::Command::new(cluster.kubectl_path())
        .args(["edit", "statefulset/web", "--namespace", &scene.namespace])
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("KUBE_EDITOR", editor(dir.path()))
        .kill_on_drop(true)
        .output();
    let edit = tokio::spawn(edit);
    eventually("the editor is open", async || dir.path().join("open").exists()).await;
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let rested = scene.world().uids();
    std::fs::write(dir.path().join("close"), "").expect("it can be written");
    let edited = edit.await.expect("no panic").expect("kubectl runs");
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));

    // The template is held in the same write: the partition of the edited text is of before.
    let awaited = scene.until("the new release waits", super::is_awaiting).await;
    assert_eq!((awaited.image("web-2"), awaited.image("web-1")), ("app:3", "app:2"));
    assert_eq!(awaited.uids()["web-1"], rested["web-1"]);
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    moves::assert_gated(&scene, "app:2", 1);
    scene.end().await;
}
