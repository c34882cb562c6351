//! Every field of the spec with wrong values. The fields, their types and their bounds are read from the schema, so that a new field
//! is tried as soon as it is there.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sts_plus_gates::Endpoint;
use testcluster::{Cluster, Method};

use crate::{
    rig::{Rig, on_both_minors},
    schema::{Place, answer, full_check, null_is_nothing, places, without, wrong},
    with_check,
};

on_both_minors!(
    every_field_refuses_every_wrong_value,
    null_is_what_an_absent_field_is,
    names_that_no_object_can_have_are_refused,
    texts_that_cannot_be_used_are_refused,
    urls_are_refused_with_the_cure_and_none_that_the_operator_would_refuse_is_taken,
);

/// A spec with a good value in every field; the only query is in `query` or in `queries`.
fn full(shorthand: bool) -> Value {
    let check = full_check(shorthand);
    json!({
        "targetRef": "web", "skipCheck": false, "standardRollingUpdate": false, "paused": true, "check": check, "pauseBefore": [1],
        "progressDeadlineSeconds": 9, "stuckPods": "Wait", "deletionPolicy": "Hold",
    })
}

/// Which queries `full` can hold, so that no field is left out.
const BOTH: [bool; 2] = [true, false];

/// What the API server makes of a spec, in a dry run: the object, or its sentence.
pub async fn tried(cluster: &Cluster, namespace: &str, spec: &Value) -> anyhow::Result<Result<Value, String>> {
    let mut object = with_check(&json!({}));
    object["spec"] = spec.clone();
    let path = format!(
        "/apis/sts.plus/v1alpha1/namespaces/{namespace}/phasedrollouts?dryRun=All&fieldValidation=Strict&fieldManager=test"
    );
    answer(cluster, Method::POST, &path, &object).await
}

fn all_places() -> anyhow::Result<Vec<Place>> {
    let crd = serde_json::to_value(&sts_plus_api::crds()[0])?;
    Ok(places(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], "", "spec"))
}

async fn every_field_refuses_every_wrong_value(rig: &'static Rig) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    let places = all_places()?;
    let (mut tries, mut found) = (0, Vec::new());
    for place in &places {
        ensure!(place.has_bound(), "{} has no bound", place.shown);
        let mut present = false;
        for spec in BOTH.map(full) {
            if spec.pointer(&place.pointer).is_none() {
                continue;
            }
            present = true;
            for value in wrong(&place.schema) {
                let mut spec = spec.clone();
                *spec.pointer_mut(&place.pointer).context("a place")? = value.clone();
                let answer = tried(cluster, &namespace, &spec).await?;
                tries += 1;
                match answer {
                    Err(sentence) if sentence.contains(&place.shown) => {}
                    other => found.push(format!("{} = {value}: {other:?}", place.shown)),
                }
            }
            if place.schema["properties"].is_object() {
                let mut spec = spec.clone();
                spec.pointer_mut(&place.pointer).context("a place")?["unknwon"] = true.into();
                let answer = tried(cluster, &namespace, &spec).await?;
                if !answer.as_ref().is_err_and(|e| e.contains(&format!("unknown field \"{}.unknwon\"", place.shown))) {
                    found.push(format!("an unknown field in {}: {answer:?}", place.shown));
                }
            }
        }
        ensure!(present, "no spec of this test has {}", place.shown);
    }
    for spec in BOTH.map(full) {
        tried(cluster, &namespace, &spec).await?.map_err(anyhow::Error::msg).context("the good one is refused")?;
    }
    ensure!(found.is_empty(), "{} of {tries}:\n{}", found.len(), found.join("\n"));
    ensure!(tries > 200, "only {tries} tries");
    Ok(())
}

async fn null_is_what_an_absent_field_is(rig: &'static Rig) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    for place in all_places()? {
        for spec in BOTH.map(full).into_iter().filter(|spec| spec.pointer(&place.pointer).is_some()) {
            let absent = without(&spec, &place)?;
            let mut null = spec.clone();
            *null.pointer_mut(&place.pointer).context("a place")? = Value::Null;
            let null = tried(cluster, &namespace, &null).await?;
            null_is_nothing(&place, null, tried(cluster, &namespace, &absent).await?)?;
        }
    }
    Ok(())
}

async fn names_that_no_object_can_have_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    let places = [
        ("/targetRef", "targetRef can be no name of a StatefulSet"),
        ("/check/secretRef", "secretRef can be no name of a Secret"),
        ("/check/query/secretRef", "secretRef can be no name of a Secret"),
        ("/check/query/tls/caSecretRef", "caSecretRef can be no name of a Secret"),
        ("/check/query/tls/certSecretRef", "certSecretRef can be no name of a Secret"),
    ];
    for (pointer, sentence) in places {
        for name in
            ["Web_X", "A_b", "web x", "-web", "web-", ".web", "web.", "a..b", "wéb", "web/x", "${pod}", " web", "web\n"]
        {
            let mut spec = full(true);
            *spec.pointer_mut(pointer).context("a place")? = name.into();
            let answer = tried(cluster, &namespace, &spec).await?;
            ensure!(answer.as_ref().is_err_and(|e| e.contains(sentence)), "{pointer} {name:?}: {answer:?}");
        }
        for name in ["a", "0", "web-0.db", "a1-b2"] {
            let mut spec = full(true);
            *spec.pointer_mut(pointer).context("a place")? = name.into();
            let answer = tried(cluster, &namespace, &spec).await?;
            ensure!(answer.is_ok(), "{pointer} {name:?}: {answer:?}");
        }
    }
    Ok(())
}

async fn texts_that_cannot_be_used_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    let (name, expr, host) =
        ("name is blank, or has a line break", "expr is empty", "serverName is no valid host name");
    let cases = [
        ("/check/query/name", "  ", Err(name)),
        ("/check/query/name", "two\nlines", Err(name)),
        ("/check/query/name", "a\u{7f}", Err(name)),
        ("/check/query/name", "Lag of the replicas, in s", Ok(())),
        ("/check/query/expr", " \n\t", Err(expr)),
        ("/check/query/expr", "up == 0\n", Ok(())),
        ("/check/query/tls/serverName", "https://prom", Err(host)),
        ("/check/query/tls/serverName", "prom:9090", Err(host)),
        ("/check/query/tls/serverName", "prom example", Err(host)),
        ("/check/query/tls/serverName", "-prom", Err(host)),
        ("/check/query/tls/serverName", "prom..example", Err(host)),
        ("/check/query/tls/serverName", "Prom_1.Example.com", Ok(())),
        ("/check/query/tls/serverName", "10.0.0.1", Ok(())),
        ("/check/query/tls/serverName", "fd00::1", Ok(())),
    ];
    for (pointer, text, expected) in cases {
        let mut spec = full(true);
        *spec.pointer_mut(pointer).context("a place")? = text.into();
        let answer = tried(cluster, &namespace, &spec).await?;
        let as_expected = match expected {
            Ok(()) => answer.is_ok(),
            Err(sentence) => answer.as_ref().is_err_and(|e| e.contains(sentence)),
        };
        ensure!(as_expected, "{pointer} {text:?}: {answer:?}");
    }
    Ok(())
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

async fn urls_are_refused_with_the_cure_and_none_that_the_operator_would_refuse_is_taken(
    rig: &'static Rig,
) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    for (url, expected) in URLS {
        ensure!(
            Endpoint::parse(url).is_ok() == expected.is_none() || url == "prom,other:9090",
            "the operator: {url:?}"
        );
        for pointer in ["/check/url", "/check/query/url"] {
            let mut spec = full(true);
            spec["check"]["query"]["tls"] = Value::Null;
            spec["check"]["query"]["url"] = "prom".into();
            *spec.pointer_mut(pointer).context("a place")? = url.into();
            let answer = tried(cluster, &namespace, &spec).await?;
            let field = format!("spec{}: ", pointer.replace('/', "."));
            let as_expected = match expected {
                None => answer.is_ok(),
                Some(words) => answer.as_ref().is_err_and(|e| e.contains(&field) && e.contains(words)),
            };
            ensure!(as_expected, "{pointer} {url:?}: {answer:?}");
            // A password must not come back.
            ensure!(!answer.is_err_and(|e| e.contains("secret@")), "{url:?}");
        }
    }
    Ok(())
}
