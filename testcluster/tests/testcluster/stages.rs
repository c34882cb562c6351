//! Each stage of `stages/pods.yaml`, one after the other on one cluster.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testcluster::{Cluster, Method};

use crate::CLUSTER;
use crate::common::{PATIENCE, ready, wait_for, wait_for_status};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A pod with this image and these annotations, of `sts-plus.test/`; returns its path.
async fn pod(cluster: &Cluster, name: &str, image: &str, annotations: &[(&str, &str)], spec: &Value) -> String {
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(word, value)| (format!("sts-plus.test/{word}"), json!(value))).collect();
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "containers": [{ "name": "app", "image": image }] },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    cluster.request(Method::POST, PODS, Some(&object)).await.unwrap();
    format!("{PODS}/{name}")
}

async fn plain(cluster: &Cluster, name: &str, image: &str) -> String {
    pod(cluster, name, image, &[], &json!({})).await
}

fn container<'a>(pod: &'a Value, pointer: &str) -> Option<&'a Value> {
    pod.pointer(&format!("/status/containerStatuses/0/{pointer}"))
}

fn waiting(pod: &Value) -> Option<&str> {
    container(pod, "state/waiting/reason")?.as_str()
}

#[tokio::test]
async fn a_healthy_pod_gets_ready_and_goes() {
    let cluster = CLUSTER.get().await.unwrap();
    let path = plain(cluster, "healthy", "app:1").await;
    let pod = wait_for(cluster, &path, "Ready", |pod| ready(pod) == Some("True")).await;
    assert_eq!(pod.pointer("/status/phase"), Some(&json!("Running")));
    assert!(pod.pointer("/status/podIP").is_some());
    cluster.request(Method::DELETE, &path, None).await.unwrap();
    wait_for_status(cluster, &path, 404).await;
}

#[tokio::test]
async fn never_ready_runs_and_gets_ready_when_the_word_is_taken_away() {
    let cluster = CLUSTER.get().await.unwrap();
    let tagged = plain(cluster, "never-by-tag", "app:2-never-ready").await;
    let annotated = pod(cluster, "never", "app:1", &[("stage", "never-ready")], &json!({})).await;
    for path in [&tagged, &annotated] {
        wait_for(cluster, path, "runs unready", |pod| {
            pod.pointer("/status/phase") == Some(&json!("Running")) && ready(pod) == Some("False")
        })
        .await;
    }
    cluster.kubectl_ok(&["annotate", "pod", "never", "sts-plus.test/stage-"]).await.unwrap();
    wait_for(cluster, &annotated, "Ready", |pod| ready(pod) == Some("True")).await;
}

#[tokio::test]
async fn ready_after_some_time() {
    let cluster = CLUSTER.get().await.unwrap();
    let since = Instant::now();
    let tagged = plain(cluster, "later-by-tag", "app:ready-after-2s").await;
    let annotated = pod(cluster, "later", "app:1", &[("ready-after", "2s")], &json!({})).await;
    for path in [&tagged, &annotated] {
        wait_for(cluster, path, "Ready", |pod| ready(pod) == Some("True")).await;
        assert!(since.elapsed() > Duration::from_secs(2), "{:?}", since.elapsed());
    }
}

#[tokio::test]
async fn a_broken_release_loops_in_crashes_and_a_running_pod_can_be_broken_and_mended() {
    let cluster = CLUSTER.get().await.unwrap();
    let path = plain(cluster, "broken", "app:broken").await;
    let pod = wait_for(cluster, &path, "crash loop", |pod| waiting(pod) == Some("CrashLoopBackOff")).await;
    assert_eq!(ready(&pod), Some("False"));
    assert!(container(&pod, "restartCount").unwrap().as_u64().unwrap() > 0);

    let path = plain(cluster, "breaks", "app:1").await;
    wait_for(cluster, &path, "Ready", |pod| ready(pod) == Some("True")).await;
    let annotate = async |word: &str| cluster.kubectl_ok(&["annotate", "pod", "breaks", word]).await.unwrap();
    annotate("sts-plus.test/stage=broken").await;
    wait_for(cluster, &path, "crash loop", |pod| waiting(pod) == Some("CrashLoopBackOff")).await;
    annotate("sts-plus.test/stage-").await;
    wait_for(cluster, &path, "Ready again", |pod| ready(pod) == Some("True")).await;
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_until_it_is_replaced() {
    let cluster = CLUSTER.get().await.unwrap();
    let path = plain(cluster, "nopull", "app:nopull").await;
    let pod = wait_for(cluster, &path, "waits for its image", |pod| waiting(pod) == Some("ImagePullBackOff")).await;
    assert_eq!(pod.pointer("/status/phase"), Some(&json!("Pending")));
    cluster.kubectl_ok(&["set", "image", "pod/nopull", "app=app:1"]).await.unwrap();
    wait_for(cluster, &path, "Ready", |pod| ready(pod) == Some("True")).await;
}

#[tokio::test]
async fn a_pod_that_is_slow_to_stop() {
    let cluster = CLUSTER.get().await.unwrap();
    let path =
        pod(cluster, "slow", "app:1", &[("stop-after", "3s")], &json!({ "terminationGracePeriodSeconds": 30 })).await;
    wait_for(cluster, &path, "Ready", |pod| ready(pod) == Some("True")).await;
    let since = Instant::now();
    cluster.request(Method::DELETE, &path, None).await.unwrap();
    // Changes while it is Terminating do not put it off: with one after the other it goes all the same.
    let mut changes = 0;
    while cluster.request(Method::GET, &path, None).await.is_ok() {
        changes += 1;
        let label = format!("touched={changes}");
        cluster.kubectl(&["label", "--overwrite", "pod", "slow", &label]).await.unwrap();
        assert!(since.elapsed() < PATIENCE, "it is still there after {changes} changes");
    }
    wait_for_status(cluster, &path, 404).await;
    assert!(since.elapsed() > Duration::from_secs(2), "{:?}", since.elapsed());
}

#[tokio::test]
async fn flapping_goes_up_and_down() {
    let cluster = CLUSTER.get().await.unwrap();
    let path = pod(cluster, "flaps", "app:flapping", &[("flap-period", "300ms")], &json!({})).await;
    for wanted in ["True", "False", "True", "False"] {
        wait_for(cluster, &path, wanted, |pod| ready(pod) == Some(wanted)).await;
    }
}

#[tokio::test]
async fn a_test_flips_a_running_pod() {
    let cluster = CLUSTER.get().await.unwrap();
    let path = plain(cluster, "flipped", "app:1").await;
    wait_for(cluster, &path, "Ready", |pod| ready(pod) == Some("True")).await;
    for (word, wanted) in [("sts-plus.test/ready=false", "False"), ("sts-plus.test/ready-", "True")] {
        cluster.kubectl_ok(&["annotate", "pod", "flipped", word]).await.unwrap();
        wait_for(cluster, &path, wanted, |pod| ready(pod) == Some(wanted)).await;
    }
}

#[tokio::test]
async fn a_pod_with_a_readiness_gate_waits_for_it() {
    let cluster = CLUSTER.get().await.unwrap();
    let gates = json!({ "readinessGates": [{ "conditionType": "example.com/open" }] });
    let path = pod(cluster, "gated", "app:1", &[], &gates).await;
    wait_for(cluster, &path, "runs unready", |pod| ready(pod) == Some("False")).await;
    let open = r#"{"status":{"conditions":[{"type":"example.com/open","status":"True"}]}}"#;
    cluster.kubectl_ok(&["patch", "pod", "gated", "--subresource=status", "-p", open]).await.unwrap();
    wait_for(cluster, &path, "Ready", |pod| ready(pod) == Some("True")).await;
}

/// A Job with this image; returns its path.
async fn job(cluster: &Cluster, name: &str, image: &str, annotations: &Value) -> String {
    let object = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name },
        "spec": { "backoffLimit": 0, "template": {
            "metadata": { "annotations": annotations },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "app", "image": image }] },
        }},
    });
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    cluster.request(Method::POST, jobs, Some(&object)).await.unwrap();
    format!("{jobs}/{name}")
}

#[tokio::test]
async fn the_pod_of_a_job_ends_with_the_exit_code_and_message_that_are_asked_for() {
    let cluster = CLUSTER.get().await.unwrap();
    let good = job(cluster, "good", "app:1", &json!({})).await;
    let broken = job(cluster, "bad-by-word", "app:broken", &json!({})).await;
    let tagged = job(cluster, "bad-by-tag", "app:2-exit-7", &json!({})).await;
    let asked = json!({ "sts-plus.test/exit-code": "3", "sts-plus.test/termination-message": "disk \"full\"" });
    let annotated = job(cluster, "bad", "app:1", &asked).await;
    let hang = job(cluster, "hangs", "app:hang", &json!({})).await;
    wait_for(cluster, &good, "succeeded", |job| job["status"]["succeeded"] == 1).await;
    for (path, name, code) in [(broken, "bad-by-word", 1), (tagged, "bad-by-tag", 7), (annotated, "bad", 3)] {
        wait_for(cluster, &path, "failed", |job| job["status"]["failed"] == 1).await;
        let pods = format!("{PODS}?labelSelector=job-name%3D{name}");
        let list = cluster.request(Method::GET, &pods, None).await.unwrap();
        let ended = container(&list["items"][0], "state/terminated").unwrap().clone();
        assert_eq!(ended["exitCode"], code, "{name}");
        if name == "bad" {
            assert_eq!(ended["message"], "disk \"full\"");
        }
    }
    let job = cluster.request(Method::GET, &hang, None).await.unwrap();
    assert_eq!(job["status"]["active"], 1);
}
