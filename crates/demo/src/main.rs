//! `make demo`: a rollout, a bad release that is stopped at its first pod, and its fix; then versions side by side, with a canary that
//! passes and one that fails. On a real control plane with a real Prometheus.
//!
//! Everything that is printed was read from the API server or asked of Prometheus; nothing is staged. Two things are played: the
//! application's metrics (by [`played`], which computes them from the images of the pods that the API server shows), and, on the rig,
//! the containers (by kwok).

mod acts;
mod commands;
mod install;
mod played;
mod scene;
mod second_act;
mod seen;
mod stage;
mod summary;
mod tell;
mod versions;
mod watch;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::{stage::Stage, tell::Teller};

/// How long the clean-up may take, also after Ctrl-C.
const CLEANUP: Duration = Duration::from_mins(3);

/// Shows a rollout, a bad release that is stopped, and its fix; then versions side by side.
#[derive(Debug, Parser)]
#[command(name = "demo", version)]
struct Args {
    /// Uses the current context of this kubeconfig in place of a control plane of its own.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = tokio::runtime::Runtime::new().context("cannot start the runtime").and_then(|runtime| {
        let outcome = runtime.block_on(perform(args));
        runtime.shutdown_timeout(Duration::from_millis(100));
        outcome
    });
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn perform(args: Args) -> anyhow::Result<ExitCode> {
    // Fails only if somebody has chosen before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut interrupt, mut terminate, mut hangup) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut stopped = async move || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    let tell = Teller::new();
    let mut stage = Stage::empty(args.kubeconfig)?;
    let outcome = tokio::select! {
        outcome = acts::all(&mut stage, &tell) => outcome.map(|()| ExitCode::SUCCESS),
        () = stopped() => {
            tell.note("Interrupted: cleaning up. Once more ends it at once.");
            Ok(ExitCode::from(130))
        }
    };
    if let Err(error) = &outcome {
        tell.failure(&format!("{error:#}"));
        stage.tell_log(&tell);
    }
    tokio::select! {
        cleaned = tokio::time::timeout(CLEANUP, stage.clean_up(&tell)) => {
            cleaned.context("the clean-up did not end")??;
        }
        () = stopped() => anyhow::bail!("ended at once; {}", stage.left_over()),
    }
    Ok(outcome.unwrap_or(ExitCode::FAILURE))
}
