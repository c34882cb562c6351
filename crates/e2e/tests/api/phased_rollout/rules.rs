//! Each rule of the CRD: what it refuses, with its sentence, and its nearest neighbour that is accepted.

use serde_json::{Value, json};
use sts_plus_e2e::{Ground, Scene};

use super::with_check;
use crate::rig::{accepted, on_both_minors, refused};

on_both_minors!(
    no_query_at_all_is_refused,
    no_query_is_needed_to_skip_the_checks,
    a_query_and_queries_are_refused_together,
    fewer_tries_than_passes_are_refused,
    a_query_of_a_list_without_a_name_is_refused,
    a_name_that_is_used_twice_is_refused,
    a_query_without_any_url_is_refused,
    a_url_of_another_scheme_is_refused,
    a_url_with_credentials_is_refused,
    a_missing_metric_that_holds_needs_the_alert_style,
    numbers_out_of_range_are_refused,
    unknown_words_are_refused,
    a_missing_target_is_refused,
    an_empty_expression_is_refused,
    more_than_16_queries_are_refused,
);

fn query() -> Value {
    json!({ "expr": "up{}", "url": "prom:9090" })
}

fn named(name: &str) -> Value {
    json!({ "name": name, "expr": "up{}", "url": "prom:9090" })
}

// spec: pr§1
async fn no_query_at_all_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let sentence = "spec.check.query is missing: give a query in spec.check.query or spec.check.queries, or set spec.skipCheck to true to \
                    roll without checks";
    refused(&scene, &with_check(&json!({})), &[sentence]).await;
    refused(&scene, &with_check(&json!({ "queries": [] })), &[sentence]).await;
    let mut bare = with_check(&json!({}));
    bare["spec"] = json!({ "targetRef": "web" });
    refused(&scene, &bare, &[sentence]).await;
    accepted(&scene, &with_check(&json!({ "query": query() }))).await;
    accepted(&scene, &with_check(&json!({ "queries": [named("a"), named("b")] }))).await;
}

async fn no_query_is_needed_to_skip_the_checks(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    for field in ["skipCheck", "standardRollingUpdate"] {
        let mut object = with_check(&json!({}));
        object["spec"] = json!({ "targetRef": "web", field: true });
        accepted(&scene, &object).await;
    }
}

async fn a_query_and_queries_are_refused_together(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let sentence = "spec.check.query and spec.check.queries are both set: keep one of them (query is a shorthand for a list of one)";
    refused(&scene, &with_check(&json!({ "query": query(), "queries": [named("a")] })), &[sentence]).await;
    accepted(&scene, &with_check(&json!({ "query": query(), "queries": [] }))).await;
}

async fn fewer_tries_than_passes_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let sentence = "spec.check.maxTries must be at least spec.check.successThreshold: that many consecutive passes do not fit into fewer \
                    tries";
    refused(&scene, &with_check(&json!({ "query": query(), "maxTries": 2, "successThreshold": 3 })), &[sentence]).await;
    // The defaults count: 10 tries, 3 passes.
    refused(&scene, &with_check(&json!({ "query": query(), "successThreshold": 11 })), &[sentence]).await;
    refused(&scene, &with_check(&json!({ "query": query(), "maxTries": 2 })), &[sentence]).await;
    accepted(&scene, &with_check(&json!({ "query": query(), "maxTries": 3, "successThreshold": 3 }))).await;
}

async fn a_query_of_a_list_without_a_name_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let sentence = "spec.check.queries[].name is missing: give every query of the list a name of its own";
    refused(&scene, &with_check(&json!({ "queries": [named("a"), query()] })), &[sentence]).await;
}

async fn a_name_that_is_used_twice_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let sentence = "spec.check.queries[].name is used twice: give every query a name of its own";
    refused(&scene, &with_check(&json!({ "queries": [named("a"), named("b"), named("a")] })), &[sentence]).await;
}

async fn a_query_without_any_url_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let sentence = "spec.check.query.url is missing: give the Prometheus URL there, for each of spec.check.queries, or once in \
                    spec.check.url";
    refused(&scene, &with_check(&json!({ "query": { "expr": "up{}" } })), &[sentence]).await;
    refused(&scene, &with_check(&json!({ "queries": [named("a"), { "name": "b", "expr": "up{}" }] })), &[sentence])
        .await;
    accepted(&scene, &with_check(&json!({ "url": "prom:9090", "query": { "expr": "up{}" } }))).await;
}

async fn a_url_of_another_scheme_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let sentence = "url has a scheme other than http and https: write http://host:port/path, https://host:port/path, or host:port/path";
    for url in ["ftp://prom:9090", "unix:///prom.sock", "httpx://prom", "://prom"] {
        refused(&scene, &with_check(&json!({ "query": { "expr": "up{}", "url": url } })), &[sentence]).await;
        refused(&scene, &with_check(&json!({ "url": url, "query": { "expr": "up{}" } })), &[sentence]).await;
    }
    for url in
        ["prom:9000/xx", "http://prom", "https://prom:9090/a/b", "HTTPS://prom", "[::1]:9090", "http://prom/x=a%40b"]
    {
        accepted(&scene, &with_check(&json!({ "query": { "expr": "up{}", "url": url } }))).await;
    }
}

async fn a_url_with_credentials_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let sentence =
        "url contains credentials (user@ or user:password@): put them into a Secret and name it in secretRef";
    for url in ["http://me@prom:9090", "https://me:secret@prom", "me:secret@prom:9090/xx"] {
        refused(&scene, &with_check(&json!({ "query": { "expr": "up{}", "url": url } })), &[sentence]).await;
        refused(&scene, &with_check(&json!({ "url": url, "query": { "expr": "up{}" } })), &[sentence]).await;
    }
    accepted(&scene, &with_check(&json!({ "query": { "expr": "up{}", "url": "http://prom/team@home" } }))).await;
}

async fn a_missing_metric_that_holds_needs_the_alert_style(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let sentence = "onMissingMetric Hold needs successWhen NoData: with successWhen Data a missing metric never passes anyway; remove one \
                    of the two";
    let mut asked = query();
    asked["onMissingMetric"] = "Hold".into();
    accepted(&scene, &with_check(&json!({ "query": asked }))).await;
    asked["successWhen"] = "Data".into();
    refused(&scene, &with_check(&json!({ "query": asked })), &[sentence]).await;
}

async fn numbers_out_of_range_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    for (field, value) in
        [("initialDelaySeconds", -1), ("periodSeconds", 0), ("successThreshold", 0), ("maxTries", 0), ("maxTries", -5)]
    {
        let place = format!("spec.check.{field}");
        refused(
            &scene,
            &with_check(&json!({ "query": query(), field: value })),
            &[&place, "should be greater than or equal to"],
        )
        .await;
    }
    for value in [0, 61] {
        let mut asked = query();
        asked["timeoutSeconds"] = value.into();
        refused(&scene, &with_check(&json!({ "query": asked })), &["spec.check.query.timeoutSeconds"]).await;
    }
    let mut object = with_check(&json!({ "query": query(), "initialDelaySeconds": 0 }));
    accepted(&scene, &object).await;
    object["spec"]["pauseBefore"] = json!([0, -1]);
    refused(&scene, &object, &["spec.pauseBefore[1]"]).await;
    object["spec"]["pauseBefore"] = json!([0]);
    object["spec"]["progressDeadlineSeconds"] = 0.into();
    refused(&scene, &object, &["spec.progressDeadlineSeconds"]).await;
}

async fn unknown_words_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let mut object = with_check(&json!({ "query": query(), "onFailure": "Explode" }));
    refused(&scene, &object, &["spec.check.onFailure", "\"Hold\", \"Pause\", \"Rollback\", \"Proceed\""]).await;
    object["spec"]["check"] = json!({ "query": query() });
    object["spec"]["stuckPods"] = "Kick".into();
    refused(&scene, &object, &["spec.stuckPods", "\"Delete\", \"Wait\""]).await;
    object["spec"]["stuckPods"] = "Wait".into();
    object["spec"]["deletionPolicy"] = "Forget".into();
    refused(&scene, &object, &["spec.deletionPolicy", "\"Release\", \"Hold\""]).await;
    object["spec"]["deletionPolicy"] = "Hold".into();
    object["spec"]["pausd"] = true.into();
    refused(&scene, &object, &["unknown field \"spec.pausd\""]).await;
}

async fn a_missing_target_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let mut object = with_check(&json!({ "query": query() }));
    object["spec"]["targetRef"] = "".into();
    refused(&scene, &object, &["spec.targetRef"]).await;
    object["spec"] = json!({ "check": { "query": query() } });
    refused(&scene, &object, &["spec.targetRef: Required value"]).await;
}

async fn an_empty_expression_is_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    refused(&scene, &with_check(&json!({ "query": { "expr": "", "url": "prom:9090" } })), &["spec.check.query.expr"])
        .await;
    refused(
        &scene,
        &with_check(&json!({ "query": { "url": "prom:9090" } })),
        &["spec.check.query.expr: Required value"],
    )
    .await;
}

async fn more_than_16_queries_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let many = |count: usize| -> Vec<Value> { (0..count).map(|n| named(&format!("query-{n}"))).collect() };
    accepted(&scene, &with_check(&json!({ "queries": many(16) }))).await;
    refused(
        &scene,
        &with_check(&json!({ "queries": many(17) })),
        &["spec.check.queries", "must have at most 16 items"],
    )
    .await;
}
