//! The places of a schema, what it does not allow there, and what the API server says to a value.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testcluster::{Cluster, Method};

/// What the API server makes of a request: the object, or its sentence.
pub async fn answer(
    cluster: &Cluster,
    method: Method,
    path: &str,
    body: &Value,
) -> anyhow::Result<Result<Value, String>> {
    Ok(match cluster.request(method, path, Some(body)).await {
        Ok(object) => Ok(object),
        Err(error) => {
            let error = format!("{error:#}");
            let (_, status) = error.split_at(error.find('{').context(error.clone())?);
            let status: Value = serde_json::from_str(status).with_context(|| error.clone())?;
            Err(status["message"].as_str().context("an error without a message")?.to_owned())
        }
    })
}

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

/// The object without what stands at the place.
pub fn without(object: &Value, place: &Place) -> anyhow::Result<Value> {
    let (parent, name) = place.pointer.rsplit_once('/').context("a pointer")?;
    let mut absent = object.clone();
    if let Some(object) = absent.pointer_mut(parent).and_then(Value::as_object_mut) {
        object.remove(name);
    }
    Ok(absent)
}

/// The answer to null at a place is the answer to nothing there; an item of a list must be something.
pub fn null_is_nothing(
    place: &Place,
    null: Result<Value, String>,
    absent: Result<Value, String>,
) -> anyhow::Result<()> {
    let is_item = place.shown.ends_with(']');
    match (null, absent) {
        (Err(sentence), _) if is_item => ensure!(sentence.contains(&place.shown), "{sentence}"),
        (Ok(null), Ok(absent)) if !place.required => {
            ensure!(null["spec"] == absent["spec"], "{}: {null}", place.shown);
        }
        (Err(null), Err(absent)) => ensure!(null == absent, "{}: {null}\nand {absent}", place.shown),
        (null, absent) => anyhow::bail!("{}: null gives {null:?}\nand nothing gives {absent:?}", place.shown),
    }
    Ok(())
}

/// One place of the schema, as a JSON pointer below `spec` and as the API server writes it.
pub struct Place {
    /// The JSON pointer.
    pub pointer: String,
    /// As the API server writes it.
    pub shown: String,
    /// Its schema.
    pub schema: Value,
    /// Whether it must be there.
    pub required: bool,
}

impl Place {
    /// A string without a bound, or a number without a least one, is a field that nobody thought about.
    pub fn has_bound(&self) -> bool {
        match self.schema["type"].as_str() {
            Some("string") => self.schema["enum"].is_array() || self.schema["maxLength"].is_u64(),
            Some("integer") => self.schema["minimum"].is_number(),
            Some("array") => self.schema["maxItems"].is_u64(),
            _ => true,
        }
    }
}

/// The places of a schema.
pub fn places(schema: &Value, pointer: &str, shown: &str) -> Vec<Place> {
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
pub fn wrong(schema: &Value) -> Vec<Value> {
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
