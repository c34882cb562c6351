//! minReadySeconds: availability is measured from the pods, once, and not believed before. And no check is made twice.

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::json;
use sts_plus_api::ConditionType;
use sts_plus_e2e::{Entry, Scene, Seen, moves, objects};
use testcluster::AuthProxy;

use super::{gate, set};

const MIN_READY: SignedDuration = SignedDuration::from_secs(5);

// spec: pr§4, L104, L110
#[rstest]
#[tokio::test]
async fn each_step_and_the_end_wait_for_min_ready_seconds_once(#[values("OrderedReady", "Parallel")] policy: &str) {
    let gate = gate(json!({ "successThreshold": 1 })).await;
    let scene = Scene::at_rest_with("min-ready", &set(2, policy), &gate).await;
    scene.patch("statefulset/web", &json!({ "spec": { "minReadySeconds": MIN_READY.as_secs() } })).await;
    scene.release("app:2").await;
    let end = scene.until("complete", |world| world.is_complete("app:2")).await;
    let entries = scene.tape.entries();
    let steps = moves::steps(&entries);
    assert_eq!(steps.iter().map(|step| step.partition).collect::<Vec<_>>(), [2, 1, 0, 2]);
    let tries: Vec<Timestamp> = scene.asked().iter().map(|asked| asked.at).collect();
    for (pod, step) in [("web-1", &steps[1]), ("web-0", &steps[2])] {
        let ready = end.ready_since(pod).expect("it is Ready");
        let first = tries.iter().find(|time| **time >= step.seen).expect("it was checked");
        let waited = first.duration_since(ready);
        assert!(waited >= MIN_READY, "{pod}: {waited}");
        // On a busy machine the StatefulSet controller notices late as well.
        let counted = counted(&entries, step.version).expect("the controller counts it");
        assert!(*first < counted + MIN_READY, "not twice: {pod}: {waited}, counted at {counted}");
    }
    // The controller calls it done before: its revision flips as soon as the last pod is Ready.
    let early = entries.iter().any(|entry| match &entry.seen {
        Seen::Set(set) => set.status.as_ref().is_some_and(|status| {
            status.current_revision == status.update_revision
                && status.updated_replicas == Some(2)
                && status.available_replicas != Some(2)
        }),
        _ => false,
    });
    assert!(early, "the flip comes before the pods are available");
    assert_eq!(end.condition(ConditionType::RolledOut), "True/Completed");
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

/// When the StatefulSet controller wrote that both pods are available again, after a step.
fn counted(entries: &[Entry], step: u64) -> Option<Timestamp> {
    let available = entries.iter().filter(|entry| entry.version > step).filter_map(|entry| match &entry.seen {
        Seen::Set(set) => Some((entry.arrived, set.status.as_ref()?.available_replicas)),
        _ => None,
    });
    let mut since_away = available.skip_while(|(_, available)| *available == Some(2));
    since_away.find(|(_, available)| *available == Some(2)).map(|(arrived, _)| arrived)
}

// spec: pr§3, L068
#[tokio::test]
async fn each_try_asks_prometheus_exactly_once() {
    let proxy = AuthProxy::start(&Scene::prometheus().await).await.expect("the proxy starts");
    let scene = Scene::at_rest("once", 2, &objects::rollout(&proxy.url())).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let query = format!("query=app_errors%7Bnamespace%3D%22{}%22%7D", scene.namespace);
    let asked = proxy.seen().iter().filter(|request| request.body.contains(&query)).count();
    let tries = moves::tries(&scene.tape.entries()).len();
    assert!(tries >= 6, "preflight, one pod, final, two each: {tries}");
    assert_eq!(asked, tries, "{:?}", proxy.seen());
    scene.end().await;
}
