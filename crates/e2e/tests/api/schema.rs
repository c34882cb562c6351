//! The places of a schema, what it does not allow there, and that the API server refuses that.

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use sts_plus_e2e::{Scene, objects};

use crate::rig::accepted;

/// How many requests of a table are on their way at a time: a dry run waits more than it works.
pub const AT_A_TIME: usize = 8;

/// A check with a good value in every field; the only query is in `query` or in `queries`.
pub fn full_check(shorthand: bool) -> Value {
    let query = json!({
        "name": "lag", "expr": "up{} == 0", "url": "https://prom:9090", "secretRef": "prom", "successWhen": "NoData",
        "onMissingMetric": "Hold", "timeoutSeconds": 5,
        "tls": { "caSecretRef": "ca", "certSecretRef": "pair", "serverName": "prom.example", "insecureSkipVerify": false },
    });
    let mut check = json!({
        "initialDelaySeconds": 1, "periodSeconds": 1, "successThreshold": 1, "maxTries": 1, "url": "https://prom", "secretRef": "prom",
        "onFailure": "Pause", "preflight": false, "final": false,
    });
    if shorthand {
        check["query"] = query;
    } else {
        check["queries"] = json!([query]);
    }
    check
}

/// Each of these objects is good; with a value at one of the places that the schema does not allow there, or with a field that nobody
/// knows, it is refused with the name of the place.
pub async fn every_wrong_value_is_refused(scene: &Scene, objects: &[Value], places: &[Place]) {
    for object in objects {
        accepted(scene, object).await;
    }
    let mut tries = Vec::new();
    for place in places {
        assert!(place.has_bound(), "{} has no bound", place.shown);
        assert!(!variants(objects, place, &Value::Null).is_empty(), "no object of this test has {}", place.shown);
        for value in wrong(&place.schema) {
            tries.extend(variants(objects, place, &value).into_iter().map(|object| (object, place.shown.clone())));
        }
        if place.schema["properties"].is_object() && place.schema["x-kubernetes-preserve-unknown-fields"] != true {
            let unknown = format!("{}/unknwon", place.pointer);
            let sentence = format!("unknown field \"{}.unknwon\"", place.shown);
            let holders = objects.iter().filter(|object| object.pointer(&place.pointer).is_some()).cloned();
            let objects = holders.map(|object| objects::with(object, &unknown, true));
            tries.extend(objects.map(|object| (object, sentence.clone())));
        }
    }
    assert!(tries.len() > 200, "only {} tries", tries.len());
    let asked = stream::iter(tries).for_each_concurrent(AT_A_TIME, async |(object, sentence)| {
        let answer = scene.try_create(&object).await;
        assert!(answer.as_ref().is_err_and(|error| error.contains(&sentence)), "{sentence}: {answer:?}\n{object}");
    });
    asked.await;
}

/// The answer to null at a place is the answer to nothing there; an item of a list must be something.
pub async fn null_is_what_an_absent_field_is(scene: &Scene, objects: &[Value], places: &[Place]) {
    let pairs = places.iter().flat_map(|place| {
        let nulls = variants(objects, place, &Value::Null).into_iter();
        nulls.map(move |null| (place, objects::without(null.clone(), &place.pointer), null))
    });
    let asked = stream::iter(pairs).for_each_concurrent(AT_A_TIME, async |(place, absent, null)| {
        let shown = &place.shown;
        match (scene.try_create(&null).await, scene.try_create(&absent).await) {
            (Err(sentence), _) if shown.ends_with(']') => assert!(sentence.contains(shown), "{sentence}"),
            (Ok(null), Ok(absent)) if !place.required => assert_eq!(null["spec"], absent["spec"], "{shown}"),
            (Err(null), Err(absent)) => assert_eq!(null, absent, "{shown}"),
            (null, absent) => panic!("{shown}: null gives {null:?}\nand nothing gives {absent:?}"),
        }
    });
    asked.await;
}

/// The objects that have something at a place: with this value there.
fn variants(objects: &[Value], place: &Place, value: &Value) -> Vec<Value> {
    let holders = objects.iter().filter(|object| object.pointer(&place.pointer).is_some()).cloned();
    holders.map(|object| objects::with(object, &place.pointer, value.clone())).collect()
}

/// One place of the schema of a spec.
pub struct Place {
    /// The JSON pointer.
    pub pointer: String,
    /// As the API server writes it.
    shown: String,
    /// Its schema.
    schema: Value,
    /// Whether it must be there.
    required: bool,
}

impl Place {
    /// A string without a bound, or a number without a least one, is a field that nobody thought about.
    fn has_bound(&self) -> bool {
        match self.schema["type"].as_str() {
            Some("string") => self.schema["enum"].is_array() || self.schema["maxLength"].is_u64(),
            Some("integer") => self.schema["minimum"].is_number(),
            Some("array") => self.schema["maxItems"].is_u64(),
            _ => true,
        }
    }
}

/// The places of the spec of one of our kinds.
pub fn places_of(kind: &str) -> Vec<Place> {
    let definition = sts_plus_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind);
    let definition = serde_json::to_value(definition).expect("a definition is JSON");
    places(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], "/spec", "spec")
}

fn places(schema: &Value, pointer: &str, shown: &str) -> Vec<Place> {
    let mut found = Vec::new();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let (pointer, shown) = (format!("{pointer}/{name}"), format!("{shown}.{name}"));
        let required = schema["required"].as_array().is_some_and(|list| list.contains(&json!(name)));
        found.extend(places(inner, &pointer, &shown));
        found.extend(places(&inner["items"], &format!("{pointer}/0"), &format!("{shown}[0]")));
        if inner["items"].is_object() {
            let (pointer, shown) = (format!("{pointer}/0"), format!("{shown}[0]"));
            found.push(Place { pointer, shown, schema: inner["items"].clone(), required: true });
        }
        found.push(Place { pointer, shown, schema: inner.clone(), required });
    }
    found
}

/// Values that the schema of one place does not allow.
fn wrong(schema: &Value) -> Vec<Value> {
    let mut values = match schema["type"].as_str() {
        Some("string") => vec![json!(5), json!(true), json!(["a"]), json!({ "a": "b" })],
        Some("integer") => {
            vec![json!("5"), json!(1.5), json!(true), json!([1]), json!(1_u64 << 31), json!(-(1_i64 << 31) - 1)]
        }
        Some("boolean") => vec![json!("true"), json!(1), json!([true])],
        Some("array") => vec![json!("a"), json!(1), json!({ "a": 1 })],
        _ => vec![json!("a"), json!(1), json!([])],
    };
    // Written as 1.0 in the schema.
    let bound = |name: &str| schema[name].as_f64().and_then(|bound| format!("{bound:.0}").parse::<i64>().ok());
    values.extend(bound("minimum").map(|least| json!(least - 1)));
    values.extend(bound("maximum").map(|most| json!(most + 1)));
    values.extend(schema["minLength"].as_u64().map(|_| json!("")));
    values.extend(schema["maxLength"].as_u64().map(|most| json!("a".repeat(usize::try_from(most).unwrap_or(0) + 1))));
    if let Some(words) = schema["enum"].as_array() {
        values.extend([json!(""), json!("Other"), json!(words[0].as_str().unwrap_or_default().to_lowercase())]);
    }
    if let Some(most) = schema["maxItems"].as_u64() {
        let item = |n| {
            if schema["items"]["type"] == "integer" {
                json!(n)
            } else {
                json!({ "name": format!("q-{n}"), "expr": "up" })
            }
        };
        values.push((0..=most).map(item).collect());
    }
    values
}
