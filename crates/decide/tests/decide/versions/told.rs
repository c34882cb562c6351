//! What is said of pods that do not come up, of versions that stay, and of fields without effect.

use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase};
use sts_plus_decide::RefusedPod;

use super::stories::installed;
use super::world::World;

/// Status and message of a condition.
fn condition(world: &World, kind: &str) -> Option<(bool, String)> {
    let found = world.status.conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status == "True", found.message.clone()))
}

fn is_stalled(world: &World) -> bool {
    condition(world, "Stalled").is_some_and(|(is, _)| is)
}

#[test]
fn an_install_whose_pods_do_not_come_up_is_stalled_after_the_watch_time_and_clears_by_itself() {
    let mut world = World::new(&json!({ "canaryWatchSeconds": 60 }));
    world.bad.insert("h1".into());
    world.run_until(|world| world.has("web-v1") && !world.child("web-v1").pods.is_empty());
    let begun = world.now;
    world.run_until(is_stalled);
    let waited = world.now.duration_since(begun).as_secs();
    assert!((59..=62).contains(&waited), "woken at the deadline: {world:?}");
    world.settle();
    let (is, message) = condition(&world, "Stalled").expect("it is there");
    assert!(is && message.contains("web-v1-0 is not Ready since"), "{message}");
    assert!(message.contains("longer than spec.updateStrategy.canaryWatchSeconds 60"), "{message}");
    assert_eq!((world.status.phase, world.heard(Reason::ProgressDeadlineExceeded)), (VersionPhase::Progressing, 1));
    world.bad.clear();
    world.settle();
    assert_eq!((world.status.phase, is_stalled(&world)), (VersionPhase::Ready, false));
}

#[test]
fn a_pod_that_cannot_be_made_is_stalled_after_the_watch_time() {
    let mut world = installed(&json!({ "canaryWatchSeconds": 60 }));
    let now = world.now;
    let refused = RefusedPod { name: "web-v1-2".into(), since: now, last: now, message: "exceeded quota".into() };
    let child = world.child_mut("web-v1");
    child.pods.truncate(2);
    child.refused = Some(refused);
    for seconds in [0, 59] {
        world.now = now + jiff::SignedDuration::from_secs(seconds);
        world.round();
        assert_eq!((world.status.phase, is_stalled(&world)), (VersionPhase::Progressing, false));
    }
    let wake = world.wake.expect("it looks again");
    assert_eq!(wake.duration_since(now).as_secs(), 60);
    world.now = wake;
    world.round();
    assert!(is_stalled(&world) && world.status.message.contains("web-v1-2 cannot be created since"), "{world:?}");
}

#[test]
fn what_waits_for_the_pods_of_the_version_in_charge_is_stalled_too() {
    let mut world = installed(&json!({ "canaryWatchSeconds": 60 }));
    world.owner.template("h2");
    world.run_until(|world| world.status.current_version == Some(2));
    world.bad.insert("h2".into());
    world.tick();
    world.settle();
    assert_eq!((world.status.phase, is_stalled(&world)), (VersionPhase::CleaningUp, true));
    let message = &world.status.message;
    assert!(
        message.starts_with("version 1 stays while version 2 is not as it should be: web-v2-0 is not Ready"),
        "{message}"
    );
    assert_eq!(message.matches("is not Ready").count(), 1, "{message}");
}

/// Once pods of version 2 flapped when those of version 1 had gone already, and version 1 was said to stay.
#[test]
fn a_version_whose_pods_are_gone_is_not_said_to_stay() {
    let mut world = installed(&json!({}));
    world.owner.template("h2");
    world.run_until(|world| world.child_replicas("web-v1") == Some(0));
    world.child_mut("web-v2").pods[1].ready = false;
    world.round();
    let message = &world.status.message;
    assert!(message.starts_with("version 1 is to have no pods any more, and its StatefulSets stay while"), "{message}");
    let mut zoned = World::new(&json!({}));
    zoned.owner.zones(&["a", "b"]);
    zoned.settle();
    zoned.owner.template("h2");
    zoned.run_until(|world| world.child_replicas("web-a-v1") == Some(0));
    zoned.child_mut("web-a-v2").pods[1].ready = false;
    zoned.round();
    assert!(zoned.status.message.starts_with("what is left of version 1 stays while"), "{}", zoned.status.message);
}

fn without_effect(strategy: &Value, restarts: bool) -> Option<String> {
    let mut world = World::new(&json!({}));
    world.owner.spec["updateOnEnvChange"] = json!(restarts);
    world.owner.spec["template"]["spec"]["updateStrategy"] = strategy.clone();
    world.settle();
    let (is, message) = condition(&world, "WithoutEffect")?;
    assert!(is);
    Some(message)
}

#[test]
fn an_update_strategy_of_the_template_that_is_overruled_is_told() {
    for nothing in [
        json!(null),
        json!({}),
        json!({ "type": "RollingUpdate" }),
        json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0, "maxUnavailable": 2 } }),
    ] {
        assert_eq!(without_effect(&nothing, false), None, "{nothing}");
    }
    let deletes = without_effect(&json!({ "type": "OnDelete" }), false).expect("told");
    assert!(deletes.starts_with("spec.template.spec.updateStrategy.type OnDelete is accepted"), "{deletes}");
    assert!(deletes.ends_with("this operator rolls the pods"), "{deletes}");
    let partition = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } });
    let held = without_effect(&partition, false).expect("told");
    assert!(held.contains("updateStrategy.rollingUpdate.partition 2"), "{held}");
    let both = without_effect(&partition, true).expect("told");
    assert!(both.contains("updateOnEnvChange") && both.contains("rollingUpdate.partition 2"), "{both}");
}

#[test]
fn pods_that_nobody_looks_after_any_more_are_told_and_left() {
    let mut world = World::new(&json!({}));
    world.settle();
    world.abandoned = vec!["web-v7-0".into()];
    world.settle();
    let told = "; pod web-v7-0 belongs to no StatefulSet any more, and nobody looks after it: delete it unless wanted";
    assert!(world.status.message.ends_with(told), "{world:?}");
    world.abandoned.push("web-v7-1".into());
    world.settle();
    assert!(world.status.message.contains("; pod web-v7-0 and 1 more belong"), "{world:?}");
    world.abandoned.clear();
    world.settle();
    assert_eq!(world.status.message, "version 1 has all 3 pods available");
}
