//! Many rollouts with the same query.

use std::time::{Duration, Instant};

use sts_plus_api::{Verdict, names};
use sts_plus_e2e::{CANARY, Scene, World, objects};
use testcluster::{Access, AuthProxy};

const ROLLOUTS: usize = 20;
const PERIOD: Duration = Duration::from_secs(2);
/// For how many tries of each rollout requests are counted.
const TRIES: i32 = 4;

/// Twenty rollouts ask once in a period, each gets its verdicts all the same, and one with other credentials gets none of theirs.
// spec: pr§3
#[tokio::test]
async fn the_same_query_of_twenty_rollouts_is_one_request_in_a_period() {
    let mut scene = Scene::new("many").await;
    let proxy = AuthProxy::start(scene.ground.prometheus().await.url()).await.expect("the proxy starts");
    let (good, bad) = (format!("good-{CANARY}"), format!("bad-{CANARY}"));
    proxy.demand(Access::Bearer(good.clone()));
    let namespace = scene.namespace.clone();
    let labels = [("namespace", namespace.as_str())];
    scene.ground.exporter.set("busy", &labels, 1.0);
    let busy = format!(r#"busy{{namespace="{}"}}"#, scene.namespace);
    scene.ground.prometheus().await.wait_for(&busy, true).await.expect("the gauge is scraped");
    scene.create(&objects::secret("good", &[("token", &good)])).await;
    scene.create(&objects::secret("bad", &[("token", &bad)])).await;

    for n in 0..=ROLLOUTS {
        let set = objects::named(objects::set(1), &format!("set-{n}"));
        scene.create(&set).await;
        let gate = objects::with(objects::rollout(&proxy.url()), "/metadata/name", gate(n));
        let gate = objects::with(gate, "/spec/targetRef", format!("set-{n}"));
        let gate = objects::with(gate, "/spec/check/query/expr", r#"busy{namespace="${namespace}"}"#);
        let gate = objects::with(gate, "/spec/check/query/secretRef", if n < ROLLOUTS { "good" } else { "bad" });
        let gate = objects::with(gate, "/spec/check/periodSeconds", PERIOD.as_secs());
        scene.create(&objects::with(gate, "/spec/check/maxTries", 1000)).await;
    }
    scene.start_operator();
    let at_rest = |world: &World| {
        (0..=ROLLOUTS).all(|n| {
            let set = world.sets.get(&format!("set-{n}"));
            let claim = set.and_then(|set| set.metadata.annotations.as_ref()?.get(names::CLAIM));
            claim == Some(&gate(n)) && world.partition_of(&format!("set-{n}")) == Some(1) && is_ready(world, n, "app:1")
        })
    };
    scene.until("all are at rest", at_rest).await;
    for n in 0..=ROLLOUTS {
        scene.release_of(&format!("set-{n}"), "app:2").await;
    }
    scene.until("all are in their preflight", |world| (0..ROLLOUTS).all(|n| tries(world, n) >= 2)).await;

    let (before, start) = (scene.world(), Instant::now());
    proxy.forget();
    let tried = |world: &World| (0..ROLLOUTS).all(|n| tries(world, n) >= tries(&before, n) + TRIES);
    let after = scene.until("each has tried on", tried).await;
    let (seen, elapsed) = (proxy.seen(), start.elapsed());
    let of = |token: &str| {
        let wanted = format!("Bearer {token}");
        seen.iter().filter(|request| request.authorization.as_deref() == Some(wanted.as_str())).collect::<Vec<_>>()
    };
    // An answer is used for nine tenths of a period. Alone they would be twenty times as many.
    let most = elapsed.div_duration_f64(PERIOD * 9 / 10).ceil() + 1.0;
    let asked = of(&good).len();
    let counted = u32::try_from(asked).map(f64::from).expect("a small number");
    assert!(counted <= most, "{counted} requests in {elapsed:?}, at most {most}");
    let made: i32 = (0..ROLLOUTS).map(|n| tries(&after, n) - tries(&before, n)).sum();
    let made = usize::try_from(made).expect("tries go up");
    assert!(asked * 5 <= made, "{asked} requests for {made} tries");
    for n in 0..ROLLOUTS {
        let checks = after.status_of(&gate(n)).checks;
        let is_theirs = checks.iter().all(|check| check.verdict == Verdict::Data);
        assert!(is_theirs && !checks.is_empty(), "{checks:?}");
    }
    let refused = of(&bad);
    assert!(!refused.is_empty() && refused.iter().all(|request| request.status == 401));
    let checks = after.status_of(&gate(ROLLOUTS)).checks;
    assert!(
        !checks.is_empty()
            && checks.iter().all(|check| check.verdict == Verdict::Error && check.http_status == Some(401)),
        "{checks:?}"
    );

    // Passes count for every one of them.
    scene.ground.exporter.remove("busy", &labels);
    scene.until("all are rolled", |world| (0..ROLLOUTS).all(|n| is_ready(world, n, "app:2"))).await;
    assert!(is_ready(&scene.world(), ROLLOUTS, "app:1"), "the one with other credentials is held");
    scene.end().await;
}

fn gate(n: usize) -> String {
    format!("gate-{n}")
}

fn tries(world: &World, n: usize) -> i32 {
    world.status_of(&gate(n)).current.map_or(0, |current| current.tries)
}

fn is_ready(world: &World, n: usize, image: &str) -> bool {
    world.is_ready_on(&format!("set-{n}-0"), image)
}
