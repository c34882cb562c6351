//! Pods that leave and that nobody ends, since their node may be gone: they are named, waited for, and never deleted by force. And zones,
//! in which pods leave one after the other.

use jiff::SignedDuration;
use serde_json::json;
use sts_plus_api::{Reason, VersionPhase};

use super::stories::installed;
use super::world::World;

/// The pod terminates, its node is gone.
fn lose(world: &mut World, name: &str, pod: usize) {
    let end = world.now + SignedDuration::from_secs(30);
    let pod = &mut world.child_mut(name).pods[pod];
    (pod.deleting, pod.gone_by, pod.node) = (true, Some(end), Some("node-7".into()));
}

impl World {
    /// Rounds of the operator alone, over this time.
    fn operate(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.round();
            self.pass(1);
        }
    }
}

// spec: es§3, L121
#[test]
fn a_lost_pod_of_a_version_that_is_removed_is_named() {
    let mut world = installed(&json!({}));
    world.owner.template("h2");
    world.run_until(|world| world.child_replicas("web-v1") == Some(0));
    lose(&mut world, "web-v1", 0);
    world.child_mut("web-v1").pods.truncate(1);
    world.operate(5);
    assert_eq!(world.status.phase, VersionPhase::CleaningUp, "within its grace period nothing is said");
    world.owner.template("h3");
    world.operate(120);
    assert_eq!(world.status.phase, VersionPhase::Held);
    let message = &world.status.message;
    assert!(message.contains("web-v1-0 is terminating and its grace period ended at"), "{message}");
    assert!(message.contains("node-7") && message.contains("not deleted by force"), "{message}");
    assert_eq!(world.heard(Reason::BlockedByPod), 1, "said once");
    assert_eq!(world.child("web-v1").pods.len(), 1);
    world.settle();
    assert_eq!((world.status.phase, world.children.len()), (VersionPhase::Ready, 1), "it goes on by itself");
    assert!(world.has("web-v3"));
}

#[test]
fn a_lost_canary_of_a_try_that_failed_is_named() {
    let mut world = installed(&json!({ "retryCount": 1, "canaryWatchSeconds": 10 }));
    world.bad.insert("h2".into());
    world.owner.template("h2");
    world.run_until(|world| {
        world.child_replicas("web-v2") == Some(0)
            && !world.child("web-v2").pods.is_empty()
            && world.status.upgrade.as_ref().is_some_and(|upgrade| upgrade.failures == 1)
    });
    lose(&mut world, "web-v2", 0);
    world.operate(120);
    assert_eq!((world.status.phase, world.heard(Reason::BlockedByPod)), (VersionPhase::Held, 1));
    assert!(world.status.message.contains("web-v2-0 is terminating and its grace period"), "{}", world.status.message);
}

#[test]
fn a_lost_pod_of_a_zone_that_was_dropped_is_named() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a", "b"]);
    world.settle();
    world.owner.zones(&["a"]);
    world.run_until(|world| world.child_replicas("web-b-v1") == Some(2));
    lose(&mut world, "web-b-v1", 2);
    world.operate(120);
    assert_eq!(world.status.phase, VersionPhase::Held);
    assert!(
        world.status.message.contains("web-b-v1-2 is terminating and its grace period"),
        "{}",
        world.status.message
    );
}

#[test]
fn pods_leave_in_one_zone_at_a_time() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a", "b", "c"]);
    world.settle();
    world.owner.scale(1);
    let replicas = |world: &World| ["a", "b", "c"].map(|zone| world.child(&format!("web-{zone}-v1")).replicas);
    world.round();
    assert_eq!(replicas(&world), [1, 3, 3]);
    lose(&mut world, "web-a-v1", 2);
    world.operate(60);
    assert_eq!(replicas(&world), [1, 3, 3], "the pods of the first zone are not gone");
    world.run_until(|world| world.child("web-a-v1").pods.len() == 1);
    world.round();
    assert_eq!(replicas(&world), [1, 1, 3]);
    world.settle();
    assert_eq!(replicas(&world), [1, 1, 1]);
    assert_eq!(world.status.phase, VersionPhase::Ready);
}

#[test]
fn a_zone_that_was_scaled_up_by_hand_is_put_back_when_its_turn_comes_and_that_is_said_once() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a", "b"]);
    world.settle();
    world.owner.scale(1);
    world.round();
    world.scale_child("web-b-v1", 5);
    world.settle();
    assert_eq!(world.child("web-b-v1").pods.len(), 1);
    assert_eq!(world.heard(Reason::ChildDrift), 1);
}

#[test]
fn more_pods_come_in_every_zone_at_once() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a", "b"]);
    world.settle();
    world.owner.scale(4);
    world.round();
    assert_eq!((world.child("web-a-v1").replicas, world.child("web-b-v1").replicas), (4, 4));
}
