//! Installed for one namespace: the operator does all of its work there with the rights of `manifests --watch-namespace`, and reaches nothing
//! of a user anywhere else.

use serde_json::json;
use sts_plus::rbac;
use sts_plus_e2e::{Operator, eventually, objects};
use testcluster::{Prometheus, PrometheusConfig};

use crate::{OWNERS, ROLLOUTS, SERVICES, SETS, Site};

/// Of each kind that belongs to users: what an operator for all namespaces may do.
const OF_USERS: [(&str, &str); 10] = [
    ("get", "secrets"),
    ("list", "pods"),
    ("delete", "pods"),
    ("list", "services"),
    ("patch", "statefulsets.apps"),
    ("list", "controllerrevisions.apps"),
    ("list", "events"),
    ("create", "events.events.k8s.io"),
    ("patch", "phasedrollouts.sts.plus"),
    ("list", "extendedstatefulsets.fissile.cloudfoundry.org"),
];

impl Site {
    /// Everything for namespace `work` and the lease `ours`, beside a namespace `other` with a Secret of somebody.
    async fn install_for_work(&self) {
        for namespace in ["work", "other"] {
            self.kubectl(&["create", "namespace", namespace]).await;
        }
        let args = ["manifests", "--watch-namespace", "work", "--leader-elect-name", "ours"];
        self.cluster.apply(&self.printed(&args).await).await.expect("it can be installed");
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]).await;
        self.post("/api/v1/namespaces/other/secrets", &objects::secret("theirs", &[("token", "t")])).await;
    }

    /// What the API server says about a right of the operator.
    async fn may(&self, verb: &str, resource: &str, namespace: &str) -> bool {
        let account = format!("--as={}", rbac::user_name(rbac::NAMESPACE));
        let asked = self.cluster.kubectl(&["auth", "can-i", verb, resource, "-n", namespace, &account]).await;
        asked.expect("kubectl runs").status.success()
    }

    /// A field of an object in `work`.
    async fn field(&self, object: &str, path: &str) -> String {
        let (kind, name) = object.split_once('/').expect("kind/name");
        self.kubectl(&["-n", "work", "get", kind, name, "--ignore-not-found", "-o", &format!("jsonpath={{{path}}}")])
            .await
    }

    /// A PhasedRollout with credentials, from its first look to its end.
    async fn roll(&self, prometheus: &str) {
        self.post("/api/v1/namespaces/work/secrets", &objects::secret("prom", &[("token", "t")])).await;
        let query = json!({ "expr": "vector(0) > 1", "url": prometheus, "secretRef": "prom" });
        let gate = objects::with(objects::rollout(prometheus), "/spec/check/query", query);
        self.post(SETS, &objects::set(2)).await;
        self.post(ROLLOUTS, &gate).await;
        eventually("at rest", async || self.partition("web").await == 2 && self.pods("web").await.len() == 2).await;
        let enforced = r#".status.conditions[?(@.type=="HoldEnforced")].reason"#;
        eventually("the hold is seen", async || self.field("phasedrollout/gate", enforced).await == "Enforced").await;
        self.kubectl(&["-n", "work", "set", "image", "statefulset/web", "app=app:2"]).await;
        let phase = async || self.field("phasedrollout/gate", ".status.phase").await;
        eventually("it is complete", async || phase().await == "Completed").await;
        self.until_pods("web", 2, "app:2").await;
        self.kubectl(&["-n", "work", "delete", "phasedrollout", "gate", "--timeout=60s"]).await;
    }

    /// An ExtendedStatefulSet with a Service, another one with a zone, an upgrade, and their end.
    async fn upgrade(&self) {
        self.post(SERVICES, &objects::service("live")).await;
        let db = objects::with(objects::extended("db"), "/spec/updateStrategy/activeService", "live");
        self.post(OWNERS, &db).await;
        self.post(OWNERS, &objects::with(objects::extended("zoned"), "/spec/az", json!(["nowhere"]))).await;
        eventually("version 1 is selected", async || self.selected("live").await == "1").await;
        let image = "/spec/template/spec/template/spec/containers/0/image";
        let next = json!([{ "op": "replace", "path": image, "value": "app:2" }]).to_string();
        self.kubectl(&["-n", "work", "patch", "ests", "db", "--type=json", "-p", &next]).await;
        eventually("version 2 is alone", async || {
            self.selected("live").await == "2" && self.set("db-v1").await.is_null()
        })
        .await;
        let scheduled = r#".status.conditions[?(@.type=="ZoneUnschedulable")].status"#;
        eventually("nodes are looked at", async || self.field("ests/zoned", scheduled).await == "True").await;
        self.kubectl(&["-n", "work", "delete", "ests", "db", "zoned", "--timeout=60s"]).await;
        eventually("its pods go", async || self.pods("db").await.is_empty()).await;
    }
}

#[tokio::test]
async fn for_one_namespace_all_is_done_there_and_no_other_can_be_read() {
    let site = Site::start().await;
    site.install_for_work().await;
    eventually("the roles count", async || site.may("get", "secrets", "work").await).await;
    for (verb, resource) in OF_USERS {
        assert!(site.may(verb, resource, "work").await, "{verb} {resource} in its namespace");
        assert!(!site.may(verb, resource, "other").await, "{verb} {resource} elsewhere");
    }
    let kubeconfig = site.cluster.kubeconfig_for_service_account(rbac::NAMESPACE, rbac::NAME).await.expect("a token");
    let args = ["-n", "other", "get", "secret", "theirs"];
    let read = site.cluster.kubectl_as(&kubeconfig, &args, "").await.expect("kubectl runs");
    let said = String::from_utf8_lossy(&read.stderr).into_owned();
    assert!(!read.status.success() && said.contains("Forbidden"), "{said}");

    let dir = site.cluster.dir().join("prometheus");
    let prometheus = Prometheus::start(&dir, &PrometheusConfig::default()).await.expect("Prometheus starts");
    let flags = ["--leader-elect", "--leader-elect-name=ours"];
    let operator = Operator::start_as(&site.program, &kubeconfig, "work", &site.log(), &flags);
    site.roll(prometheus.url()).await;
    site.upgrade().await;
    assert!(operator.stop().await.success());
    let requests = site.cluster.audit_log().entries().expect("the audit log can be read");
    let ours = requests.iter().filter(|entry| entry.user_agent.starts_with("sts-plus/"));
    let refused: Vec<_> = ours.filter(|entry| entry.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");

    site.sts_plus(&["uninstall"]).await;
    eventually("everything is gone", async || site.is_empty().await).await;
}
