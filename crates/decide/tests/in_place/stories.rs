//! What people expect, told step by step.

use serde_json::json;
use sts_plus_api::VersionPhase;

use crate::users::check;
use crate::world::World;

/// Version 1 of h1, with all its pods.
pub fn installed(strategy: &serde_json::Value) -> World {
    let mut world = World::new(strategy);
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(1)), "{world:?}");
    world
}

#[test]
fn an_upgrade_goes_pod_by_pod() {
    let mut world = installed(&json!({ "check": check() }));
    world.template("h2");
    world.until("one", |world| world.layout("web") == "h1 h1 h2");
    world.settle();
    assert_eq!((world.layout("web").as_str(), world.status.current_version), ("h2 h2 h2", Some(2)));
}
