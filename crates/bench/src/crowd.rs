//! Many objects at rest: the memory that they take, what is asked for while nothing changes, and how soon the operator acts after a start.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::objects;

use crate::load;
use crate::mirror::SetSeen;
use crate::plane::{FIRST, Plane};
use crate::requests::Requests;
use crate::sizes::Sizes;
use crate::table::{Row, mebibytes, number};

/// The API server evaluates its policies for each PhasedRollout of a namespace when one of its StatefulSets is written.
const IN_A_NAMESPACE: usize = 100;
/// Foreign pods for each foreign StatefulSet.
const FOREIGN_PODS: usize = 5;
/// What is asked by all.
pub const EXPR: &str = "bench_errors > 0";
/// Seconds between two checks, where there is something to check.
pub const PERIOD: u64 = 5;
/// Goals for the memory, in MiB, by managed sets.
const MEMORY: [(usize, f64); 3] = [(1_000, 16.0), (5_000, 28.0), (10_000, 40.0)];
/// The size that the other goals are about.
const GOAL: usize = 10_000;

/// One more set, with one pod and no check before it: how soon something is done can be measured by it.
const PROBE: &str = "probe";
static RELEASES: AtomicUsize = AtomicUsize::new(1);

/// The namespace and the name of the n-th managed set.
pub fn place(n: usize) -> (String, String) {
    (format!("crowd-{}", n / IN_A_NAMESPACE), format!("set-{n}"))
}

pub async fn measure(plane: &Plane, sizes: &Sizes) -> anyhow::Result<Vec<Row>> {
    create_probe(plane).await?;
    let (mut rows, mut managed, mut memory) = (Vec::new(), 0, 0.0);
    for size in &sizes.managed {
        grow(plane, managed, *size).await?;
        managed = *size;
        let rest = Rest::measure(plane, sizes, managed).await?;
        memory = mebibytes(rest.memory);
        rows.extend(rest.rows(&format!("{managed} managed"), managed, true));
    }
    if sizes.foreign > 0 {
        create_foreign(plane, sizes.foreign).await?;
        let rest = Rest::measure(plane, sizes, managed).await?;
        let more = mebibytes(rest.memory) - memory;
        let what = format!(
            "memory for {} foreign sets, {} pods, {} Secrets and ConfigMaps",
            sizes.foreign,
            sizes.foreign * FOREIGN_PODS,
            sizes.foreign * 2
        );
        rows.push(Row::new(what, format!("{} MiB", number(more))).at_most(1.0, more));
        rows.extend(rest.rows(&format!("{managed} managed beside these"), managed, false));
    }
    Ok(rows)
}

async fn create_probe(plane: &Plane) -> anyhow::Result<()> {
    load::namespace(&plane.client, PROBE).await?;
    load::create(&plane.client, PROBE, load::set(PROBE, 1)).await?;
    plane.kubelet.until_ready(PROBE, load::FIRST_IMAGE, 1).await?;
    let check = json!({ "preflight": false, "final": false, "successThreshold": 1 });
    let rollout = load::rollout(&plane.prometheus.url(), PROBE, PROBE, EXPR, &check);
    load::create(&plane.client, PROBE, rollout).await?;
    let operator = plane.operator(FIRST, &[])?;
    until_probe(plane, SetSeen::is_at_rest).await?;
    plane.until_quiet(FIRST).await?;
    operator.stop().await;
    Ok(())
}

async fn until_probe(plane: &Plane, wanted: impl Fn(&SetSeen) -> bool) -> anyhow::Result<()> {
    let key = (PROBE.to_owned(), PROBE.to_owned());
    plane.sets.until("the probe is as wanted", |sets| sets.get(&key).is_some_and(&wanted)).await
}

/// Releases the probe; the image.
pub async fn release_probe(plane: &Plane) -> anyhow::Result<String> {
    let image = format!("app:{}", RELEASES.fetch_add(1, Ordering::Relaxed) + 1);
    load::release(&plane.client, PROBE, PROBE, &image).await?;
    Ok(image)
}

/// Waits until the probe may roll; when that was seen.
pub async fn opened_probe(plane: &Plane, after: Timestamp) -> anyhow::Result<Timestamp> {
    until_probe(plane, |set| set.opened(0, after).is_some()).await?;
    let key = (PROBE.to_owned(), PROBE.to_owned());
    Ok(plane.sets.look(|sets| sets.get(&key)?.opened(0, after)).unwrap_or(after))
}

/// Waits until the probe is complete.
pub async fn complete_probe(plane: &Plane, image: &str) -> anyhow::Result<()> {
    plane.kubelet.until_ready(PROBE, image, 1).await?;
    until_probe(plane, SetSeen::is_at_rest).await
}

/// Brings the number of managed sets, each with one pod, to `to`, and lets an operator claim them.
async fn grow(plane: &Plane, from: usize, to: usize) -> anyhow::Result<()> {
    if to == from {
        return Ok(());
    }
    crate::say(&format!("{to} managed StatefulSets"));
    let (client, url) = (&plane.client, plane.prometheus.url());
    let first = from.div_ceil(IN_A_NAMESPACE);
    load::each(to.div_ceil(IN_A_NAMESPACE) - first, async |n| {
        load::namespace(client, &format!("crowd-{}", first + n)).await
    })
    .await?;
    load::each(to - from, async |n| {
        let (namespace, set) = place(from + n);
        load::create(client, &namespace, load::set(&set, 1)).await
    })
    .await?;
    let check = json!({ "periodSeconds": PERIOD, "final": false, "maxTries": 1_000_000 });
    load::each(to - from, async |n| {
        let (namespace, set) = place(from + n);
        load::create(client, &namespace, load::rollout(&url, &set, &set, EXPR, &check)).await
    })
    .await?;
    let operator = plane.operator(FIRST, &[])?;
    let is_managed = |(key, set): &(&crate::mirror::Key, &SetSeen)| key.0.starts_with("crowd-") && set.is_at_rest();
    plane.sets.until("all are claimed", |sets| sets.iter().filter(is_managed).count() >= to).await?;
    plane.until_quiet(FIRST).await?;
    operator.stop().await;
    Ok(())
}

/// What others have in the same cluster.
async fn create_foreign(plane: &Plane, sets: usize) -> anyhow::Result<()> {
    const SETS_IN_A_NAMESPACE: usize = 500;
    crate::say(&format!("{sets} foreign StatefulSets, and {FOREIGN_PODS} pods, a Secret and a ConfigMap for each"));
    let client = &plane.client;
    let namespace = |n: usize| format!("foreign-{}", n / SETS_IN_A_NAMESPACE);
    load::each(sets.div_ceil(SETS_IN_A_NAMESPACE), async |n| load::namespace(client, &format!("foreign-{n}")).await)
        .await?;
    load::each(sets, async |n| {
        let (namespace, name) = (namespace(n), format!("foreign-{n}"));
        // Without pods of its own: the controller would take a quarter of an hour for them.
        load::create(client, &namespace, objects::named(objects::set(0), &name)).await?;
        for ordinal in 0..FOREIGN_PODS {
            load::create(client, &namespace, foreign_pod(&name, ordinal)).await?;
        }
        let data = json!({ "key": "x".repeat(1024) });
        for (kind, field) in [("Secret", "stringData"), ("ConfigMap", "data")] {
            let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name }, field: data });
            load::create(client, &namespace, object).await?;
        }
        Ok(())
    })
    .await
}

/// With the labels and the owner that pods of StatefulSets have. It belongs to none that is there, so that no controller acts on it.
fn foreign_pod(set: &str, ordinal: usize) -> Value {
    let name = format!("{set}-{ordinal}");
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "app": format!("{set}-app"),
                "apps.kubernetes.io/pod-index": ordinal.to_string(),
                "controller-revision-hash": format!("{set}-5d4f8c7b9"),
                "statefulset.kubernetes.io/pod-name": name,
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "controller": true,
                "blockOwnerDeletion": true, "uid": "00000000-0000-4000-8000-000000000000",
            }],
        },
        "spec": { "nodeName": "foreign", "containers": [{ "name": "app", "image": load::FIRST_IMAGE }] },
    })
}

/// What was measured of one start and the time after it.
struct Rest {
    /// From the start of the process to the partition of the release that was waiting.
    first: Duration,
    start: Requests,
    idle: Requests,
    window: Duration,
    memory: u64,
    peak: u64,
}

impl Rest {
    /// A release waits; an operator is started, acts, and is then left alone.
    async fn measure(plane: &Plane, sizes: &Sizes, managed: usize) -> anyhow::Result<Self> {
        crate::say(&format!("{managed} at rest: a start, and {} s of nothing", sizes.rest.as_secs()));
        let image = release_probe(plane).await?;
        until_probe(plane, |set| set.is_observed && set.partition() == Some(names::HOLD)).await?;
        let from = Timestamp::now();
        let mut operator = plane.operator(FIRST, &[])?;
        let opened = opened_probe(plane, from).await?;
        complete_probe(plane, &image).await?;
        plane.until_quiet(FIRST).await?;
        // Who reads at rest begins to do so in this time.
        tokio::time::sleep(sizes.rest / 10).await;
        let begin = Timestamp::now();
        tokio::time::sleep(sizes.rest).await;
        let (memory, peak) = (operator.memory(), operator.peak_memory());
        let all = || plane.requests(FIRST, from);
        let (start, idle) = (all()?.until(begin), plane.requests(FIRST, begin)?);
        anyhow::ensure!(operator.is_running(), "the operator has ended:\n{}", operator.log());
        operator.stop().await;
        Ok(Self { first: opened.duration_since(from).unsigned_abs(), start, idle, window: sizes.rest, memory, peak })
    }

    fn rows(&self, who: &str, managed: usize, with_memory: bool) -> Vec<Row> {
        let is_goal = managed == GOAL;
        let (memory, first) = (mebibytes(self.memory), self.first.as_secs_f64());
        let minutes = self.window.as_secs_f64() / 60.0;
        let (writes, reads) = (self.idle.writes(), self.idle.reads());
        let reads_a_second = reads.total() as f64 / self.window.as_secs_f64();
        let value = format!("{} MiB, at most {} MiB", number(memory), number(mebibytes(self.peak)));
        let row = Row::new(format!("{who}: memory at rest"), value);
        let goal = MEMORY.iter().find(|(sets, _)| *sets == managed && with_memory);
        let asked = number((reads.total() + self.idle.dry_runs()) as f64 / minutes);
        // One for each namespace may find out whether the hold is kept there.
        let namespaces = managed.div_ceil(IN_A_NAMESPACE) + 1;
        let dry_runs = self.start.dry_runs();
        vec![
            goal.map_or(row.clone(), |(_, most)| row.at_most(*most, memory)),
            Row::new(format!("{who}: writes in {} s at rest", self.window.as_secs()), writes.for_each_of(1))
                .at_most(0.0, writes.total() as f64),
            Row::new(
                format!("{who}: reads a second at rest"),
                format!("{} ({asked} reads and dry runs a minute)", number(reads_a_second)),
            )
            .at_most_if(is_goal, 10.0, reads_a_second),
            Row::new(format!("{who}: start to the first right action"), format!("{} s", number(first)))
                .at_most_if(is_goal, 1.5, first),
            Row::new(
                format!("{who}: dry runs at the start ({namespaces} namespaces), other reads"),
                format!("{dry_runs}, {}", self.start.reads().total()),
            )
            .at_most_if(is_goal, namespaces as f64, dry_runs as f64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_filled_one_after_the_other() {
        assert_eq!(place(0), ("crowd-0".to_owned(), "set-0".to_owned()));
        assert_eq!(place(99).0, "crowd-0");
        assert_eq!(place(100), ("crowd-1".to_owned(), "set-100".to_owned()));
    }

    #[test]
    fn no_foreign_set_takes_a_foreign_pod() {
        let (set, pod) = (objects::named(objects::set(0), "foreign-7"), foreign_pod("foreign-7", 1));
        let selected = set.pointer("/spec/selector/matchLabels/app");
        assert!(selected.is_some() && selected != pod.pointer("/metadata/labels/app"));
        assert_eq!(pod.pointer("/metadata/name"), Some(&json!("foreign-7-1")));
    }
}
