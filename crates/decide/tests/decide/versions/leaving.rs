//! What is let go, and when: Services that no field names any more, and everything at the end.

use serde_json::json;
use sts_plus_api::{ExtendedStatefulSetStatus, Reason};
use sts_plus_decide::{OrphanView, ServiceView, VersionAction, decide_versions};

use super::stories::installed;
use super::world::World;

/// Version 1 with both Services.
fn with_services() -> World {
    let mut world = World::new(&json!({}));
    world.services();
    world.settle();
    assert_eq!(world.status.services, ["live", "next"]);
    world
}

fn free(service: &str) -> VersionAction {
    VersionAction::Free { service: service.into() }
}

impl World {
    /// No field names the active Service any more.
    fn drop_active(&mut self) {
        self.owner.strategy("activeService", &json!(null));
        self.former.extend(self.active.take());
    }
}

#[test]
fn the_finalizer_comes_before_anything_else_and_alone() {
    let mut world = World::new(&json!({}));
    world.has_finalizer = false;
    let plan = world.plan();
    assert_eq!((plan.actions, plan.events.len()), (vec![VersionAction::AddFinalizer], 0));
    assert_eq!(plan.status, world.status);
}

#[test]
fn a_service_is_noted_before_it_is_written() {
    let mut world = World::new(&json!({}));
    world.services();
    world.run_until(|world| !world.children.is_empty());
    world.run_until(|world| world.status.services.contains(&"live".to_owned()));
    assert_eq!(world.active.as_ref().unwrap().version, None);
    world.round();
    assert_eq!(world.active.as_ref().unwrap().version.as_deref(), Some("1"));
}

#[test]
fn a_service_that_is_not_named_any_more_is_let_go_also_when_paused_or_refused() {
    for field in ["named", "paused", "refused"] {
        let mut world = with_services();
        world.drop_active();
        world.owner.spec["paused"] = json!(field == "paused");
        if field == "refused" {
            world.owner.spec["scaling"] = json!({ "min": 5 });
        }
        let plan = world.plan();
        assert_eq!(plan.actions, [free("live")], "{field}");
        assert_eq!(plan.status.services, ["next"], "{field}");
        assert_eq!(plan.events.iter().filter(|event| event.reason == Reason::ServiceReleased).count(), 1, "{field}");
    }
}

#[test]
fn a_former_service_that_is_gone_or_somebody_elses_is_forgotten_and_not_touched() {
    for service in [
        ServiceView { name: "live".into(), ..ServiceView::default() },
        ServiceView { name: "live".into(), exists: true, is_foreign: true, ..ServiceView::default() },
    ] {
        let mut world = with_services();
        world.drop_active();
        world.former = vec![service];
        let plan = world.plan();
        assert_eq!((plan.actions.len(), plan.events.len()), (0, 0));
        assert_eq!(plan.status.services, ["next"]);
    }
}

// spec: es§8
#[test]
fn when_it_is_deleted_its_services_are_let_go_and_then_it_goes() {
    let mut world = with_services();
    world.drop_active();
    world.deleting = true;
    let plan = world.plan();
    assert_eq!(plan.actions, [free("live"), free("next"), VersionAction::RemoveFinalizer]);
    assert_eq!(plan.status, world.status, "the status is nobody's business any more");
}

#[test]
fn a_deletion_ends_without_its_services() {
    let mut world = with_services();
    world.deleting = true;
    world.active = Some(ServiceView { name: "live".into(), ..ServiceView::default() });
    world.preview = Some(ServiceView { exists: true, is_foreign: true, is_ours: false, ..world.preview.unwrap() });
    assert_eq!(world.plan().actions, [VersionAction::RemoveFinalizer]);
    world.has_finalizer = false;
    assert_eq!(world.plan().actions, [], "others may still hold it");
}

#[test]
fn when_the_definition_goes_children_are_let_go_first() {
    let mut world = with_services();
    (world.deleting, world.keeps_children) = (true, true);
    let expected = [
        free("live"),
        free("next"),
        VersionAction::Forget { version: 1 },
        VersionAction::Orphan,
        VersionAction::RemoveFinalizer,
    ];
    assert_eq!(world.plan().actions, expected);
}

#[test]
fn where_two_versions_stay_a_service_goes_on_selecting_the_one_that_is_verified() {
    let mut world = with_services();
    world.owner.template("h2");
    world.run_until(|world| world.child_replicas("web-v2") == Some(1));
    world.deleting = true;
    assert_eq!(world.plan().actions, [free("live"), free("next"), VersionAction::RemoveFinalizer], "all pods go");
    world.keeps_children = true;
    assert_eq!(
        world.plan().actions,
        [
            VersionAction::Forget { version: 1 },
            VersionAction::Forget { version: 2 },
            VersionAction::Orphan,
            VersionAction::RemoveFinalizer
        ]
    );
}

#[test]
fn wherever_a_deletion_crashes_the_next_one_ends_it() {
    for writes in 0..4 {
        let mut world = with_services();
        (world.deleting, world.keeps_children) = (true, true);
        for action in world.plan().actions.iter().take(writes) {
            world.carry_out_alone(action);
        }
        for action in world.plan().actions {
            world.carry_out_alone(&action);
        }
        assert!(!world.has_finalizer && world.orphans == ["web-v1"], "{writes}");
        assert!([&world.active, &world.preview].into_iter().flatten().all(|service| service.version.is_none()));
        assert_eq!(world.plan().actions, []);
    }
}

#[test]
fn what_was_let_go_is_taken_in_first_and_alone_by_the_next_object_of_the_name() {
    let world = installed(&json!({}));
    let mut observed =
        World { status: ExtendedStatefulSetStatus::default(), children: Vec::new(), ..world.clone() }.observe(None);
    observed.orphans = vec![OrphanView { name: "web-v1".into(), uid: "uid-1".into() }];
    observed.foreign = vec!["web-v1".into()];
    let plan = decide_versions(&observed, world.now);
    assert_eq!(plan.actions, [VersionAction::Adopt { name: "web-v1".into(), uid: "uid-1".into() }]);
    assert_eq!((plan.events.len(), plan.status), (1, observed.owner.status.clone()));
    observed.owner.deleting = true;
    assert_eq!(decide_versions(&observed, world.now).actions, [VersionAction::RemoveFinalizer], "not on its way out");

    // The version that it carries goes on, with its number and its pods.
    let mut next = World { status: ExtendedStatefulSetStatus::default(), ..world.clone() };
    next.settle();
    assert_eq!((&next.children, next.status.current_version), (&world.children, Some(1)));
}

#[test]
fn deleted_before_anything_was_made_it_goes() {
    let mut world = World::new(&json!({}));
    world.deleting = true;
    assert_eq!(world.plan().actions, [VersionAction::RemoveFinalizer]);
}

#[test]
fn paused_from_the_start_nothing_is_started_until_it_goes_on() {
    let mut world = World::new(&json!({}));
    world.owner.pause(true);
    world.settle();
    assert_eq!((world.status.phase, world.children.len()), (sts_plus_api::VersionPhase::Paused, 0));
    assert!(world.status.message.contains("nothing is started"), "{}", world.status.message);
    world.owner.pause(false);
    world.settle();
    assert_eq!((world.status.phase, world.children.len()), (sts_plus_api::VersionPhase::Ready, 1));

    // The number is given already: still nothing.
    let mut world = World::new(&json!({}));
    world.round();
    assert!(world.status.upgrade.is_some() && world.children.is_empty());
    world.owner.pause(true);
    world.settle();
    assert_eq!((world.status.phase, world.children.len()), (sts_plus_api::VersionPhase::Paused, 0));
    world.owner.pause(false);
    world.settle();
    assert_eq!(world.child("web-v1").pods.len(), 3);
}

#[test]
fn what_runs_is_looked_after_while_it_is_paused() {
    let mut world = installed(&json!({}));
    world.owner.pause(true);
    world.delete_child("web-v1");
    world.settle();
    assert_eq!(world.child("web-v1").pods.len(), 3);
}
