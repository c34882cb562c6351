//! Names of sets and of zones.

use serde_json::{Value, json};

use crate::{
    rig::{Rig, on_both_minors},
    scene::{Scene, set},
};

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
        "metadata.name, with the longest zone and -v1, has {has} characters, {} more than the 52 that a StatefulSet can have: choose a \
         shorter name",
        has - 52
    )
}

async fn a_name_that_leaves_no_room_is_refused_with_the_number_that_is_too_many(
    rig: &'static Rig,
) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    scene.accepted(&named(&"a".repeat(49), &json!({}))).await?;
    for length in [50, 51, 60, 253] {
        scene.refused(&named(&"a".repeat(length), &json!({})), &[&too_long(length + 3)]).await?;
    }
    // In place the StatefulSet has no version in its name.
    let in_place = json!({ "updateStrategy": { "type": "InPlace" } });
    scene.accepted(&named(&"a".repeat(52), &in_place)).await?;
    let sentence = "metadata.name, with the longest zone, has 53 characters, 1 more than the 52";
    scene.refused(&named(&"a".repeat(53), &in_place), &[sentence]).await?;
    Ok(())
}

/// The API server refuses such a StatefulSet, so that no version could ever be made.
async fn a_name_with_a_dot_is_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let sentence =
        "metadata.name has a dot, which no StatefulSet can have in its name: choose another name, with - in its place";
    scene.refused(&named("web.shop", &json!({})), &[sentence]).await?;
    scene.accepted(&named("web-shop", &json!({}))).await?;
    Ok(())
}

async fn zones_count_in_the_length_of_a_name(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    for field in ["az", "zones"] {
        // The longest counts, wherever it stands.
        for zones in [json!(["z1", "zone1"]), json!(["zone1", "z1", "z-2"])] {
            let spec = json!({ field: zones });
            scene.accepted(&named(&"a".repeat(43), &spec)).await?;
            scene.refused(&named(&"a".repeat(44), &spec), &[&too_long(53)]).await?;
            scene.refused(&named(&"a".repeat(50), &spec), &[&too_long(59)]).await?;
        }
        let longest = json!({ field: ["z".repeat(47)] });
        scene.accepted(&named("a", &longest)).await?;
        scene.refused(&named("ab", &longest), &[&too_long(53)]).await?;
    }
    scene.create(&named(&"a".repeat(49), &json!({}))).await?;
    let name = "a".repeat(49);
    let patch = json!({ "spec": { "zones": ["z"] } }).to_string();
    let answer = scene.kubectl(&["patch", "ests", &name, "--type=merge", "-p", &patch], "").await?;
    assert!(answer.as_ref().is_err_and(|error| error.contains(&too_long(54))), "{answer:?}");
    Ok(())
}

async fn zones_that_are_named_twice_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    for field in ["az", "zones"] {
        let sentence = format!("spec.{field} names a zone twice: name each once");
        scene.refused(&set(&json!({ field: ["a", "b", "a"] }), &json!({})), &[&sentence]).await?;
        scene.accepted(&set(&json!({ field: ["a", "b", "c"] }), &json!({}))).await?;
    }
    Ok(())
}

async fn zones_that_can_be_no_part_of_a_name_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    for field in ["az", "zones"] {
        let sentence = format!(
            "spec.{field} has a zone that can be no part of a name: write lower-case letters, digits and -, with a letter or digit at both ends"
        );
        for zone in ["A", "a_b", "a.b", "-a", "a-", "a b", " a", "a\n", "zoné", "a/b", "{ordinal}"] {
            scene.refused(&set(&json!({ field: ["ok", zone] }), &json!({})), &[&sentence]).await?;
        }
        for zone in ["a", "0", "eu-central-1a", "1-2"] {
            scene.accepted(&set(&json!({ field: [zone] }), &json!({}))).await?;
        }
        let item = format!("spec.{field}[1]");
        scene.refused(&set(&json!({ field: ["ok", ""] }), &json!({})), &[&item]).await?;
        scene.refused(&set(&json!({ field: ["ok", "z".repeat(50)] }), &json!({})), &[&item]).await?;
        let many = |count: usize| json!({ field: (0..count).map(|n| format!("z{n}")).collect::<Vec<_>>() });
        scene.accepted(&set(&many(32), &json!({}))).await?;
        scene.refused(&set(&many(33), &json!({})), &[&format!("spec.{field}"), "must have at most 32 items"]).await?;
    }
    Ok(())
}

async fn az_and_zones_that_differ_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let sentence = "spec.az and spec.zones are both set and differ: zones is another name of az; keep one of them";
    for (az, zones) in [(json!(["a"]), json!(["b"])), (json!(["a", "b"]), json!(["b", "a"]))] {
        scene.refused(&set(&json!({ "az": az, "zones": zones }), &json!({})), &[sentence]).await?;
    }
    for (az, zones) in [(json!(["a"]), json!(["a"])), (json!([]), json!(["a"])), (json!(["a"]), Value::Null)] {
        scene.accepted(&set(&json!({ "az": az, "zones": zones }), &json!({}))).await?;
    }
    Ok(())
}

async fn two_words_about_config_changes_that_differ_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let sentence = "spec.updateOnEnvChange and spec.updateOnConfigChange are both set and differ: they are two names of one thing; keep one of them";
    let both = |env: Value, config: Value| {
        set(&json!({ "updateOnEnvChange": env, "updateOnConfigChange": config }), &json!({}))
    };
    for (env, config) in [(true, false), (false, true)] {
        scene.refused(&both(json!(env), json!(config)), &[sentence]).await?;
    }
    for (env, config) in [
        (json!(true), json!(true)),
        (json!(false), json!(false)),
        (json!(true), Value::Null),
        (Value::Null, json!(true)),
    ] {
        scene.accepted(&both(env, config)).await?;
    }
    // One alone, and the other one later.
    scene.create(&set(&json!({ "updateOnConfigChange": true }), &json!({}))).await?;
    let answer = scene.merge(&json!({ "spec": { "updateOnEnvChange": false } })).await?;
    assert!(answer.is_err_and(|said| format!("{said:?}").contains("are both set and differ")));
    Ok(())
}

async fn no_zone_is_no_zone_however_it_is_written(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    for spec in [json!({}), json!({ "az": null }), json!({ "zones": null }), json!({ "az": null, "zones": null })] {
        let stored = scene.accepted(&set(&spec, &json!({}))).await?;
        assert!(stored["spec"]["az"].is_null() && stored["spec"]["zones"].is_null(), "{stored}");
    }
    for spec in [json!({ "az": [] }), json!({ "zones": [] })] {
        scene.accepted(&set(&spec, &json!({}))).await?;
    }
    Ok(())
}

async fn a_label_of_nodes_that_no_node_can_have_is_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let sentence = "spec.zoneNodeLabel can be no key of a label: write one such as topology.kubernetes.io/zone";
    for label in ["my zone", "-zone", "zone-", "a/b/c", "/zone", "Example.com/zone", "example.com/", "zone=a", "zoné"]
    {
        scene.refused(&set(&json!({ "zoneNodeLabel": label }), &json!({})), &[sentence]).await?;
    }
    scene.refused(&set(&json!({ "zoneNodeLabel": "z".repeat(64) }), &json!({})), &[sentence]).await?;
    for label in ["zone", "topology.kubernetes.io/zone", "Zone_1.a", "example.com/My-Zone", "z"] {
        scene.accepted(&set(&json!({ "zoneNodeLabel": label }), &json!({}))).await?;
    }
    Ok(())
}
