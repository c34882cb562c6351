//! Bad input: a condition names the field and the cure, nothing of that set moves, and other objects are reconciled as ever.

use serde_json::Value;
use sts_plus_api::{ConditionType, Phase, names};
use sts_plus_e2e::{CANARY, Scene, World, objects};

/// A PhasedRollout that cannot do its work, with a set of the same name.
struct Bad {
    name: &'static str,
    pointer: &'static str,
    value: &'static str,
    condition: &'static str,
    words: &'static [&'static str],
}

const BAD: [Bad; 6] = [
    Bad {
        name: "no-set",
        pointer: "/spec/targetRef",
        value: "nowhere",
        condition: "TargetAccepted False/TargetNotFound",
        words: &["spec.targetRef", "StatefulSet nowhere does not exist", "picked up when it appears"],
    },
    Bad {
        name: "on-delete",
        pointer: "/spec/targetRef",
        value: "on-delete",
        condition: "TargetAccepted False/UnsupportedStrategy",
        words: &["spec.updateStrategy.type OnDelete", "set it to RollingUpdate"],
    },
    Bad {
        name: "no-secret",
        pointer: "/spec/check/query/secretRef",
        value: "missing",
        condition: "ChecksValid False/InvalidCredentials",
        words: &["spec.check.query.secretRef", "Secret missing", "create it"],
    },
    Bad {
        name: "half-a-pair",
        pointer: "/spec/check/query/secretRef",
        value: "half",
        condition: "ChecksValid False/InvalidCredentials",
        words: &["spec.check.query.secretRef", "Secret half has the key password but no key username", "add it"],
    },
    Bad {
        name: "bad-query",
        pointer: "/spec/check/query/expr",
        value: "up{",
        condition: "ChecksValid False/InvalidQuery",
        words: &["spec.check.query.expr is not valid PromQL"],
    },
    Bad {
        name: "bad-variable",
        pointer: "/spec/check/query/expr",
        value: "up{pod=\"${podd}\"}",
        condition: "ChecksValid False/InvalidQuery",
        words: &["spec.check.query.expr", "unknown variable ${podd}", "known are pod,"],
    },
];

impl Bad {
    fn set(&self) -> Value {
        let set = objects::named(objects::set(1), self.name);
        if self.name == "on-delete" { objects::with(set, "/spec/updateStrategy/type", "OnDelete") } else { set }
    }

    async fn rollout(&self) -> Value {
        // No check is asked for before the first pod, and still it must not be rolled.
        let gate = objects::with(Scene::quick_gate().await, "/spec/check/preflight", false);
        let gate = objects::with(gate, "/spec/targetRef", self.name);
        objects::with(objects::with(gate, "/metadata/name", self.name), self.pointer, self.value)
    }

    fn kind(&self) -> ConditionType {
        let (kind, _) = self.condition.split_once(' ').expect("type and state");
        ConditionType::ALL.into_iter().find(|known| known.to_string() == kind).expect("a known type")
    }

    fn is_reported(&self, world: &World) -> bool {
        format!("{} {}", self.kind(), world.condition_of(self.name, self.kind())) == self.condition
    }

    fn message(&self, world: &World) -> String {
        world.message_of(self.name, self.kind())
    }
}

// spec: pr§1, pr§2, pr§7, L045, L071, L109
#[tokio::test]
async fn bad_input_names_the_field_and_the_cure_and_stops_no_other_object() {
    let mut scene = Scene::new("input").await;
    scene.create(&objects::secret("half", &[("password", CANARY)])).await;
    for bad in &BAD {
        scene.create(&bad.set()).await;
        scene.create(&bad.rollout().await).await;
    }
    scene.create(&objects::set(2)).await;
    scene.create(&Scene::quick_gate().await).await;
    scene
        .until("all pods are Ready", |world| world.pods.len() == 8 && world.pods.values().all(sts_plus_e2e::is_ready))
        .await;
    scene.start_operator();
    scene.until("at rest", |world| world.is(Phase::Idle) && world.partition() == Some(2)).await;
    for bad in &BAD {
        let reported = scene.until(bad.name, |world| bad.is_reported(world)).await;
        let message = bad.message(&reported);
        assert!(bad.words.iter().all(|word| message.contains(word)), "{}: {message}", bad.name);
    }

    let before = scene.world().uids();
    for set in BAD.iter().map(|bad| bad.name).chain(["web"]) {
        scene.release_of(set, "app:2").await;
    }
    scene
        .until_settled("the good one is complete", |world| world.is(Phase::Completed) && world.partition() == Some(2))
        .await;
    for bad in BAD.iter().filter(|bad| bad.condition.starts_with("ChecksValid")) {
        let held = scene.until("it is held", |world| world.partition_of(bad.name) == Some(names::HOLD)).await;
        let pod = format!("{}-0", bad.name);
        assert_eq!(held.uids().get(&pod), before.get(&pod), "{pod} has not moved");
        assert!(bad.is_reported(&held), "{} is still reported", bad.name);
    }
    let written = scene
        .requests()
        .iter()
        .filter(|entry| entry.name == "on-delete" && entry.resource == "statefulsets" && entry.is_write())
        .count();
    assert_eq!(written, 0, "a set with OnDelete is refused before anything is written");

    // The cures of what was missing.
    scene.create(&objects::secret("missing", &[("token", CANARY)])).await;
    scene.create(&objects::named(objects::set(1), "nowhere")).await;
    scene.until("the Secret is found", |world| world.status_of("no-secret").phase == Phase::Completed).await;
    scene.until("the set is found", |world| world.status_of("no-set").phase == Phase::Idle).await;
    scene.end().await;
}
