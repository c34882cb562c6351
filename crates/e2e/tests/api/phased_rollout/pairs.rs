//! Every pair of fields that contradict each other, and the pairs that look as if they did and are taken.

use serde_json::{Value, json};
use sts_plus_e2e::{Ground, Scene};

use super::with_check;
use crate::rig::{accepted, on_both_minors, refused};

on_both_minors!(fields_that_contradict_are_refused_together, fields_that_only_seem_to_contradict_are_accepted);

/// A spec with a query, and these fields.
fn with(spec: &Value, check: &Value) -> Value {
    let mut object = with_check(&json!({ "query": { "expr": "up{}", "url": "prom:9090" } }));
    for (place, fields) in [("/spec", spec), ("/spec/check", check)] {
        for (name, value) in fields.as_object().into_iter().flatten() {
            object.pointer_mut(place).unwrap_or(&mut Value::Null)[name] = value.clone();
        }
    }
    object
}

fn query(fields: &Value) -> Value {
    let mut query = json!({ "expr": "up{}", "url": "https://prom:9090" });
    for (name, value) in fields.as_object().into_iter().flatten() {
        query[name] = value.clone();
    }
    query
}

async fn fields_that_contradict_are_refused_together(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let none = json!({});
    let named = |name: &str| json!({ "name": name, "expr": "up{}", "url": "prom" });
    let tls = json!({ "serverName": "prom" });
    let https = "url is no https URL";
    let cases: [(Value, &str); 15] = [
        (with(&none, &json!({ "queries": [named("a")] })), "spec.check.query and spec.check.queries are both set"),
        (with(&none, &json!({ "query": null })), "spec.check.query is missing"),
        (
            with(&none, &json!({ "query": null, "queries": [named("a"), named("a")] })),
            "spec.check.queries[].name is used twice",
        ),
        (with(&none, &json!({ "query": { "expr": "up" } })), "spec.check.query.url is missing"),
        (with(&none, &json!({ "query": { "expr": "up", "url": null } })), "spec.check.query.url is missing"),
        (
            with(&json!({ "skipCheck": true, "standardRollingUpdate": false }), &none),
            "remove spec.standardRollingUpdate",
        ),
        (with(&json!({ "pauseBefore": [1, 0, 1] }), &none), "spec.pauseBefore names an index twice"),
        (with(&none, &json!({ "maxTries": 2 })), "spec.check.maxTries must be at least spec.check.successThreshold"),
        (
            with(&none, &json!({ "query": query(&json!({ "successWhen": "Data", "onMissingMetric": "Hold" })) })),
            "onMissingMetric Hold needs successWhen NoData",
        ),
        (with(&none, &json!({ "query": query(&json!({ "tls": tls, "url": "prom:9090" })) })), https),
        (with(&none, &json!({ "query": query(&json!({ "tls": tls, "url": "http://prom:9090" })) })), https),
        (with(&none, &json!({ "query": query(&json!({ "tls": {}, "url": "http://prom:9090" })) })), https),
        (
            with(&none, &json!({ "url": "prom", "query": { "expr": "up", "tls": tls } })),
            "spec.check.url is no https URL",
        ),
        (
            with(
                &none,
                &json!({ "url": "prom", "query": null, "queries": [named("a"), { "name": "b", "expr": "up", "tls": tls }] }),
            ),
            "spec.check.url is no https URL",
        ),
        (
            with(
                &none,
                &json!({ "query": query(&json!({ "tls": { "insecureSkipVerify": true, "caSecretRef": "ca" } })) }),
            ),
            "tls.insecureSkipVerify is true, and caSecretRef has no meaning then",
        ),
    ];
    for (object, sentence) in cases {
        refused(&scene, &object, &[sentence]).await;
    }
}

/// Each of these has a meaning, which the description of the field tells.
async fn fields_that_only_seem_to_contradict_are_accepted(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let none = json!({});
    let tls = |fields: Value| with(&json!({}), &json!({ "query": query(&json!({ "tls": fields })) }));
    let cases = [
        // The check is kept for later, paused wins, both names say the same.
        with(&json!({ "skipCheck": true }), &none),
        with(&json!({ "skipCheck": true, "paused": true, "pauseBefore": [0] }), &none),
        with(&json!({ "skipCheck": true, "standardRollingUpdate": true }), &none),
        // skipCheck false is what the schema fills in.
        with(&json!({ "skipCheck": false, "standardRollingUpdate": true }), &none),
        // The query's own value is used.
        with(&none, &json!({ "url": "other", "secretRef": "other", "query": query(&json!({ "secretRef": "mine" })) })),
        with(&none, &json!({ "url": "other", "query": query(&json!({ "tls": { "serverName": "prom" } })) })),
        with(&none, &json!({ "queries": [] })),
        // An index that no pod has, a request that may take longer than a period, a check between pods only.
        with(&json!({ "pauseBefore": [1_000_000] }), &none),
        with(&none, &json!({ "periodSeconds": 1, "query": query(&json!({ "timeoutSeconds": 60 })) })),
        with(&none, &json!({ "preflight": false, "final": false })),
        // Over before a check cycle is: told then, and ended by the next progress.
        with(&json!({ "progressDeadlineSeconds": 1 }), &none),
        with(&json!({ "progressDeadlineSeconds": 1, "skipCheck": true }), &none),
        with(
            &json!({ "progressDeadlineSeconds": i32::MAX }),
            &json!({ "periodSeconds": i32::MAX, "successThreshold": 1 }),
        ),
        // The name is asked for (SNI), and the peer shows its own certificate for ours.
        tls(json!({ "insecureSkipVerify": true, "serverName": "prom", "certSecretRef": "pair" })),
        tls(json!({ "insecureSkipVerify": false, "caSecretRef": "ca" })),
        tls(json!({})),
        with(&json!({ "deletionPolicy": "Release", "stuckPods": "Wait" }), &json!({ "onFailure": "Rollback" })),
    ];
    for object in cases {
        accepted(&scene, &object).await;
    }
}
