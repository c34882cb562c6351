//! The operator is killed at random moments and started again: the story is the same, nothing is counted or done twice.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use sts_plus_api::{Current, PhasedRolloutStatus};
use sts_plus_e2e::{Entry, Ground, Policies, Scene, Seen, World, moves, objects};
use testcluster::AuthProxy;

use super::share::dice;

const KILLS: usize = 10;
/// Always there, and shows in the request for which pod it was asked.
const EXPR: &str = r#"app_up{namespace="${namespace}",pod!="for-${pod}"}"#;

// spec: pr§4, L100
#[tokio::test]
async fn ten_kills_change_nothing_in_the_story() {
    let mut dice = dice();
    let mut scene = Scene::new("crash").await;
    let proxy =
        AuthProxy::start(Ground::get(Policies::Installed).await.prometheus().await.url()).await.expect("a proxy");
    let up = format!(r#"app_up{{namespace="{}"}}"#, scene.namespace);
    scene.ground.exporter.set("app_up", &[("namespace", &scene.namespace)], 1.0);
    scene.ground.prometheus().await.wait_for(&up, true).await.expect("the gauge is scraped");
    let gate = objects::with(objects::rollout(&proxy.url()), "/spec/check/query/expr", EXPR);
    scene.settle(&objects::set(3), &objects::with(gate, "/spec/check/query/successWhen", "Data")).await;

    let (mut kills, mut release) = (0, 1);
    while kills < KILLS {
        release += 1;
        let image = format!("app:{release}");
        let start = scene.tape.entries().last().map_or(0, |entry| entry.version);
        proxy.forget();
        scene.release(&image).await;
        while kills < KILLS && !happens(&scene, &mut dice, &image).await {
            scene.kill_operator();
            scene.start_operator();
            kills += 1;
        }
        scene.until("complete", |world| world.is_complete(&image)).await;
        assert_once(&scene, start, &proxy, release);
    }
    println!("{kills} kills in {} rollouts", release - 1);
    scene.end().await;
}

// spec: pr§4, L075, L090
#[tokio::test]
async fn an_operator_that_was_frozen_does_not_step_on_what_it_saw_before() {
    let mut scene = Scene::at_rest("frozen", 3, &Scene::gate().await).await;
    scene.release("app:2").await;
    // It has one of two passes, and goes on from there when it wakes up.
    let one_pass = |world: &World| {
        world.partition() == Some(2) && world.status().current.is_some_and(|current| current.consecutive_passes == 1)
    };
    scene.until("half a cycle", one_pass).await;
    scene.operator().freeze();
    let second = scene.second_operator();
    scene.until("the second goes on", |world| world.is_ready_on("web-1", "app:2")).await;
    scene.release("app:3").await;
    scene.until("the second holds", |world| world.is_held() && world.is_told()).await;
    scene.operator().thaw();
    // Both at once, as after a network that came back.
    scene.until("complete", |world| world.is_complete("app:3")).await;
    drop(second);
    let entries = scene.tape.entries();
    moves::assert_allowed(&entries, "app:1");
    moves::assert_gated(&scene, "app:1", 1);
    let partitions = |image: &str| {
        let of_image = moves::of(&entries).into_iter().find(|moved| moved.to == image).and_then(|moved| moved.allowed);
        let revision = of_image.expect("a pod moved there").revision;
        let steps = moves::steps(&entries).into_iter().filter(|step| step.revision == revision);
        steps.map(|step| step.partition).collect::<Vec<_>>()
    };
    assert_eq!(partitions("app:2"), [2, 1], "each step once");
    let last = partitions("app:3");
    assert!(last.windows(2).all(|pair| pair[0] > pair[1] || pair[1] >= 3), "no step again: {last:?}");
    scene.end().await;
}

/// Waits for a random moment; true if the rollout is complete before it.
async fn happens(scene: &Scene, dice: &mut fastrand::Rng, image: &str) -> bool {
    let (seen, news) = (scene.tape.entries().len(), dice.usize(1..=8));
    let moment = |world: &World| scene.tape.entries().len() >= seen + news || world.is_complete(image);
    let world = scene.until("something happens", moment).await;
    tokio::time::sleep(Duration::from_millis(dice.u64(..150))).await;
    world.is_complete(image)
}

/// Each pod moved once, each step was made once and in order, and no try counts that was not made, or counts twice.
fn assert_once(scene: &Scene, start: u64, proxy: &AuthProxy, release: usize) {
    let entries = scene.tape.entries();
    let moved: Vec<_> = moves::of(&entries).into_iter().filter(|moved| moved.left > start).collect();
    let pods: Vec<_> = moved.iter().map(|moved| moved.pod.as_str()).collect();
    assert_eq!(pods, ["web-2", "web-1", "web-0"], "release {release}");
    assert!(moved.iter().all(|moved| moved.allowed.is_some()), "{moved:?}");
    let steps: Vec<_> = moves::steps(&entries).into_iter().filter(|step| step.version > start).collect();
    let partitions: Vec<_> = steps.iter().map(|step| step.partition).collect();
    assert_eq!(partitions, [2, 1, 0, 3], "release {release}");

    let asked = |pod: &str| proxy.seen().iter().filter(|request| request.body.contains(&format!("for-{pod}"))).count();
    assert!(asked("web-2") >= 4 && asked("web-1") >= 2 && asked("web-0") >= 2, "two for each cycle");
    let statuses = statuses(&entries, start);
    for pair in statuses.windows(2) {
        assert_counted_once(pair[0], pair[1]);
    }
    // While the controller is awaited, the verdicts about the release before are still there.
    let release_of = |status: &&PhasedRolloutStatus| status.target_revision.clone();
    let last = statuses.last().and_then(release_of);
    let of_it = statuses.iter().filter(|status| release_of(status) == last).flat_map(|status| &status.checks);
    let made: BTreeSet<Timestamp> = of_it.map(|check| check.time).collect();
    assert!(made.len() <= proxy.count(), "{} verdicts of {} answers", made.len(), proxy.count());
}

fn statuses(entries: &[Entry], start: u64) -> Vec<&PhasedRolloutStatus> {
    let later = entries.iter().filter(|entry| entry.version > start);
    let gates = later.filter_map(|entry| match &entry.seen {
        Seen::Rollout(gate) => gate.status.as_ref(),
        _ => None,
    });
    gates.collect()
}

/// From one status to the next of the same cycle the tries grow by what was newly recorded, and not by more.
fn assert_counted_once(before: &PhasedRolloutStatus, after: &PhasedRolloutStatus) {
    let (Some(was), Some(is)) = (&before.current, &after.current) else { return };
    let same_cycle = (was.step, was.index) == (is.step, is.index) && before.target_revision == after.target_revision;
    let tries = |current: &Current| usize::try_from(current.tries).unwrap_or(0);
    if !same_cycle || tries(is) <= tries(was) {
        return;
    }
    let new = after.checks.iter().filter(|check| !before.checks.iter().any(|old| old.time == check.time));
    let new = new.map(|check| check.time).collect::<BTreeSet<_>>().len();
    assert!(tries(is) - tries(was) <= new, "{was:?} {is:?}");
}
