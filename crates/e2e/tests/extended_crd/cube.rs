//! Every limit from 0 to 7 or none, odd or not, against counts from 0 to 9: the API server and the operator must agree.

use anyhow::ensure;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use sts_plus_api::{Scaling, ScalingPolicy};
use sts_plus_decide::versions::scaling::{is_allowed, lowest, nearest};

use crate::{
    rig::{Rig, on_both_minors},
    scene::{Scene, count, set},
};

on_both_minors!(
    the_api_server_takes_exactly_the_counts_that_the_operator_allows,
    the_count_that_is_filled_in_is_the_one_that_the_operator_would_take,
    scale_takes_exactly_the_counts_that_the_operator_allows,
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

fn with(scaling: &Scaling, replicas: Option<i32>) -> anyhow::Result<Value> {
    let template = replicas.map_or_else(|| json!({}), |replicas| json!({ "replicas": replicas }));
    Ok(set(&json!({ "scaling": serde_json::to_value(scaling)? }), &template))
}

/// Three of the ten counts for each of the 162 limits, other ones for the next, and the limits themselves.
fn counts(index: usize, scaling: &Scaling) -> Vec<i32> {
    let sampled = [0, 3, 7].map(|step| i32::try_from((index + step) % 10).unwrap_or_default());
    let mut counts = [sampled.as_slice(), scaling.min.as_slice(), scaling.max.as_slice()].concat();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// How many requests are on their way at a time: a dry run waits more than it works.
const AT_A_TIME: usize = 8;

async fn the_api_server_takes_exactly_the_counts_that_the_operator_allows(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let mut tries = Vec::new();
    for (index, scaling) in cube().into_iter().enumerate() {
        tries.extend(
            counts(index, &scaling).into_iter().map(|count| (scaling.clone(), count, is_allowed(&scaling, count))),
        );
        // Clamp takes every count, unless the limits leave none.
        let (clamped, count) = (Scaling { policy: ScalingPolicy::Clamp, ..scaling }, i32::try_from(index % 10)?);
        let takes = nearest(&clamped, count).is_some();
        tries.push((clamped, count, takes));
    }
    let taken = tries.iter().filter(|(_, _, takes)| *takes).count();
    ensure!(tries.len() >= 600 && taken > 200 && taken < tries.len() - 200, "{taken} of {}", tries.len());
    let requests = tries.into_iter().map(|(scaling, count, takes)| {
        let scene = &scene;
        async move {
            let answer = scene.tried(&with(&scaling, Some(count))?).await?;
            ensure!(answer.is_ok() == takes, "{scaling:?} {count}: {answer:?}");
            Ok(())
        }
    });
    stream::iter(requests).buffer_unordered(AT_A_TIME).try_collect().await
}

async fn the_count_that_is_filled_in_is_the_one_that_the_operator_would_take(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let requests = cube().into_iter().map(|scaling| {
        let scene = &scene;
        async move {
            let answer = scene.tried(&with(&scaling, None)?).await?;
            let filled = answer.as_ref().ok().and_then(count);
            ensure!(filled == lowest(&scaling).map(i64::from), "{scaling:?}: {answer:?}");
            // A refusal is about the limits alone: no count was made up that the user never wrote.
            ensure!(!answer.is_err_and(|error| error.contains("spec.template.spec.replicas is")), "{scaling:?}");
            Ok(())
        }
    });
    stream::iter(requests).buffer_unordered(AT_A_TIME).try_collect().await
}

async fn scale_takes_exactly_the_counts_that_the_operator_allows(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let limits = [
        (None, None, true),
        (Some(2), Some(6), false),
        (Some(2), Some(6), true),
        (Some(3), None, true),
        (None, Some(4), false),
    ];
    for (index, (min, max, odd_only)) in limits.into_iter().enumerate() {
        let scaling = Scaling { min, max, odd_only, policy: ScalingPolicy::Reject };
        let mut object = with(&scaling, None)?;
        let name = format!("web-{index}");
        object["metadata"]["name"] = name.clone().into();
        scene.create(&object).await?;
        for replicas in 0..=9 {
            let answer = scene.scaled(&name, replicas).await?;
            ensure!(answer.is_ok() == is_allowed(&scaling, replicas), "{scaling:?} {replicas}: {answer:?}");
        }
    }
    Ok(())
}
