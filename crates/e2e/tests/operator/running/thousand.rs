//! Very many objects, and an API server that takes its time for each answer: the Lease is kept, nobody starves, the memory is bounded, and
//! at rest nothing is written. A thousand of them cost the API server a minute of the processor, so that is for `make soak`.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, names};
use sts_plus_e2e::proxy::{Fault, Proxy, Record};
use sts_plus_e2e::{Operator, Scene, World, objects};

use super::leader::{Field, LEADS, LOST, until_logged};

/// What each answer comes later.
const LATE: Duration = Duration::from_millis(75);
/// How soon one release is noticed while all the others are looked at, however fast these are.
const NOTICED: Duration = Duration::from_secs(5);
/// A leader that has not renewed for so long gives up.
const RENEWED: SignedDuration = SignedDuration::from_secs(10);
/// How long nothing may be written. This wait is the matter itself.
const QUIET: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_mins(3);

/// Each of so many, some at a time.
async fn each<F: Future<Output = ()>>(objects: usize, act: impl Fn(usize) -> F) {
    futures::stream::iter(0..objects).for_each_concurrent(32, act).await;
}

/// Sets without pods, then their rollouts: the API server evaluates its policies for each pair of those that are there. And one with a
/// pod.
async fn fill(scene: &Scene, objects: usize) {
    let create = async |kind: &str, object: Value| {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        scene.api(kind).create(&PostParams::default(), &object).await.expect("it is created");
    };
    each(objects, |n| create("statefulset", objects::named(objects::set(0), &format!("set-{n}")))).await;
    let url = Scene::prometheus().await;
    each(objects, |n| {
        let gate = objects::with(objects::rollout(&url), "/metadata/name", format!("gate-{n}"));
        create("phasedrollout", objects::with(gate, "/spec/targetRef", format!("set-{n}")))
    })
    .await;
    create("statefulset", objects::set(1)).await;
    create("phasedrollout", objects::rollout(&url)).await;
}

/// Waits until it looks as wanted. There is too much of it to look at each event.
async fn until(scene: &Scene, what: &str, wanted: impl Fn(&World) -> bool) -> Duration {
    let start = Instant::now();
    while !wanted(&scene.world()) {
        assert!(start.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("{what} after {:.1} s", start.elapsed().as_secs_f32());
    start.elapsed()
}

/// The rollout has claimed its set, and says so.
fn is_claimed(world: &World, n: usize) -> bool {
    let (gate, set) = (format!("gate-{n}"), format!("set-{n}"));
    world.annotation_of(&set, names::CLAIM) == Some(&gate)
        && world.condition_of(&gate, ConditionType::Ready) == "True/NoPods"
}

/// The rollout is paused, and has seen it. Without pods it is in no other phase for that.
fn is_paused(world: &World, n: usize) -> bool {
    let Some(rollout) = world.rollouts.get(&format!("gate-{n}")) else { return false };
    let seen = rollout.status.as_ref().and_then(|status| status.observed_generation);
    rollout.spec.paused && seen == rollout.metadata.generation
}

/// The longest time between two renewals of the Lease.
fn longest_gap(scene: &Scene) -> SignedDuration {
    let requests = scene.requests();
    let renewals = requests.iter().filter(|entry| entry.resource == "leases" && entry.is_write() && entry.code < 300);
    let times: Vec<Timestamp> = renewals.map(|entry| entry.answered).collect();
    assert!(times.len() >= 3, "it is renewed: {times:?}");
    times.windows(2).map(|pair| pair[1].duration_since(pair[0])).max().expect("two renewals")
}

/// What the operator has written, but for its Lease.
fn writes(proxy: &Proxy) -> Vec<Record> {
    proxy.writes().into_iter().filter(|write| write.call.resource != "leases").collect()
}

/// Everybody wants something at the same time, and one of them is a release, which does not wait for most of the others.
async fn busy(scene: &Scene, objects: usize) {
    let start = Instant::now();
    let pause = Patch::Merge(json!({ "spec": { "paused": true } }));
    let (rollouts, params) = (scene.api("phasedrollout"), PatchParams::default());
    let pause_all = each(objects, async |n| {
        rollouts.patch(&format!("gate-{n}"), &params, &pause).await.expect("it is accepted");
    });
    let release = async {
        until(scene, "some are paused", |world| (0..objects).any(|n| is_paused(world, n))).await;
        scene.release("app:2").await;
        until(scene, "the release is noticed", |world| world.controller_has_seen() && world.is_told()).await
    };
    let ((), noticed) = tokio::join!(pause_all, release);
    until(scene, "all are paused", |world| (0..objects).all(|n| is_paused(world, n))).await;
    let all = start.elapsed();
    assert!(noticed < NOTICED.max(all / 2), "noticed after {noticed:?}, all others are paused after {all:?}");
    until(scene, "the release is complete", |world| world.is_complete("app:2")).await;
}

// spec: L046, L088
#[rstest]
#[case::of_a_hundred(100, 64)]
#[ignore = "make soak"]
#[case::of_a_thousand(1000, 192)]
#[tokio::test]
async fn rollouts_on_a_slow_api_server_starve_nobody(#[case] objects: usize, #[case] mebibytes: u64) {
    let field = Field::bare("thousand").await;
    let scene = &field.scene;
    fill(scene, objects).await;
    let (proxy, _kills) = Proxy::start(scene.ground, &scene.namespace).await;
    proxy.on(|call| (call.verb != "watch").then_some(Fault::Delayed(LATE)));
    let args = ["--leader-elect", "--leader-elect-namespace", &scene.namespace];
    let program = scene.ground.operator_program();
    let mut operator = Operator::start_as(program, proxy.kubeconfig(), &scene.namespace, scene.log_file(), &args);
    until_logged(&operator, LEADS).await;
    let at_rest = |world: &World| (0..objects).all(|n| is_claimed(world, n)) && world.is(Phase::Idle);
    until(scene, "all are claimed", at_rest).await;
    busy(scene, objects).await;

    // At rest.
    let mut before = usize::MAX;
    while std::mem::replace(&mut before, writes(&proxy).len()) != writes(&proxy).len() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(QUIET).await;
    let late = writes(&proxy).split_off(before);
    assert!(late.is_empty(), "written at rest: {late:?}");

    let (gap, memory) = (longest_gap(scene), operator.peak_memory() >> 20);
    println!("the longest time without a renewal of the Lease: {gap:#}; the most memory: {memory} MiB");
    assert!(gap < RENEWED && !operator.log().contains(LOST), "{gap:#}");
    assert!(memory < mebibytes, "{memory} MiB");
    assert!(operator.is_running());
    operator.kill();
    field.end().await;
}
