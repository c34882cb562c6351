//! `--require-labelled-secrets`: a Secret is sent only if whoever may write Secrets has said that it may be.

use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Scene, View, World, objects};
use testcluster::{Access, AuthProxy};

use super::token;

const STRICT: &[&str] = &["--require-labelled-secrets"];

/// A Prometheus that wants a token, and the Secret with it, which has no label.
async fn door(scene: &Scene) -> AuthProxy {
    let door = AuthProxy::start(scene.ground.prometheus().await.url()).await.expect("the proxy starts");
    door.demand(Access::Bearer(token("good")));
    scene.create(&objects::secret("prom", &[("token", &token("good"))])).await;
    door
}

/// What a person types who reads the message: the command in it.
async fn follow_the_cure(scene: &Scene, message: &str) {
    let (_, command) = message.split_once("kubectl ").unwrap_or_else(|| panic!("no command: {message}"));
    let end = command.find(&format!("{}=true", names::CHECK_CREDENTIALS)).expect("the label is named");
    let command = &command[..end + names::CHECK_CREDENTIALS.len() + "=true".len()];
    scene.kubectl_ok(&command.split(' ').collect::<Vec<_>>(), "").await;
}

// spec: pr§1
#[tokio::test]
async fn a_secret_without_the_label_is_told_before_anything_rolls_and_sent_when_it_has_it() {
    let mut scene = Scene::new("labelled").await;
    scene.start_with(STRICT, Vec::new());
    let door = door(&scene).await;
    let gate = objects::with(objects::quick(objects::rollout(&door.url())), "/spec/check/query/secretRef", "prom");
    scene.settle(&objects::set(1), &gate).await;
    let is_told =
        |world: &World| world.condition(ConditionType::ChecksValid) == format!("False/{}", Reason::InvalidCredentials);
    let told = scene.until("it is told", |world| is_told(world) && world.is(Phase::Blocked)).await;
    let message = told.status().message;
    assert!(message.contains("spec.check.query.secretRef names Secret prom"), "{message}");
    scene.release("app:2").await;
    let held = scene.until("nothing rolls", |world| is_told(world) && world.partition() == Some(names::HOLD)).await;
    assert_eq!(held.image("web-0"), "app:1");
    assert!(door.seen().is_empty(), "nothing was sent");
    follow_the_cure(&scene, &message).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

// spec: es§3
#[tokio::test]
async fn a_canary_is_not_checked_with_a_secret_without_the_label() {
    let mut scene = Scene::new("labelled-version").await;
    scene.start_with(STRICT, Vec::new());
    scene.start_operator();
    let door = door(&scene).await;
    let check: Value = json!({
        "initialDelaySeconds": 0, "periodSeconds": 1, "successThreshold": 1, "maxTries": 2,
        "query": { "expr": objects::ERRORS, "url": door.url(), "secretRef": "prom" },
    });
    let db = objects::with(objects::extended("db"), "/spec/updateStrategy/check", check);
    scene.create(&db).await;
    scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    scene.release_version("app:2").await;
    let is_told = |view: &View| view.is_told() && view.status.message.contains(names::CHECK_CREDENTIALS);
    let told = scene.until_versions("it is told", is_told).await;
    assert!(told.status.message.contains("query.secretRef names Secret prom"), "{}", told.status.message);
    assert!(door.seen().is_empty(), "nothing was sent");
    follow_the_cure(&scene, &told.status.message).await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    scene.end().await;
}
