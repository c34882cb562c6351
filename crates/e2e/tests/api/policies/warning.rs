//! `sts-plus-hold-warning`: what the writer reads in the reply to his own write, and when he reads nothing.

use serde_json::{Value, json};
use sts_plus_e2e::{Ground, eventually};
use testcluster::Method;

use super::stage::{Stage, Who, image, printed, rolling, web};
use crate::rig::on_both_minors;

on_both_minors!(
    a_refused_partition_is_told_with_its_cause_and_the_way_out,
    a_second_refusal_of_the_same_value_is_told_again,
    a_template_that_is_held_is_told,
    a_write_that_is_granted_is_told_nothing,
    the_expressions_fit_the_types_of_a_statefulset,
);

// spec: hold
async fn a_refused_partition_is_told_with_its_cause_and_the_way_out(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let reply = stage.ask(0).await;
    assert_eq!(
        reply.warnings(),
        [
            "partition 0 was not granted: PhasedRollout gate holds StatefulSet web at partition 3 and lowers it pod by pod as its checks \
          pass. To let exactly this partition through without checks, write it together with the annotation sts.plus/allow-partition: \
          \"0\" and without a change of the template. To take the set from the PhasedRollout, remove the annotation \
          sts.plus/phased-rollout and set sts.plus/release: \"true\" in one write."
        ]
    );
    let both = json!({ "spec": { "template": image("app:2"), "updateStrategy": rolling(1)["updateStrategy"] } });
    let reply = stage.merge(Who::Person, &both).await;
    assert_eq!(reply.warnings().len(), 1, "{reply:?}");
    assert!(
        reply.warnings()[0].starts_with(
            "partition 1 was not granted: PhasedRollout gate holds StatefulSet web at partition 2147483647"
        )
    );
    let reply = stage.replace(&web(0, "app:2")).await;
    assert!(reply.warnings()[0].starts_with("partition 0 was not granted"), "{reply:?}");
}

async fn a_second_refusal_of_the_same_value_is_told_again(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    for _ in 0..3 {
        let reply = stage.ask(0).await;
        assert_eq!(reply.warnings().len(), 1, "{reply:?}");
        assert!(reply.warnings()[0].contains("sts.plus/allow-partition: \"0\""), "{reply:?}");
    }
}

async fn a_template_that_is_held_is_told(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let reply = stage.must(Who::Person, &["set", "image", "statefulset/web", "app=app:2"], "").await;
    assert_eq!(
        printed(&reply),
        [
            "StatefulSet web is held at partition 2147483647: PhasedRollout gate rolls its pods one at a time as its checks pass. \
          Nothing needs to be done. To see where it stands: kubectl get phasedrollout gate"
        ]
    );
}

async fn a_write_that_is_granted_is_told_nothing(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    stage.ask(0).await;
    for args in [
        ["label", "statefulset", "web", "a=b"],
        ["annotate", "statefulset", "web", "a=b"],
        ["scale", "statefulset", "web", "--replicas=1"],
        ["patch", "statefulset", "web", "-p={\"spec\":{\"replicas\":0}}"],
    ] {
        let reply = stage.must(Who::Person, &args, "").await;
        assert_eq!(printed(&reply), [""; 0], "{args:?}");
    }
}

/// The API server checks validating policies against the schema of what they match, and writes its findings into their status.
async fn the_expressions_fit_the_types_of_a_statefulset(ground: &'static Ground) {
    let cluster = ground.cluster;
    for name in sts_plus::admission::VALIDATING {
        let path = format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}");
        eventually("the policy is checked", async || {
            let policy = cluster.request(Method::GET, &path, None).await.expect("the policy is there");
            let findings = policy.pointer("/status/typeChecking/expressionWarnings").unwrap_or(&Value::Null);
            assert!(findings.is_null(), "{name}: {findings}");
            policy["status"]["observedGeneration"] == policy["metadata"]["generation"]
        })
        .await;
    }
}
