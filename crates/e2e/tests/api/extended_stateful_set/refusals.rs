//! What is refused, with its sentence, and its nearest neighbour that is accepted. The names are in `names.rs`.

use serde_json::{Value, json};
use sts_plus_e2e::{Ground, Scene};

use super::objects::{merged, set};
use crate::rig::{accepted, on_both_minors, refused};

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

// spec: es§1, es§2
async fn limits_that_leave_no_count_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let crossed =
        "spec.scaling.min is greater than spec.scaling.max: no number of replicas is allowed; correct one of them";
    let no_odd = "spec.scaling.oddOnly is true and no odd number lies between spec.scaling.min and spec.scaling.max: widen the limits";
    for policy in ["Reject", "Clamp"] {
        refused(&scene, &scaling(&json!({ "min": 4, "max": 3, "policy": policy })), &[crossed]).await;
        refused(&scene, &counted(3, &json!({ "min": 4, "max": 3, "policy": policy })), &[crossed]).await;
        for limits in [json!({ "min": 4, "max": 4 }), json!({ "min": 0, "max": 0 }), json!({ "max": 0 })] {
            let mut limits = limits;
            limits["policy"] = policy.into();
            accepted(&scene, &scaling(&limits)).await;
            limits["oddOnly"] = true.into();
            refused(&scene, &scaling(&limits), &[no_odd]).await;
        }
    }
    for limits in
        [json!({ "min": 3, "max": 3 }), json!({ "min": 4, "max": 5 }), json!({ "max": 1 }), json!({ "min": 8 })]
    {
        let mut limits = limits;
        limits["oddOnly"] = true.into();
        accepted(&scene, &scaling(&limits)).await;
    }
}

async fn a_count_beyond_the_limits_is_refused_and_clamp_lets_it_through(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
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
        refused(&scene, &counted(replicas, &limits), &[&sentence]).await;
        limits["policy"] = "Reject".into();
        refused(&scene, &counted(replicas, &limits), &[&sentence]).await;
        limits["policy"] = "Clamp".into();
        let stored = accepted(&scene, &counted(replicas, &limits)).await;
        assert_eq!(stored["spec"]["template"]["spec"]["replicas"], replicas, "the count stays as it was written");
    }
}

async fn numbers_out_of_range_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    for policy in ["Reject", "Clamp"] {
        let object = counted(-1, &json!({ "policy": policy }));
        refused(&scene, &object, &["spec.template.spec.replicas", "should be greater than or equal to 0"]).await;
    }
    refused(&scene, &counted(1 << 31, &json!({})), &["spec.template.spec.replicas"]).await;
    for field in ["min", "max"] {
        let place = format!("spec.scaling.{field}");
        refused(&scene, &scaling(&json!({ field: -1 })), &[&place, "should be greater than or equal to 0"]).await;
        for value in [json!("3"), json!(1.5), json!(1_u64 << 31), json!([1])] {
            refused(&scene, &scaling(&json!({ field: value })), &[&place]).await;
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
        refused(&scene, &strategy(&json!({ field: value })), &[&place, "should be"]).await;
    }
    let least = json!({ "canaries": 0, "retryCount": 0, "canaryWatchSeconds": 1, "scaleDownDelaySeconds": 0 });
    accepted(&scene, &strategy(&least)).await;
}

// spec: es§1
async fn another_type_is_refused(ground: &'static Ground) {
    let sentence = "spec.updateStrategy.type cannot be changed: make another ExtendedStatefulSet";
    for (before, after) in
        [("SideBySide", json!("InPlace")), ("InPlace", json!("SideBySide")), ("InPlace", Value::Null)]
    {
        let scene = Scene::on(ground, "ests").await;
        scene.create(&strategy(&json!({ "type": before }))).await;
        let answer = merged(&scene, &json!({ "spec": { "updateStrategy": { "type": after } } })).await;
        assert!(answer.as_ref().is_err_and(|error| error.contains(sentence)), "{before} to {after}: {answer:?}");
    }
    // Without a strategy at all it is the default one.
    let scene = Scene::on(ground, "ests").await;
    scene.create(&set(&json!({}), &json!({}))).await;
    let answer = merged(&scene, &json!({ "spec": { "updateStrategy": { "type": "InPlace" } } })).await;
    assert!(answer.as_ref().is_err_and(|error| error.contains(sentence)), "{answer:?}");
    let same = json!({ "spec": { "updateStrategy": { "type": "SideBySide", "canaries": 2 } } });
    merged(&scene, &same).await.expect("the same type");
    let answer = merged(&scene, &json!({ "spec": { "updateStrategy": null } })).await;
    assert!(answer.is_ok(), "{answer:?}");
}

async fn a_check_with_settings_of_a_roll_is_refused_side_by_side(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
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
        refused(&scene, &strategy(&json!({ "check": check })), &[sentence]).await;
        refused(&scene, &strategy(&json!({ "type": "SideBySide", "check": check })), &[sentence]).await;
        accepted(&scene, &strategy(&json!({ "type": "InPlace", "check": check }))).await;
    }
    let check = json!({ "query": { "expr": "up", "url": "prom:9090" }, "final": null });
    accepted(&scene, &strategy(&json!({ "check": check }))).await;
}

async fn services_that_follow_a_version_are_refused_in_place(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let sentence = "spec.updateStrategy has activeService, previewService or scaleDownDelaySeconds, which are for type SideBySide: \
                    remove them";
    for setting in [
        json!({ "activeService": "web" }),
        json!({ "previewService": "web-next" }),
        json!({ "scaleDownDelaySeconds": 1 }),
    ] {
        accepted(&scene, &strategy(&setting)).await;
        let in_place = [&json!({ "type": "InPlace" }), &setting].map(|it| it.as_object().cloned().unwrap_or_default());
        refused(
            &scene,
            &strategy(&json!(in_place.into_iter().flatten().collect::<serde_json::Map<_, _>>())),
            &[sentence],
        )
        .await;
    }
    accepted(&scene, &strategy(&json!({ "type": "InPlace", "scaleDownDelaySeconds": 0 }))).await;
}

async fn a_check_without_a_query_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let sentence = "spec.updateStrategy.check has no query: give one in query or queries, or remove the check";
    for check in [json!({}), json!({ "queries": [] }), json!({ "url": "prom:9090", "query": null })] {
        for kind in ["SideBySide", "InPlace"] {
            refused(&scene, &strategy(&json!({ "type": kind, "check": check })), &[sentence]).await;
        }
    }
    accepted(&scene, &strategy(&json!({ "check": null }))).await;
}

async fn a_check_is_told_with_the_name_that_it_has_here(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
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
        refused(&scene, &object, &[sentence]).await;
        let error = scene.try_create(&object).await.err().unwrap_or_default();
        assert!(!error.contains("spec.check") && !error.contains("secret@"), "{error}");
    }
}

async fn names_that_no_service_can_have_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    for field in ["activeService", "previewService"] {
        let sentence = format!("{field} can be no name of a Service");
        for name in ["Web", "-web", "web_1", "web "] {
            refused(&scene, &strategy(&json!({ field: name })), &[&sentence]).await;
        }
        let place = format!("spec.updateStrategy.{field}");
        refused(&scene, &strategy(&json!({ field: "a".repeat(64) })), &[&place]).await;
        refused(&scene, &strategy(&json!({ field: "" })), &[&place]).await;
        accepted(&scene, &strategy(&json!({ field: "web-1" }))).await;
    }
    let both = |active, preview| strategy(&json!({ "activeService": active, "previewService": preview }));
    refused(&scene, &both("web", "web"), &["name the same Service: name two, or remove one of them"]).await;
    accepted(&scene, &both("web", "next")).await;
}

/// The policy sees an object before the schema does: its own errors must not hide what the schema says.
async fn a_template_of_another_shape_gets_the_sentence_of_the_schema(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
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
        refused(&scene, &object, &[sentence]).await;
        let error = scene.try_create(&object).await.err().unwrap_or_default();
        assert!(!error.contains("sts-plus-replicas"), "{error}");
    }
}

// spec: es§1
async fn unknown_words_and_fields_outside_the_template_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
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
        refused(&scene, &set(&spec, &json!({})), &[place, allowed]).await;
    }
    for (spec, place) in [
        (json!({ "pausd": true }), "spec.pausd"),
        (json!({ "scaling": { "mn": 1 } }), "spec.scaling.mn"),
        (json!({ "updateStrategy": { "canary": 1 } }), "spec.updateStrategy.canary"),
    ] {
        refused(&scene, &set(&spec, &json!({})), &[&format!("unknown field \"{place}\"")]).await;
    }
}
