//! `sts-plus-hold`: no write of anybody but the operator lowers the partition of a claimed set, and a new template raises it.

use serde_json::json;
use sts_plus_api::names;
use sts_plus_e2e::{Ground, eventually};

use super::stage::{HOLD, Stage, Who, image, printed, rolling, web};
use crate::rig::on_both_minors;

on_both_minors!(
    a_patch_to_0_keeps_the_partition,
    a_forced_server_side_apply_of_0_keeps_the_partition,
    a_replace_without_the_field_keeps_the_partition,
    a_json_patch_that_removes_the_block_keeps_the_partition,
    a_client_side_apply_that_pins_0_keeps_the_partition,
    a_higher_partition_is_granted,
    a_new_template_with_partition_0_in_one_write_is_fully_held,
    a_new_template_with_a_scale_up_in_one_write_is_fully_held,
    a_second_new_template_in_mid_rollout_is_fully_held,
    a_new_template_by_a_later_mutation_of_the_same_write_is_fully_held,
    a_set_without_a_rolling_update_block_is_held,
    a_template_of_200_kib_is_within_the_cost_limits,
    a_scale_through_the_subresource_is_left_alone,
    an_unclaimed_set_is_left_alone,
    a_set_that_a_person_claims_in_the_same_write_is_held,
    what_is_left_over_on_an_unclaimed_set_exempts_nobody,
    the_operator_is_left_alone,
    an_operator_outside_the_cluster_is_left_alone,
    a_probing_dry_run_of_the_operator_is_held,
    a_stored_probe_annotation_does_not_bind_the_operator,
);

// spec: hold
async fn a_patch_to_0_keeps_the_partition(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    stage.ask(0).await;
    assert_eq!(stage.partition().await, Some(3));
    assert_eq!(stage.annotation(names::REFUSED_PARTITION).await.as_deref(), Some("0"));
}

async fn a_forced_server_side_apply_of_0_keeps_the_partition(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let mut set = web(0, "app:1");
    set["spec"]["updateStrategy"] = rolling(0)["updateStrategy"].clone();
    let args = ["apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "-"];
    stage.must(Who::Person, &args, &set.to_string()).await;
    assert_eq!(stage.partition().await, Some(3));
    // The next apply without the field gives it up, which is a write without the field.
    stage.must(Who::Person, &args, &web(0, "app:1").to_string()).await;
    assert_eq!(stage.partition().await, Some(3));
}

async fn a_replace_without_the_field_keeps_the_partition(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    stage.replace(&web(0, "app:1")).await;
    assert_eq!(stage.partition().await, Some(3));
}

async fn a_json_patch_that_removes_the_block_keeps_the_partition(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    for path in
        ["/spec/updateStrategy/rollingUpdate/partition", "/spec/updateStrategy/rollingUpdate", "/spec/updateStrategy"]
    {
        let patch = json!([{ "op": "remove", "path": path }]).to_string();
        stage.must(Who::Person, &["patch", "statefulset", "web", "--type=json", "-p", &patch], "").await;
        assert_eq!(stage.partition().await, Some(3), "{path}");
    }
}

async fn a_client_side_apply_that_pins_0_keeps_the_partition(ground: &'static Ground) {
    let stage = Stage::new(ground).await;
    let mut set = web(0, "app:1");
    set["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
    stage.must(Who::Person, &["apply", "-f", "-"], &set.to_string()).await;
    stage.claim(3).await;
    stage.must(Who::Person, &["apply", "-f", "-"], &set.to_string()).await;
    assert_eq!(stage.partition().await, Some(3));
    set["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2".into();
    stage.must(Who::Person, &["apply", "-f", "-"], &set.to_string()).await;
    assert_eq!(stage.partition().await, Some(HOLD));
    stage.must(Who::Person, &["apply", "-f", "-"], &set.to_string()).await;
    assert_eq!(stage.partition().await, Some(HOLD));
}

async fn a_higher_partition_is_granted(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let reply = stage.ask(5).await;
    assert_eq!(stage.partition().await, Some(5));
    assert_eq!(reply.warnings(), [""; 0]);
}

// spec: hold
async fn a_new_template_with_partition_0_in_one_write_is_fully_held(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let body = json!({ "spec": { "template": image("app:2"), "updateStrategy": rolling(0)["updateStrategy"] } });
    stage.merge(Who::Person, &body).await;
    let web = stage.web().await;
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "app:2");
    assert_eq!(stage.partition().await, Some(HOLD));
    assert_eq!(stage.annotation(names::REFUSED_PARTITION).await.as_deref(), Some("0"));
}

async fn a_new_template_with_a_scale_up_in_one_write_is_fully_held(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 0).await;
    // Partition = the new number of replicas would start the new pods on the unapproved template.
    let body = json!({ "spec": { "replicas": 2, "template": image("app:2"), "updateStrategy": rolling(2)["updateStrategy"] } });
    stage.merge(Who::Person, &body).await;
    assert_eq!(stage.web().await["spec"]["replicas"], 2);
    assert_eq!(stage.partition().await, Some(HOLD));
}

// spec: hold
async fn a_second_new_template_in_mid_rollout_is_fully_held(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await;
    stage.merge(Who::Operator, &json!({ "spec": rolling(1) })).await;
    assert_eq!(stage.partition().await, Some(1));
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:3") } })).await;
    assert_eq!(stage.partition().await, Some(HOLD));
}

/// As an injector's webhook would: the write itself leaves the template alone, and so does the first pass of our policy.
async fn a_new_template_by_a_later_mutation_of_the_same_write_is_fully_held(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let name = format!("injector-{}", stage.scene.namespace);
    let injector = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": { "name": name },
        "spec": {
            "matchConstraints": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": stage.scene.namespace } },
                "resourceRules": [{ "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["statefulsets"] }],
            },
            "matchConditions": [{ "name": "asked", "expression": "has(object.metadata.labels) && 'inject' in object.metadata.labels" }],
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression":
                "Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {'injected': 'yes'}}}}}" } }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": { "name": name },
        "spec": { "policyName": name },
    });
    stage.create(&injector).await;
    stage.create(&binding).await;
    let label = json!({ "metadata": { "labels": { "inject": "yes" } } });
    let is_injected = async || stage.dry_run(Who::Person, &label).await.to_string().contains("injected");
    eventually("the injector is at work", is_injected).await;
    assert_eq!(stage.partition().await, Some(3));
    stage.merge(Who::Person, &label).await;
    assert_eq!(stage.web().await["spec"]["template"]["metadata"]["labels"]["injected"], "yes");
    assert_eq!(stage.partition().await, Some(HOLD));
}

async fn a_set_without_a_rolling_update_block_is_held(ground: &'static Ground) {
    let stage = Stage::new(ground).await;
    let mut set = web(0, "app:1");
    set["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate" });
    set["metadata"]["annotations"] = json!({ names::CLAIM: "gate" });
    stage.create(&set).await;
    assert_eq!(stage.web().await["spec"]["updateStrategy"], json!({ "type": "RollingUpdate" }));
    stage.must(Who::Person, &["label", "statefulset", "web", "a=b"], "").await;
    assert_eq!(stage.web().await["spec"]["updateStrategy"], json!({ "type": "RollingUpdate" }));
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await;
    assert_eq!(stage.partition().await, Some(HOLD));
    // An explicit type without the block, and with it null.
    for block in [json!({ "type": "RollingUpdate" }), json!({ "type": "RollingUpdate", "rollingUpdate": null })] {
        set["spec"]["updateStrategy"] = block;
        set["spec"]["template"] = web(0, "app:2")["spec"]["template"].clone();
        stage.replace(&set).await;
        assert_eq!(stage.partition().await, Some(HOLD));
    }
}

async fn a_template_of_200_kib_is_within_the_cost_limits(ground: &'static Ground) {
    let stage = Stage::new(ground).await;
    let mut set = web(0, "app:1");
    let variables: Vec<_> =
        (0..2000).map(|n| json!({ "name": format!("VARIABLE_{n:04}"), "value": "x".repeat(80) })).collect();
    set["spec"]["template"]["spec"]["containers"][0]["env"] = variables.into();
    assert!(set["spec"]["template"].to_string().len() > 200 * 1024);
    stage.create(&set).await;
    stage.claim(3).await;
    // Equal templates are compared to the end.
    let reply = stage.ask(0).await;
    assert_eq!(stage.partition().await, Some(3));
    assert_eq!(reply.warnings().len(), 1, "{reply:?}");
    set["spec"]["template"]["spec"]["containers"][0]["env"][1999]["value"] = "y".into();
    let reply = stage.replace(&set).await;
    assert_eq!(stage.partition().await, Some(HOLD));
    assert_eq!(reply.warnings().len(), 1, "{reply:?}");
}

async fn a_scale_through_the_subresource_is_left_alone(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let reply = stage.must(Who::Person, &["scale", "statefulset", "web", "--replicas=1"], "").await;
    assert_eq!(stage.web().await["spec"]["replicas"], 1);
    assert_eq!(stage.partition().await, Some(3));
    assert_eq!(printed(&reply), [""; 0]);
}

// spec: hold
async fn an_unclaimed_set_is_left_alone(ground: &'static Ground) {
    let stage = Stage::new(ground).await;
    stage.create(&web(0, "app:1")).await;
    stage.ask(3).await;
    let reply = stage
        .merge(
            Who::Person,
            &json!({ "spec": { "template": image("app:2"), "updateStrategy": rolling(1)["updateStrategy"] } }),
        )
        .await;
    assert_eq!(stage.partition().await, Some(1));
    assert_eq!(reply.warnings(), [""; 0]);
    stage
        .merge(Who::Person, &json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } }))
        .await;
    assert_eq!(stage.web().await["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
}

async fn a_set_that_a_person_claims_in_the_same_write_is_held(ground: &'static Ground) {
    let stage = Stage::new(ground).await;
    stage.create(&web(0, "app:1")).await;
    let body = json!({ "metadata": { "annotations": { names::CLAIM: "gate", names::HOLD_SWITCH: "off" } }, "spec": { "template": image("app:2") } });
    stage.merge(Who::Person, &body).await;
    assert_eq!(stage.partition().await, Some(HOLD));
    assert_eq!(stage.annotation(names::HOLD_SWITCH).await, None);
}

async fn what_is_left_over_on_an_unclaimed_set_exempts_nobody(ground: &'static Ground) {
    let stage = Stage::new(ground).await;
    let mut set = web(0, "app:1");
    set["metadata"]["annotations"] = json!({ names::HOLD_SWITCH: "off", names::WRITTEN_PARTITION: "r/0" });
    stage.create(&set).await;
    stage.merge(Who::Person, &json!({ "metadata": { "annotations": { names::CLAIM: "gate" } } })).await;
    assert_eq!(stage.web().await["metadata"]["annotations"], json!({ names::CLAIM: "gate" }));
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await;
    assert_eq!(stage.partition().await, Some(HOLD));
}

async fn the_operator_is_left_alone(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let reply = stage.merge(Who::Operator, &json!({ "spec": rolling(0) })).await;
    assert_eq!(stage.partition().await, Some(0));
    assert_eq!(reply.warnings(), [""; 0]);
    let drop = json!({ "metadata": { "annotations": { names::CLAIM: null, names::WRITTEN_PARTITION: null } } });
    stage.merge(Who::Operator, &drop).await;
    assert_eq!(stage.annotation(names::CLAIM).await, None);
}

async fn an_operator_outside_the_cluster_is_left_alone(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    stage.merge(Who::Outside, &json!({ "spec": rolling(1) })).await;
    assert_eq!(stage.partition().await, Some(1));
    // What its user writes by hand is a person's: by a patch and by apply.
    let web = |partition| json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "web" }, "spec": rolling(partition) });
    let patch = json!({ "spec": rolling(0) }).to_string();
    let applied = web(0).to_string();
    for (args, stdin) in [
        (&["patch", "statefulset", "web", "--type=merge", "--patch", &patch][..], ""),
        (&["apply", "--server-side", "--force-conflicts", "-f", "-"], &applied),
    ] {
        let reply = stage.must(Who::Outside, args, stdin).await;
        assert_eq!(stage.partition().await, Some(1), "{args:?}");
        assert!(reply.stderr.contains("Warning"), "and he is told: {}", reply.stderr);
    }
    // It has the rights of the role, and no more.
    let reply = stage.kubectl(Who::Outside, &["delete", "phasedrollout", "gate"], "").await;
    assert!(!reply.ok && reply.stderr.contains("cannot delete resource"), "{}", reply.stderr);
}

async fn a_probing_dry_run_of_the_operator_is_held(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let body =
        json!({ "metadata": { "annotations": { names::PROBE: "1" } }, "spec": { "template": image("app:probe") } });
    let answer = stage.dry_run(Who::Operator, &body).await;
    assert_eq!(super::stage::partition(&answer), Some(HOLD));
    let web = stage.web().await;
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "app:1", "a dry run stores nothing");
    assert_eq!(stage.partition().await, Some(3));
}

async fn a_stored_probe_annotation_does_not_bind_the_operator(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    stage.must(Who::Person, &["annotate", "statefulset", "web", "sts.plus/probe=left-over"], "").await;
    stage.merge(Who::Operator, &json!({ "spec": rolling(2) })).await;
    assert_eq!(stage.partition().await, Some(2));
}
