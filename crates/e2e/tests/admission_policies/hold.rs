//! `sts-plus-hold`: no write of anybody but the operator lowers the partition of a claimed set, and a new template raises it.

use serde_json::json;
use sts_plus_api::names;

use crate::{
    rig::{Rig, on_both_minors},
    scene::{HOLD, Scene, Who, image, rolling, web},
};

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

async fn a_patch_to_0_keeps_the_partition(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    scene.ask(0).await?;
    assert_eq!(scene.partition().await?, Some(3));
    assert_eq!(scene.annotation(names::REFUSED_PARTITION).await?.as_deref(), Some("0"));
    Ok(())
}

async fn a_forced_server_side_apply_of_0_keeps_the_partition(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let mut set = web(0, "app:1");
    set["spec"]["updateStrategy"] = rolling(0)["updateStrategy"].clone();
    let args = ["apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "-"];
    scene.must(Who::Person, &args, &set.to_string()).await?;
    assert_eq!(scene.partition().await?, Some(3));
    // The next apply without the field gives it up, which is a write without the field.
    scene.must(Who::Person, &args, &web(0, "app:1").to_string()).await?;
    assert_eq!(scene.partition().await?, Some(3));
    Ok(())
}

async fn a_replace_without_the_field_keeps_the_partition(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    scene.replace(&web(0, "app:1")).await?;
    assert_eq!(scene.partition().await?, Some(3));
    Ok(())
}

async fn a_json_patch_that_removes_the_block_keeps_the_partition(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    for path in
        ["/spec/updateStrategy/rollingUpdate/partition", "/spec/updateStrategy/rollingUpdate", "/spec/updateStrategy"]
    {
        let patch = json!([{ "op": "remove", "path": path }]).to_string();
        scene.must(Who::Person, &["patch", "statefulset", "web", "--type=json", "-p", &patch], "").await?;
        assert_eq!(scene.partition().await?, Some(3), "{path}");
    }
    Ok(())
}

async fn a_client_side_apply_that_pins_0_keeps_the_partition(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let mut set = web(0, "app:1");
    set["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
    scene.must(Who::Person, &["apply", "-f", "-"], &set.to_string()).await?;
    scene.claim(3).await?;
    scene.must(Who::Person, &["apply", "-f", "-"], &set.to_string()).await?;
    assert_eq!(scene.partition().await?, Some(3));
    set["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2".into();
    scene.must(Who::Person, &["apply", "-f", "-"], &set.to_string()).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    scene.must(Who::Person, &["apply", "-f", "-"], &set.to_string()).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    Ok(())
}

async fn a_higher_partition_is_granted(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let reply = scene.ask(5).await?;
    assert_eq!(scene.partition().await?, Some(5));
    assert_eq!(reply.warnings(), [""; 0]);
    Ok(())
}

async fn a_new_template_with_partition_0_in_one_write_is_fully_held(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let body = json!({ "spec": { "template": image("app:2"), "updateStrategy": rolling(0)["updateStrategy"] } });
    scene.merge(Who::Person, &body).await?;
    let web = scene.web().await?;
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "app:2");
    assert_eq!(scene.partition().await?, Some(HOLD));
    assert_eq!(scene.annotation(names::REFUSED_PARTITION).await?.as_deref(), Some("0"));
    Ok(())
}

async fn a_new_template_with_a_scale_up_in_one_write_is_fully_held(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 0).await?;
    // Partition = the new number of replicas would start the new pods on the unapproved template.
    let body = json!({ "spec": { "replicas": 2, "template": image("app:2"), "updateStrategy": rolling(2)["updateStrategy"] } });
    scene.merge(Who::Person, &body).await?;
    assert_eq!(scene.web().await?["spec"]["replicas"], 2);
    assert_eq!(scene.partition().await?, Some(HOLD));
    Ok(())
}

async fn a_second_new_template_in_mid_rollout_is_fully_held(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await?;
    scene.merge(Who::Operator, &json!({ "spec": rolling(1) })).await?;
    assert_eq!(scene.partition().await?, Some(1));
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:3") } })).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    Ok(())
}

/// As an injector's webhook would: the write itself leaves the template alone, and so does the first pass of our policy.
async fn a_new_template_by_a_later_mutation_of_the_same_write_is_fully_held(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let name = format!("injector-{}", scene.namespace);
    let injector = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": { "name": name },
        "spec": {
            "matchConstraints": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": scene.namespace } },
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
    scene.create(&injector).await?;
    scene.create(&binding).await?;
    let label = json!({ "metadata": { "labels": { "inject": "yes" } } }).to_string();
    let patch = ["patch", "statefulset", "web", "--type=merge", "-p", &label, "-o", "json"];
    crate::rig::eventually("the injector is at work", async || {
        let args = [patch.as_slice(), &["--dry-run=server"]].concat();
        anyhow::ensure!(scene.must(Who::Person, &args, "").await?.stdout.contains("injected"), "not yet");
        Ok(())
    })
    .await?;
    assert_eq!(scene.partition().await?, Some(3));
    scene.must(Who::Person, &patch, "").await?;
    assert_eq!(scene.web().await?["spec"]["template"]["metadata"]["labels"]["injected"], "yes");
    assert_eq!(scene.partition().await?, Some(HOLD));
    Ok(())
}

async fn a_set_without_a_rolling_update_block_is_held(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let mut set = web(0, "app:1");
    set["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate" });
    set["metadata"]["annotations"] = json!({ names::CLAIM: "gate" });
    scene.create(&set).await?;
    assert_eq!(scene.web().await?["spec"]["updateStrategy"], json!({ "type": "RollingUpdate" }));
    scene.must(Who::Person, &["label", "statefulset", "web", "a=b"], "").await?;
    assert_eq!(scene.web().await?["spec"]["updateStrategy"], json!({ "type": "RollingUpdate" }));
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    // An explicit type without the block, and with it null.
    for block in [json!({ "type": "RollingUpdate" }), json!({ "type": "RollingUpdate", "rollingUpdate": null })] {
        set["spec"]["updateStrategy"] = block;
        set["spec"]["template"] = web(0, "app:2")["spec"]["template"].clone();
        scene.replace(&set).await?;
        assert_eq!(scene.partition().await?, Some(HOLD));
    }
    Ok(())
}

async fn a_template_of_200_kib_is_within_the_cost_limits(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let mut set = web(0, "app:1");
    let variables: Vec<_> =
        (0..2000).map(|n| json!({ "name": format!("VARIABLE_{n:04}"), "value": "x".repeat(80) })).collect();
    set["spec"]["template"]["spec"]["containers"][0]["env"] = variables.into();
    assert!(set["spec"]["template"].to_string().len() > 200 * 1024);
    scene.create(&set).await?;
    scene.claim(3).await?;
    // Equal templates are compared to the end.
    let reply = scene.ask(0).await?;
    assert_eq!(scene.partition().await?, Some(3));
    assert_eq!(reply.warnings().len(), 1, "{}", reply.stderr);
    set["spec"]["template"]["spec"]["containers"][0]["env"][1999]["value"] = "y".into();
    let reply = scene.replace(&set).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    assert_eq!(reply.warnings().len(), 1, "{}", reply.stderr);
    Ok(())
}

async fn a_scale_through_the_subresource_is_left_alone(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let reply = scene.must(Who::Person, &["scale", "statefulset", "web", "--replicas=1"], "").await?;
    assert_eq!(scene.web().await?["spec"]["replicas"], 1);
    assert_eq!(scene.partition().await?, Some(3));
    assert_eq!(reply.warnings(), [""; 0]);
    Ok(())
}

async fn an_unclaimed_set_is_left_alone(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    scene.create(&web(0, "app:1")).await?;
    scene.ask(3).await?;
    let reply = scene
        .merge(
            Who::Person,
            &json!({ "spec": { "template": image("app:2"), "updateStrategy": rolling(1)["updateStrategy"] } }),
        )
        .await?;
    assert_eq!(scene.partition().await?, Some(1));
    assert_eq!(reply.warnings(), [""; 0]);
    scene
        .merge(Who::Person, &json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } }))
        .await?;
    assert_eq!(scene.web().await?["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
    Ok(())
}

async fn a_set_that_a_person_claims_in_the_same_write_is_held(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    scene.create(&web(0, "app:1")).await?;
    let body = json!({ "metadata": { "annotations": { names::CLAIM: "gate", names::HOLD_SWITCH: "off" } }, "spec": { "template": image("app:2") } });
    scene.merge(Who::Person, &body).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    assert_eq!(scene.annotation(names::HOLD_SWITCH).await?, None);
    Ok(())
}

async fn what_is_left_over_on_an_unclaimed_set_exempts_nobody(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let mut set = web(0, "app:1");
    set["metadata"]["annotations"] = json!({ names::HOLD_SWITCH: "off", names::WRITTEN_PARTITION: "r/0" });
    scene.create(&set).await?;
    scene.merge(Who::Person, &json!({ "metadata": { "annotations": { names::CLAIM: "gate" } } })).await?;
    assert_eq!(scene.web().await?["metadata"]["annotations"], json!({ names::CLAIM: "gate" }));
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    Ok(())
}

async fn the_operator_is_left_alone(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let reply = scene.merge(Who::Operator, &json!({ "spec": rolling(0) })).await?;
    assert_eq!(scene.partition().await?, Some(0));
    assert_eq!(reply.warnings(), [""; 0]);
    let drop = json!({ "metadata": { "annotations": { names::CLAIM: null, names::WRITTEN_PARTITION: null } } });
    scene.merge(Who::Operator, &drop).await?;
    assert_eq!(scene.annotation(names::CLAIM).await?, None);
    Ok(())
}

async fn an_operator_outside_the_cluster_is_left_alone(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    scene.merge(Who::Outside, &json!({ "spec": rolling(1) })).await?;
    assert_eq!(scene.partition().await?, Some(1));
    // It has the rights of the role, and no more.
    let reply = scene.kubectl(Who::Outside, &["delete", "phasedrollout", "gate"], "").await?;
    assert!(!reply.ok && reply.stderr.contains("cannot delete resource"), "{}", reply.stderr);
    Ok(())
}

async fn a_probing_dry_run_of_the_operator_is_held(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let body =
        json!({ "metadata": { "annotations": { names::PROBE: "1" } }, "spec": { "template": image("app:probe") } })
            .to_string();
    let args = ["patch", "statefulset", "web", "--type=merge", "-p", &body, "--dry-run=server", "-o", "json"];
    let answer: serde_json::Value = serde_json::from_str(&scene.must(Who::Operator, &args, "").await?.stdout)?;
    assert_eq!(crate::scene::partition(&answer), Some(HOLD));
    let web = scene.web().await?;
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "app:1", "a dry run stores nothing");
    assert_eq!(scene.partition().await?, Some(3));
    Ok(())
}

async fn a_stored_probe_annotation_does_not_bind_the_operator(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    scene.must(Who::Person, &["annotate", "statefulset", "web", "sts.plus/probe=left-over"], "").await?;
    scene.merge(Who::Operator, &json!({ "spec": rolling(2) })).await?;
    assert_eq!(scene.partition().await?, Some(2));
    Ok(())
}
