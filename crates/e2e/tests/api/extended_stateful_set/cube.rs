//! Every limit from 0 to 7 or none, odd or not, against counts from 0 to 9: the API server and the operator must agree.

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use sts_plus_api::{Scaling, ScalingPolicy};
use sts_plus_decide::versions::scaling::{is_allowed, lowest, nearest};
use sts_plus_e2e::{Ground, Scene};

use super::objects::{count, scaled, set};
use crate::{rig::on_both_minors, schema::AT_A_TIME};

on_both_minors!(
    scale_takes_exactly_the_counts_that_the_operator_allows;
    in soak on 1.36:
    the_api_server_takes_exactly_the_counts_that_the_operator_allows,
    the_count_that_is_filled_in_is_the_one_that_the_operator_would_take,
);

fn cube() -> Vec<Scaling> {
    let limits = || (-1..=7).map(|limit| (limit >= 0).then_some(limit));
    let pairs = limits().flat_map(|min| limits().map(move |max| (min, max)));
    pairs
        .flat_map(|(min, max)| {
            [false, true].map(|odd_only| Scaling { min, max, odd_only, policy: ScalingPolicy::Reject })
        })
        .collect()
}

fn with(scaling: &Scaling, replicas: Option<i32>) -> Value {
    let template = replicas.map_or_else(|| json!({}), |replicas| json!({ "replicas": replicas }));
    set(&json!({ "scaling": scaling }), &template)
}

/// Three of the ten counts for each of the 162 limits, other ones for the next, and the limits themselves.
fn counts(index: usize, scaling: &Scaling) -> Vec<i32> {
    let sampled = [0, 3, 7].map(|step| i32::try_from((index + step) % 10).unwrap_or_default());
    let mut counts = [sampled.as_slice(), scaling.min.as_slice(), scaling.max.as_slice()].concat();
    counts.sort_unstable();
    counts.dedup();
    counts
}

// spec: es§2
async fn the_api_server_takes_exactly_the_counts_that_the_operator_allows(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let mut tries = Vec::new();
    for (index, scaling) in cube().into_iter().enumerate() {
        tries.extend(
            counts(index, &scaling).into_iter().map(|count| (scaling.clone(), count, is_allowed(&scaling, count))),
        );
        // Clamp takes every count, unless the limits leave none.
        let (clamped, count) =
            (Scaling { policy: ScalingPolicy::Clamp, ..scaling }, i32::try_from(index % 10).unwrap_or_default());
        let takes = nearest(&clamped, count).is_some();
        tries.push((clamped, count, takes));
    }
    let taken = tries.iter().filter(|(_, _, takes)| *takes).count();
    assert!(tries.len() >= 600 && taken > 200 && taken < tries.len() - 200, "{taken} of {}", tries.len());
    let asked = stream::iter(tries).for_each_concurrent(AT_A_TIME, async |(scaling, count, takes)| {
        let answer = scene.try_create(&with(&scaling, Some(count))).await;
        assert!(answer.is_ok() == takes, "{scaling:?} {count}: {answer:?}");
    });
    asked.await;
}

async fn the_count_that_is_filled_in_is_the_one_that_the_operator_would_take(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let asked = stream::iter(cube()).for_each_concurrent(AT_A_TIME, async |scaling| {
        let answer = scene.try_create(&with(&scaling, None)).await;
        let filled = answer.as_ref().ok().and_then(count);
        assert!(filled == lowest(&scaling).map(i64::from), "{scaling:?}: {answer:?}");
        // A refusal is about the limits alone: no count was made up that the user never wrote.
        assert!(!answer.is_err_and(|error| error.contains("spec.template.spec.replicas is")), "{scaling:?}");
    });
    asked.await;
}

// spec: es§2, L024
async fn scale_takes_exactly_the_counts_that_the_operator_allows(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let limits = [
        (None, None, true),
        (Some(2), Some(6), false),
        (Some(2), Some(6), true),
        (Some(3), None, true),
        (None, Some(4), false),
    ];
    for (index, (min, max, odd_only)) in limits.into_iter().enumerate() {
        let scaling = Scaling { min, max, odd_only, policy: ScalingPolicy::Reject };
        let mut object = with(&scaling, None);
        let name = format!("web-{index}");
        object["metadata"]["name"] = name.clone().into();
        scene.create(&object).await;
        for replicas in 0..=9 {
            let answer = scaled(&scene, &name, replicas, true).await;
            assert!(answer.is_ok() == is_allowed(&scaling, replicas), "{scaling:?} {replicas}: {answer:?}");
        }
    }
}
