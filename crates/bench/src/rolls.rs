//! Many StatefulSets of three pods that get a new release at the same time: without a gate, with this operator, and with another one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sts_plus_api::Phase;
use sts_plus_e2e::Operator;

use crate::load;
use crate::mirror::until;
use crate::plane::{FIRST, OTHER, Plane};
use crate::requests::Requests;
use crate::sizes::Sizes;
use crate::table::{Row, mebibytes, number};

const PODS: u16 = 3;
/// Of each rollout, in seconds.
const DELAY: i64 = 1;
const PERIOD: i64 = 1;
const PASSES: i64 = 2;
/// What the checks of a pod take by themselves.
const DUE: SignedDuration = SignedDuration::from_secs(DELAY + (PASSES - 1) * PERIOD);
/// The last line of another operator before it is measured.
const READY: &str = "bench: ready";
/// The size that the goals are about.
const GOAL: usize = 100;

/// What one roll has cost.
struct Cost {
    seconds: f64,
    requests: Requests,
    cpu: Duration,
    peak: u64,
}

pub async fn measure(plane: &Plane, sizes: &Sizes, other: Option<&str>) -> anyhow::Result<Vec<Row>> {
    let fleet = Fleet::create(plane, "rolls", sizes.rollouts).await?;
    crate::say("a roll without a gate");
    let (_, floor) = fleet.roll("app:2").await?;
    let what = format!("native roll of {} StatefulSets of {PODS} pods, no gate", fleet.sets);
    let mut rows = vec![Row::new(what, format!("{} s", number(floor)))];
    rows.extend(fleet.roll_gated(floor).await?);
    if let Some(command) = other {
        rows.extend(other_rows(plane, sizes, command, floor).await?);
    }
    Ok(rows)
}

/// Equal StatefulSets in one namespace.
struct Fleet<'a> {
    plane: &'a Plane,
    namespace: &'static str,
    sets: usize,
}

fn set_of(n: usize) -> String {
    format!("set-{n}")
}

impl<'a> Fleet<'a> {
    async fn create(plane: &'a Plane, namespace: &'static str, sets: usize) -> anyhow::Result<Self> {
        crate::say(&format!("{sets} StatefulSets of {PODS} pods"));
        let client = &plane.client;
        load::namespace(client, namespace).await?;
        load::each(sets, |n| load::create(client, namespace, load::set(&set_of(n), PODS.into()))).await?;
        plane.kubelet.until_ready(namespace, load::FIRST_IMAGE, sets * usize::from(PODS)).await?;
        let fleet = Self { plane, namespace, sets };
        fleet.until_all(|set| set.is_observed).await?;
        Ok(fleet)
    }

    async fn until_all(&self, wanted: impl Fn(&crate::mirror::SetSeen) -> bool) -> anyhow::Result<()> {
        let of_fleet = |key: &crate::mirror::Key| key.0 == self.namespace;
        self.plane
            .sets
            .until("all StatefulSets are as wanted", |sets| {
                sets.iter().filter(|(key, set)| of_fleet(key) && wanted(set)).count() >= self.sets
            })
            .await
    }

    /// Releases all at once; from when, and the seconds until all pods are Ready on it.
    async fn roll(&self, image: &str) -> anyhow::Result<(Timestamp, f64)> {
        let from = Timestamp::now();
        let plane = self.plane;
        load::each(self.sets, async |n| load::release(&plane.client, self.namespace, &set_of(n), image).await).await?;
        plane.kubelet.until_ready(self.namespace, image, self.sets * usize::from(PODS)).await?;
        let last = plane.kubelet.ready(self.namespace, image).into_iter().map(|(_, pod)| pod.since).max();
        Ok((from, last.unwrap_or(from).duration_since(from).as_secs_f64()))
    }

    /// The same as [`Fleet::roll`] under `operator`, and what it costs until all is quiet.
    async fn cost(&self, operator: &Operator, user: &str, image: &str) -> anyhow::Result<(Timestamp, Cost)> {
        let before = operator.cpu_time();
        let (from, seconds) = self.roll(image).await?;
        if user == FIRST {
            let is_complete = |phase: Phase| phase == Phase::Completed;
            let all = self.sets;
            self.plane
                .rollouts
                .until("all are complete", |rollouts| {
                    rollouts.values().filter(|it| is_complete(it.phase)).count() >= all
                })
                .await?;
        }
        self.plane.until_quiet(user).await?;
        let requests = self.plane.requests(user, from)?;
        let cpu = operator.cpu_time().saturating_sub(before);
        Ok((from, Cost { seconds, requests, cpu, peak: operator.peak_memory() }))
    }

    async fn roll_gated(&self, floor: f64) -> anyhow::Result<Vec<Row>> {
        let (plane, url) = (self.plane, self.plane.prometheus.url());
        crate::say("the same under this operator");
        let check = json!({
            "initialDelaySeconds": DELAY, "periodSeconds": PERIOD, "successThreshold": PASSES, "final": false,
        });
        let expr = r#"bench_errors{statefulset="${statefulset}"} > 0"#;
        load::each(self.sets, |n| {
            let rollout = load::rollout(&url, &format!("gate-{n}"), &set_of(n), expr, &check);
            load::create(&plane.client, self.namespace, rollout)
        })
        .await?;
        let operator = plane.operator(FIRST, &[])?;
        self.until_all(crate::mirror::SetSeen::is_at_rest).await?;
        plane.until_quiet(FIRST).await?;
        let (from, cost) = self.cost(&operator, FIRST, "app:3").await?;
        let latencies = self.latencies("app:3", from, &cost.requests);
        anyhow::ensure!(operator.stop().await.success(), "the operator did not stop as it should");
        let mut rows = self.rows("this operator", &cost, floor);
        rows.extend(latency_rows(&latencies, self.sets));
        Ok(rows)
    }

    fn rows(&self, who: &str, cost: &Cost, floor: f64) -> Vec<Row> {
        let (pods, is_goal) = (self.sets * usize::from(PODS), self.sets == GOAL && who == "this operator");
        let (ratio, cpu) = (cost.seconds / floor, cost.cpu.as_secs_f64());
        let (writes, reads, peak) = (cost.requests.writes(), cost.requests.reads(), mebibytes(cost.peak));
        let share = |number: usize| number as f64 / pods as f64;
        vec![
            Row::new(format!("{who}: time"), format!("{} s, {} × native", number(cost.seconds), number(ratio)))
                .at_most_if(is_goal, 1.5, ratio),
            Row::new(format!("{who}: writes per rolled pod"), writes.for_each_of(pods)).at_most_if(
                is_goal,
                5.0,
                share(writes.total()),
            ),
            Row::new(format!("{who}: reads per rolled pod"), reads.for_each_of(pods)).at_most_if(
                is_goal,
                3.0,
                share(reads.total()),
            ),
            Row::new(format!("{who}: dry runs per rolled pod"), number(share(cost.requests.dry_runs()))),
            Row::new(format!("{who}: CPU"), format!("{} s", number(cpu))).at_most_if(is_goal, 2.0, cpu),
            Row::new(format!("{who}: peak memory"), format!("{} MiB", number(peak))).at_most_if(is_goal, 24.0, peak),
        ]
    }

    /// For each pod but the last of a set: how long after it was Ready the request arrived that opened the next one.
    fn latencies(&self, image: &str, from: Timestamp, requests: &Requests) -> Vec<SignedDuration> {
        let patches = requests.patches_of_sets();
        let ready = self.plane.kubelet.ready(self.namespace, image);
        let latency = |(pod, since): (&str, Timestamp)| {
            let (set, ordinal) = pod.rsplit_once('-')?;
            let next = ordinal.parse::<i32>().ok()?.checked_sub(1).filter(|next| *next >= 0)?;
            let key = (self.namespace.to_owned(), set.to_owned());
            let seen = self.plane.sets.look(|sets| sets.get(&key)?.opened(next, since.max(from)))?;
            // What was seen then had been written by the last request before it.
            let patch = patches.get(set)?.iter().rfind(|received| **received <= seen)?;
            Some(patch.duration_since(since))
        };
        let mut latencies: Vec<SignedDuration> =
            ready.iter().filter_map(|(pod, ready)| latency((pod, ready.since))).collect();
        latencies.sort_unstable();
        latencies
    }
}

fn latency_rows(latencies: &[SignedDuration], sets: usize) -> Vec<Row> {
    let row = |name: &str, share: f64| {
        let beyond = percentile(latencies, share).saturating_sub(DUE).as_secs_f64() * 1000.0;
        let what =
            format!("this operator: pod Ready → partition patch, {name}, beyond the {} s of its checks", DUE.as_secs());
        (Row::new(what, format!("{beyond:.0} ms")), beyond)
    };
    let ((median, _), (tail, beyond)) = (row("p50", 0.5), row("p99", 0.99));
    vec![median, tail.at_most_if(sets == GOAL, 50.0, beyond)]
}

/// The smallest value that so large a share of all does not exceed.
fn percentile(sorted: &[SignedDuration], share: f64) -> SignedDuration {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank, which is small and positive")]
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Another operator, on StatefulSets of its own.
async fn other_rows(plane: &Plane, sizes: &Sizes, command: &str, floor: f64) -> anyhow::Result<Vec<Row>> {
    let fleet = Fleet::create(plane, "other", sizes.rollouts).await?;
    crate::say("the same under the other operator");
    let (url, sets) = (plane.prometheus.url(), fleet.sets.to_string());
    let variables = [("BENCH_NAMESPACE", fleet.namespace), ("BENCH_SETS", &sets), ("BENCH_PROMETHEUS", &url)];
    let mut operator = plane.other(command, &variables)?;
    until("the other operator is ready", || operator.log().contains(READY)).await?;
    anyhow::ensure!(operator.is_running(), "the other operator has ended:\n{}", operator.log());
    let (_, cost) = fleet.cost(&operator, OTHER, "app:3").await?;
    operator.kill();
    Ok(fleet.rows("the other operator", &cost, floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let all: Vec<SignedDuration> = (1..=200).map(SignedDuration::from_secs).collect();
        assert_eq!((percentile(&all, 0.5).as_secs(), percentile(&all, 0.99).as_secs()), (100, 198));
        assert_eq!(percentile(&all[..1], 0.99).as_secs(), 1);
        assert_eq!(percentile(&[], 0.5), SignedDuration::ZERO);
    }
}
