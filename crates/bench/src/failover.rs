//! Two operators over one Lease, of which the leader is killed, and then stopped: how soon the other one writes, and what it asks for before.

use jiff::{SignedDuration, Timestamp};
use sts_plus_e2e::Operator;

use crate::crowd::{complete_probe, opened_probe, release_probe};
use crate::mirror::until;
use crate::plane::{FIRST, Plane, SECOND};
use crate::table::{Row, number};

const LEADS: &str = "this operator leads";
const STANDS_BY: &str = "standing by";

pub async fn measure(plane: &Plane) -> anyhow::Result<Vec<Row>> {
    crate::say("failover");
    let first = start(plane, FIRST, LEADS).await?;
    let second = start(plane, SECOND, STANDS_BY).await?;
    let mut rows = take_over(plane, "kill", SECOND, async || {
        first.kill();
        Ok(())
    })
    .await?;
    let _first = start(plane, FIRST, STANDS_BY).await?;
    rows.extend(
        take_over(plane, "stop", FIRST, async || {
            // It ends in its own time, and the other one takes over when it can.
            tokio::spawn(second.stop());
            Ok(())
        })
        .await?,
    );
    Ok(rows)
}

async fn start(plane: &Plane, user: &str, line: &str) -> anyhow::Result<Operator> {
    let operator = plane.operator(user, &["--leader-elect", "--leader-elect-namespace", "sts-plus-system"])?;
    until(&format!("{user}: {line}"), || operator.log().contains(line)).await?;
    plane.until_quiet(user).await?;
    Ok(operator)
}

/// The leader ends, and a release is made at the same moment.
async fn take_over(
    plane: &Plane,
    how: &str,
    other: &str,
    end: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Row>> {
    let from = Timestamp::now();
    end().await?;
    let image = release_probe(plane).await?;
    let opened = opened_probe(plane, from).await?;
    complete_probe(plane, &image).await?;
    plane.until_quiet(other).await?;
    let requests = plane.requests(other, from)?;
    let first = requests.first_write().unwrap_or(opened);
    let before = requests.until(first);
    let seconds = |to: Timestamp| number(to.duration_since(from).max(SignedDuration::ZERO).as_secs_f64());
    Ok(vec![
        Row::new(
            format!("failover by {how}: the other's first write, its first step"),
            format!("{} s, {} s", seconds(first), seconds(opened)),
        ),
        Row::new(
            format!("failover by {how}: requests of the other before that"),
            format!(
                "{} reads, {} of Secrets, {} dry runs",
                before.reads().total(),
                before.reads_of("secrets"),
                before.dry_runs()
            ),
        ),
    ])
}
