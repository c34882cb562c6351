//! A release that is bad at its first pod; then a fix, or back to the template before. It ends well without a person, and no pod
//! that is still on the last good revision moves before the gate.

use rstest::rstest;
use sts_plus_api::Phase;
use sts_plus_e2e::{Scene, World, moves, objects};

/// What is bad about the release.
#[derive(Clone, Copy, Debug)]
enum Bad {
    /// Its pods run, and their metric says that they fail.
    Metric,
    /// Its pods crash.
    Crash,
}

/// What comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cure {
    /// Another template, a good one.
    Fix,
    /// The template before.
    Revert,
}

#[rstest]
#[tokio::test]
async fn a_bad_first_pod_locks_nobody_out(
    #[values(Bad::Metric, Bad::Crash)] bad: Bad,
    #[values(Cure::Fix, Cure::Revert)] cure: Cure,
    #[values("OrderedReady", "Parallel")] policy: &str,
) {
    let set = objects::with(objects::set(3), "/spec/podManagementPolicy", policy);
    let scene = Scene::at_rest_with("repair", &set, &Scene::gate().await).await;
    let born = scene.world().uids();
    let release = match bad {
        Bad::Metric => "app:2-errors",
        Bad::Crash => "app:2-broken",
    };
    scene.release(release).await;
    let failed = |world: &World| world.image("web-2") == release && world.is(Phase::Failed);
    let failed = scene.until("the release has failed at its first pod", failed).await;
    assert!(failed.is_held(), "held while failed");
    assert_untouched(&born, &failed);

    let good = match cure {
        Cure::Fix => "app:3",
        Cure::Revert => "app:1",
    };
    scene.release(good).await;
    let end = scene.until("complete", |world| world.is_complete(good)).await;
    if cure == Cure::Revert {
        assert_untouched(&born, &end);
    }
    let moved = moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    let bad_ones: Vec<_> = moved.iter().filter(|moved| moved.to == release).map(|moved| moved.pod.as_str()).collect();
    assert_eq!(bad_ones, ["web-2"], "the bad release has reached its first pod and no other");
    scene.end().await;
}

/// web-1 and web-0 are the pods that they were.
fn assert_untouched(born: &std::collections::BTreeMap<String, String>, world: &World) {
    let now = world.uids();
    assert!(["web-0", "web-1"].iter().all(|pod| now.get(*pod) == born.get(*pod)), "{born:?} {now:?}");
}
