//! An upgrade of the operator in mid-rollout: what an older build has noted is taken up, or distrusted, and no pod moves unapproved. The older
//! program is one of before this one (`scripts/older`), so these are part of `make soak`; what it noted in each of these moments is kept in
//! `crates/operator/src/views/older`, where every run of the tests reads it again.

use std::path::PathBuf;

use serde_json::{Value, json};
use sts_plus_api::{ConditionType, OnFailure, Phase, Reason, names};
use sts_plus_e2e::{Scene, World, moves, objects};

use crate::rollout::{RECOVERING, gate, recovers};

/// The program of an older build.
const OLDER: &str = "STS_PLUS_E2E_OLDER_OPERATOR";
/// A folder, where the objects of each moment are to be written to.
const NOTED: &str = "STS_PLUS_E2E_NOTED";

/// Three pods at rest under the older operator. `None` where there is none, which is reported as a skip.
async fn at_rest(name: &str, gate: Value) -> Option<Scene> {
    let Some(older) = std::env::var_os(OLDER) else {
        testcluster::report::skipped(&format!("{OLDER} names no older operator"));
        return None;
    };
    let mut scene = Scene::new(name).await;
    scene.start_from(Some(PathBuf::from(older)));
    scene.settle(&objects::set(3), &gate).await;
    Some(scene)
}

/// The older operator is killed in this moment, and ours takes up what it has left.
async fn upgrade(scene: &mut Scene, moment: &str) {
    scene.kill_operator();
    if let Some(folder) = std::env::var_os(NOTED) {
        let all = scene.kubectl_ok(&["get", "phasedrollout,statefulset,pod", "-o", "json"], "").await.stdout;
        std::fs::write(PathBuf::from(folder).join(format!("{moment}.json")), all)
            .expect("the folder can be written to");
    }
    scene.start_from(None);
    scene.start_operator();
}

/// Ours has looked: it has observed another spec.
async fn has_looked(scene: &Scene) {
    scene.configure(&json!({ "stuckPods": "Wait" })).await;
    let has_seen = |world: &World| world.status().observed_generation == world.rollouts["gate"].metadata.generation;
    scene.until("ours has looked", has_seen).await;
}

fn soon(on_failure: OnFailure) -> Value {
    json!({ "preflight": false, "successThreshold": 1, "maxTries": 1, "onFailure": on_failure })
}

fn passes(world: &World) -> i32 {
    world.status().current.map_or(0, |current| current.consecutive_passes)
}

// spec: pr§4
#[tokio::test]
#[ignore = "needs an older operator; part of make soak"]
async fn in_mid_cycle_every_pod_still_needs_its_passes() {
    let check = json!({ "successThreshold": 4, "periodSeconds": 2 });
    let Some(mut scene) = at_rest("older-cycle", gate(check).await).await else { return };
    scene.release("app:2").await;
    let between = |world: &World| world.is_ready_on("web-2", "app:2") && (1..4).contains(&passes(world));
    scene.until("some of its passes", between).await;
    upgrade(&mut scene, "mid-cycle").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 4);
    scene.end().await;
}

// spec: pr§4
#[tokio::test]
#[ignore = "needs an older operator; part of make soak"]
async fn in_the_preflight_no_pod_moves_before_it_has_passed() {
    let check = json!({ "successThreshold": 4, "periodSeconds": 2 });
    let Some(mut scene) = at_rest("older-preflight", gate(check).await).await else { return };
    scene.release("app:2").await;
    scene.until("some of its passes", |world| world.all_on("app:1") && (1..4).contains(&passes(world))).await;
    upgrade(&mut scene, "preflight").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 4);
    scene.end().await;
}

// spec: pr§5
#[tokio::test]
#[ignore = "needs an older operator; part of make soak"]
async fn what_has_failed_stays_held_until_its_checks_pass() {
    let Some(mut scene) = at_rest("older-held", gate(soon(OnFailure::Hold)).await).await else { return };
    scene.errors(true).await;
    scene.release("app:2").await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed)).await;
    upgrade(&mut scene, "held").await;
    has_looked(&scene).await;
    let still = scene.world();
    assert!(still.is(Phase::Failed) && still.is_held(), "{:?}", still.status());
    assert_eq!(still.uids(), failed.uids());
    scene.errors(false).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_allowed(&scene.tape.entries(), "app:1");
    scene.end().await;
}

// spec: pr§5, L038
#[tokio::test]
#[ignore = "needs an older operator; part of make soak"]
async fn a_stop_is_not_forgotten() {
    let Some(mut scene) = at_rest("older-stop", gate(soon(OnFailure::Pause)).await).await else { return };
    scene.errors(true).await;
    scene.release("app:2").await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed)).await;
    scene.errors(false).await;
    upgrade(&mut scene, "stopped").await;
    let still = scene.until("enough passes", |world| passes(world) >= 3).await;
    assert!(still.is(Phase::Failed) && still.is_held(), "{:?}", still.status());
    assert_eq!(still.uids(), failed.uids());
    scene.annotate(names::RETRY, "now").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_allowed(&scene.tape.entries(), "app:1");
    scene.end().await;
}

// spec: pr§5, L039
#[tokio::test]
#[ignore = "needs an older operator; part of make soak"]
async fn a_rollback_goes_on_to_its_end() {
    let gate = objects::with(gate(soon(OnFailure::Rollback)).await, "/spec/check/query/expr", RECOVERING);
    let Some(mut scene) = at_rest("older-back", gate).await else { return };
    let born = scene.world().uids();
    recovers(&scene, "web-1", true).await;
    scene.release("app:2-stop-after-3s").await;
    let leaves =
        |world: &World| world.is(Phase::RollingBack) && world.pods["web-1"].metadata.deletion_timestamp.is_some();
    scene.until("web-1 goes back", leaves).await;
    upgrade(&mut scene, "rolling-back").await;
    let end = scene.until("rolled back", |world| world.is(Phase::RolledBack) && world.all_on("app:1")).await;
    assert_eq!(end.uids()["web-0"], born["web-0"], "it was never touched");
    assert_eq!(end.status().rejected_revisions, [end.update_revision()]);
    assert_eq!(scene.deleted(), ["web-1", "web-2"]);
    scene.end().await;
}

// spec: pr§1
#[tokio::test]
#[ignore = "needs an older operator; part of make soak"]
async fn what_waits_for_an_approval_still_does() {
    let gate = objects::with(Scene::quick_gate().await, "/spec/pauseBefore", json!([1]));
    let Some(mut scene) = at_rest("older-approval", gate).await else { return };
    scene.release("app:2").await;
    let waits = |world: &World| world.condition(ConditionType::Held) == "True/AwaitingApproval";
    let waiting = scene.until("it waits", waits).await;
    upgrade(&mut scene, "awaiting-approval").await;
    has_looked(&scene).await;
    let still = scene.until("it still waits", waits).await;
    assert_eq!(still.uids(), waiting.uids());
    scene.annotate(names::APPROVE, &format!("{}/1", still.update_revision())).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_allowed(&scene.tape.entries(), "app:1");
    scene.end().await;
}

// spec: pr§9
#[tokio::test]
#[ignore = "needs an older operator; part of make soak"]
async fn what_is_complete_stays_so_and_nothing_is_written_to_the_set() {
    let Some(mut scene) = at_rest("older-complete", Scene::quick_gate().await).await else { return };
    scene.release("app:2").await;
    let complete = scene.until("complete", |world| world.is_complete("app:2")).await;
    upgrade(&mut scene, "complete").await;
    has_looked(&scene).await;
    let still = scene.world();
    assert!(still.is_complete("app:2"), "{:?}", still.status());
    assert_eq!(still.sets["web"].metadata.generation, complete.sets["web"].metadata.generation);
    assert_eq!(still.uids(), complete.uids());
    assert_eq!(scene.events_of(Reason::Completed).await.len(), 2, "on the PhasedRollout and on the set, once");
    scene.end().await;
}
