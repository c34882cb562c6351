//! The template is refused: nothing of it is written, and at rest the number of pods is still what is wanted.

use serde_json::json;
use sts_plus_api::{Reason, VersionPhase};

use super::stories::installed;
use super::world::World;
use crate::owner::check;

#[test]
fn at_rest_the_set_is_scaled_while_the_template_is_refused() {
    let mut world = installed(&json!({}));
    let template = world.set("web").template;
    world.owner.refused_template("h2");
    world.owner.scale(4);
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.phase), ("h1 h1 h1 h1", VersionPhase::Blocked));
    world.edit("web", |set| set.replicas = 1);
    world.settle();
    assert_eq!((world.set("web").replicas, world.set("web").template), (4, template));
    assert_eq!(world.heard(Reason::ChildDrift), 1);
}

#[test]
fn in_mid_upgrade_no_pod_comes_while_the_template_is_refused() {
    let mut world = installed(&json!({ "check": check() }));
    world.owner.template("h2");
    world.until("one", |world| world.layout("web") == "h1 h1 h2");
    world.owner.refused_template("h3");
    world.owner.scale(5);
    world.settle();
    assert_eq!(world.set("web").replicas, 3);
}

#[test]
fn what_was_written_by_hand_gets_no_pod_while_the_template_is_refused() {
    let mut world: World = installed(&json!({}));
    world.owner.refused_template("h2");
    world.edit_image("web");
    world.owner.scale(5);
    world.settle();
    assert_eq!((world.set("web").replicas, world.layout("web").as_str()), (3, "h1 h1 h1"));
}

#[test]
fn what_was_written_by_hand_meanwhile_is_put_back_when_the_template_is_mended() {
    let mut world: World = installed(&json!({}));
    world.owner.refused_template("h2");
    world.edit_image("web");
    world.settle();
    world.owner.problem = None;
    world.owner.template("h1");
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.phase), ("h1 h1 h1", VersionPhase::Ready), "{world:?}");
    assert_eq!((world.heard(Reason::ChildDrift), world.status.last_version), (1, 1));
}

#[test]
fn pods_scaled_by_hand_are_put_back_and_told_whenever_that_is_seen() {
    let mut world = installed(&json!({}));
    world.owner.refused_template("h2");
    world.settle();
    world.edit("web", |set| set.replicas = 1);
    // Before its controller has seen it.
    world.round();
    world.settle();
    assert_eq!((world.set("web").replicas, world.heard(Reason::ChildDrift)), (3, 1));
}
