//! What is refused, with its sentence, and its nearest neighbour that is accepted. The names are in `names.rs`.

use anyhow::ensure;
use serde_json::{Value, json};

use crate::{
    rig::{Rig, on_both_minors},
    scene::{Scene, set},
};

on_both_minors!(
    limits_that_leave_no_count_are_refused,
    a_count_beyond_the_limits_is_refused_and_clamp_lets_it_through,
    numbers_out_of_range_are_refused,
    another_type_is_refused,
    a_check_with_settings_of_a_roll_is_refused_side_by_side,
    services_that_follow_a_version_are_refused_in_place,
    a_check_without_a_query_is_refused,
    a_check_is_told_with_the_name_that_it_has_here,
    names_that_no_service_can_have_are_refused,
    a_template_of_another_shape_gets_the_sentence_of_the_schema,
    unknown_words_and_fields_outside_the_template_are_refused,
);

fn scaling(scaling: &Value) -> Value {
    set(&json!({ "scaling": scaling }), &json!({}))
}

fn counted(replicas: i64, scaling: &Value) -> Value {
    set(&json!({ "scaling": scaling }), &json!({ "replicas": replicas }))
}

fn strategy(strategy: &Value) -> Value {
    set(&json!({ "updateStrategy": strategy }), &json!({}))
}

async fn limits_that_leave_no_count_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let crossed =
        "spec.scaling.min is greater than spec.scaling.max: no number of replicas is allowed; correct one of them";
    let no_odd = "spec.scaling.oddOnly is true and no odd number lies between spec.scaling.min and spec.scaling.max: widen the limits";
    for policy in ["Reject", "Clamp"] {
        scene.refused(&scaling(&json!({ "min": 4, "max": 3, "policy": policy })), &[crossed]).await?;
        scene.refused(&counted(3, &json!({ "min": 4, "max": 3, "policy": policy })), &[crossed]).await?;
        for limits in [json!({ "min": 4, "max": 4 }), json!({ "min": 0, "max": 0 }), json!({ "max": 0 })] {
            let mut limits = limits;
            limits["policy"] = policy.into();
            scene.accepted(&scaling(&limits)).await?;
            limits["oddOnly"] = true.into();
            scene.refused(&scaling(&limits), &[no_odd]).await?;
        }
    }
    for limits in
        [json!({ "min": 3, "max": 3 }), json!({ "min": 4, "max": 5 }), json!({ "max": 1 }), json!({ "min": 8 })]
    {
        let mut limits = limits;
        limits["oddOnly"] = true.into();
        scene.accepted(&scaling(&limits)).await?;
    }
    Ok(())
}

async fn a_count_beyond_the_limits_is_refused_and_clamp_lets_it_through(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let cure = ": choose a number within the limits, change them, or set spec.scaling.policy to Clamp";
    let cases = [
        (2, json!({ "min": 3 }), format!("spec.template.spec.replicas is 2, and spec.scaling.min allows at least 3{cure}")),
        (0, json!({ "min": 1 }), format!("spec.template.spec.replicas is 0, and spec.scaling.min allows at least 1{cure}")),
        (8, json!({ "max": 7 }), format!("spec.template.spec.replicas is 8, and spec.scaling.max allows at most 7{cure}")),
        (9, json!({ "min": 2, "max": 7 }), "spec.scaling.max allows at most 7".to_owned()),
        (
            4,
            json!({ "oddOnly": true }),
            "spec.template.spec.replicas is 4, and spec.scaling.oddOnly allows only odd numbers: choose an odd one, or set \
             spec.scaling.policy to Clamp"
                .to_owned(),
        ),
        (0, json!({ "oddOnly": true }), "spec.scaling.oddOnly allows only odd numbers".to_owned()),
    ];
    for (replicas, mut limits, sentence) in cases {
        scene.refused(&counted(replicas, &limits), &[&sentence]).await?;
        limits["policy"] = "Reject".into();
        scene.refused(&counted(replicas, &limits), &[&sentence]).await?;
        limits["policy"] = "Clamp".into();
        let stored = scene.accepted(&counted(replicas, &limits)).await?;
        assert_eq!(stored["spec"]["template"]["spec"]["replicas"], replicas, "the count stays as it was written");
    }
    Ok(())
}

async fn numbers_out_of_range_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    for policy in ["Reject", "Clamp"] {
        let object = counted(-1, &json!({ "policy": policy }));
        scene.refused(&object, &["spec.template.spec.replicas", "should be greater than or equal to 0"]).await?;
    }
    scene.refused(&counted(1 << 31, &json!({})), &["spec.template.spec.replicas"]).await?;
    for field in ["min", "max"] {
        let place = format!("spec.scaling.{field}");
        scene.refused(&scaling(&json!({ field: -1 })), &[&place, "should be greater than or equal to 0"]).await?;
        for value in [json!("3"), json!(1.5), json!(1_u64 << 31), json!([1])] {
            scene.refused(&scaling(&json!({ field: value })), &[&place]).await?;
        }
    }
    let fields = [
        ("canaries", -1),
        ("retryCount", -1),
        ("retryCount", 101),
        ("canaryWatchSeconds", 0),
        ("scaleDownDelaySeconds", -1),
    ];
    for (field, value) in fields {
        let place = format!("spec.updateStrategy.{field}");
        scene.refused(&strategy(&json!({ field: value })), &[&place, "should be"]).await?;
    }
    let least = json!({ "canaries": 0, "retryCount": 0, "canaryWatchSeconds": 1, "scaleDownDelaySeconds": 0 });
    scene.accepted(&strategy(&least)).await?;
    Ok(())
}

async fn another_type_is_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let sentence = "spec.updateStrategy.type cannot be changed: make another ExtendedStatefulSet";
    for (before, after) in
        [("SideBySide", json!("InPlace")), ("InPlace", json!("SideBySide")), ("InPlace", Value::Null)]
    {
        let scene = Scene::new(rig).await?;
        scene.create(&strategy(&json!({ "type": before }))).await?;
        let answer = scene.merge(&json!({ "spec": { "updateStrategy": { "type": after } } })).await?;
        ensure!(answer.as_ref().is_err_and(|error| error.contains(sentence)), "{before} to {after}: {answer:?}");
    }
    // Without a strategy at all it is the default one.
    let scene = Scene::new(rig).await?;
    scene.create(&set(&json!({}), &json!({}))).await?;
    let answer = scene.merge(&json!({ "spec": { "updateStrategy": { "type": "InPlace" } } })).await?;
    ensure!(answer.as_ref().is_err_and(|error| error.contains(sentence)), "{answer:?}");
    let same = json!({ "spec": { "updateStrategy": { "type": "SideBySide", "canaries": 2 } } });
    scene.merge(&same).await?.map_err(anyhow::Error::msg)?;
    let answer = scene.merge(&json!({ "spec": { "updateStrategy": null } })).await?;
    ensure!(answer.is_ok(), "{answer:?}");
    Ok(())
}

async fn a_check_with_settings_of_a_roll_is_refused_side_by_side(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let sentence =
        "spec.updateStrategy.check has onFailure, preflight or final, which are for type InPlace: remove them";
    let settings = [
        ("onFailure", json!("Hold")),
        ("onFailure", json!("Rollback")),
        ("preflight", json!(true)),
        ("preflight", json!(false)),
        ("final", json!(true)),
        ("final", json!(false)),
    ];
    for (field, value) in settings {
        let check = json!({ "query": { "expr": "up", "url": "prom:9090" }, field: value });
        scene.refused(&strategy(&json!({ "check": check })), &[sentence]).await?;
        scene.refused(&strategy(&json!({ "type": "SideBySide", "check": check })), &[sentence]).await?;
        scene.accepted(&strategy(&json!({ "type": "InPlace", "check": check }))).await?;
    }
    let check = json!({ "query": { "expr": "up", "url": "prom:9090" }, "final": null });
    scene.accepted(&strategy(&json!({ "check": check }))).await?;
    Ok(())
}

async fn services_that_follow_a_version_are_refused_in_place(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let sentence = "spec.updateStrategy has activeService, previewService or scaleDownDelaySeconds, which are for type SideBySide: \
                    remove them";
    for setting in [
        json!({ "activeService": "web" }),
        json!({ "previewService": "web-next" }),
        json!({ "scaleDownDelaySeconds": 1 }),
    ] {
        scene.accepted(&strategy(&setting)).await?;
        let in_place = [&json!({ "type": "InPlace" }), &setting].map(|it| it.as_object().cloned().unwrap_or_default());
        scene
            .refused(&strategy(&json!(in_place.into_iter().flatten().collect::<serde_json::Map<_, _>>())), &[sentence])
            .await?;
    }
    scene.accepted(&strategy(&json!({ "type": "InPlace", "scaleDownDelaySeconds": 0 }))).await?;
    Ok(())
}

async fn a_check_without_a_query_is_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let sentence = "spec.updateStrategy.check has no query: give one in query or queries, or remove the check";
    for check in [json!({}), json!({ "queries": [] }), json!({ "url": "prom:9090", "query": null })] {
        for kind in ["SideBySide", "InPlace"] {
            scene.refused(&strategy(&json!({ "type": kind, "check": check })), &[sentence]).await?;
        }
    }
    scene.accepted(&strategy(&json!({ "check": null }))).await?;
    Ok(())
}

async fn a_check_is_told_with_the_name_that_it_has_here(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let query = json!({ "expr": "up", "url": "prom:9090" });
    let cases = [
        (
            json!({ "query": query, "queries": [query] }),
            "spec.updateStrategy.check.query and spec.updateStrategy.check.queries are both set",
        ),
        (
            json!({ "query": query, "maxTries": 2, "successThreshold": 3 }),
            "spec.updateStrategy.check.maxTries must be at least spec.updateStrategy.check.successThreshold",
        ),
        (json!({ "queries": [query] }), "spec.updateStrategy.check.queries[].name is missing"),
        (
            json!({ "queries": [{ "name": "a", "expr": "up", "url": "p" }, { "name": "a", "expr": "up", "url": "p" }] }),
            "spec.updateStrategy.check.queries[].name is used twice",
        ),
        (json!({ "query": { "expr": "up" } }), "spec.updateStrategy.check.query.url is missing"),
        (
            json!({ "query": { "expr": "up", "tls": {} }, "url": "http://p" }),
            "spec.updateStrategy.check.url is no https URL",
        ),
        (json!({ "query": { "expr": "up", "url": "ftp://p" } }), "spec.updateStrategy.check.query.url: "),
        (json!({ "query": query, "url": "me:secret@p" }), "spec.updateStrategy.check.url: "),
    ];
    for (check, sentence) in cases {
        let object = strategy(&json!({ "check": check }));
        scene.refused(&object, &[sentence]).await?;
        let error = scene.tried(&object).await?.err().unwrap_or_default();
        ensure!(!error.contains("spec.check") && !error.contains("secret@"), "{error}");
    }
    Ok(())
}

async fn names_that_no_service_can_have_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    for field in ["activeService", "previewService"] {
        let sentence = format!("{field} can be no name of a Service");
        for name in ["Web", "-web", "web_1", "web "] {
            scene.refused(&strategy(&json!({ field: name })), &[&sentence]).await?;
        }
        let place = format!("spec.updateStrategy.{field}");
        scene.refused(&strategy(&json!({ field: "a".repeat(64) })), &[&place]).await?;
        scene.refused(&strategy(&json!({ field: "" })), &[&place]).await?;
        scene.accepted(&strategy(&json!({ field: "web-1" }))).await?;
    }
    let both = |active, preview| strategy(&json!({ "activeService": active, "previewService": preview }));
    scene.refused(&both("web", "web"), &["name the same Service: name two, or remove one of them"]).await?;
    scene.accepted(&both("web", "next")).await?;
    Ok(())
}

/// The policy sees an object before the schema does: its own errors must not hide what the schema says.
async fn a_template_of_another_shape_gets_the_sentence_of_the_schema(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let cases = [
        ("/spec", json!("a"), "spec in body must be of type object"),
        ("/spec", json!({}), "spec.template: Required value"),
        ("/spec", Value::Null, "spec: Required value"),
        ("/spec/template", json!(5), "spec.template in body must be of type object"),
        ("/spec/template", json!({}), "spec.template.spec: Required value"),
        ("/spec/template/spec", json!([]), "spec.template.spec in body must be of type object"),
        ("/spec/template/spec", json!({}), "spec.template.spec.template: Required value"),
        ("/spec/template/spec/replicas", json!("3"), "spec.template.spec.replicas in body must be of type integer"),
        ("/spec/template/metadata/labels/team", json!(1), "spec.template.metadata.labels.team"),
        ("/spec/scaling", json!(5), "spec.scaling in body must be of type object"),
        ("/spec/scaling", json!({ "oddOnly": "yes" }), "spec.scaling.oddOnly in body must be of type boolean"),
    ];
    for (place, value, sentence) in cases {
        let mut object = set(&json!({ "scaling": {} }), &json!({ "replicas": 1 }));
        *object.pointer_mut(place).unwrap_or(&mut Value::Null) = value;
        scene.refused(&object, &[sentence]).await?;
        let error = scene.tried(&object).await?.err().unwrap_or_default();
        ensure!(!error.contains("sts-plus-replicas"), "{error}");
    }
    Ok(())
}

async fn unknown_words_and_fields_outside_the_template_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let words = [
        (json!({ "zoneReplicas": "Even" }), "spec.zoneReplicas", "\"PerZone\", \"Spread\""),
        (json!({ "scaling": { "policy": "Round" } }), "spec.scaling.policy", "\"Reject\", \"Clamp\""),
        (
            json!({ "updateStrategy": { "type": "Recreate" } }),
            "spec.updateStrategy.type",
            "\"SideBySide\", \"InPlace\"",
        ),
    ];
    for (spec, place, allowed) in words {
        scene.refused(&set(&spec, &json!({})), &[place, allowed]).await?;
    }
    for (spec, place) in [
        (json!({ "pausd": true }), "spec.pausd"),
        (json!({ "scaling": { "mn": 1 } }), "spec.scaling.mn"),
        (json!({ "updateStrategy": { "canary": 1 } }), "spec.updateStrategy.canary"),
    ] {
        scene.refused(&set(&spec, &json!({})), &[&format!("unknown field \"{place}\"")]).await?;
    }
    Ok(())
}
