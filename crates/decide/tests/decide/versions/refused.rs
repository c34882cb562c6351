//! The template is refused: nothing of it is written, and the number of pods is still what is wanted.

use serde_json::json;
use sts_plus_api::{Reason, VersionPhase};
use sts_plus_decide::VersionAction;

use super::stories::installed;
use super::world::World;
use crate::owner::check;

/// Everything that is done is `Scale`.
fn scale_alone(world: &World) {
    let actions = world.plan().actions;
    assert!(actions.iter().all(|action| matches!(action, VersionAction::Scale { .. })), "{actions:?}");
}

#[test]
fn the_version_in_charge_is_scaled_while_the_template_is_refused() {
    let mut world = installed(&json!({}));
    world.owner.refused_template("h2");
    for count in [5, 2] {
        world.owner.scale(count);
        scale_alone(&world);
        world.settle();
        assert_eq!(i32::try_from(world.child("web-v1").pods.len()), Ok(count));
        assert_eq!(world.status.phase, VersionPhase::Blocked);
        assert!(world.status.message.contains("no such field"), "{}", world.status.message);
    }
    assert_eq!((world.children.len(), world.status.last_version), (1, 1));
}

#[test]
fn a_child_that_was_scaled_by_hand_is_put_back_while_the_template_is_refused() {
    let mut world = installed(&json!({}));
    world.owner.refused_template("h1");
    world.scale_child("web-v1", 5);
    scale_alone(&world);
    world.settle();
    assert_eq!((world.child("web-v1").pods.len(), world.heard(Reason::ChildDrift)), (3, 1));
}

#[test]
fn in_mid_upgrade_the_running_version_alone_is_scaled_while_the_template_is_refused() {
    let mut world = installed(&json!({}));
    world.owner.template("h2");
    world.run_until(|world| world.status.phase == VersionPhase::Canary);
    world.owner.refused_template("h3");
    world.owner.scale(5);
    world.settle();
    assert_eq!((world.child("web-v1").pods.len(), world.child("web-v2").pods.len()), (5, 1));
}

#[test]
fn a_template_that_is_refused_for_a_while_uses_up_no_time_of_a_step() {
    let mut world = installed(&json!({ "check": check(), "canaryWatchSeconds": 60 }));
    world.owner.template("h2");
    world.run_until(|world| world.status.phase == VersionPhase::Canary);
    world.owner.refused_template("h3");
    world.settle();
    world.pass(3600);
    world.owner.problem = None;
    world.owner.template("h2");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)));
    assert_eq!(world.heard(Reason::VersionStale), 0);
}

#[test]
fn where_pods_are_spread_a_zone_that_cannot_be_made_takes_none_from_the_others() {
    let mut world = World::new(&json!({}));
    world.owner.spec["zoneReplicas"] = json!("Spread");
    world.owner.scale(6);
    world.owner.zones(&["a", "b"]);
    world.settle();
    world.owner.refused_template("h2");
    world.owner.zones(&["a", "b", "c"]);
    world.settle();
    let pods = |world: &World| ["web-a-v1", "web-b-v1"].map(|name| world.child(name).pods.len());
    assert_eq!((pods(&world), world.children.len()), ([3, 3], 2));
    world.owner.scale(12);
    world.settle();
    assert_eq!(pods(&world), [4, 4]);
}

#[test]
fn in_zones_pods_leave_in_one_at_a_time_while_the_template_is_refused() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a", "b"]);
    world.settle();
    world.owner.refused_template("h2");
    world.owner.scale(1);
    world.round();
    assert_eq!((world.child("web-a-v1").replicas, world.child("web-b-v1").replicas), (1, 3));
    world.settle();
    assert_eq!(world.child("web-b-v1").pods.len(), 1);
}
