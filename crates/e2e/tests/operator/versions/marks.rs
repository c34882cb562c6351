//! Annotations of ours that somebody writes into the template: none of them reaches a StatefulSet, where one could switch the hold off or
//! allow a partition.

use rstest::rstest;
use serde_json::{Map, Value, json};
use sts_plus_api::{Reason, names};
use sts_plus_e2e::{Scene, View, objects, template_image};

use super::in_place::plain;

/// Each as it would open the most.
fn opening() -> Map<String, Value> {
    let mut all: Map<_, _> = names::OF_A_SET.iter().map(|name| ((*name).to_owned(), json!("true"))).collect();
    for (name, value) in
        [(names::HOLD_SWITCH, "off"), (names::ALLOW_PARTITION, "0"), (names::CLAIM, "gate"), (names::VERSION, "7")]
    {
        all.insert(name.to_owned(), json!(value));
    }
    all.insert("a-persons-own".to_owned(), json!("kept"));
    all
}

fn annotation<'a>(view: &'a View, set: &str, name: &str) -> Option<&'a str> {
    view.world.sets.get(set)?.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// From the start, and by a change of the template later on. What opens the hold comes by hand then, in one write with another image.
// spec: es§3, hold
#[rstest]
#[case::side_by_side_from_the_start(objects::extended("db"), "db-v1", true)]
#[case::side_by_side_later(objects::extended("db"), "db-v1", false)]
#[case::in_place_from_the_start(plain(), "db", true)]
#[case::in_place_later(plain(), "db", false)]
#[tokio::test]
async fn marks_of_ours_in_a_template_do_not_reach_the_stateful_set_and_a_hand_moves_nothing(
    #[case] db: Value,
    #[case] set: &str,
    #[case] from_the_start: bool,
) {
    let marked = objects::with(db.clone(), "/spec/template/metadata/annotations", opening());
    let scene = Scene::with_versions("marks", if from_the_start { &marked } else { &db }).await;
    if !from_the_start {
        scene.change(&json!({ "spec": { "template": { "metadata": { "annotations": opening() } } } })).await;
    }
    let has_own = |view: &View| view.is_only(1) && annotation(view, set, "a-persons-own") == Some("kept");
    let before = scene.until_versions("what is a person's own is there", has_own).await;
    assert_eq!(annotation(&before, set, names::CLAIM), Some("ExtendedStatefulSet/db"));
    assert_eq!(annotation(&before, set, names::VERSION), Some("1"));
    for name in [names::HOLD_SWITCH, names::ALLOW_PARTITION, names::RELEASE, names::PROBE, names::STALE] {
        assert_eq!(annotation(&before, set, name), None, "{name}");
    }
    let containers = json!([{ "name": "app", "image": "app:77" }]);
    let write = json!({ "spec": {
        "updateStrategy": { "rollingUpdate": { "partition": 0 } },
        "template": { "spec": { "containers": containers } },
    } });
    scene.kubectl_ok(&["patch", "statefulset", set, "--type=strategic", "-p", &write.to_string()], "").await;
    scene.until_events(Reason::ChildDrift, 1).await;
    let is_put_back = |view: &View| {
        let child = &view.world.sets[set];
        let seen = child.status.as_ref().and_then(|status| status.observed_generation);
        view.is_only(1) && seen == child.metadata.generation && template_image(child) == "app:1"
    };
    let after = scene.until_versions("put back", is_put_back).await;
    assert_eq!(after.uids(""), before.uids(""), "no pod has moved");
    scene.end().await;
}
