//! The second act: versions side by side. A canary that passes, one that fails, and a number of pods that is not allowed. Each part checks
//! what it claims, and fails the demo if it is not so.

use std::fs;

use anyhow::{Context as _, bail};
use kube::Client;
use sts_plus_api::{VersionPhase, names};

use crate::{
    acts::{PATIENCE, PROMETHEUS},
    commands::{self, NAMESPACE},
    played::BROKEN,
    seen::Changes,
    stage::Stage,
    summary,
    tell::{Teller, Tone},
    versions::Versions,
    watch::Watched as _,
};

/// The ExtendedStatefulSet of `config/demo/db.yaml`.
pub(crate) const NAME: &str = "db";
/// How many pods a version has.
pub(crate) const PODS: usize = 3;
pub(crate) const FIRST: &str = "1.27";
pub(crate) const GOOD: &str = "1.28";

/// All of it, on what the first act has left.
pub(crate) async fn all(stage: &Stage, tell: &Teller, client: &Client) -> anyhow::Result<()> {
    let mut scene = Versions::new(stage, tell, Changes::watch(client, NAMESPACE));
    first_version(&mut scene).await?;
    canary_that_passes(&mut scene).await?;
    canary_that_fails(&mut scene).await?;
    number_that_is_refused(&scene).await?;
    summary::tell_versions(&scene)
}

async fn first_version(scene: &mut Versions<'_>) -> anyhow::Result<()> {
    let path = "config/demo/db.yaml";
    let text = fs::read_to_string(commands::file(path)).with_context(|| format!("cannot read {path}"))?;
    let text = text.replace(PROMETHEUS, scene.watch.stage.prometheus()?.url());
    scene.watch.tell.title("Second act: an ExtendedStatefulSet, versions side by side");
    scene.watch.tell.command(&format!("kubectl -n {NAMESPACE} apply -f {path}"));
    scene.watch.stage.commands()?.kubectl_with(&text, &["apply", "--namespace", NAMESPACE, "--filename", "-"]).await?;
    scene.until("version 1 has all its pods", PATIENCE, |scene| scene.is_only(1)).await
}

async fn canary_that_passes(scene: &mut Versions<'_>) -> anyhow::Result<()> {
    scene.watch.tell.title(&format!("A canary that passes: nginx {FIRST} → {GOOD}"));
    set_image(scene, GOOD).await?;
    scene.until("version 2 alone", PATIENCE, |scene| scene.is_only(2)).await?;
    // What was recorded on the way: a moment may be over before anybody looks.
    let (canary, set) = ("db-v2-0", "db-v2");
    if scene.wanted(set) != [0, 1, 3] || !scene.has_passed_before(canary, set, 3) {
        bail!("version 2 got all its pods without a canary that had passed: {:?}", scene.wanted(set));
    }
    if !scene.record.beside || scene.status.current_version != Some(2) {
        bail!("version 2 took over without all its pods beside version 1: {:?}", scene.record.most);
    }
    Ok(())
}

async fn canary_that_fails(scene: &mut Versions<'_>) -> anyhow::Result<()> {
    scene.watch.tell.title(&format!("A canary that fails: nginx {GOOD} → {BROKEN}"));
    let before = scene.uids(2);
    set_image(scene, BROKEN).await?;
    let failed = |scene: &Versions| {
        let marked = scene.sets.get("db-v3").is_some_and(|set| set.stale && set.replicas == 0);
        marked && scene.is(VersionPhase::Failed) && scene.has("Stale") && scene.uids(3).is_empty()
    };
    scene.until("version 3 is stale and has no pods", PATIENCE, failed).await?;
    if scene.wanted("db-v3") != [0, 1, 0] || scene.record.most.get("3") != Some(&1) {
        bail!("version 3 had other pods than its canary: {:?}", scene.record.most);
    }
    let after = scene.uids(2);
    if before != after || scene.ready(2) != PODS || scene.status.current_version != Some(2) {
        bail!("version 2 moved: {before:?} became {after:?}");
    }
    let column = format!("jsonpath={{.metadata.annotations.{}}}", names::STALE_REASON.replace('.', "\\."));
    scene.watch.tell.line("");
    scene.watch.tell.command(&format!("kubectl -n {NAMESPACE} get statefulset db-v3 -o '{column}'"));
    let args = ["get", "statefulset", "db-v3", "--namespace", NAMESPACE, "--output", &column];
    let reason = scene.watch.stage.commands()?.kubectl(&args).await?;
    scene.watch.tell.answer(&reason);
    scene.watch.tell.line("");
    if reason.is_empty() {
        bail!("the mark says no reason");
    }
    let text =
        format!("version 2 has the {PODS} pods that it had before, all Ready; version 3 had its canary, no more");
    scene.watch.tell.event(Tone::Good, "unmoved", &text);
    Ok(())
}

/// What happens to the one who asks for a number that has no majority.
async fn number_that_is_refused(scene: &Versions<'_>) -> anyhow::Result<()> {
    scene.watch.tell.title("A number of pods that is not allowed");
    let commands = scene.watch.stage.commands()?;
    let column = "jsonpath={.metadata.generation} {.spec.template.spec.replicas}";
    let look = ["get", "ests", NAME, "--namespace", NAMESPACE, "--output", column];
    let before = commands.kubectl(&look).await?;
    scene.watch.tell.command(&format!("kubectl -n {NAMESPACE} scale ests/{NAME} --replicas=4"));
    let args = ["scale", "ests/db", "--namespace", NAMESPACE, "--replicas=4"];
    let answer = commands.kubectl_refused(&args).await?;
    scene.watch.tell.answer(&answer);
    if !answer.contains("allows only odd numbers") {
        bail!("the API server refused for another reason");
    }
    let after = commands.kubectl(&look).await?;
    if before != after {
        bail!("the spec changed: {before} became {after}");
    }
    Ok(())
}

async fn set_image(scene: &Versions<'_>, tag: &str) -> anyhow::Result<()> {
    let patch = format!(r#"[{{"op":"replace","path":"{IMAGE}","value":"nginx:{tag}"}}]"#);
    scene.watch.tell.command(&format!("kubectl -n {NAMESPACE} patch ests {NAME} --type json -p '{patch}'"));
    let args = ["patch", "ests", NAME, "--namespace", NAMESPACE, "--type", "json", "--patch", &patch];
    scene.watch.stage.commands()?.kubectl(&args).await?;
    Ok(())
}

/// `kubectl set image` knows only the kinds of Kubernetes itself.
const IMAGE: &str = "/spec/template/spec/template/spec/containers/0/image";
