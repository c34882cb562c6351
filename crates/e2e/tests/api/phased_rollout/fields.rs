//! Every field of the spec with wrong values. The fields, their types and their bounds are read from the schema, so that a new field
//! is tried as soon as it is there.

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use sts_plus_e2e::{Ground, Scene, objects};
use sts_plus_gates::Endpoint;

use super::with_check;
use crate::rig::{accepted, on_both_minors, refused};
use crate::schema::{self, AT_A_TIME, full_check, places_of};

on_both_minors!(
    names_that_no_object_can_have_are_refused,
    texts_that_cannot_be_used_are_refused,
    every_field_refuses_every_wrong_value,
    null_is_what_an_absent_field_is,
    urls_are_refused_with_the_cure_and_none_that_the_operator_would_refuse_is_taken,
);

/// One with a good value in every field; the only query is in `query` or in `queries`.
fn full(shorthand: bool) -> Value {
    let mut object = with_check(&full_check(shorthand));
    let others = json!({
        "skipCheck": false, "standardRollingUpdate": false, "paused": true, "pauseBefore": [1], "progressDeadlineSeconds": 9,
        "stuckPods": "Wait", "deletionPolicy": "Hold",
    });
    json_patch::merge(&mut object, &json!({ "spec": others }));
    object
}

// spec: pr§1
async fn every_field_refuses_every_wrong_value(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    schema::every_wrong_value_is_refused(&scene, &[full(true), full(false)], &places_of("PhasedRollout")).await;
}

async fn null_is_what_an_absent_field_is(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    schema::null_is_what_an_absent_field_is(&scene, &[full(true), full(false)], &places_of("PhasedRollout")).await;
}

async fn names_that_no_object_can_have_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let places = [
        ("/spec/targetRef", "targetRef can be no name of a StatefulSet"),
        ("/spec/check/secretRef", "secretRef can be no name of a Secret"),
        ("/spec/check/query/secretRef", "secretRef can be no name of a Secret"),
        ("/spec/check/query/tls/caSecretRef", "caSecretRef can be no name of a Secret"),
        ("/spec/check/query/tls/certSecretRef", "certSecretRef can be no name of a Secret"),
    ];
    for (pointer, sentence) in places {
        for name in
            ["Web_X", "A_b", "web x", "-web", "web-", ".web", "web.", "a..b", "wéb", "web/x", "${pod}", " web", "web\n"]
        {
            refused(&scene, &objects::with(full(true), pointer, name), &[sentence]).await;
        }
        for name in ["a", "0", "web-0.db", "a1-b2"] {
            accepted(&scene, &objects::with(full(true), pointer, name)).await;
        }
    }
}

async fn texts_that_cannot_be_used_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let (name, expr, host) =
        ("name is blank, or has a line break", "expr is empty", "serverName is no valid host name");
    let cases = [
        ("/spec/check/query/name", "  ", Err(name)),
        ("/spec/check/query/name", "two\nlines", Err(name)),
        ("/spec/check/query/name", "a\u{7f}", Err(name)),
        ("/spec/check/query/name", "Lag of the replicas, in s", Ok(())),
        ("/spec/check/query/expr", " \n\t", Err(expr)),
        ("/spec/check/query/expr", "up == 0\n", Ok(())),
        ("/spec/check/query/tls/serverName", "https://prom", Err(host)),
        ("/spec/check/query/tls/serverName", "prom:9090", Err(host)),
        ("/spec/check/query/tls/serverName", "prom example", Err(host)),
        ("/spec/check/query/tls/serverName", "-prom", Err(host)),
        ("/spec/check/query/tls/serverName", "prom..example", Err(host)),
        ("/spec/check/query/tls/serverName", "Prom_1.Example.com", Ok(())),
        ("/spec/check/query/tls/serverName", "10.0.0.1", Ok(())),
        ("/spec/check/query/tls/serverName", "fd00::1", Ok(())),
    ];
    for (pointer, text, expected) in cases {
        let object = objects::with(full(true), pointer, text);
        match expected {
            Ok(()) => {
                accepted(&scene, &object).await;
            }
            Err(sentence) => refused(&scene, &object, &[sentence]).await,
        }
    }
}

/// URLs, and the sentence that each gets. None: it is taken.
const URLS: [(&str, Option<&str>); 54] = [
    ("prom", None),
    ("prom:9000/xx", None),
    ("http://prom", None),
    ("HTTPS://Prom.Example.com:65535/a/b/", None),
    ("[::1]:9090", None),
    ("http://[fd00::1]/x", None),
    ("10.0.0.255:9090", None),
    ("prom/team@home", None),
    ("prom/a:b", None),
    ("prom_1.monitoring.svc.cluster.local:09090/select/0/prometheus", None),
    ("http:9090", None),
    (" prom:9090\n", None),
    ("prom:9090/api/v1/query", None),
    (" ", Some("has no host")),
    ("http://", Some("has no host")),
    ("http:///prom", Some("has no host")),
    ("/prom", Some("has no host")),
    (":9090", Some("has no host")),
    ("http://:9090", Some("has no host")),
    ("?x", Some("has no host")),
    ("prom :9090", Some("contains a space")),
    ("prom\t:9090", Some("contains a space")),
    ("prom/a b", Some("contains a space")),
    ("prom/a\u{1}b", Some("contains a space, a control character")),
    ("prom\\x", Some("a backslash")),
    ("ftp://prom", Some("a scheme other than http and https")),
    ("unix:///prom.sock", Some("a scheme other than http and https")),
    ("httpx://prom", Some("a scheme other than http and https")),
    ("://prom", Some("a scheme other than http and https")),
    ("http:/prom:9090", Some("a scheme other than http and https")),
    ("https:/", Some("a scheme other than http and https")),
    ("me@prom:9090", Some("contains credentials")),
    ("http://me:secret@prom", Some("contains credentials")),
    ("https://@prom", Some("contains credentials")),
    ("http://prom/?x=a%40b", Some("has a query string")),
    ("prom?query=up", Some("has a query string")),
    ("prom/#x", Some("has a fragment")),
    ("prom#x", Some("has a fragment")),
    ("prom:", Some("a port that is no number")),
    ("prom:0", Some("a port that is no number")),
    ("prom:65536", Some("a port that is no number")),
    ("prom:999999999999", Some("a port that is no number")),
    ("prom:http", Some("a port that is no number")),
    ("prom:90:90", Some("a port that is no number")),
    ("mailto:me", Some("a port that is no number")),
    ("::1", Some("has no host")),
    ("fd00::1", Some("an IPv6 address without brackets")),
    ("[::1", Some("an IPv6 address without brackets")),
    ("pr%6Fm:9090", Some("a host with characters other than letters")),
    ("büro:9090", Some("a host with characters other than letters")),
    ("prom,other:9090", Some("a host with characters other than letters")),
    ("010.0.0.1:9090", Some("an IPv4 address in an unusual form")),
    ("0x7f.1", Some("an IPv4 address in an unusual form")),
    ("http://2130706433/x", Some("an IPv4 address in an unusual form")),
];

// spec: pr§1, L029
async fn urls_are_refused_with_the_cure_and_none_that_the_operator_would_refuse_is_taken(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let bare = objects::without(objects::with(full(true), "/spec/check/query/url", "prom"), "/spec/check/query/tls");
    let pairs = URLS.into_iter().flat_map(|it| ["/spec/check/url", "/spec/check/query/url"].map(|field| (it, field)));
    let asked = stream::iter(pairs).for_each_concurrent(AT_A_TIME, async |((url, expected), pointer)| {
        assert!(
            Endpoint::parse(url).is_ok() == expected.is_none() || url == "prom,other:9090",
            "the operator: {url:?}"
        );
        let answer = scene.try_create(&objects::with(bare.clone(), pointer, url)).await;
        let field = format!("{}: ", pointer.replace('/', ".").trim_start_matches('.'));
        let as_expected = match expected {
            None => answer.is_ok(),
            Some(words) => answer.as_ref().is_err_and(|error| error.contains(&field) && error.contains(words)),
        };
        assert!(as_expected, "{pointer} {url:?}: {answer:?}");
        // A password must not come back.
        assert!(!answer.is_err_and(|error| error.contains("secret@")), "{url:?}");
    });
    asked.await;
}
