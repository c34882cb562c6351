//! A StatefulSet of ours is what was rendered, and nothing else: what a plain StatefulSet can run, a template can; what others add goes before a
//! pod starts on it; what is taken out is out.

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_e2e::{Scene, View, objects};

use super::in_place::plain;

fn spec(view: &View, set: &str) -> Value {
    serde_json::to_value(&view.world.sets[set]).expect("JSON")["spec"].clone()
}

fn generation(view: &View, set: &str) -> Option<i64> {
    view.world.sets[set].metadata.generation
}

/// The environment of a StatefulSet's pods, by name.
fn env(view: &View, set: &str) -> Vec<String> {
    let env = spec(view, set)["template"]["spec"]["containers"][0]["env"].clone();
    env.as_array().into_iter().flatten().filter_map(|entry| entry["name"].as_str().map(str::to_owned)).collect()
}

/// Server-side apply refuses both, and a create takes them.
#[rstest]
#[case::side_by_side(objects::extended("db"), "db-v1", "db-v2")]
#[case::in_place(plain(), "db", "db")]
#[tokio::test]
async fn what_a_create_accepts_is_run_upgraded_and_put_back(
    #[case] db: Value,
    #[case] first: &str,
    #[case] second: &str,
) {
    let twice = json!([{ "name": "MODE", "value": "a" }, { "name": "MODE", "value": "b" }]);
    let ports = json!([{ "name": "client", "containerPort": 80 }, { "name": "peer", "containerPort": 80 }]);
    let container = "/spec/template/spec/template/spec/containers/0";
    let db = objects::with(db, &format!("{container}/env"), twice);
    let db = objects::with(db, &format!("{container}/ports"), ports);
    let scene = Scene::with_versions("twice", &db).await;
    assert_eq!(env(&scene.view(), first), ["MODE", "MODE"]);
    let before = scene.view();
    scene.kubectl_ok(&["set", "env", &format!("statefulset/{first}"), "ADDED=1"], "").await;
    let is_written = |view: &View| generation(view, first) > generation(&before, first);
    let is_back = |view: &View| is_written(view) && env(view, first) == ["MODE", "MODE"] && view.is_only(1);
    scene.until_versions("put back", is_back).await;
    assert_eq!(scene.view().uids(""), before.uids(""), "no pod restarts");
    let path = "/spec/template/spec/template/spec/containers/0/image";
    let image = json!([{ "op": "replace", "path": path, "value": "app:2" }]).to_string();
    scene.kubectl_ok(&["patch", "extendedstatefulset/db", "--type=json", "-p", &image], "").await;
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(env(&after, second), ["MODE", "MODE"]);
    assert_eq!(spec(&after, second)["template"]["spec"]["containers"][0]["ports"].as_array().map(Vec::len), Some(2));
    scene.end().await;
}

/// In lists, where server-side apply would leave it, by whatever way it came.
#[rstest]
#[tokio::test]
async fn what_others_add_is_put_back_and_no_pod_starts_on_it(
    #[values((objects::extended("db"), "db-v1"), (plain(), "db"))] kind: (Value, &str),
    #[values("set env", "json patch", "apply", "strategic merge")] way: &str,
) {
    let (db, set) = kind;
    let scene = Scene::with_versions("added", &db).await;
    let (before, object) = (scene.view(), format!("statefulset/{set}"));
    let variable = json!({ "name": "ADDED", "value": "1" });
    let sidecar = json!({ "name": "sidecar", "image": "app:1" });
    let container = json!({ "name": "app", "env": [variable] });
    let pods = |spec: Value| json!({ "spec": { "template": { "spec": spec } } });
    let merge = pods(json!({ "containers": [sidecar] })).to_string();
    let add = json!([{ "op": "add", "path": "/spec/template/spec/containers/0/env", "value": [variable] }]).to_string();
    let mut applied = pods(json!({ "containers": [container] }));
    applied["apiVersion"] = json!("apps/v1");
    applied["kind"] = json!("StatefulSet");
    applied["metadata"] = json!({ "name": set });
    let (args, stdin) = match way {
        "set env" => (vec!["set", "env", &object, "ADDED=1"], String::new()),
        "json patch" => (vec!["patch", &object, "--type=json", "-p", &add], String::new()),
        "apply" => (vec!["apply", "--server-side", "--field-manager=tool", "-f", "-"], applied.to_string()),
        _ => (vec!["patch", &object, "-p", &merge], String::new()),
    };
    scene.kubectl_ok(&args, &stdin).await;
    let is_back = |view: &View| {
        let containers = spec(view, set)["template"]["spec"]["containers"].as_array().map(Vec::len);
        generation(view, set) > generation(&before, set)
            && env(view, set).is_empty()
            && containers == Some(1)
            && view.is_only(1)
    };
    scene.until_versions("put back", is_back).await;
    assert_eq!(scene.view().uids(""), before.uids(""), "no pod restarts");
    let pod = format!("{set}-0");
    scene.delete(&format!("pod/{pod}")).await;
    let uid = |view: &View| view.uids("").remove(&pod);
    let is_new = |view: &View| view.is_only(1) && uid(view).is_some_and(|new| Some(new) != uid(&before));
    scene.until_versions("the pod is back", is_new).await;
    let stored = scene.get(&format!("pod/{pod}")).await;
    assert!(!stored.to_string().contains("ADDED") && !stored.to_string().contains("sidecar"), "{stored:#}");
    assert_eq!(spec(&scene.view(), set)["template"], spec(&before, set)["template"]);
    scene.end().await;
}

#[rstest]
#[case::side_by_side(objects::extended("db"), "db-v1")]
#[case::in_place(plain(), "db")]
#[tokio::test]
async fn what_is_taken_out_is_out_and_what_others_mark_stays(#[case] db: Value, #[case] set: &str) {
    let db = objects::with(db, "/spec/template/spec/minReadySeconds", 1);
    let db = objects::with(db, "/spec/template/metadata", json!({ "labels": { "mine": "1", "kept": "1" } }));
    let scene = Scene::with_versions("taken-out", &db).await;
    scene.kubectl_ok(&["label", &format!("statefulset/{set}"), "of-a-tool=x"], "").await;
    let before = scene.view();
    let change = json!({ "spec": { "template": { "metadata": { "labels": { "mine": null } }, "spec": { "minReadySeconds": null } } } });
    scene.change(&change).await;
    let labels = |view: &View| view.world.sets[set].metadata.labels.clone().unwrap_or_default();
    let is_out = |view: &View| spec(view, set)["minReadySeconds"].is_null() && !labels(view).contains_key("mine");
    let after = scene.until_versions("taken out", |view| is_out(view) && view.is_only(1)).await;
    assert!(labels(&after)["kept"] == "1" && labels(&after)["of-a-tool"] == "x", "{:?}", labels(&after));
    assert_eq!(after.uids(""), before.uids(""), "no pod restarts");
    scene.end().await;
}

/// A quota says nothing about a template: the same in other words restarts nothing, and a new one waits until there is room, and goes on then.
#[tokio::test]
async fn a_full_quota_is_no_word_about_a_template() {
    let scene = Scene::with_versions("full", &objects::extended("db")).await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" },
        "spec": { "hard": { "count/statefulsets.apps": "1" } },
    });
    scene.create(&quota).await;
    let counted = "--for=jsonpath={.status.used['count/statefulsets\\.apps']}=1";
    scene.kubectl_ok(&["wait", "resourcequota/few", counted, "--timeout=50s"], "").await;
    let before = scene.view();
    let written_out = json!({ "restartPolicy": "Always", "dnsPolicy": "ClusterFirst" });
    scene.change(&json!({ "spec": { "template": { "spec": { "template": { "spec": written_out } } } } })).await;
    let same = scene.until_versions("the same", |view| view.is_only(1) && view.status.rewritten.is_some()).await;
    assert_eq!((same.uids(""), same.status.last_version), (before.uids(""), 1));

    scene.release_version("app:2").await;
    let is_told = |view: &View| view.is_told() && json!(view.status).to_string().contains("exceeded quota");
    let held = scene.until_versions("it is told", is_told).await;
    assert_eq!(held.uids(""), before.uids(""));
    scene.delete("resourcequota/few").await;
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(after.status.last_version, 2);
    scene.end().await;
}
