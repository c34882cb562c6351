//! What a started cluster is and does: the real controllers, users, the audit log, and stopping its parts.

use std::time::Duration;

use serde_json::{Value, json};
use testcluster::{Cluster, Component, Method, Minor};

use crate::CLUSTER;
use crate::common::{ready, wait_for, wait_for_status};

/// Makes a namespace and returns its path in the API.
async fn namespace(cluster: &Cluster, name: &str) -> String {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    cluster.request(Method::POST, "/api/v1/namespaces", Some(&object)).await.unwrap();
    format!("/api/v1/namespaces/{name}")
}

fn stateful_set(namespace: &str, image: &str) -> String {
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": "web", "namespace": namespace },
        "spec": {
            "replicas": 3,
            "serviceName": "web",
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "app", "image": image }] },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
            }],
        },
    })
    .to_string()
}

async fn wait_for_three(cluster: &Cluster, namespace: &str) -> Value {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/web");
    wait_for(cluster, &path, "three pods are Ready", |set| {
        set.pointer("/status/readyReplicas") == Some(&json!(3))
            && set.pointer("/status/currentRevision") == set.pointer("/status/updateRevision")
    })
    .await
}

#[tokio::test]
async fn a_stateful_set_with_claims_gets_ready_and_rolls_on_1_37() {
    stateful_set_gets_ready_and_rolls(CLUSTER.get().await.unwrap()).await;
}

#[tokio::test]
async fn a_stateful_set_with_claims_gets_ready_and_rolls_on_1_36_with_a_feature_gate() {
    let start = Cluster::builder().kubernetes(Minor::V1_36).feature_gate("MaxUnavailableStatefulSet", true).start();
    let cluster = start.await.unwrap();
    let version = cluster.request(Method::GET, "/version", None).await.unwrap();
    assert_eq!((version["major"].as_str(), version["minor"].as_str()), (Some("1"), Some("36")));
    stateful_set_gets_ready_and_rolls(&cluster).await;
}

async fn stateful_set_gets_ready_and_rolls(cluster: &Cluster) {
    namespace(cluster, "rolls").await;
    cluster.apply(&stateful_set("rolls", "app:1")).await.unwrap();
    let before = wait_for_three(cluster, "rolls").await;
    let zones = cluster.kubectl_ok(&["get", "nodes", "-L", "topology.kubernetes.io/zone"]).await.unwrap();
    for zone in ["zone-a", "zone-b", "zone-c"] {
        assert!(zones.contains(zone), "{zones}");
    }
    cluster.apply(&stateful_set("rolls", "app:2")).await.unwrap();
    let path = "/apis/apps/v1/namespaces/rolls/statefulsets/web";
    wait_for(cluster, path, "another revision is current", |set| {
        set.pointer("/status/updatedReplicas") == Some(&json!(3))
            && set.pointer("/status/currentRevision") != before.pointer("/status/currentRevision")
    })
    .await;
    assert_each_pod_was_replaced_once(cluster);
}

/// kwok deletes by name: a second delete would hit the new pod.
fn assert_each_pod_was_replaced_once(cluster: &Cluster) {
    let entries = cluster.audit_log().entries_in("rolls").unwrap();
    for pod in ["web-0", "web-1", "web-2"] {
        let of_pod = |verb: &str, user: &str| {
            entries
                .iter()
                .filter(|entry| entry.resource == "pods" && entry.subresource.is_empty())
                .filter(|entry| entry.name == pod && entry.verb == verb && entry.user.contains(user))
                .count()
        };
        assert_eq!(of_pod("delete", "statefulset-controller"), 1, "{pod}");
        assert_eq!(of_pod("delete", "kwok"), 1, "{pod}");
    }
}

#[tokio::test]
async fn users_groups_and_service_accounts_are_who_they_say() {
    let cluster = CLUSTER.get().await.unwrap();
    namespace(cluster, "people").await;
    let whoami = async |kubeconfig: &std::path::Path| {
        let output = cluster.kubectl_as(kubeconfig, &["auth", "whoami", "-o", "json"], "").await.unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["status"]["userInfo"].clone()
    };
    let ops = whoami(&cluster.kubeconfig_for("ops", &[]).unwrap()).await;
    assert_eq!(ops["username"], "ops");
    assert!(ops["groups"].to_string().contains("operators"), "{ops}");
    let dev = whoami(&cluster.kubeconfig_for("dev", &["team-a", "team-b"]).unwrap()).await;
    assert_eq!(dev["username"], "dev");
    assert!(dev["groups"].to_string().contains("team-b"), "{dev}");
    cluster.kubectl_ok(&["create", "serviceaccount", "robot", "-n", "people"]).await.unwrap();
    let robot = cluster.kubeconfig_for_service_account("people", "robot").await.unwrap();
    assert_eq!(whoami(&robot).await["username"], "system:serviceaccount:people:robot");
    let secrets = cluster.kubectl_as(&robot, &["get", "secrets", "-n", "people"], "").await.unwrap();
    assert!(String::from_utf8_lossy(&secrets.stderr).contains("Forbidden"));

    let entries = cluster.audit_log().entries().unwrap();
    let seen = entries.iter().find(|entry| entry.user == "dev").unwrap();
    assert_eq!(seen.impersonated_by.as_deref(), Some("admin"));
    assert!(seen.user_agent.starts_with("kubectl/v1.37."), "{}", seen.user_agent);
}

#[tokio::test]
async fn the_audit_log_tells_writes_from_dry_runs_and_reads() {
    let cluster = CLUSTER.get().await.unwrap();
    let maps = format!("{}/configmaps", namespace(cluster, "audited").await);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "one" } });
    let dry = format!("{maps}?dryRun=All");
    cluster.request(Method::POST, &dry, Some(&map)).await.unwrap();
    cluster.request(Method::POST, &maps, Some(&map)).await.unwrap();
    cluster.request(Method::GET, &format!("{maps}/one"), None).await.unwrap();
    cluster.request(Method::POST, &maps, Some(&map)).await.unwrap_err();
    let entries = cluster.audit_log().entries_in("audited").unwrap();
    let mine: Vec<_> = entries
        .iter()
        .filter(|entry| entry.user_agent == "testcluster")
        .map(|entry| (entry.verb.as_str(), entry.code, entry.is_write()))
        .collect();
    let wanted = [("create", 201, false), ("create", 201, true), ("get", 200, false), ("create", 409, true)];
    assert_eq!(mine, wanted);
    let all = cluster.audit_log().entries().unwrap();
    let of_components = all.iter().filter(|entry| entry.user == "kwok" || entry.user.contains(":kube-"));
    let left: Vec<_> = of_components.filter(|entry| !entry.is_write() || entry.resource == "leases").collect();
    assert!(left.is_empty(), "what components read and renew is left out: {left:#?}");
}

#[tokio::test]
async fn parts_can_be_stopped_paused_and_started_again() {
    // A cluster of its own, since the others would notice.
    let cluster = Cluster::builder().start().await.unwrap();
    let pods = format!("{}/pods", namespace(&cluster, "parts").await);
    cluster.apply(&stateful_set("parts", "app:1")).await.unwrap();
    wait_for_three(&cluster, "parts").await;

    let manager = cluster.component(Component::ControllerManager);
    manager.stop().await.unwrap();
    assert!(!manager.is_running());
    let first = format!("{pods}/web-0");
    cluster.request(Method::DELETE, &first, None).await.unwrap();
    wait_for_status(&cluster, &first, 404).await;
    manager.start().await.unwrap();
    wait_for(&cluster, &first, "the pod is made anew", |pod| ready(pod) == Some("True")).await;

    let kwok = cluster.component(Component::Kwok);
    kwok.kill();
    cluster.request(Method::DELETE, &first, None).await.unwrap();
    let stays = cluster.request(Method::GET, &first, None).await.unwrap();
    assert!(stays.pointer("/metadata/deletionTimestamp").is_some());
    let old = stays.pointer("/metadata/uid").unwrap().clone();
    kwok.start().await.unwrap();
    wait_for(&cluster, &first, "the restarted kwok acts", |pod| {
        pod.pointer("/metadata/uid") != Some(&old) && ready(pod) == Some("True")
    })
    .await;

    let server = cluster.component(Component::ApiServer);
    server.pause().unwrap();
    let silent = tokio::time::timeout(Duration::from_secs(1), cluster.request(Method::GET, &first, None)).await;
    assert!(silent.is_err(), "no answer while it is frozen");
    server.resume().unwrap();
    cluster.request(Method::GET, &first, None).await.unwrap();

    server.stop().await.unwrap();
    let etcd = cluster.component(Component::Etcd);
    etcd.stop().await.unwrap();
    etcd.start().await.unwrap();
    server.start().await.unwrap();
    cluster.request(Method::GET, &first, None).await.unwrap();
    assert!(etcd.start().await.unwrap_err().to_string().contains("runs already"));
}
