//! The point of it all, with the native StatefulSet controller and pods: no pod goes to another template, whoever writes what.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use crate::{
    rig::{Rig, on_both_minors},
    scene::{Scene, Who, image, rolling, web},
};

on_both_minors!(
    no_pod_moves_and_new_ones_start_on_the_old_template_whatever_is_written,
    no_pod_moves_when_a_second_template_comes_in_mid_rollout,
);

/// The pods of before are the same after the controller has looked at the latest spec, and two seconds later.
pub async fn nothing_moved(scene: &Scene, before: &[(String, String, String)]) -> anyhow::Result<()> {
    for _ in 0..2 {
        crate::rig::eventually("the controller has seen the latest spec", async || {
            let web = scene.web().await?;
            ensure!(web["status"]["observedGeneration"] == web["metadata"]["generation"], "not yet");
            Ok(())
        })
        .await?;
        let after = scene.pods().await?;
        assert!(before.iter().all(|pod| after.contains(pod)), "before: {before:?}\nafter: {after:?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(())
}

async fn no_pod_moves_and_new_ones_start_on_the_old_template_whatever_is_written(
    rig: &'static Rig,
) -> anyhow::Result<()> {
    let scene = Scene::with_pods(rig).await?;
    let before = scene.pods().await?;
    // Template, scale and partition in one write.
    let all = json!({ "spec": { "replicas": 4, "template": image("app:2"), "updateStrategy": rolling(0)["updateStrategy"] } });
    scene.merge(Who::Person, &all).await?;
    // Replace without a word of the partition, the claim or the block.
    scene.replace(&web(4, "app:3")).await?;
    // Forced server-side apply, client-side apply.
    let mut pinned = web(4, "app:3");
    pinned["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
    let forced = ["apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "-"];
    scene.must(Who::Person, &forced, &pinned.to_string()).await?;
    pinned["spec"]["template"]["spec"]["containers"][0]["image"] = "app:4".into();
    scene.must(Who::Person, &["apply", "-f", "-"], &pinned.to_string()).await?;
    scene.must(Who::Person, &["rollout", "restart", "statefulset/web"], "").await?;
    scene.ready(4).await?;
    nothing_moved(&scene, &before).await?;
    assert!(scene.pods().await?.iter().all(|(_, _, image)| image == "app:1"));
    Ok(())
}

async fn no_pod_moves_when_a_second_template_comes_in_mid_rollout(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::with_pods(rig).await?;
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await?;
    scene.merge(Who::Operator, &json!({ "spec": rolling(2) })).await?;
    crate::rig::eventually("pod 2 is rolled", async || {
        let rolled = scene.pods().await?.iter().any(|(name, _, image)| name == "web-2" && image == "app:2");
        ensure!(rolled && scene.web().await?["status"]["readyReplicas"] == 3, "not yet");
        Ok(())
    })
    .await?;
    let before = scene.pods().await?;
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:3") } })).await?;
    nothing_moved(&scene, &before).await
}
