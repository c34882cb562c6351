//! What a rolled pod costs the API server, by verb and resource, and that nothing is written at rest: counts and bytes that fail on a step
//! backwards. Nothing here is timed; `make bench` measures times, on a machine that has nothing else to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sts_plus_api::{Phase, names};
use sts_plus_e2e::{Operator, Scene, World, audit, objects};
use testcluster::AuditEntry;

use crate::rollout::gate;

const SETS: usize = 5;
const PODS: i32 = 3;
/// Nothing may be written for so long. This wait is the matter itself.
const QUIET: Duration = Duration::from_secs(5);

/// The most of each for a rolled pod, in hundredths. What is not here may not be asked for at all. A rollout of three pods writes four
/// partitions and seven events, whoever runs it.
const LIMITS: [(&str, usize); 7] = [
    ("patch statefulsets", 134),
    ("create events", 234),
    ("patch phasedrollouts/status", 480),
    ("get phasedrollouts", 400),
    ("get statefulsets", 400),
    ("list pods", 400),
    // Whether the hold is kept: once in a while for a set.
    ("dry run patch statefulsets", 100),
];
/// The same for all writes and for all reads.
const WRITES: usize = 850;
const READS: usize = 1200;
/// The most memory that the operator may have had, in MiB.
const MEMORY: u64 = 64;

/// What a request was, such as `dry run patch statefulsets`.
fn what(entry: &AuditEntry) -> String {
    let dry = if entry.dry_run { "dry run " } else { "" };
    format!("{dry}{} {}", entry.verb, audit::full_name(entry))
}

/// In hundredths for a pod.
fn share(count: usize) -> usize {
    count * 100 / (SETS * usize::try_from(PODS).expect("a few"))
}

fn of(n: usize) -> (String, String) {
    (format!("gate-{n}"), format!("web-{n}"))
}

fn is_at_rest(world: &World, image: &str) -> bool {
    (0..SETS).map(of).all(|(gate, set)| {
        let are_ready = (0..PODS).all(|pod| world.is_ready_on(&format!("{set}-{pod}"), image));
        let phase = world.status_of(&gate).phase;
        are_ready
            && world.partition_of(&set) == Some(PODS)
            && world.annotation_of(&set, names::CLAIM) == Some(&gate)
            && (phase == Phase::Completed || phase == Phase::Idle && image == "app:1")
    })
}

/// Sets and their rollouts, all at rest.
async fn prepared() -> (Scene, Operator) {
    let scene = Scene::new("costs").await;
    let check = json!({ "initialDelaySeconds": 1, "final": false });
    let gate = gate(check).await;
    for (name, set) in (0..SETS).map(of) {
        scene.create(&objects::named(objects::set(PODS), &set)).await;
        let gate = objects::with(gate.clone(), "/metadata/name", name);
        scene.create(&objects::with(gate, "/spec/targetRef", set)).await;
    }
    let operator = scene.second_operator();
    scene.until("at rest", |world| is_at_rest(world, "app:1")).await;
    (scene, operator)
}

/// Waits until nothing has been written for a while: what is on its way belongs to what went before.
async fn until_quiet(scene: &Scene) -> usize {
    let mut before = usize::MAX;
    loop {
        let writes = audit::writes(&scene.requests()).len();
        if writes == before {
            return writes;
        }
        before = writes;
        tokio::time::sleep(QUIET).await;
    }
}

fn counted(requests: &[Arc<AuditEntry>]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for entry in requests.iter().filter(|entry| entry.verb != "watch") {
        *counts.entry(what(entry)).or_default() += 1;
    }
    counts
}

// spec: pr§9
#[tokio::test]
async fn a_rolled_pod_costs_no_more_requests_than_these_and_rest_costs_no_write() {
    let (scene, operator) = prepared().await;
    until_quiet(&scene).await;
    let start = scene.requests().len();
    for (_, set) in (0..SETS).map(of) {
        scene.release_of(&set, "app:2").await;
    }
    scene.until("complete", |world| is_at_rest(world, "app:2")).await;
    let writes = until_quiet(&scene).await;
    let requests = scene.requests().split_off(start);
    let (counts, memory) = (counted(&requests), operator.peak_memory() >> 20);
    println!("requests for {SETS} rollouts of {PODS} pods: {counts:#?}; the most memory: {memory} MiB");
    for (what, count) in &counts {
        let limit = LIMITS.iter().find(|(known, _)| known == what).map_or(0, |(_, limit)| *limit);
        assert!(share(*count) <= limit, "{what}: {} hundredths a pod, {limit} are allowed\n{counts:#?}", share(*count));
    }
    let total = |is_wanted: fn(&AuditEntry) -> bool| share(requests.iter().filter(|entry| is_wanted(entry)).count());
    let (all_writes, all_reads) = (total(AuditEntry::is_write), total(|it| it.verb == "get" || it.verb == "list"));
    assert!(all_writes <= WRITES && all_reads <= READS, "{all_writes} {all_reads}\n{counts:#?}");
    assert!(memory <= MEMORY, "{memory} MiB");

    tokio::time::sleep(QUIET).await;
    assert_eq!(audit::writes(&scene.requests()).len(), writes, "{}", audit::tell(&scene.requests()));
    operator.kill();
    scene.end().await;
}
