//! The first act: a good release, a bad one that is stopped, and its fix. Each part checks what it claims, and fails the demo if it is not
//! so. The second act follows it.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, bail};
use sts_plus_api::Phase;

use crate::{
    commands::{self, NAMESPACE},
    played::BROKEN,
    scene::{Scene, short},
    second_act,
    seen::{self, Changes},
    stage::Stage,
    summary,
    tell::{Teller, Tone},
    watch::Watched as _,
};

/// Longer than any act takes here; a cluster of your own may have to pull images.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);
/// How long policies may take to act after they were installed.
const SETTLING: Duration = Duration::from_secs(30);
const FIRST: &str = "1.27";
const GOOD: &str = "1.28";
const FIX: &str = "1.29.1";
/// The placeholder in `config/demo/*.yaml`.
pub(crate) const PROMETHEUS: &str = "http://127.0.0.1:9090";

/// All of it. What was started is cleaned up by the caller.
pub(crate) async fn all(stage: &mut Stage, tell: &Teller) -> anyhow::Result<()> {
    tell.title("sts-plus: a StatefulSet that rolls only while Prometheus agrees");
    stage.set_up(tell).await?;
    stage.start_operator(tell).await?;
    let stage = &*stage;
    let client = seen::client(&stage.kubeconfig()?).await?;
    let mut scene = Scene::new(stage, tell, Changes::watch(&client, NAMESPACE));
    sample(&scene).await?;
    opening(&mut scene).await?;
    good_release(&mut scene).await?;
    bad_release(&mut scene).await?;
    fix(&mut scene).await?;
    summary::tell(&scene)?;
    // Nobody looks at what the first act watches any more.
    drop(scene);
    second_act::all(stage, tell, &client).await
}

/// The sample asks for `up{}`, which returns data wherever Prometheus scrapes anything: alert style, so it would hold any rollout.
async fn sample(scene: &Scene<'_>) -> anyhow::Result<()> {
    let commands = scene.watch.stage.commands()?;
    let path = "config/samples/phasedrollout.yaml";
    let text = fs::read_to_string(commands::file(path)).with_context(|| format!("cannot read {path}"))?;
    let args = ["apply", "--namespace", NAMESPACE, "--dry-run=server", "--filename", "-"];
    let answer = commands.kubectl_with(&text, &args).await?;
    let accepted = answer.lines().find(|line| line.contains("phasedrollout")).unwrap_or_default();
    scene.watch.tell.event(Tone::Plain, "sample", &format!("{accepted}: it is accepted"));
    Ok(())
}

async fn opening(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let path = "config/demo/web.yaml";
    let text = fs::read_to_string(commands::file(path)).with_context(|| format!("cannot read {path}"))?;
    let text = text.replace(PROMETHEUS, scene.watch.stage.prometheus()?.url());
    scene.watch.tell.title("Three pods at rest");
    scene.watch.tell.command(&format!("kubectl -n {NAMESPACE} apply -f {path}"));
    scene.watch.stage.commands()?.kubectl_with(&text, &["apply", "--namespace", NAMESPACE, "--filename", "-"]).await?;
    let at_rest = |scene: &Scene| {
        scene.all_carry(FIRST) && scene.phase() == Phase::Idle && scene.set.partition == scene.set.replicas
    };
    scene.until("three pods at rest", PATIENCE, at_rest).await?;
    // Policies that do not act in this time will not: the story is then told without them.
    let _ = scene.until("whether the API server keeps the hold", SETTLING, Scene::is_enforcement_settled).await;
    let kept = if scene.is_enforced() {
        "HoldEnforced=True: a dry run has shown that the API server itself keeps the hold"
    } else {
        "HoldEnforced=False: this API server does not keep the hold, so the operator alone does"
    };
    scene.watch.tell.event(Tone::Plain, "hold", kept);
    let played = if scene.watch.stage.is_rig() { ", and kwok plays the containers" } else { "" };
    scene.watch.tell.note(&format!(
        "Everything below is read from the API server and asked of Prometheus. The demo plays the application's metrics endpoint{played}: \
         demo_errors is 12 for a pod whose image is nginx:{BROKEN}, and 0 for any other."
    ));
    Ok(())
}

async fn good_release(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    scene.watch.tell.title(&format!("A good release: nginx {FIRST} → {GOOD}"));
    set_image(scene, GOOD).await?;
    complete(scene, GOOD).await
}

async fn bad_release(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    scene.watch.tell.title(&format!("A release with errors: nginx {GOOD} → {BROKEN}"));
    let before = uids(scene);
    set_image(scene, BROKEN).await?;
    let stopped =
        |scene: &Scene| scene.phase() == Phase::Failed && scene.pods.get("web-2").is_some_and(|pod| pod.tag == BROKEN);
    scene.until("the release is stopped at web-2", PATIENCE, stopped).await?;
    if scene.is_enforced() {
        push_on(scene).await?;
    }
    let checks = scene.record.checks;
    scene.until("two more checks", PATIENCE, |scene| scene.record.checks >= checks + 2).await?;
    let after = uids(scene);
    for name in ["web-0", "web-1"] {
        let (old, new) = (before.get(name), after.get(name));
        if old != new || scene.pods.get(name).is_none_or(|pod| pod.tag != GOOD) {
            bail!("{name} moved: {old:?} became {new:?}");
        }
    }
    let kept = |name| after.get(name).map_or("?", |uid| short(uid));
    let text = format!(
        "web-0 and web-1 are the pods they were before the release: {GOOD}, uid {} and {}",
        kept("web-0"),
        kept("web-1")
    );
    scene.watch.tell.event(Tone::Good, "unmoved", &text);
    Ok(())
}

/// What happens to the one who does not want to wait.
async fn push_on(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let patch = r#"{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}"#;
    scene.watch.tell.line("");
    scene.watch.tell.command(&format!("kubectl -n {NAMESPACE} patch statefulset web --type merge -p '{patch}'"));
    let args = ["patch", "statefulset", "web", "--namespace", NAMESPACE, "--type", "merge", "--patch", patch];
    let answer = scene.watch.stage.commands()?.kubectl(&args).await?;
    scene.watch.tell.answer(&answer);
    scene.watch.tell.line("");
    if !answer.contains("Warning") {
        bail!("the API server did not warn");
    }
    Ok(())
}

async fn fix(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    scene.watch.tell.title(&format!("The fix: nginx {BROKEN} → {FIX}"));
    set_image(scene, FIX).await?;
    complete(scene, FIX).await
}

async fn set_image(scene: &mut Scene<'_>, tag: &str) -> anyhow::Result<()> {
    let image = format!("web=nginx:{tag}");
    scene.watch.tell.command(&format!("kubectl -n {NAMESPACE} set image statefulset/web {image}"));
    let args = ["set", "image", "statefulset/web", &image, "--namespace", NAMESPACE];
    scene.watch.stage.commands()?.kubectl(&args).await?;
    Ok(())
}

async fn complete(scene: &mut Scene<'_>, tag: &str) -> anyhow::Result<()> {
    let done = |scene: &Scene| {
        scene.phase() == Phase::Completed && scene.all_carry(tag) && scene.set.partition == scene.set.replicas
    };
    scene.until(&format!("{tag} on every pod, checked"), PATIENCE, done).await
}

fn uids(scene: &Scene) -> BTreeMap<String, String> {
    scene.pods.iter().map(|(name, pod)| (name.clone(), pod.uid.clone())).collect()
}
