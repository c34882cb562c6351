//! Every field of the spec with wrong values, and with null. The fields, their types and their bounds are read from the schema, so
//! that a new field is tried as soon as it is there.

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use crate::{
    rig::{Rig, on_both_minors},
    scene::{Scene, set},
    schema::{Place, full_check, null_is_nothing, places, without, wrong},
};

on_both_minors!(every_field_refuses_every_wrong_value, null_is_what_an_absent_field_is);

/// A set with a good value in every field that its type has; the only query is in `query` or in `queries`.
fn full(in_place: bool) -> Value {
    let check = full_check(in_place);
    let strategy = if in_place {
        json!({ "type": "InPlace", "check": check })
    } else {
        let check = merged(&check, &json!({ "onFailure": null, "preflight": null, "final": null }));
        let follow = json!({ "activeService": "web", "previewService": "web-next", "scaleDownDelaySeconds": 9 });
        merged(&json!({ "type": "SideBySide", "check": check }), &follow)
    };
    let both = json!({ "canaries": 1, "retryCount": 1, "updateNotReady": true, "canaryWatchSeconds": 9 });
    set(
        &json!({
            "az": ["a"], "zones": ["a"], "zoneNodeLabel": "zone", "zoneReplicas": "Spread", "paused": true,
            "scaling": { "min": 1, "max": 9, "oddOnly": true, "policy": "Clamp" },
            "updateOnEnvChange": true, "updateOnConfigChange": true,
            "updateStrategy": merged(&both, &strategy),
        }),
        &json!({ "replicas": 3 }),
    )
}

fn merged(one: &Value, other: &Value) -> Value {
    let mut both = one.clone();
    json_patch::merge(&mut both, other);
    both
}

/// Which types `full` can have, so that no field is left out.
const BOTH: [bool; 2] = [true, false];

/// All places but those of the template, which is kept as it is.
fn all_places() -> anyhow::Result<Vec<Place>> {
    let crds = sts_plus_api::crds();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == "ExtendedStatefulSet").context("a definition")?;
    let crd = serde_json::to_value(crd)?;
    let mut places =
        places(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], "/spec", "spec");
    places.retain(|place| !place.pointer.starts_with("/spec/template/"));
    Ok(places)
}

/// The objects that have a place: with this value there, and what the answer must name.
fn variants(place: &Place, with: &Value) -> Vec<Value> {
    let objects = BOTH.map(full).into_iter();
    objects
        .filter_map(|mut object| {
            *object.pointer_mut(&place.pointer)? = with.clone();
            Some(object)
        })
        .collect()
}

async fn every_field_refuses_every_wrong_value(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    for object in BOTH.map(full) {
        scene.accepted(&object).await?;
    }
    let mut tries = Vec::new();
    for place in all_places()? {
        ensure!(place.has_bound(), "{} has no bound", place.shown);
        ensure!(!variants(&place, &Value::Null).is_empty(), "no object of this test has {}", place.shown);
        for value in wrong(&place.schema) {
            tries.extend(variants(&place, &value).into_iter().map(|object| (object, place.shown.clone())));
        }
        // The template takes what nobody knows.
        if place.schema["properties"].is_object() && place.pointer != "/spec/template" {
            let mut objects = BOTH.map(full);
            for inner in objects.iter_mut().filter_map(|object| object.pointer_mut(&place.pointer)) {
                inner["unknwon"] = true.into();
            }
            let told = format!("unknown field \"{}.unknwon\"", place.shown);
            let changed = objects.into_iter().filter(|object| object.pointer(&place.pointer).is_some());
            tries.extend(changed.map(|object| (object, told.clone())));
        }
    }
    ensure!(tries.len() > 200, "only {} tries", tries.len());
    let requests = tries.iter().map(|(object, told)| {
        let scene = &scene;
        async move {
            let answer = scene.tried(object).await?;
            let as_expected = answer.as_ref().is_err_and(|sentence| sentence.contains(told));
            anyhow::Ok((!as_expected).then(|| format!("{told}: {answer:?}\n{object}")))
        }
    });
    let found: Vec<Option<String>> = stream::iter(requests).buffer_unordered(8).try_collect().await?;
    let found: Vec<String> = found.into_iter().flatten().collect();
    ensure!(found.is_empty(), "{} of {}:\n{}", found.len(), tries.len(), found.join("\n"));
    Ok(())
}

async fn null_is_what_an_absent_field_is(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    for place in all_places()? {
        for null in variants(&place, &Value::Null) {
            let absent = without(&null, &place)?;
            null_is_nothing(&place, scene.tried(&null).await?, scene.tried(&absent).await?)?;
        }
    }
    Ok(())
}
