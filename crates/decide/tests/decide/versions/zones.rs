//! The list of zones changes in mid-upgrade.

use serde_json::{Value, json};
use sts_plus_api::{UpgradeStep, VersionPhase};

use super::world::World;
use crate::owner::check;

/// Version 1 in zones a and b, and version 2 in this step.
fn upgrading(strategy: &Value, step: UpgradeStep) -> World {
    let mut world = World::new(strategy);
    world.owner.zones(&["a", "b"]);
    world.settle();
    world.owner.template("h2");
    let has_begun = |world: &World| world.child_replicas("web-a-v2").is_some_and(|replicas| replicas > 0);
    world.run_until(|world| has_begun(world) && step_of(world) == Some(step));
    world
}

fn step_of(world: &World) -> Option<UpgradeStep> {
    world.status.upgrade.as_ref().map(|upgrade| upgrade.step)
}

/// The pods that version 2 is to have in each of these zones, whenever that changed, until it is in charge.
fn steps<const N: usize>(world: &mut World, zones: [&str; N]) -> Vec<[i32; N]> {
    let mut steps = Vec::new();
    while world.status.current_version == Some(1) {
        let counts = zones.map(|zone| world.child_replicas(&format!("web-{zone}-v2")).unwrap_or(-1));
        if steps.last() != Some(&counts) {
            steps.push(counts);
        }
        world.round();
        world.tick();
        world.pass(1);
    }
    steps
}

// spec: es§7, L012
#[test]
fn another_order_of_the_zones_moves_no_canary_and_stops_no_clock() {
    let mut world = upgrading(&json!({ "check": check(), "canaryWatchSeconds": 60 }), UpgradeStep::Canary);
    let since = world.status.upgrade.as_ref().and_then(|upgrade| upgrade.since);
    world.owner.zones(&["b", "a"]);
    world.round();
    assert_eq!(world.status.upgrade.as_ref().and_then(|upgrade| upgrade.since), since);
    assert_eq!(steps(&mut world, ["a", "b"]), [[1, 0], [3, 0], [3, 3]]);
    world.settle();
    assert_eq!(world.status.phase, VersionPhase::Ready);
}

#[test]
fn canaries_whose_zone_is_dropped_begin_again_in_the_first_one_with_all_their_time() {
    let mut world = upgrading(&json!({ "check": check(), "canaryWatchSeconds": 60 }), UpgradeStep::Canary);
    world.run_until(|world| !world.status.checks.is_empty());
    world.pass(50);
    world.owner.zones(&["b", "c"]);
    world.run_until(|world| world.child_replicas("web-b-v2") == Some(1));
    let upgrade = world.status.upgrade.clone().expect("it goes on");
    assert_eq!((upgrade.step, upgrade.cycle), (UpgradeStep::Canary, None), "nothing of the first one counts");
    assert!(world.now.duration_since(upgrade.since.expect("the clock runs")).as_secs() <= 2);
    assert_eq!(world.child_replicas("web-a-v2"), Some(0));
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)));
    assert_eq!(world.children.len(), 2);
}

/// Whatever was written before the crash, nothing of the first canary counts for the second.
#[test]
fn a_crash_while_the_canaries_change_their_zone_gives_the_second_all_its_time() {
    for writes in 0..3 {
        let mut world = upgrading(&json!({ "check": check(), "canaryWatchSeconds": 60 }), UpgradeStep::Canary);
        world.run_until(|world| !world.status.checks.is_empty());
        world.pass(50);
        world.owner.zones(&["b"]);
        world.round_until(writes);
        world.run_until(|world| world.child_replicas("web-b-v2") == Some(1));
        let upgrade = world.status.upgrade.clone().expect("it goes on");
        assert_eq!(upgrade.cycle, None);
        assert!(world.now.duration_since(upgrade.since.expect("the clock runs")).as_secs() <= 2);
    }
}

#[test]
fn canaries_whose_zone_has_lost_its_nodes_begin_again_elsewhere() {
    let mut world = upgrading(&json!({ "canaryWatchSeconds": 60 }), UpgradeStep::Canary);
    world.empty_zones = vec!["a".to_owned()];
    world.run_until(|world| world.child_replicas("web-b-v2") == Some(1));
    assert_eq!((world.child_replicas("web-a-v2"), step_of(&world)), (Some(0), Some(UpgradeStep::Canary)));
    world.settle();
    assert_eq!(world.status.current_version, Some(2), "{world:?}");
}

#[test]
fn another_order_of_the_zones_in_the_middle_of_the_roll_starts_no_second_zone() {
    let mut world = upgrading(&json!({}), UpgradeStep::Rolling);
    world.owner.zones(&["c", "b", "a"]);
    let steps = steps(&mut world, ["a", "b", "c"]);
    assert_eq!(steps, [[1, 0, -1], [3, 0, -1], [3, 0, 0], [3, 0, 3], [3, 3, 3]]);
}

#[test]
fn a_zone_that_comes_in_mid_roll_costs_the_others_no_pod() {
    let mut world = upgrading(&json!({ "check": check() }), UpgradeStep::Rolling);
    world.run_until(|world| world.child_replicas("web-b-v2") == Some(3));
    world.owner.zones(&["c", "a", "b"]);
    assert_eq!(steps(&mut world, ["a", "b", "c"]), [[3, 3, -1], [3, 3, 0], [3, 3, 3]]);
}

/// Somebody has changed the label of a node, and nobody has noticed: the pods there run on.
#[test]
fn pods_of_a_zone_whose_nodes_have_lost_their_label_stay_until_those_of_the_next_version_are_there() {
    for zones in [["a", "b"], ["b", "a"]] {
        let mut world = World::new(&json!({}));
        world.owner.zones(&zones);
        world.settle();
        world.closed_zones = vec!["b".into()];
        world.owner.template("h2");
        world.run_until(|world| world.status.current_version == Some(2));
        assert!(world.status.message.contains("but for zones that no node carries"), "{world:?}");
        world.settle();
        assert_eq!(world.available(world.child("web-b-v1")), 3, "{world:?}");
        assert!(world.status.message.contains("version 1 stays while version 2 is not as it should be"), "{world:?}");
        world.closed_zones.clear();
        world.settle();
        assert_eq!(world.status.phase, VersionPhase::Ready, "{world:?}");
        assert_eq!(world.versions().into_iter().collect::<Vec<_>>(), [2]);
    }
}

#[test]
fn and_the_way_back_is_short() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a", "b"]);
    world.settle();
    world.closed_zones = vec!["b".into()];
    world.owner.template("h2");
    world.settle();
    let kept = world.child("web-b-v1").pods.clone();
    world.owner.template("h1");
    world.settle();
    assert_eq!((world.status.current_version, &world.child("web-b-v1").pods), (Some(1), &kept), "{world:?}");
    assert_eq!(world.versions().into_iter().collect::<Vec<_>>(), [1]);
}
