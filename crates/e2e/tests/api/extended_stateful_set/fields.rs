//! Every field of the spec with wrong values, and with null. The fields, their types and their bounds are read from the schema, so
//! that a new field is tried as soon as it is there.

use serde_json::{Value, json};
use sts_plus_e2e::{Ground, Scene};

use super::objects::set;
use crate::rig::on_both_minors;
use crate::schema::{self, Place, full_check, places_of};

on_both_minors!(; in soak on 1.36: every_field_refuses_every_wrong_value, null_is_what_an_absent_field_is);

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

/// All places but those of the template, which is kept as it is.
fn all_places() -> Vec<Place> {
    let mut places = places_of("ExtendedStatefulSet");
    places.retain(|place| !place.pointer.starts_with("/spec/template/"));
    places
}

// spec: es§1, L023
async fn every_field_refuses_every_wrong_value(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    schema::every_wrong_value_is_refused(&scene, &[full(true), full(false)], &all_places()).await;
}

async fn null_is_what_an_absent_field_is(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    schema::null_is_what_an_absent_field_is(&scene, &[full(true), full(false)], &all_places()).await;
}
