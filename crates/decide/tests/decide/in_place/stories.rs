//! What people expect, told step by step.

use serde_json::json;
use sts_plus_api::{Reason, VersionPhase};
use sts_plus_model::{Health, Loop, Metric};

use super::world::World;
use crate::owner::check;

/// Version 1 of h1, with all its pods.
pub fn installed(strategy: &serde_json::Value) -> World {
    let mut world = World::new(strategy);
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(1)), "{world:?}");
    world
}

// spec: es§1
#[test]
fn an_upgrade_goes_pod_by_pod() {
    let mut world = installed(&json!({ "check": check() }));
    world.owner.template("h2");
    world.until("one", |world| world.layout("web") == "h1 h1 h2");
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.current_version), ("h2 h2 h2", Some(2)));
}

pub fn failing(more: &serde_json::Value) -> World {
    let mut check = check();
    check["preflight"] = json!(false);
    check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut world = installed(&json!({ "check": check }));
    world.metric("h2", Metric::Fail);
    world.owner.template("h2");
    world
}

/// The version gets in charge, and from then on nothing is said to be under way.
fn ready_for_good(world: &mut World, version: i32) {
    world.until("in charge", |world| {
        (world.status.phase, world.status.current_version) == (VersionPhase::Ready, Some(version))
    });
    assert!(!world.run(60, |world| world.status.phase != VersionPhase::Ready), "{world:?}");
}

#[test]
fn what_is_ready_stays_so_while_the_kept_template_of_the_version_before_goes() {
    let mut world = installed(&json!({ "check": check() }));
    world.owner.template("h2");
    ready_for_good(&mut world, 2);
    assert_eq!(world.kept.keys().collect::<Vec<_>>(), [&2]);
}

#[test]
fn it_is_not_ready_before_a_zone_without_pods_has_the_template_of_the_version_in_charge() {
    let mut world = World::new(&json!({ "check": check() }));
    world.owner.spec["zoneReplicas"] = json!("Spread");
    world.owner.zones(&["a", "b", "c", "d"]);
    world.settle();
    assert!(world.set("web-d").pods.is_empty() && world.is_complete(), "{world:?}");
    world.owner.template("h2");
    ready_for_good(&mut world, 2);
}

#[test]
fn a_change_of_mind_moves_the_pod_that_had_moved_and_then_the_others() {
    let mut world = installed(&json!({ "check": check() }));
    world.owner.template("h2");
    world.until("one", |world| world.layout("web") == "h1 h1 h2");
    world.owner.template("h3");
    world.until("its successor", |world| world.layout("web") == "h1 h1 h3");
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.current_version), ("h3 h3 h3", Some(3)));
}

#[test]
fn back_in_mid_upgrade_moves_one_pod_and_takes_no_number() {
    let mut world = installed(&json!({ "check": check() }));
    world.owner.template("h2");
    world.until("one", |world| world.layout("web") == "h1 h1 h2");
    let kept = world.set("web").pods[&0].uid;
    world.owner.template("h1");
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.last_version), ("h1 h1 h1", 2));
    assert_eq!((world.set("web").pods[&0].uid, world.status.phase), (kept, VersionPhase::Ready));
}

#[test]
fn paused_in_mid_upgrade_nothing_moves_and_no_template_is_written() {
    let mut world = installed(&json!({ "check": check() }));
    world.owner.template("h2");
    world.until("one", |world| world.layout("web") == "h1 h1 h2");
    world.owner.pause(true);
    world.owner.template("h3");
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.phase), ("h1 h1 h2", VersionPhase::Paused));
    world.owner.pause(false);
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.current_version), ("h3 h3 h3", Some(3)));
}

#[test]
fn a_zone_made_while_paused_does_not_get_the_template_of_a_later_version() {
    let mut world = installed(&json!({}));
    world.owner.pause(true);
    world.owner.template("h2");
    world.owner.zones(&["a"]);
    world.settle();
    assert_eq!(world.layout("web-a"), "h1 h1 h1", "{world:?}");
    world.owner.pause(false);
    world.settle();
    assert_eq!((world.layout("web-a").as_str(), world.status.phase), ("h2 h2 h2", VersionPhase::Ready));
}

#[test]
fn other_zones_in_the_same_write_as_another_template_are_no_way_around_the_check() {
    let mut world = failing(&json!({}));
    world.owner.zones(&["a"]);
    world.settle();
    // One pod of it is rolled, and its checks fail; the StatefulSet without a zone is not needed any more.
    assert_eq!((world.layout("web-a").as_str(), world.native.sets.len()), ("h1 h1 h2", 1), "{world:?}");
    assert_eq!(world.status.current_version, Some(1));
    world.metric("h2", Metric::Pass);
    world.settle();
    assert_eq!((world.layout("web-a").as_str(), world.native.sets.len()), ("h2 h2 h2", 1));
}

/// web-1 does not come up for 100 s, and version 2 is asked for.
fn upgrade_beside_a_broken_pod(world: &mut World) {
    world.edit("web", |set| {
        let pod = set.pods.get_mut(&1).unwrap();
        (pod.health, pod.ready, pod.since) = (Health::NeverReady, false, 100);
    });
    world.native.now = 200;
    world.owner.template("h2");
    world.settle();
}

#[test]
fn a_broken_pod_holds_an_upgrade_unless_it_may_be_passed() {
    for native in [Loop::GateOff, Loop::Gate135, Loop::Gate137] {
        for (parallel, passes) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut world = World::new(&json!({ "updateNotReady": passes }));
            (world.parallel, world.native.native) = (parallel, native);
            world.settle();
            upgrade_beside_a_broken_pod(&mut world);
            // With OrderedReady the StatefulSet controller itself rolls nothing beside a broken pod.
            let moves = parallel && passes;
            let expected = if moves { "h2 h2 h2" } else { "h1 h1! h1" };
            assert_eq!(world.layout("web"), expected, "{native:?} {parallel} {passes} {world:?}");
            assert!(moves || world.status.message.contains("web-1"), "{world:?}");
        }
    }
}

/// What the message tells a person to do is enough.
#[test]
fn a_pod_that_never_comes_up_is_replaced_by_the_cure_that_is_told() {
    let mut world = installed(&json!({}));
    upgrade_beside_a_broken_pod(&mut world);
    assert_eq!(world.layout("web"), "h1 h1! h1");
    let told = &world.status.message;
    assert!(
        told.contains("sts.plus/allow-partition: \"1\", then set its partition to 1 and delete pod web-1"),
        "{told}"
    );
    world.edit("web", |set| {
        set.annotations.insert("sts.plus/allow-partition".into(), "1".into());
        set.partition = Some(1);
    });
    world.delete_pod("web", 1);
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.phase), ("h2 h2 h2", VersionPhase::Ready));
}

#[test]
fn without_pods_a_version_is_promoted_unverified_and_that_is_said() {
    let mut world = installed(&json!({ "check": check() }));
    world.owner.scale(0);
    world.settle();
    world.owner.template("h2");
    world.settle();
    assert_eq!((world.status.current_version, world.heard(Reason::PromotedUnverified)), (Some(2), 1));
}

#[test]
fn each_way_to_fail() {
    for (policy, layout, phase) in [
        ("Hold", "h1 h1 h2", VersionPhase::Failed),
        ("Pause", "h1 h1 h2", VersionPhase::Failed),
        ("Rollback", "h1 h1 h1", VersionPhase::Failed),
        ("Proceed", "h2 h2 h2", VersionPhase::Ready),
    ] {
        let mut world = failing(&json!({ "onFailure": policy }));
        world.settle();
        assert_eq!((world.layout("web").as_str(), world.status.phase), (layout, phase), "{policy} {world:?}");
        world.metric("h2", Metric::Pass);
        world.settle();
        let goes_on = matches!(policy, "Hold" | "Proceed");
        assert_eq!(world.status.phase == VersionPhase::Ready, goes_on, "{policy} {world:?}");
        world.owner.retry("once");
        world.settle();
        assert_eq!((world.layout("web").as_str(), world.status.phase), ("h2 h2 h2", VersionPhase::Ready), "{policy}");
        assert_eq!(world.marks["web"].stale, None, "{policy}");
    }
}

#[test]
fn no_progress_within_the_watch_time_is_told_by_its_name() {
    let mut world = installed(&json!({ "canaryWatchSeconds": 30 }));
    world.bad("h2", true);
    world.owner.template("h2");
    world.settle();
    assert_eq!(world.layout("web"), "h1 h1 h2!");
    let told = |(reason, note): &(Reason, String)| {
        *reason == Reason::ProgressDeadlineExceeded && note.contains("spec.updateStrategy.canaryWatchSeconds 30")
    };
    assert!(world.events.iter().any(told), "{world:?}");
}

#[test]
fn an_install_whose_pods_do_not_come_up_is_stalled_after_the_watch_time_and_clears_by_itself() {
    let stalled = |world: &World| {
        let said = world.status.conditions.iter().find(|condition| condition.type_ == "Stalled");
        said.is_some_and(|condition| condition.status == "True" && condition.reason == "ProgressDeadlineExceeded")
    };
    for zones in [&[][..], &["a", "b"]] {
        let mut world = World::new(&json!({ "canaryWatchSeconds": 30 }));
        world.owner.zones(zones);
        world.bad("h1", true);
        world.until("stalled", stalled);
        let message = &world.status.message;
        assert!(message.contains("is not Ready since") && message.contains("canaryWatchSeconds 30"), "{message}");
        assert_eq!(world.status.phase, VersionPhase::Progressing);
        world.heal("h1");
        world.settle();
        assert!(!stalled(&world) && world.status.phase == VersionPhase::Ready, "{world:?}");
    }
}

#[test]
fn a_zone_dropped_in_mid_upgrade_goes_after_it() {
    let mut world = World::new(&json!({ "check": check() }));
    world.owner.zones(&["a", "b"]);
    world.settle();
    world.owner.template("h2");
    world.until("one", |world| world.layout("web-a") == "h1 h1 h2");
    world.owner.zones(&["a", "c"]);
    world.until("the first zone", |world| world.layout("web-a") == "h2 h2 h2");
    assert_eq!(world.layout("web-b"), "h1 h1 h1");
    world.settle();
    assert_eq!(world.native.sets.keys().collect::<Vec<_>>(), ["web-a", "web-c"]);
    assert_eq!((world.layout("web-c").as_str(), world.status.phase), ("h2 h2 h2", VersionPhase::Ready));
}

#[test]
fn a_set_that_is_deleted_in_mid_upgrade_is_made_anew() {
    let mut world = failing(&json!({}));
    world.settle();
    world.delete_set("web");
    world.settle();
    assert_eq!(world.set("web").pods.len(), 3);
    assert!(world.heard(Reason::ChildGone) >= 1, "{world:?}");
}

#[test]
fn a_version_is_not_in_charge_before_the_controller_has_seen_its_template() {
    let mut world = installed(&json!({}));
    world.owner.template("h2");
    for _ in 0..4 {
        world.round();
    }
    assert_eq!((world.status.current_version, world.set("web").template), (Some(1), 2));
}

#[test]
fn a_lost_status_in_mid_upgrade_is_found_again_in_the_pods() {
    let mut world = failing(&json!({}));
    world.settle();
    world.lose_status();
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.last_version), ("h1 h1 h2", 2));
    assert_eq!((world.status.current_version, world.status.update_version), (Some(1), Some(2)));
    world.owner.template("h1");
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.phase), ("h1 h1 h1", VersionPhase::Ready));
}

#[test]
fn a_foreign_set_in_the_way_is_told() {
    let mut world = World::new(&json!({}));
    world.foreign.push("web".into());
    world.settle();
    assert!(world.native.sets.is_empty() && world.status.phase == VersionPhase::Blocked, "{world:?}");
}

#[test]
fn what_a_hand_writes_just_before_a_version_gets_its_number_is_put_back() {
    let mut world = installed(&json!({}));
    world.edit_image("web");
    world.owner.template("h2");
    world.round();
    assert_eq!(world.status.upgrade.as_ref().map(|upgrade| upgrade.version), Some(2), "{world:?}");
    world.owner.template("h1");
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.heard(Reason::ChildDrift)), ("h1 h1 h1", 1), "{world:?}");
}
