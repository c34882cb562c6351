//! What goes wrong, and that nothing that runs is lost for it.

use serde_json::json;
use sts_plus_api::{Reason, UpgradeStep, VersionPhase};

use super::stories::installed;
use super::world::World;
use crate::owner::check;

/// Version 2 is stale after all its tries, and version 1 was not touched.
fn stale(strategy: &serde_json::Value, bad: Option<&str>, failing: Option<&str>) -> World {
    let mut world = installed(strategy);
    world.bad.extend(bad.map(str::to_owned));
    world.failing.extend(failing.map(str::to_owned));
    let before = world.child("web-v1").clone();
    world.owner.template("h2");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Failed, Some(1)));
    assert_eq!(world.child("web-v1"), &before);
    let child = world.child("web-v2");
    assert!(child.stale.is_some() && child.replicas == 0 && child.pods.is_empty());
    world
}

// spec: es§3, L024
#[test]
fn a_canary_that_is_never_ready_is_tried_three_times_and_then_stale() {
    let world = stale(&json!({ "retryCount": 2 }), Some("h2"), None);
    assert_eq!((world.heard(Reason::CanaryRetried), world.heard(Reason::VersionStale)), (2, 1));
    assert_eq!(world.status.upgrade.unwrap().failures, 3);
}

// spec: es§3, L024
#[test]
fn a_canary_whose_checks_fail_is_stale_and_the_answer_is_the_reason() {
    let world = stale(&json!({ "check": check() }), None, Some("h2"));
    assert_eq!(world.status.checks.len(), 4, "maxTries");
    assert!(world.child("web-v2").stale.as_ref().unwrap().contains("too many errors"));
    assert!(world.status.message.contains("too many errors"), "{}", world.status.message);
}

// spec: es§3, L024
#[test]
fn a_stale_version_is_tried_again_once_for_each_value_of_the_annotation() {
    let mut world = stale(&json!({ "check": check() }), None, Some("h2"));
    world.owner.retry("1");
    world.settle();
    assert_eq!((world.status.phase, world.heard(Reason::VersionStale)), (VersionPhase::Failed, 2));
    world.failing.clear();
    world.settle();
    assert_eq!(world.status.phase, VersionPhase::Failed, "the same value is no new try");
    world.owner.retry("2");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)));
    assert_eq!((world.children.len(), world.child("web-v2").stale.clone()), (1, None));
}

#[test]
fn the_next_template_replaces_a_stale_version_and_the_old_one_makes_it_go() {
    for (hash, version) in [("h3", 3), ("h1", 1)] {
        let mut world = stale(&json!({}), Some("h2"), None);
        world.owner.template(hash);
        world.settle();
        assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(version)));
        assert_eq!(world.children.len(), 1);
    }
}

#[test]
fn a_version_with_a_pod_that_is_not_ready_is_waited_for_unless_that_is_said_to_be_fine() {
    let mut world = installed(&json!({}));
    world.children[0].pods[2].ready = false;
    let broken = world.clone();
    world.owner.template("h2");
    world.round();
    world.round();
    assert_eq!(world.status.phase, VersionPhase::Held);
    assert!(world.status.message.contains("web-v1-2 is not Ready"), "{}", world.status.message);
    assert_eq!((world.children.len(), world.heard(Reason::RunningVersionNotReady)), (1, 1));
    world.settle();
    assert_eq!(world.status.current_version, Some(2), "it goes on by itself when the pod is back");

    let mut world = broken;
    world.owner.strategy("updateNotReady", &json!(true));
    world.owner.template("h2");
    world.round();
    world.round();
    assert_eq!((world.status.phase, world.children.len()), (VersionPhase::Upgrading, 2));
}

#[test]
fn a_version_without_any_ready_pod_is_not_waited_for() {
    let mut world = World::new(&json!({}));
    world.bad.insert("h1".into());
    world.settle();
    assert_eq!(world.status.phase, VersionPhase::Progressing);
    world.owner.template("h2");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)));
}

#[test]
fn a_child_that_was_deleted_by_hand_is_made_anew_with_the_same_number() {
    let mut world = installed(&json!({}));
    world.delete_child("web-v1");
    world.settle();
    assert_eq!((world.status.current_version, world.child("web-v1").pods.len()), (Some(1), 3));
    assert_eq!(world.heard(Reason::ChildGone), 1);
}

#[test]
fn a_child_that_was_scaled_by_hand_is_put_back_and_it_is_said_once() {
    let mut world = installed(&json!({}));
    world.scale_child("web-v1", 5);
    world.settle();
    assert_eq!((world.child("web-v1").pods.len(), world.heard(Reason::ChildDrift)), (3, 1));
}

#[test]
fn a_canary_step_that_is_left_without_replicas_asks_nothing_and_fails_nothing() {
    let mut world = installed(&json!({ "check": check() }));
    world.failing.insert("h2".into());
    world.owner.template("h2");
    world.run_until(|world| world.status.phase == VersionPhase::Canary);
    world.owner.scale(0);
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)));
    assert_eq!(world.heard(Reason::PromotedUnverified), 1);
}

#[test]
fn a_new_zone_beside_a_new_template_does_not_hold_the_upgrade() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a"]);
    world.settle();
    world.owner.zones(&["a", "b"]);
    world.owner.template("h2");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)));
}

/// `ZoneUnschedulable` is told, and the others go on, wherever in the list it stands.
// spec: es§7, L011
#[test]
fn a_zone_that_no_node_carries_stops_no_upgrade() {
    for zones in [["a", "no", "b"], ["no", "a", "b"], ["a", "b", "no"]] {
        let mut world = World::new(&json!({}));
        world.empty_zones = vec!["no".to_owned()];
        world.owner.zones(&zones);
        world.settle();
        let told =
            |world: &World, kind: &str| world.status.conditions.iter().any(|c| c.type_ == kind && c.status == "True");
        assert!(told(&world, "ZoneUnschedulable") && !told(&world, "Ready"), "{world:?}");
        world.owner.template("h2");
        world.run_until(|world| world.status.current_version == Some(2));
        world.settle();
        assert!(world.children.iter().all(|child| child.hash == "h2"), "{world:?}");
        assert!(["web-a-v2", "web-b-v2"].iter().all(|name| world.child(name).pods.len() == 3), "{world:?}");
        // As soon as a node carries it.
        world.empty_zones.clear();
        world.settle();
        assert_eq!(world.status.phase, VersionPhase::Ready);
    }
}

// spec: es§7, L012
#[test]
fn a_dropped_zone_goes_pod_by_pod_also_beside_a_stale_version() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a", "b"]);
    world.settle();
    world.bad.insert("h2".into());
    world.owner.template("h2");
    world.run_until(|world| world.status.upgrade.as_ref().is_some_and(|upgrade| upgrade.step == UpgradeStep::Stale));
    world.owner.zones(&["a"]);
    let mut seen = Vec::new();
    for _ in 0..40 {
        world.round();
        seen.extend(world.child_replicas("web-b-v1"));
        world.tick();
        world.pass(1);
    }
    seen.dedup();
    assert_eq!(seen, [2, 1, 0]);
    assert!(!world.has("web-b-v1") && world.child("web-a-v1").pods.len() == 3);
}

#[test]
fn a_dropped_zone_whose_pods_never_came_up_goes_too() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a", "b"]);
    for _ in 0..30 {
        world.round();
        world.tick();
        if let Some(child) = world.children.iter_mut().find(|child| child.name == "web-b-v1") {
            child.pods.truncate(1);
            child.pods.iter_mut().for_each(|pod| pod.ready = false);
        }
        world.pass(1);
    }
    world.owner.zones(&["a"]);
    for _ in 0..30 {
        world.round();
        if let Some(child) = world.children.iter_mut().find(|child| child.name == "web-b-v1") {
            let kept = usize::from(child.replicas > 0);
            child.pods.truncate(kept);
        }
        world.pass(1);
    }
    assert!(!world.has("web-b-v1") && world.child("web-a-v1").pods.len() == 3);
}

// spec: es§3, L082
#[test]
fn a_fix_does_not_wait_for_the_version_that_it_fixes_to_get_well() {
    let mut world = installed(&json!({ "scaleDownDelaySeconds": 600 }));
    world.owner.template("h2");
    world.run_until(|world| world.status.current_version == Some(2));
    world.bad.insert("h2".into());
    world.tick();
    world.owner.template("h3");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(3)));
}

#[test]
fn a_foreign_set_with_the_name_of_a_new_zone_is_told_and_not_looked_at_without_end() {
    let mut world = installed(&json!({}));
    world.owner.template("h2");
    world.round();
    world.foreign.push("web-v2".into());
    world.settle();
    assert_eq!((world.status.phase, world.heard(Reason::NameConflict)), (VersionPhase::Blocked, 1));
    assert_eq!(world.child("web-v1").pods.len(), 3);
}

#[test]
fn a_pause_does_not_use_up_the_time_of_a_step() {
    for step in [UpgradeStep::Canary, UpgradeStep::Rolling] {
        let mut world = installed(&json!({ "check": check(), "canaryWatchSeconds": 60 }));
        world.owner.template("h2");
        world.run_until(|world| world.status.upgrade.as_ref().is_some_and(|upgrade| upgrade.step == step));
        world.owner.pause(true);
        world.round();
        world.pass(3600);
        world.round();
        world.owner.pause(false);
        world.settle();
        assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)));
        assert_eq!(world.heard(Reason::VersionStale), 0);
    }
}

#[test]
fn the_time_of_a_step_ends_after_a_pause_too() {
    let mut world = installed(&json!({ "canaryWatchSeconds": 60 }));
    world.bad.insert("h2".into());
    world.owner.template("h2");
    world.run_until(|world| world.status.phase == VersionPhase::Canary);
    world.owner.pause(true);
    world.round();
    world.pass(3600);
    world.owner.pause(false);
    let again = world.now;
    world.run_until(|world| world.status.phase == VersionPhase::Failed);
    assert!((60..63).contains(&world.now.duration_since(again).as_secs()), "{world:?}");
}

#[test]
fn canaries_that_are_well_when_a_late_operator_comes_back_have_not_failed() {
    let mut world = installed(&json!({ "canaryWatchSeconds": 60 }));
    world.owner.template("h2");
    world.run_until(|world| world.child_replicas("web-v2") == Some(1));
    for _ in 0..5 {
        world.tick();
    }
    world.pass(3600);
    world.settle();
    assert_eq!((world.status.current_version, world.heard(Reason::VersionStale)), (Some(2), 0));
}

#[test]
fn the_version_in_charge_that_somebody_deletes_in_mid_upgrade_is_made_anew() {
    let mut world = installed(&json!({ "check": check() }));
    world.owner.template("h2");
    world.run_until(|world| world.status.phase == VersionPhase::Canary);
    world.delete_child("web-v1");
    world.round();
    assert_eq!((world.child("web-v1").hash.as_str(), world.child("web-v1").replicas), ("h1", 3));
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)));
    assert_eq!((world.heard(Reason::ChildGone), world.child("web-v2").pods.len()), (1, 3));
    assert_eq!(world.kept.keys().copied().collect::<Vec<_>>(), [2]);
}

#[test]
fn a_version_that_takes_over_because_the_other_was_deleted_is_told() {
    let mut world = installed(&json!({ "check": check() }));
    world.owner.template("h2");
    world.run_until(|world| world.status.phase == VersionPhase::Canary);
    // What it was made from was deleted as well.
    world.kept.remove(&1);
    world.delete_child("web-v1");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)));
    assert_eq!((world.heard(Reason::ChildGone), world.child("web-v2").pods.len()), (1, 3));
}

/// The events come after the writes, and an operator that is killed in between tells what it did all the same.
#[test]
fn an_operator_that_is_killed_after_each_of_its_writes_tells_every_transition() {
    let upgraded = |writes: usize| {
        let mut world = installed(&json!({}));
        world.services();
        world.settle();
        world.owner.template("h2");
        for _ in 0..200 {
            world.round_until(writes);
            world.tick();
            world.pass(1);
        }
        assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)), "{world:?}");
        let reasons = [Reason::UpgradeStarted, Reason::VersionRolling, Reason::Promoted, Reason::ServiceSwitched];
        let told = reasons.map(|reason| world.heard(reason));
        (told, world.heard(Reason::VersionRemoved))
    };
    let undisturbed = upgraded(usize::MAX);
    assert_eq!(undisturbed, ([2, 1, 1, 4], 1), "both Services, each for both versions");
    assert_eq!(upgraded(1), undisturbed);
    assert_eq!(upgraded(2), undisturbed);
}
