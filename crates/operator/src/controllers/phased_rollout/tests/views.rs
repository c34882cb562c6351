//! What is decided on the caches, and what on a look at the API server itself.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const STATUS: &str = "PATCH phasedrollouts/web/status";

// spec: L075
#[tokio::test]
async fn what_is_to_be_written_is_decided_on_a_live_read() {
    let mut rig = Rig::new();
    rig.settle().await;
    {
        // The cache shows a new revision that the API server no longer has.
        let mut world = rig.world.lock().unwrap();
        world.set["status"]["updateRevision"] = json!("web-b");
    }
    rig.refresh();
    rig.world.lock().unwrap().set["status"]["updateRevision"] = json!("web-a");
    rig.run().await.unwrap();
    let asked = rig.asked();
    assert!(asked.contains(&"GET statefulsets/web".to_owned()), "{asked:?}");
    assert!(asked.iter().all(|line| line.starts_with("GET")), "{asked:?}");
}

// spec: L075
#[tokio::test]
async fn a_cache_that_has_not_seen_our_write_is_not_decided_on() {
    let mut rig = Rig::new();
    rig.settle().await;
    rig.context.written.remember("set-uid", Some("1000"));
    rig.world.lock().unwrap().set["metadata"]["resourceVersion"] = json!("1000");
    rig.run().await.unwrap();
    assert!(rig.asked().contains(&"GET pods".to_owned()));
}

// spec: L075
#[tokio::test]
async fn an_answer_that_is_older_than_what_we_wrote_is_not_decided_on() {
    let mut rig = Rig::new();
    rig.settle().await;
    let before = rig.writes().len();
    rig.context.written.remember("set-uid", Some("1000"));
    let error = rig.run().await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict, "{error}");
    assert_eq!(rig.writes().len(), before, "nothing was written on it");
}

fn break_a_pod(rig: &mut Rig) {
    rig.world.lock().unwrap().pods[1]["status"]["conditions"][0]["status"] = json!("False");
    rig.refresh();
}

// spec: L075
#[tokio::test]
async fn what_only_notes_is_written_on_the_caches() {
    let mut rig = Rig::new();
    rig.settle().await;
    break_a_pod(&mut rig);
    rig.run().await.unwrap();
    assert_eq!(rig.asked(), [STATUS]);
}

// spec: L075
#[tokio::test]
async fn what_only_notes_and_was_noted_on_something_old_is_looked_at_again() {
    let mut rig = Rig::new();
    rig.settle().await;
    break_a_pod(&mut rig);
    rig.world.lock().unwrap().rollout.as_mut().unwrap()["metadata"]["resourceVersion"] = json!("900");
    rig.run().await.unwrap();
    let asked = rig.asked();
    assert_eq!(asked, [STATUS, "GET phasedrollouts/web", "GET statefulsets/web", "GET pods", STATUS]);
}

// spec: L076
#[tokio::test]
async fn a_cache_that_shows_less_than_the_last_look_is_not_noted_on() {
    let mut rig = Rig::new();
    rig.settle().await;
    for pod in &mut rig.world.lock().unwrap().pods {
        pod["metadata"]["resourceVersion"] = json!("20");
    }
    // The next look sees them so, and the watch of pods says nothing.
    rig.world.lock().unwrap().rollout.as_mut().unwrap()["status"] = json!({});
    let rollouts = rig.world.lock().unwrap().rollout.clone().map(|rollout| serde_json::from_value(rollout).unwrap());
    rig.rollouts.apply(&Event::Apply(rollouts.unwrap()));
    rig.run().await.unwrap();
    rig.asked();
    let status = rig.world.lock().unwrap().rollout.clone().map(|rollout| serde_json::from_value(rollout).unwrap());
    rig.rollouts.apply(&Event::Apply(status.unwrap()));
    let mut broken: Value = rig.world.lock().unwrap().pods[1].clone();
    broken["metadata"]["resourceVersion"] = json!("19");
    broken["status"]["conditions"][0]["status"] = json!("False");
    rig.pods.apply(&Event::Apply(serde_json::from_value::<PodObject>(broken).unwrap().shrunk()));
    rig.run().await.unwrap();
    assert!(rig.writes().is_empty(), "the API server shows them well");
}

// spec: L076
#[tokio::test]
async fn who_has_just_begun_to_lead_notes_nothing_on_the_caches() {
    let mut rig = Rig::new();
    rig.settle().await;
    let mut other = Rig::of(Arc::clone(&rig.world));
    break_a_pod(&mut other);
    other.run().await.unwrap();
    assert_eq!(other.asked(), ["GET phasedrollouts/web", "GET statefulsets/web", "GET pods", STATUS]);
}

// spec: L076
#[tokio::test]
async fn that_all_is_rolled_out_is_told_after_a_look() {
    let mut rig = Rig::new();
    rig.settle().await;
    rig.world.lock().unwrap().rollout.as_mut().unwrap()["status"]["conditions"] = json!([]);
    rig.refresh();
    rig.run().await.unwrap();
    assert_eq!(rig.asked(), ["GET phasedrollouts/web", "GET statefulsets/web", "GET pods", STATUS]);
}

/// A partition was written, and the cache has not heard yet that the controller has seen it.
// spec: L076
#[tokio::test]
async fn a_wait_for_the_controller_is_told_after_a_look() {
    let mut rig = Rig::new();
    rig.settle().await;
    let generation = {
        let set = &mut rig.world.lock().unwrap().set;
        let generation = set["metadata"]["generation"].as_i64().unwrap() + 1;
        set["metadata"]["generation"] = json!(generation);
        bump(set);
        generation
    };
    rig.refresh();
    rig.world.lock().unwrap().set["status"]["observedGeneration"] = json!(generation);
    rig.run().await.unwrap();
    assert_eq!(rig.asked(), ["GET phasedrollouts/web", "GET statefulsets/web", "GET pods"], "nothing is told");
}

/// Answers every query with no series.
async fn prometheus() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = listener.local_addr().unwrap().to_string();
    let body = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    url
}

/// The answer that allows the step comes while a pod has broken, and the watch of pods has not told it yet.
// spec: L075
#[tokio::test]
async fn a_step_after_an_answer_is_decided_on_a_live_read() {
    let world = Arc::new(Mutex::new(World::new()));
    let query = json!({ "expr": "up == 0", "url": prometheus().await });
    world.lock().unwrap().rollout.as_mut().unwrap()["spec"]["check"] = json!({ "query": query, "successThreshold": 1 });
    let mut rig = Rig::of(world);
    rig.settle().await;
    rig.world.lock().unwrap().set["status"]["updateRevision"] = json!("web-b");
    let has_answer = |rig: &Rig| rig.context.slots.is_done("rollout-uid");
    for _ in 0..200 {
        rig.refresh();
        if has_answer(&rig) {
            break;
        }
        rig.run().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(has_answer(&rig), "{:?}", rig.asked());
    rig.asked();
    rig.world.lock().unwrap().pods[1]["status"]["conditions"][0]["status"] = json!("False");
    rig.run().await.unwrap();
    let asked = rig.asked();
    let status = rig.world.lock().unwrap().rollout.as_ref().unwrap()["status"].clone();
    assert!(asked.contains(&"GET pods".to_owned()), "{asked:?}\n{status:#}");
    assert!(!asked.contains(&"PATCH statefulsets/web".to_owned()), "{asked:?}");
}
