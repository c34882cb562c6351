//! Faults that were found by reading and by trying, each told with what a user would have seen, and with the right value.

mod ends;
mod failed;
mod fixes;
mod guards;
mod missing;
mod refused;
mod tries;

use sts_plus_api::OnFailure;
use sts_plus_model::world::SET;
use sts_plus_model::{Deed, Who, World};

use crate::story::*;

/// With this onFailure, and without a preflight.
fn on_failure(world: World, policy: OnFailure) -> World {
    with(world, |spec| (spec.check.on_failure, spec.check.preflight) = (policy, false))
}

/// A healthy set of so many pods on template 1, claimed and at rest.
fn of_pods(replicas: i32) -> World {
    World::new(replicas)
}

/// The operator opens something.
fn is_opening(deed: &Deed) -> bool {
    matches!(deed, Deed::Partition { to: Some(to), who: Who::Operator, .. } if *to != HOLD)
}

/// The revision that the pod with this ordinal carries; nothing if it is not there.
fn carried(world: &World, ordinal: i32) -> &str {
    set(world).pods.get(&ordinal).map_or("", |pod| pod.revision.as_str())
}

/// What was written into the tale from the line `from` on.
fn since(world: &World, from: usize) -> impl Iterator<Item = &Deed> {
    world.tale.deeds().skip(from)
}

fn lines(world: &World) -> usize {
    world.tale.lines().count()
}

fn uid(world: &World, ordinal: i32) -> Option<u64> {
    world.sets[SET].pods.get(&ordinal).map(|pod| pod.uid)
}
