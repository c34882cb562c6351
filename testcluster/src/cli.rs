//! What the command line means. Progress goes to stderr; stdout holds only lines for a shell to evaluate, or the answer that was asked for.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use testcluster::{
    Builder, Cluster, Minor,
    command::{self, Exports},
};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};

/// A real Kubernetes control plane on loopback, with simulated nodes.
#[derive(Debug, Parser)]
#[command(name = "testcluster", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a cluster, returns when it is ready and leaves it running.
    Up(Up),
    /// Like up, but stays until Ctrl-C, and then stops it and removes the folder.
    Run(Up),
    /// Stops the cluster of a folder and removes the folder.
    Down {
        /// The folder given to `up`.
        #[arg(long)]
        dir: PathBuf,
    },
    /// Says what of the cluster of a folder is running; fails when something is not.
    Status {
        /// The folder given to `up`.
        #[arg(long)]
        dir: PathBuf,
    },
    /// Only builds what is not in the cache yet.
    Build {
        /// A minor version; can be repeated.
        #[arg(long, default_value = "1.37")]
        kubernetes: Vec<Minor>,
        /// Prometheus too.
        #[arg(long)]
        prometheus: bool,
    },
    /// Serves the *.prom files of a folder as metrics.
    Exporter {
        /// Where to listen.
        #[arg(long)]
        listen: SocketAddr,
        /// The folder.
        #[arg(long)]
        dir: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Up {
    /// The folder for kubeconfig, data and logs; absent or empty.
    #[arg(long)]
    dir: PathBuf,
    /// The minor version of Kubernetes.
    #[arg(long, default_value = "1.37")]
    kubernetes: Minor,
    /// Feature gates of API server, controller-manager and scheduler.
    #[arg(long, value_name = "NAME=true,…", value_delimiter = ',', value_parser = gate)]
    feature_gates: Vec<(String, bool)>,
    /// Entries of the API server's --runtime-config.
    #[arg(long, value_name = "API=true,…", value_delimiter = ',')]
    runtime_config: Vec<String>,
    /// How many nodes there are.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// A Prometheus beside it, which scrapes what is written into DIR/metrics/NAME.prom.
    #[arg(long)]
    prometheus: bool,
}

fn gate(text: &str) -> anyhow::Result<(String, bool)> {
    let (name, on) = text.split_once('=').context("a feature gate has the form Name=true")?;
    let on = on.parse().context("a feature gate is true or false")?;
    Ok((name.to_owned(), on))
}

/// Does it, and says on stderr why not.
pub(crate) fn run(args: Args) -> ExitCode {
    let result = match args.command {
        Command::Up(up) => until_signal(start(up)),
        Command::Run(up) => until_signal(hold(up)),
        Command::Down { dir } => command::down(&dir),
        Command::Status { dir } => command::status(&dir),
        Command::Exporter { listen, dir } => until_signal(async move { command::exporter(listen, &dir).await }),
        Command::Build { kubernetes, prometheus } => until_signal(build(kubernetes, prometheus)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testcluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs `work` until it is done or SIGINT, SIGTERM or SIGHUP arrives; then it is dropped, and with it all that it has started.
fn until_signal(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let result = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        tokio::select! {
            result = work => result,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
            _ = hangup.recv() => bail!("the terminal is gone"),
        }
    });
    // A build may still be waited for in the background; it ends with this process.
    runtime.shutdown_timeout(Duration::from_millis(10));
    result
}

async fn start(up: Up) -> anyhow::Result<()> {
    let running = command::start(builder(&up), up.prometheus).await?;
    let exports = running.exports();
    running.detach()?;
    print(&exports);
    Ok(())
}

async fn hold(up: Up) -> anyhow::Result<()> {
    let running = command::start(builder(&up), up.prometheus).await?;
    print(&running.exports());
    std::future::pending().await
}

fn builder(up: &Up) -> Builder {
    let mut builder = Cluster::builder().kubernetes(up.kubernetes).nodes(up.nodes).dir(&up.dir);
    for (name, on) in &up.feature_gates {
        builder = builder.feature_gate(name, *on);
    }
    for entry in &up.runtime_config {
        builder = builder.runtime_config(entry);
    }
    builder
}

fn print(exports: &Exports) {
    for (name, value) in exports {
        println!("export {name}={}", quoted(value));
    }
}

/// As a word for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

async fn build(minors: Vec<Minor>, prometheus: bool) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(move || command::build(&minors, prometheus)).await?
}
