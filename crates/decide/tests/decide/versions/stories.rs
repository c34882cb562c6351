//! What people expect, told step by step.

use serde_json::json;
use sts_plus_api::{Reason, UpgradeStep, VersionPhase};

use super::world::World;
use crate::owner::check;

/// Version 1 of h1, with all its pods.
pub fn installed(strategy: &serde_json::Value) -> World {
    let mut world = World::new(strategy);
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(1)));
    world
}

// spec: es§3, L024
#[test]
fn a_second_version_begins_with_a_canary_and_the_first_goes_after_its_promotion() {
    let mut world = installed(&json!({}));
    world.owner.template("h2");
    world.run_until(|world| world.status.phase == VersionPhase::Canary);
    assert_eq!((world.child("web-v1").replicas, world.child("web-v2").replicas), (3, 1));
    world.run_until(|world| world.child("web-v2").replicas == 3);
    assert!(world.child("web-v2").pods[0].ready, "all pods only after the canary is there");
    assert!(world.child("web-v2").pods[1..].iter().all(|pod| !pod.ready));
    world.run_until(|world| world.status.current_version == Some(2));
    assert_eq!((world.child("web-v1").pods.len(), world.child("web-v2").pods.len()), (3, 3), "both run until then");
    world.settle();
    assert_eq!((world.children.len(), world.child("web-v2").pods.len()), (1, 3));
    assert_eq!((world.status.phase, world.status.last_version), (VersionPhase::Ready, 2));
    assert_eq!(world.status.versions.get("2"), Some(&true));
    assert_eq!((world.heard(Reason::Promoted), world.heard(Reason::VersionRemoved)), (1, 1));
}

// spec: es§3
#[test]
fn all_pods_follow_only_after_the_checks_of_the_canary_have_passed() {
    let mut world = installed(&json!({ "check": check() }));
    world.owner.template("h2");
    world.run_until(|world| world.child_replicas("web-v2") == Some(3));
    assert_eq!(world.status.checks.len(), 2, "two passes in a row");
    world.settle();
    assert_eq!(world.status.current_version, Some(2));
}

// spec: es§3
#[test]
fn a_third_version_while_the_second_is_coming_removes_the_second() {
    let mut world = installed(&json!({}));
    world.owner.template("h2");
    world.run_until(|world| world.child_replicas("web-v2") == Some(1));
    world.owner.template("h3");
    world.run_until(|world| world.status.current_version == Some(3));
    assert!(!world.has("web-v2") && world.child("web-v1").pods.len() == 3);
    world.settle();
    assert_eq!((world.status.phase, world.children.len()), (VersionPhase::Ready, 1));
}

#[test]
fn back_to_the_first_template_in_mid_upgrade_gives_the_second_up_without_a_new_number() {
    for step in [UpgradeStep::Waiting, UpgradeStep::Canary, UpgradeStep::Rolling] {
        let mut world = installed(&json!({}));
        let before = world.child("web-v1").clone();
        world.owner.template("h2");
        world.run_until(|world| world.status.upgrade.as_ref().is_some_and(|upgrade| upgrade.step == step));
        world.owner.template("h1");
        world.settle();
        assert_eq!((world.status.current_version, world.status.last_version), (Some(1), 2));
        assert_eq!(world.children, [before], "nothing of it was touched");
        assert_eq!(world.heard(Reason::UpgradeAborted), 1);
        world.owner.template("h2");
        world.settle();
        assert_eq!(world.status.current_version, Some(3), "the same template later is a new version");
    }
}

// spec: es§7
#[test]
fn zones_follow_one_after_another_and_only_the_first_has_canaries() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a", "b", "c"]);
    world.settle();
    world.owner.template("h2");
    let mut steps = Vec::new();
    while world.status.current_version == Some(1) {
        world.round();
        let counts = ["a", "b", "c"].map(|zone| world.child_replicas(&format!("web-{zone}-v2")).unwrap_or(0));
        if steps.last() != Some(&counts) {
            steps.push(counts);
        }
        world.tick();
        world.pass(1);
    }
    assert_eq!(steps, [[0, 0, 0], [1, 0, 0], [3, 0, 0], [3, 3, 0], [3, 3, 3]]);
    world.settle();
    assert_eq!(world.children.len(), 3);
}

#[test]
fn the_way_back_is_short_while_the_old_version_stays() {
    let mut world = installed(&json!({ "scaleDownDelaySeconds": 600 }));
    world.services();
    let before = world.child("web-v1").pods.clone();
    world.owner.template("h2");
    world.run_until(|world| world.status.current_version == Some(2));
    let promoted = world.now;
    world.run_until(|world| world.now.duration_since(promoted).as_secs() > 300);
    assert_eq!(world.active.as_ref().unwrap().version.as_deref(), Some("2"));
    assert_eq!(world.child("web-v1").pods, before);
    world.owner.template("h1");
    world.round();
    assert_eq!(world.status.current_version, Some(1));
    assert_eq!(world.active.as_ref().unwrap().version.as_deref(), Some("1"));
    world.settle();
    assert_eq!((world.child("web-v1").pods.clone(), world.children.len()), (before, 1));
    assert_eq!(world.status.last_version, 2);
}

// spec: es§3, L024
#[test]
fn the_old_version_goes_when_the_delay_is_over() {
    let mut world = installed(&json!({ "scaleDownDelaySeconds": 600 }));
    world.owner.template("h2");
    world.run_until(|world| world.status.current_version == Some(2));
    let promoted = world.now;
    world.run_until(|world| world.child_replicas("web-v1") == Some(0));
    assert_eq!(world.now.duration_since(promoted).as_secs(), 600);
    world.settle();
    assert!(!world.has("web-v1"));
}

#[test]
fn without_replicas_a_version_is_promoted_unverified_and_it_is_said_so() {
    let mut world = World::new(&json!({ "check": check() }));
    world.owner.scale(0);
    world.settle();
    assert_eq!(world.status.phase, VersionPhase::Ready);
    world.owner.template("h2");
    world.settle();
    assert_eq!((world.status.current_version, world.children.len()), (Some(2), 1));
    assert_eq!((world.heard(Reason::PromotedUnverified), world.heard(Reason::Promoted)), (1, 0));
}

// spec: es§3, L024
#[test]
fn without_canaries_all_pods_are_started_at_once_and_nothing_is_checked() {
    let mut world = installed(&json!({ "canaries": 0, "check": check() }));
    world.owner.template("h2");
    world.run_until(|world| world.child_replicas("web-v2").is_some_and(|count| count > 0));
    assert_eq!(world.child("web-v2").replicas, 3);
    world.settle();
    assert_eq!((world.status.current_version, world.status.checks.len()), (Some(2), 0));
}

#[test]
fn with_one_replica_the_canary_is_the_whole_version() {
    let mut world = World::new(&json!({ "canaries": 2, "check": check() }));
    world.owner.scale(1);
    world.settle();
    world.owner.template("h2");
    world.run_until(|world| world.status.current_version == Some(2));
    assert_eq!((world.child("web-v1").pods.len(), world.child("web-v2").pods.len()), (1, 1));
    assert_eq!(world.status.checks.len(), 2);
    world.settle();
    assert_eq!(world.children.len(), 1);
}

#[test]
fn paused_nothing_begins_and_scaling_still_works() {
    let mut world = installed(&json!({}));
    world.owner.pause(true);
    world.owner.template("h2");
    world.owner.scale(4);
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Paused, Some(1)));
    assert_eq!((world.children.len(), world.child("web-v1").pods.len()), (1, 4));
    assert_eq!(world.heard(Reason::UpgradeStarted), 1, "the installation alone");
    world.owner.pause(false);
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)));
}

#[test]
fn paused_in_mid_upgrade_both_versions_stay_as_they_are() {
    let mut world = installed(&json!({}));
    world.owner.template("h2");
    world.run_until(|world| world.child_replicas("web-v2") == Some(1));
    world.owner.pause(true);
    world.settle();
    assert_eq!((world.child("web-v1").pods.len(), world.child("web-v2").pods.len()), (3, 1));
    world.owner.template("h1");
    world.settle();
    assert_eq!((world.children.len(), world.status.phase), (2, VersionPhase::Paused));
    world.owner.pause(false);
    world.settle();
    assert_eq!((world.children.len(), world.status.current_version), (1, Some(1)));
}

impl World {
    pub fn child_replicas(&self, name: &str) -> Option<i32> {
        self.children.iter().find(|child| child.name == name).map(|child| child.replicas)
    }
}

#[test]
fn a_version_that_is_given_up_stays_while_that_in_charge_has_no_stateful_set() {
    let mut world = installed(&json!({}));
    world.failing.insert("h2".into());
    world.owner.strategy("check", &check());
    world.owner.template("h2");
    world.run_until(|world| world.has("web-v2") && world.available(world.child("web-v2")) == 1);
    world.delete_child("web-v1");
    world.foreign.push("web-v1".into());
    world.owner.template("h1");
    world.settle();
    assert_eq!(world.child("web-v2").pods.len(), 1, "{world:?}");
    world.foreign.clear();
    world.settle();
    assert_eq!((world.status.phase, world.children.len()), (VersionPhase::Ready, 1), "{world:?}");
    assert!(world.has("web-v1"), "{world:?}");
}
