//! Faults that were found by reading and by trying, each told with what a user would have seen, and with the right value.

use serde_json::{Value, json};
use sts_plus_api::{Reason, Verdict, VersionPhase};
use sts_plus_model::Metric;

use super::stories::{failing, installed};
use super::world::World;
use crate::owner::check;

/// Checks with these fields, and without a preflight.
fn checked(more: &Value) -> Value {
    let mut check = check();
    check["preflight"] = json!(false);
    check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "check": check })
}

fn carries(world: &World, content: &str) -> bool {
    world.native.sets.keys().any(|name| world.layout(name).contains(content))
}

/// Version 1 in zones a, b and c; a and b run version 2, which is in charge, and c was dropped and still runs version 1.
fn with_a_dropped_zone() -> World {
    let mut world = World::new(&json!({ "check": check() }));
    world.owner.zones(&["a", "b", "c"]);
    world.settle();
    world.owner.template("h2");
    world.until("one", |world| world.layout("web-a") == "h1 h1 h2");
    world.owner.zones(&["a", "b"]);
    world.until("promoted", |world| world.status.current_version == Some(2));
    let layouts = ["web-a", "web-b", "web-c"].map(|name| world.layout(name));
    assert_eq!(layouts, ["h2 h2 h2", "h2 h2 h2", "h1 h1 h1"], "{world:?}");
    world
}

/// Zones a and b ran version 2, zone c was dropped and still there with version 1, and the template went back. At once the status said that version 1
/// was in charge again with all its pods, while every pod that anybody wanted ran version 2.
// spec: es§3, es§7
#[test]
fn a_dropped_zone_does_not_bring_its_version_back_into_charge() {
    let mut world = with_a_dropped_zone();
    world.owner.template("h1");
    let is_wrong = |world: &World| world.status.current_version == Some(1) && world.layout("web-a").contains("h2");
    let came = world.run(7200, is_wrong);
    assert!(!came, "version 1 is in charge: {world:?}");
    let told = world.events.iter().find(|(_, note)| note.contains("is in charge again"));
    assert_eq!(told, None, "{world:?}");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(3)), "{world:?}");
    assert!(world.is_complete() && world.native.sets.len() == 2, "{world:?}");
}

/// The same with the status lost: most of the pods are those of dropped zones.
// spec: es§3, es§7
#[test]
fn pods_of_dropped_zones_do_not_say_which_version_is_in_charge() {
    let mut world = World::new(&json!({}));
    world.owner.zones(&["a", "b", "c"]);
    world.settle();
    world.owner.template("h2");
    world.until("one", |world| world.layout("web-a") == "h1 h1 h2");
    world.owner.zones(&["a"]);
    world.until("promoted", |world| world.status.current_version == Some(2));
    assert_eq!(["web-a", "web-b", "web-c"].map(|name| world.layout(name)), ["h2 h2 h2", "h1 h1 h1", "h1 h1 h1"]);
    world.lose_status();
    let came = world.run(60, |world| world.status.current_version == Some(1));
    assert!(!came, "version 1 is in charge: {world:?}");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)), "{world:?}");
}

/// The status was lost while version 2 was rejected. The StatefulSet is marked stale, and the operator rolled the first pod to it all the same.
// spec: es§3
#[test]
fn a_version_that_is_marked_stale_stays_so_when_the_status_is_lost() {
    let mut world = failing(&json!({ "onFailure": "Rollback" }));
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.phase), ("h1 h1 h1", VersionPhase::Failed));
    assert!(world.marks["web"].stale.is_some(), "{world:?}");
    world.metric("h2", Metric::Pass);
    world.lose_status();
    let never = world.run(7200, |world| carries(world, "h2"));
    assert!(!never, "{world:?}");
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Failed, Some(1)), "{world:?}");
    assert!(world.marks["web"].stale.is_some(), "{world:?}");
    world.owner.retry("now");
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.phase), ("h2 h2 h2", VersionPhase::Ready), "{world:?}");
    assert_eq!(world.marks["web"].stale, None);
}

/// A Prometheus that answers two times of three, and three passes in a row are needed: after four answers, none of which was a refusal, the
/// version was rejected and rolled back.
// spec: es§3, L066
#[test]
fn a_prometheus_that_answers_two_times_of_three_rejects_no_version() {
    for policy in ["Hold", "Pause", "Rollback"] {
        let mut world = installed(&checked(&json!({ "onFailure": policy, "successThreshold": 3, "maxTries": 4 })));
        world.metric("h2", Metric::InTurn(&[Verdict::NoData, Verdict::NoData, Verdict::Error]));
        world.owner.template("h2");
        let failed = world.run(600, |world| world.status.phase == VersionPhase::Failed);
        assert!(!failed && world.layout("web") == "h1 h1 h2", "{policy} {world:?}");
        world.metric("h2", Metric::Pass);
        world.settle();
        assert_eq!(world.status.phase, VersionPhase::Ready, "{policy} {world:?}");
    }
}

/// Two of three pods had moved, the second one failed, and onFailure Pause waited for a person. Somebody deleted the failed pod, and a minute
/// later it was rolled to the failed version again.
// spec: es§3, L081
#[test]
fn a_pod_that_is_deleted_ends_no_pause() {
    let mut world = installed(&checked(&json!({ "onFailure": "Pause" })));
    world.owner.template("h2");
    world.until("two", |world| world.layout("web") == "h1 h2 h2");
    world.metric("h2", Metric::Fail);
    world.until("failed", |world| world.status.phase == VersionPhase::Failed);
    world.metric("h2", Metric::Pass);
    world.delete_pod("web", 1);
    world.run(600, |_| false);
    assert_eq!((world.layout("web").as_str(), world.status.phase), ("h1 h1 h2", VersionPhase::Failed), "{world:?}");
    world.owner.retry("now");
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.phase), ("h2 h2 h2", VersionPhase::Ready), "{world:?}");
}

/// A quota kept two pods away when the status was lost. The one that was there ran version 2, and the two came back on it without one check.
// spec: es§3
#[test]
fn pods_that_are_missing_when_the_status_is_lost_are_not_settled() {
    let mut world = installed(&checked(&json!({})));
    world.owner.template("h2");
    world.until("one", |world| world.layout("web") == "h1 h1 h2");
    world.native.quota = Some(1);
    world.delete_pod("web", 0);
    world.delete_pod("web", 1);
    world.run(5, |_| false);
    assert_eq!(world.layout("web"), "h2");
    world.metric("h2", Metric::Fail);
    world.lose_status();
    world.run(30, |_| false);
    assert_ne!(world.status.phase, VersionPhase::Ready, "{world:?}");
    world.native.quota = None;
    world.run(600, |_| false);
    assert_eq!(world.layout("web"), "h1 h1 h2", "{world:?}");
}

/// The preflight was refused while a backup ran, and the template went back before any pod had moved. Then the object was Failed for as long as the
/// backup ran, although every pod was as it had been.
// spec: es§3
#[test]
fn a_return_before_any_pod_moved_has_nothing_to_check() {
    for zones in [&[][..], &["a", "b"]] {
        let mut world = World::new(&json!({ "check": check() }));
        world.owner.zones(zones);
        world.settle();
        world.metric("h1", Metric::Fail);
        world.metric("h2", Metric::Fail);
        world.owner.template("h2");
        world.until("failed", |world| world.status.phase == VersionPhase::Failed);
        assert!(!carries(&world, "h2"));
        world.owner.template("h1");
        world.run(30, |_| false);
        assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(1)), "{world:?}");
        assert!(world.is_complete(), "{world:?}");
    }
}

/// The new template named a service account that does not exist. The object said Upgrading for ever, and a replica was missing.
// spec: es§3
#[test]
fn a_pod_that_cannot_be_made_has_failed() {
    for policy in ["Hold", "Pause", "Rollback", "Proceed"] {
        let mut world = installed(&checked(&json!({ "onFailure": policy })));
        let template = world.template_number(2, "h2");
        world.native.refused_templates.insert(template);
        world.owner.template("h2");
        world.run(600, |_| false);
        let layout = world.layout("web");
        let is_back = layout == "h1 h1 h1";
        assert!(is_back || (policy != "Rollback" && layout == "h1 h1"), "{policy} {world:?}");
        assert_eq!(world.status.phase, VersionPhase::Failed, "{policy} {world:?}");
        assert_eq!(world.status.current_version, Some(1));
        world.owner.template("h3");
        world.settle();
        assert_eq!((world.layout("web").as_str(), world.status.phase), ("h3 h3 h3", VersionPhase::Ready), "{world:?}");
    }
}

/// Three pods went back one after the other, each within 20 s, and in the middle of it the watch time of 50 s was said to be over: no progress.
// spec: es§1, es§3
#[test]
fn each_pod_that_goes_back_is_progress() {
    let mut strategy = checked(&json!({ "onFailure": "Rollback" }));
    strategy["canaryWatchSeconds"] = json!(50);
    let mut world = World::new(&strategy);
    world.ready_after = 18;
    world.owner.scale(5);
    world.settle();
    world.owner.template("h2");
    world.until("four", |world| world.layout("web") == "h1 h2 h2 h2 h2");
    world.metric("h2", Metric::Fail);
    world.until("back", |world| world.layout("web") == "h1 h1 h1 h1 h1");
    assert_eq!(world.heard(Reason::ProgressDeadlineExceeded), 0, "{world:?}");
}

/// Version 2 had failed, the status was lost, and the fix was written: the mark of version 2, which its StatefulSet still had, rejected the fix.
// spec: es§3, es§7
#[test]
fn the_mark_of_a_version_that_failed_does_not_reject_the_next_one_when_the_status_is_lost() {
    let mut world = installed(&checked(&json!({ "onFailure": "Rollback" })));
    world.bad("h2", true);
    world.owner.template("h2");
    world.until("failed", |world| world.marks["web"].stale.is_some());
    world.settle();
    world.lose_status();
    world.owner.template("h3");
    world.settle();
    assert_eq!(world.status.phase, VersionPhase::Ready, "{world:?}");
    assert_eq!((world.layout("web").as_str(), &world.marks["web"].stale), ("h3 h3 h3", &None), "{world:?}");
}

/// Version 2 had failed, and the fix was written; the controller was slow. In a round in which the operator had something of its own to write,
/// what the engine knew of version 2 was taken for version 3, and nothing but a retry let the fix in.
// spec: es§3, es§7
#[test]
fn what_has_failed_is_not_taken_for_its_fix_while_the_controller_has_not_seen_it() {
    for rounds in 1..8 {
        let mut world = installed(&checked(&json!({ "onFailure": "Rollback" })));
        world.metric("h2", Metric::Fail);
        world.owner.template("h2");
        world.until("failed", |world| world.marks["web"].stale.is_some());
        world.settle();
        world.owner.template("h3");
        for _ in 0..rounds {
            world.round();
        }
        world.settle();
        assert_eq!(world.status.phase, VersionPhase::Ready, "{rounds} {world:?}");
        assert_eq!(
            (world.layout("web").as_str(), &world.marks["web"].stale),
            ("h3 h3 h3", &None),
            "{rounds} {world:?}"
        );
    }
}
