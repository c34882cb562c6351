//! Names of sets and of zones.

use serde_json::{Value, json};
use sts_plus_e2e::{Ground, Scene, answer};

use super::objects::{merged, set};
use crate::rig::{accepted, on_both_minors, refused};

on_both_minors!(
    a_name_that_leaves_no_room_is_refused_with_the_number_that_is_too_many,
    a_name_with_a_dot_is_refused,
    zones_count_in_the_length_of_a_name,
    zones_that_are_named_twice_are_refused,
    zones_that_can_be_no_part_of_a_name_are_refused,
    az_and_zones_that_differ_are_refused,
    two_words_about_config_changes_that_differ_are_refused,
    no_zone_is_no_zone_however_it_is_written,
    a_label_of_nodes_that_no_node_can_have_is_refused,
);

fn named(name: &str, spec: &Value) -> Value {
    let mut object = set(spec, &json!({}));
    object["metadata"]["name"] = name.into();
    object
}

fn too_long(has: usize) -> String {
    format!(
        "metadata.name, with the longest zone and -v999999, has {has} characters, {} more than the 52 that a StatefulSet can have: choose a \
         shorter name",
        has - 52
    )
}

// spec: es§1, L115
async fn a_name_that_leaves_no_room_is_refused_with_the_number_that_is_too_many(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    accepted(&scene, &named(&"a".repeat(44), &json!({}))).await;
    for length in [45, 46, 60, 253] {
        refused(&scene, &named(&"a".repeat(length), &json!({})), &[&too_long(length + 8)]).await;
    }
    // In place the StatefulSet has no version in its name.
    let in_place = json!({ "updateStrategy": { "type": "InPlace" } });
    accepted(&scene, &named(&"a".repeat(52), &in_place)).await;
    let sentence = "metadata.name, with the longest zone, has 53 characters, 1 more than the 52";
    refused(&scene, &named(&"a".repeat(53), &in_place), &[sentence]).await;
}

/// The API server refuses such a StatefulSet, so that no version could ever be made.
async fn a_name_with_a_dot_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let sentence =
        "metadata.name has a dot, which no StatefulSet can have in its name: choose another name, with - in its place";
    refused(&scene, &named("web.shop", &json!({})), &[sentence]).await;
    accepted(&scene, &named("web-shop", &json!({}))).await;
}

async fn zones_count_in_the_length_of_a_name(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    for field in ["az", "zones"] {
        // The longest counts, wherever it stands.
        for zones in [json!(["z1", "zone1"]), json!(["zone1", "z1", "z-2"])] {
            let spec = json!({ field: zones });
            accepted(&scene, &named(&"a".repeat(38), &spec)).await;
            refused(&scene, &named(&"a".repeat(39), &spec), &[&too_long(53)]).await;
            refused(&scene, &named(&"a".repeat(45), &spec), &[&too_long(59)]).await;
        }
        let longest = json!({ field: ["z".repeat(42)] });
        accepted(&scene, &named("a", &longest)).await;
        refused(&scene, &named("ab", &longest), &[&too_long(53)]).await;
    }
    scene.create(&named(&"a".repeat(44), &json!({}))).await;
    let name = "a".repeat(44);
    let patch = json!({ "spec": { "zones": ["z"] } });
    let answer = answer(scene.try_patch(&format!("extendedstatefulset/{name}"), &patch).await);
    assert!(answer.as_ref().is_err_and(|error| error.contains(&too_long(54))), "{answer:?}");
}

// spec: es§1, es§7
async fn zones_that_are_named_twice_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    for field in ["az", "zones"] {
        let sentence = format!("spec.{field} names a zone twice: name each once");
        refused(&scene, &set(&json!({ field: ["a", "b", "a"] }), &json!({})), &[&sentence]).await;
        accepted(&scene, &set(&json!({ field: ["a", "b", "c"] }), &json!({}))).await;
    }
}

async fn zones_that_can_be_no_part_of_a_name_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    for field in ["az", "zones"] {
        let sentence = format!(
            "spec.{field} has a zone that can be no part of a name: write lower-case letters, digits and -, with a letter or digit at both ends"
        );
        for zone in ["A", "a_b", "a.b", "-a", "a-", "a b", " a", "a\n", "zoné", "a/b", "{ordinal}"] {
            refused(&scene, &set(&json!({ field: ["ok", zone] }), &json!({})), &[&sentence]).await;
        }
        for zone in ["a", "0", "eu-central-1a", "1-2"] {
            accepted(&scene, &set(&json!({ field: [zone] }), &json!({}))).await;
        }
        let item = format!("spec.{field}[1]");
        refused(&scene, &set(&json!({ field: ["ok", ""] }), &json!({})), &[&item]).await;
        refused(&scene, &set(&json!({ field: ["ok", "z".repeat(50)] }), &json!({})), &[&item]).await;
        let many = |count: usize| json!({ field: (0..count).map(|n| format!("z{n}")).collect::<Vec<_>>() });
        accepted(&scene, &set(&many(32), &json!({}))).await;
        refused(&scene, &set(&many(33), &json!({})), &[&format!("spec.{field}"), "must have at most 32 items"]).await;
    }
}

async fn az_and_zones_that_differ_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let sentence = "spec.az and spec.zones are both set and differ: zones is another name of az; keep one of them";
    for (az, zones) in [(json!(["a"]), json!(["b"])), (json!(["a", "b"]), json!(["b", "a"]))] {
        refused(&scene, &set(&json!({ "az": az, "zones": zones }), &json!({})), &[sentence]).await;
    }
    for (az, zones) in [(json!(["a"]), json!(["a"])), (json!([]), json!(["a"])), (json!(["a"]), Value::Null)] {
        accepted(&scene, &set(&json!({ "az": az, "zones": zones }), &json!({}))).await;
    }
}

async fn two_words_about_config_changes_that_differ_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let sentence = "spec.updateOnEnvChange and spec.updateOnConfigChange are both set and differ: they are two names of one thing; keep one of them";
    let both = |env: Value, config: Value| {
        set(&json!({ "updateOnEnvChange": env, "updateOnConfigChange": config }), &json!({}))
    };
    for (env, config) in [(true, false), (false, true)] {
        refused(&scene, &both(json!(env), json!(config)), &[sentence]).await;
    }
    for (env, config) in [
        (json!(true), json!(true)),
        (json!(false), json!(false)),
        (json!(true), Value::Null),
        (Value::Null, json!(true)),
    ] {
        accepted(&scene, &both(env, config)).await;
    }
    // One alone, and the other one later.
    scene.create(&set(&json!({ "updateOnConfigChange": true }), &json!({}))).await;
    let answer = merged(&scene, &json!({ "spec": { "updateOnEnvChange": false } })).await;
    assert!(answer.is_err_and(|error| error.contains("are both set and differ")));
}

async fn no_zone_is_no_zone_however_it_is_written(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    for spec in [json!({}), json!({ "az": null }), json!({ "zones": null }), json!({ "az": null, "zones": null })] {
        let stored = accepted(&scene, &set(&spec, &json!({}))).await;
        assert!(stored["spec"]["az"].is_null() && stored["spec"]["zones"].is_null(), "{stored}");
    }
    for spec in [json!({ "az": [] }), json!({ "zones": [] })] {
        accepted(&scene, &set(&spec, &json!({}))).await;
    }
}

async fn a_label_of_nodes_that_no_node_can_have_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let sentence = "spec.zoneNodeLabel can be no key of a label: write one such as topology.kubernetes.io/zone";
    for label in ["my zone", "-zone", "zone-", "a/b/c", "/zone", "Example.com/zone", "example.com/", "zone=a", "zoné"]
    {
        refused(&scene, &set(&json!({ "zoneNodeLabel": label }), &json!({})), &[sentence]).await;
    }
    refused(&scene, &set(&json!({ "zoneNodeLabel": "z".repeat(64) }), &json!({})), &[sentence]).await;
    for label in ["zone", "topology.kubernetes.io/zone", "Zone_1.a", "example.com/My-Zone", "z"] {
        accepted(&scene, &set(&json!({ "zoneNodeLabel": label }), &json!({}))).await;
    }
}
