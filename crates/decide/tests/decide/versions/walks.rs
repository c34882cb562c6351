//! Random walks: the laws hold at every step, and when users stop it comes to rest.

use proptest::prelude::*;
use serde_json::json;
use sts_plus_api::VersionPhase;
use sts_plus_decide::ServiceView;
use sts_plus_model::random::cases;

use super::change::{Change, changes, world};
use super::world::World;

proptest! {
    #![proptest_config(cases(1000))]

    // spec: es§3
    #[test]
    fn whatever_happens_the_laws_hold_and_it_comes_to_rest(world in world(), changes in changes()) {
        let mut world = walk(world, &changes);
        users_stop(&mut world);
        world.settle();
        at_rest(&world);
    }

    /// No state is a trap: a good template gets in charge from everywhere, if it may start beside pods that are not ready.
    #[test]
    fn from_everywhere_a_good_template_gets_in_charge(world in world(), changes in changes()) {
        let mut world = walk(world, &changes);
        users_stop(&mut world);
        world.owner.strategy("updateNotReady", &json!(true));
        world.owner.template("h5");
        world.settle();
        at_rest(&world);
        prop_assert_eq!(world.status.phase, VersionPhase::Ready);
        prop_assert!(world.children.iter().all(|child| child.hash == "h5"));
    }
}

fn walk(mut world: World, changes: &[Change]) -> World {
    for change in changes {
        world.happen(change);
    }
    world
}

fn users_stop(world: &mut World) {
    world.owner.pause(false);
    world.owner.problem = None;
    world.foreign.clear();
}

/// What may be there when nothing happens any more.
fn at_rest(world: &World) {
    let current = world.status.current_version.expect("a version is in charge");
    let is_wanted = world.of(current).all(|child| child.hash == world.owner.hash);
    let versions: Vec<_> = world.versions().into_iter().collect();
    match world.status.phase {
        VersionPhase::Ready => {
            assert_eq!(versions, [current], "{world:?}");
            assert!(is_wanted && world.is_complete(current), "{world:?}");
            assert_eq!(world.children.len(), world.wanted().len(), "{world:?}");
            assert!(world.children.iter().all(|child| child.stale.is_none()), "{world:?}");
        }
        VersionPhase::Failed => {
            let upgrade = world.status.upgrade.as_ref().expect("an upgrade has failed");
            // Beside one in charge that is not complete, and may never be, what runs stays.
            let may_stay = |version: i32| version < current && !world.is_complete(current);
            let is_needed = |version: &i32| [current, upgrade.version].contains(version) || may_stay(*version);
            assert!(versions.iter().all(is_needed), "{world:?}");
            assert!(!is_wanted && upgrade.hash == world.owner.hash, "{world:?}");
            assert!(world.of(upgrade.version).all(|child| child.pods.is_empty() && child.stale.is_some()), "{world:?}");
            let zones: Vec<_> = world.wanted().into_iter().map(|(zone, _)| zone).collect();
            let listed = world.of(current).filter(|child| zones.contains(&child.zone)).count();
            let is_tidy = [0, world.of(current).count()].contains(&listed);
            assert!(is_tidy || !world.is_complete(current), "{world:?}");
        }
        VersionPhase::Held => {
            assert!(!world.is_complete(current) && !is_wanted, "{world:?}");
            assert!(world.of(current).any(|child| world.bad.contains(&child.hash)), "{world:?}");
        }
        // Its pods do not come up, and it is what is wanted: a person has to change the template. A lower version may stay.
        VersionPhase::Progressing | VersionPhase::CleaningUp => {
            assert!(is_wanted && world.bad.contains(&world.owner.hash), "{world:?}");
        }
        _ => panic!("no phase to rest in: {world:?}"),
    }
    let selected = |service: &Option<ServiceView>| {
        service.as_ref().map(|service| service.version.as_ref().expect("it selects one").parse().unwrap())
    };
    assert!(selected(&world.active).is_none_or(|version: i32| version == current), "{world:?}");
    assert!(selected(&world.preview).is_none_or(|version: i32| versions.contains(&version)), "{world:?}");
}
