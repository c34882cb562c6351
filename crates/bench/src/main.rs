//! `make bench`: what a rollout costs and how much the operator bears, on a real control plane without brakes. One table is printed, with the
//! goals beside what was measured, and written to docs/performance.md if asked for; that page says how each row is measured.
//!
//! `rolls` has many rollouts at once, `crowd` many objects at rest, and `failover` and `queries` go on with those. `plane` is what they stand
//! on, `table` what they say. Nothing here judges but `table`, and nothing fails because a goal is missed.

#![allow(clippy::cast_precision_loss, reason = "rates and shares, not counts")]

mod crowd;
mod failover;
mod kubelet;
mod load;
mod machine;
mod mirror;
mod plane;
mod queries;
mod requests;
mod rolls;
mod sizes;
mod table;

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::Parser as _;

use crate::plane::Plane;
use crate::sizes::{Args, Part};
use crate::table::Row;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    // Fails only if somebody has chosen before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let measured = tokio::select! {
        measured = measure(&args) => measured?,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    };
    println!("\n{measured}");
    if let Some(page) = &args.write {
        write(page, &measured)?;
    }
    Ok(())
}

/// The machine, the versions, and the table.
async fn measure(args: &Args) -> anyhow::Result<String> {
    let sizes = args.sizes();
    let operator = fs::canonicalize(&args.operator).with_context(|| format!("{}", args.operator.display()))?;
    let facts = machine::facts(&operator, args)?;
    let mut rows: Vec<Row> = Vec::new();
    let mut kubernetes = String::new();
    if args.parts.contains(&Part::Rolls) {
        let plane = Plane::start(&operator).await?;
        kubernetes = plane.version().await?;
        rows.extend(rolls::measure(&plane, &sizes, args.other()).await?);
        plane.end().await?;
    }
    if args.parts.contains(&Part::Crowd) {
        let plane = Plane::start(&operator).await?;
        kubernetes = plane.version().await?;
        rows.extend(crowd::measure(&plane, &sizes).await?);
        rows.extend(failover::measure(&plane).await?);
        rows.extend(queries::measure(&plane, &sizes).await?);
        plane.end().await?;
    }
    Ok(format!("{facts}- Kubernetes {kubernetes}\n\n{}", table::markdown(&rows)))
}

fn write(page: &Path, measured: &str) -> anyhow::Result<()> {
    let why = || format!("{}", page.display());
    let text = fs::read_to_string(page).with_context(why)?;
    fs::write(page, table::put(&text, measured).with_context(why)?).with_context(why)
}

/// What goes on, for whoever waits.
fn say(what: &str) {
    eprintln!("== bench: {what}");
}
