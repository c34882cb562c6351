//! Rollouts that are all held by the same query: how often Prometheus is asked it.

use std::time::Duration;

use serde_json::json;
use sts_plus_api::Phase;

use crate::crowd::{PERIOD, place};
use crate::load;
use crate::plane::{FIRST, Plane};
use crate::sizes::Sizes;
use crate::table::{Row, number};

/// The size that the goal is about.
const GOAL: usize = 1_000;
/// How many periods are counted.
const PERIODS: u64 = 6;

pub async fn measure(plane: &Plane, sizes: &Sizes) -> anyhow::Result<Vec<Row>> {
    let rollouts = sizes.equal_queries.min(sizes.managed.last().copied().unwrap_or_default());
    if rollouts == 0 {
        return Ok(Vec::new());
    }
    crate::say(&format!("{rollouts} rollouts that ask the same query"));
    // What is asked before the first pod refuses, so that all go on asking.
    plane.prometheus.answer_series(&json!([{ "metric": { "job": "bench" }, "value": [0, "1"] }]));
    let operator = plane.operator(FIRST, &[])?;
    load::each(rollouts, async |n| {
        let (namespace, set) = place(n);
        load::release(&plane.client, &namespace, &set, "app:asks").await
    })
    .await?;
    let asks = |phase: Phase| phase == Phase::Checking || phase == Phase::Held;
    plane
        .rollouts
        .until("all ask", |seen| seen.values().filter(|rollout| asks(rollout.phase)).count() >= rollouts)
        .await?;
    // Each has asked once.
    tokio::time::sleep(Duration::from_secs(PERIOD)).await;
    plane.prometheus.forget();
    tokio::time::sleep(Duration::from_secs(PERIOD * PERIODS)).await;
    let queries = plane.prometheus.count() as f64 / PERIODS as f64;
    operator.stop().await;
    let what = format!("Prometheus queries in a period for {rollouts} rollouts that ask the same");
    // One of them may fall on the edge of what is counted.
    let row = Row::new(what, number(queries)).at_most_if(rollouts == GOAL, 1.0 + 1.0 / PERIODS as f64, queries);
    Ok(vec![row])
}
