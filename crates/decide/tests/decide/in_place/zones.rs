//! Zones that come, go and change places while a version is on its way.

use serde_json::json;
use sts_plus_api::{Reason, VersionPhase};
use sts_plus_model::{Health, Metric};

use super::world::World;
use crate::owner::check;

/// Version 1 in zones a, b and c.
fn zoned(strategy: &serde_json::Value) -> World {
    let mut world = World::new(strategy);
    world.owner.zones(&["a", "b", "c"]);
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(1)), "{world:?}");
    world
}

/// What fails is asked about for ever; this is long enough for everything else.
fn soon(world: &mut World) {
    world.run(120, |_| false);
}

fn checked(policy: &str) -> serde_json::Value {
    let mut check = check();
    check["onFailure"] = json!(policy);
    json!({ "check": check })
}

/// Rejected in zone a: its checks have passed there for the preflight only, if there is one.
fn rejected(has_preflight: bool) -> World {
    let mut strategy = checked("Rollback");
    strategy["check"]["preflight"] = json!(has_preflight);
    let mut world = zoned(&strategy);
    world.owner.template("h2");
    world.until("one", |world| world.layout("web-a") == "h1 h1 h2");
    world.metric("h2", Metric::Fail);
    world.until("rolled back", |world| {
        world.status.phase == VersionPhase::Failed && world.layout("web-a") == "h1 h1 h1"
    });
    world.metric("h2", Metric::Pass);
    world.settle();
    assert_eq!(world.status.phase, VersionPhase::Failed);
    world
}

fn carries(world: &World, content: &str) -> bool {
    world.native.sets.keys().any(|name| world.layout(name).contains(content))
}

// spec: es§7
#[test]
fn what_one_zone_rejected_is_rolled_in_no_other() {
    for zones in [&["c", "b", "a"][..], &["b", "c"], &["c"], &["b", "d"], &["d", "e"], &["b", "a", "c", "d"]] {
        let mut world = rejected(true);
        world.owner.zones(zones);
        let never = world.run(7200, |world| carries(world, "h2"));
        assert!(!never, "{zones:?} {world:?}");
        world.settle();
        assert_eq!(world.status.phase, VersionPhase::Failed, "{zones:?} {world:?}");
        assert!(world.round() && !world.turn(), "it writes at rest: {world:?}");
        world.owner.retry("now");
        world.settle();
        assert_eq!(world.status.phase, VersionPhase::Ready, "{zones:?} {world:?}");
        assert!(world.is_complete() && world.native.sets.len() == zones.len(), "{zones:?} {world:?}");
    }
}

#[test]
fn also_after_its_stateful_set_is_gone() {
    for is_listed in [true, false] {
        let mut world = rejected(true);
        if !is_listed {
            world.owner.zones(&["b", "c"]);
        }
        world.delete_set("web-a");
        let never = world.run(7200, |world| carries(world, "h2"));
        assert!(!never, "{is_listed} {world:?}");
        world.settle();
        assert_eq!((world.status.phase, world.native.sets.len()), (VersionPhase::Failed, 2 + usize::from(is_listed)));
        world.owner.template("h3");
        world.settle();
        assert_eq!(world.status.phase, VersionPhase::Ready, "{is_listed} {world:?}");
        assert!(world.is_complete(), "{world:?}");
    }
}

/// The StatefulSet controller may need longer than the operator: what the status of the new StatefulSet says is about nothing yet.
#[test]
fn a_rejecting_zone_that_is_made_anew_is_no_beginning_for_the_others() {
    for zones in [&["a", "b", "c"][..], &["c", "b", "a"]] {
        for looks in 1..4 {
            let mut world = rejected(false);
            // All pods of the zone are there at once: nothing but the rejection keeps the others.
            (world.parallel, world.ready_after) = (true, 0);
            world.owner.zones(zones);
            world.settle();
            world.delete_set("web-a");
            for _ in 0..60 {
                (0..looks).for_each(|_| _ = world.round());
                world.turn();
                assert!(!carries(&world, "h2"), "{zones:?} {looks} {world:?}");
                world.pass();
            }
            world.settle();
            assert_eq!(
                (world.status.phase, world.layout("web-a").as_str()),
                (VersionPhase::Failed, "h1 h1 h1"),
                "{world:?}"
            );
            world.owner.retry("now");
            world.settle();
            assert_eq!(world.status.phase, VersionPhase::Ready, "{zones:?} {looks} {world:?}");
        }
    }
}

/// The engine honours it only after the StatefulSet controller has seen the number of pods.
#[test]
fn a_retry_in_the_same_moment_as_another_number_of_pods_is_not_lost() {
    for looks in 1..4 {
        let mut world = rejected(true);
        world.owner.scale(4);
        world.round();
        world.owner.retry("now");
        (0..looks).for_each(|_| _ = world.round());
        world.settle();
        assert_eq!(world.status.phase, VersionPhase::Ready, "{looks} {world:?}");
    }
}

#[test]
fn zones_come_and_go_while_a_version_is_held() {
    for policy in ["Hold", "Pause", "Rollback"] {
        let mut world = zoned(&checked(policy));
        world.owner.template("h2");
        world.until("one", |world| world.layout("web-a") == "h1 h1 h2");
        world.metric("h2", Metric::Fail);
        soon(&mut world);
        assert_eq!(world.status.phase, VersionPhase::Failed, "{policy}");
        world.owner.zones(&["d", "a", "b"]);
        soon(&mut world);
        assert_eq!(world.native.sets.keys().collect::<Vec<_>>(), ["web-a", "web-b", "web-d"], "{policy} {world:?}");
        assert_eq!(
            (world.layout("web-b").as_str(), world.layout("web-d").as_str()),
            ("h1 h1 h1", "h1 h1 h1"),
            "{policy}"
        );
        assert_eq!(world.status.phase, VersionPhase::Failed, "{policy} {world:?}");
    }
}

#[test]
fn reordering_does_not_begin_another_zone_while_one_has_failed() {
    for policy in ["Hold", "Pause"] {
        for has_preflight in [true, false] {
            let mut strategy = checked(policy);
            strategy["check"]["preflight"] = json!(has_preflight);
            let mut world = zoned(&strategy);
            world.metric("h2", Metric::Fail);
            world.owner.template("h2");
            soon(&mut world);
            let before = world.layout("web-a");
            world.owner.zones(&["c", "b", "a"]);
            soon(&mut world);
            assert_eq!(
                (world.layout("web-c").as_str(), world.layout("web-a")),
                ("h1 h1 h1", before),
                "{policy} {world:?}"
            );
            assert!(world.status.message.contains("web-a-"), "{}", world.status.message);
        }
    }
}

#[test]
fn a_final_check_that_fails_keeps_the_next_zone_waiting_in_whatever_order() {
    let mut world = zoned(&checked("Hold"));
    world.owner.template("h2");
    world.until("the last", |world| world.layout("web-a") == "h2 h2 h2");
    world.metric("h2", Metric::Fail);
    soon(&mut world);
    world.owner.zones(&["b", "a", "c"]);
    soon(&mut world);
    assert_eq!((world.layout("web-b").as_str(), world.status.phase), ("h1 h1 h1", VersionPhase::Failed), "{world:?}");
}

fn broken(world: &mut World, name: &str, ordinal: i32) {
    let since = world.native.now;
    world.edit(name, |set| {
        let pod = set.pods.get_mut(&ordinal).unwrap();
        (pod.health, pod.ready, pod.since) = (Health::NeverReady, false, since);
    });
}

#[test]
fn a_broken_pod_of_another_zone_holds_the_first_one_unless_it_may_be_passed() {
    for parallel in [false, true] {
        for passes in [false, true] {
            let mut world = World::new(&json!({ "updateNotReady": passes }));
            world.parallel = parallel;
            world.owner.zones(&["a", "b"]);
            world.settle();
            broken(&mut world, "web-b", 1);
            world.native.now += 200;
            world.owner.template("h2");
            world.settle();
            let first = world.layout("web-a");
            assert_eq!(first, if passes { "h2 h2 h2" } else { "h1 h1 h1" }, "{parallel} {passes} {world:?}");
            let told = &world.status.message;
            let is_told = told.contains("web-b-1") && told.contains("updateNotReady");
            assert!(passes || is_told, "{told}");
            world.heal("h1");
            world.settle();
            assert_eq!(world.status.phase, VersionPhase::Ready, "{parallel} {passes} {world:?}");
        }
    }
}

#[test]
fn an_outage_of_another_zone_in_mid_upgrade_holds_the_next_pod() {
    let mut world = zoned(&json!({ "check": check() }));
    world.owner.template("h2");
    world.until("one", |world| world.layout("web-a") == "h1 h1 h2");
    broken(&mut world, "web-c", 0);
    world.settle();
    assert_eq!(world.layout("web-a"), "h1 h1 h2", "{world:?}");
    assert!(world.status.message.contains("web-c-0"), "{}", world.status.message);
    world.heal("h1");
    world.settle();
    assert_eq!(world.status.phase, VersionPhase::Ready, "{world:?}");
}

/// Nothing to protect there, and the next version may be the cure.
#[test]
fn a_zone_that_is_down_as_a_whole_is_mended_first() {
    for parallel in [false, true] {
        let mut world = World::new(&json!({ "check": check() }));
        world.parallel = parallel;
        world.owner.zones(&["a", "b"]);
        world.settle();
        (0..3).for_each(|ordinal| broken(&mut world, "web-b", ordinal));
        world.native.now += 200;
        world.owner.template("h2");
        world.until("the cure", |world| world.layout("web-b") == "h2 h2 h2");
        assert_eq!(world.layout("web-a"), "h1 h1 h1", "{parallel} {world:?}");
        world.settle();
        assert_eq!((world.status.phase, world.heard(Reason::Promoted)), (VersionPhase::Ready, 1), "{world:?}");
    }
}

#[test]
fn a_zone_added_in_mid_upgrade_begins_as_the_version_in_charge() {
    let mut world = zoned(&json!({ "check": check() }));
    world.owner.template("h2");
    world.until("one", |world| world.layout("web-a") == "h1 h1 h2");
    world.owner.zones(&["d", "a", "b", "c"]);
    world.until("its pods", |world| world.native.sets.contains_key("web-d") && world.layout("web-d") == "h1 h1 h1");
    assert_ne!(world.layout("web-a"), "h1 h1 h1", "{world:?}");
    world.settle();
    assert!(world.is_complete() && world.status.phase == VersionPhase::Ready, "{world:?}");
}

/// Somebody has changed the label of a node, and nobody has noticed: the pods there run on, and one that leaves would not come back.
#[test]
fn in_a_zone_whose_nodes_have_lost_their_label_no_pod_is_rolled() {
    for strategy in [json!({}), checked("Hold"), json!({ "updateNotReady": true })] {
        let mut world = zoned(&strategy);
        world.closed_zones = vec!["a".into()];
        world.owner.template("h2");
        world.until("the others", |world| world.status.current_version == Some(2));
        soon(&mut world);
        let layouts = ["web-a", "web-b", "web-c"].map(|name| world.layout(name));
        assert_eq!(layouts, ["h1 h1 h1", "h2 h2 h2", "h2 h2 h2"], "{world:?}");
        assert_ne!(world.status.phase, VersionPhase::Ready);
        let why = "no pod of StatefulSet web-a is rolled: no node has the label topology.kubernetes.io/zone with a";
        assert!(world.status.message.contains(why), "{world:?}");
        // The next one does not begin there either.
        world.owner.template("h3");
        world.until("the others", |world| world.status.current_version == Some(3));
        soon(&mut world);
        assert_eq!(world.layout("web-a"), "h1 h1 h1", "{world:?}");
        world.closed_zones.clear();
        world.settle();
        assert_eq!(
            (world.layout("web-a").as_str(), world.status.phase),
            ("h3 h3 h3", VersionPhase::Ready),
            "{world:?}"
        );
    }
}
