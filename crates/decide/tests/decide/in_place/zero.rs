//! Through no pods at all: without pods Kubernetes makes any template the current revision, and no hold keeps pods from it
//! (native-statefulset B12.12).

use serde_json::json;
use sts_plus_api::{Reason, UpgradeStep, VersionPhase};
use sts_plus_model::Metric;

use super::stories::{failing, installed};
use super::world::World;
use crate::owner::check;

/// For how long no pods are wanted: it is not seen, until they leave, until they are gone, until everything has come to rest.
fn away(world: &mut World, rounds: usize) {
    for _ in 0..rounds {
        world.turn();
        world.pass();
    }
    if rounds > 8 {
        world.settle();
    }
}

/// Scales to 0 and back.
fn through_zero(world: &mut World, rounds: usize) {
    world.owner.scale(0);
    away(world, rounds);
    world.owner.scale(3);
}

/// No pod but those of the version in charge, until checks have passed.
fn comes_back_as(world: &mut World, content: &str, what: &str) {
    let is_other =
        |world: &World| world.layout("web").split(' ').any(|pod| !pod.is_empty() && !pod.starts_with(content));
    let expected = [content; 3].join(" ");
    let has_come = |world: &World| world.layout("web") == expected;
    let seen = world.run(7200, |world| is_other(world) || has_come(world));
    assert!(seen && has_come(world), "{what}: {world:?}");
    world.settle();
    assert_eq!(world.layout("web"), expected, "{what}: {world:?}");
}

#[test]
fn a_rejected_version_does_not_come_back_through_zero() {
    for parallel in [false, true] {
        for rounds in 0..10 {
            let what = format!("parallel {parallel}, {rounds} rounds");
            let mut world = failing(&json!({ "onFailure": "Rollback" }));
            world.parallel = parallel;
            world.settle();
            assert_eq!((world.layout("web").as_str(), world.status.phase), ("h1 h1 h1", VersionPhase::Failed));
            through_zero(&mut world, rounds);
            comes_back_as(&mut world, "h1", &what);
            let upgrade = world.status.upgrade.clone().expect("still wanted");
            assert_eq!(
                (world.status.phase, upgrade.step),
                (VersionPhase::Failed, UpgradeStep::Stale),
                "{what} {world:?}"
            );
            assert_eq!((world.status.current_version, upgrade.version), (Some(1), 2), "{what}");
            assert_eq!(world.heard(Reason::PromotedUnverified), 0, "{what}");
            world.metric("h2", Metric::Pass);
            world.owner.retry("now");
            world.settle();
            assert_eq!((world.layout("web").as_str(), world.status.phase), ("h2 h2 h2", VersionPhase::Ready), "{what}");
        }
    }
}

#[test]
fn a_rejected_version_stays_rejected_while_there_are_no_pods() {
    let mut world = failing(&json!({ "onFailure": "Rollback" }));
    world.settle();
    world.owner.scale(0);
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Failed, Some(1)), "{world:?}");
    assert!(world.status.message.contains("version 1 starts"), "{}", world.status.message);
    assert_eq!(
        world.heard(Reason::NoPods),
        0,
        "the template of the version in charge is written, so nothing is in danger"
    );
    assert!(world.round() && !world.turn(), "it writes at rest: {world:?}");
    // The next template is promoted as one that comes to no pods.
    world.owner.template("h3");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(3)), "{world:?}");
}

#[test]
fn what_failed_and_is_held_is_not_promoted_without_pods() {
    for policy in ["Hold", "Pause"] {
        for has_preflight in [true, false] {
            for rounds in [0, 1, 2, 4, 6, 8] {
                let what = format!("{policy} {has_preflight} {rounds}");
                let mut world = failing(&json!({ "onFailure": policy, "preflight": has_preflight }));
                world.run(100, |_| false);
                assert_eq!(world.status.phase, VersionPhase::Failed, "{what}");
                through_zero(&mut world, rounds);
                // Pods that had not left yet may be those from before.
                let is_other =
                    |world: &World| world.layout("web").starts_with("h2") || world.layout("web").contains("h2 h2");
                assert!(!world.run(200, is_other), "{what} {world:?}");
                assert_eq!(
                    (world.status.current_version, world.heard(Reason::PromotedUnverified)),
                    (Some(1), 0),
                    "{what}"
                );
                assert_eq!(
                    (world.status.phase, world.set("web").pods.len()),
                    (VersionPhase::Failed, 3),
                    "{what} {world:?}"
                );
            }
        }
    }
}

#[test]
fn what_failed_before_a_pause_is_not_promoted_after_it() {
    let mut world = failing(&json!({}));
    world.run(100, |_| false);
    assert_eq!(world.status.phase, VersionPhase::Failed);
    world.owner.pause(true);
    world.settle();
    world.owner.scale(0);
    world.settle();
    world.owner.pause(false);
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Failed, Some(1)), "{world:?}");
}

#[test]
fn paused_the_version_in_charge_comes_back() {
    for rounds in 0..10 {
        let mut world = installed(&json!({ "check": check() }));
        world.owner.template("h2");
        world.until("one", |world| world.layout("web") == "h1 h1 h2");
        world.owner.pause(true);
        world.settle();
        through_zero(&mut world, rounds);
        let is_other = |world: &World| world.layout("web").starts_with("h2") || world.layout("web").contains("h2 h2");
        assert!(!world.run(200, is_other), "{rounds} {world:?}");
        assert_eq!(world.layout("web").contains("h2"), rounds == 0, "{rounds} {world:?}");
        assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Paused, Some(1)), "{world:?}");
        world.owner.pause(false);
        world.settle();
        assert_eq!((world.layout("web").as_str(), world.status.phase), ("h2 h2 h2", VersionPhase::Ready), "{world:?}");
    }
}

/// Whether it was promoted as one without pods, or goes on from the beginning: never both, and never anything unsaid.
#[test]
fn in_mid_upgrade_pods_start_on_what_the_status_says() {
    for parallel in [false, true] {
        for rounds in 0..10 {
            let mut world = World::new(&json!({ "check": check() }));
            world.parallel = parallel;
            world.settle();
            world.owner.template("h2");
            world.until("one", |world| world.layout("web") == "h1 h1 h2");
            through_zero(&mut world, rounds);
            world.until("pods", |world| !world.layout("web").is_empty() && !world.layout("web").contains('-'));
            if world.status.current_version == Some(1) {
                assert!(!world.layout("web").starts_with("h2"), "{parallel} {rounds} {world:?}");
            } else {
                assert_eq!(world.heard(Reason::PromotedUnverified), 1, "{parallel} {rounds} {world:?}");
            }
            world.settle();
            assert_eq!(
                (world.layout("web").as_str(), world.status.phase),
                ("h2 h2 h2", VersionPhase::Ready),
                "{world:?}"
            );
        }
    }
}

#[test]
fn a_revert_that_comes_through_zero_is_no_upgrade_to_the_rejected_one() {
    let mut world = failing(&json!({ "onFailure": "Rollback" }));
    world.settle();
    through_zero(&mut world, 9);
    world.owner.template("h1");
    comes_back_as(&mut world, "h1", "reverted");
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(1)), "{world:?}");
}

/// Spread over more zones than there are pods: one that has none keeps what is in charge, and gets the next version when that is.
#[test]
fn a_zone_without_pods_waits_for_the_version_to_be_in_charge() {
    let mut world = World::new(&json!({ "check": check() }));
    world.owner.spec["zoneReplicas"] = json!("Spread");
    world.owner.zones(&["a", "b"]);
    world.owner.scale(1);
    world.run(120, |_| false);
    world.metric("h2", Metric::Fail);
    world.owner.template("h2");
    world.run(120, |_| false);
    assert_eq!(world.status.phase, VersionPhase::Failed, "{world:?}");
    world.owner.scale(2);
    world.run(120, |_| false);
    assert_eq!(world.layout("web-b"), "h1", "{world:?}");
    world.owner.scale(1);
    world.run(120, |_| false);
    world.metric("h2", Metric::Pass);
    world.settle();
    assert_eq!((world.layout("web-a").as_str(), world.status.phase), ("h2", VersionPhase::Ready), "{world:?}");
    world.owner.scale(2);
    world.settle();
    assert_eq!(world.layout("web-b"), "h2", "{world:?}");
}

/// One that had moved still leaves when pods are wanted again: it is not what the new ones are measured by.
#[test]
fn after_zero_the_last_good_revision_is_that_of_the_version_in_charge_and_not_of_a_pod_that_leaves() {
    let mut check = check();
    check["preflight"] = json!(false);
    let mut world = World::new(&json!({ "check": check }));
    world.owner.scale(1);
    world.settle();
    world.owner.template("h2");
    world.until("it has moved", |world| world.layout("web") == "h2!");
    world.owner.template("h1");
    world.owner.scale(0);
    world.until("it leaves", |world| world.layout("web") == "h2-" && world.set("web").replicas == 0);
    world.round();
    world.owner.scale(2);
    world.until("the new ones", |world| world.layout("web").starts_with("h1"));
    world.metric("h3", Metric::Fail);
    world.owner.template("h3");
    world.run(120, |_| false);
    assert_eq!((world.layout("web").as_str(), world.status.phase), ("h1 h3", VersionPhase::Failed), "{world:?}");
}
