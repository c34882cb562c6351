//! The `sts-plus` command. Exit codes: 0 done or stopped as asked, 1 failed, 2 wrong command line, 130 stopped the hard way.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use sts_plus::args::{Cli, Command, LogFormat, WorkArgs};
use sts_plus::{manifests, run, telemetry, uninstall};

fn main() -> ExitCode {
    match carry_out(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "sts-plus: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => {
            telemetry::start(args.log_format, &args.log_level)?;
            block_on(args.work.threads(), run::run(&args))
        }
        Command::Uninstall(args) => {
            telemetry::start(LogFormat::Text, "warn")?;
            block_on(WorkArgs::default().threads(), uninstall::uninstall(&args))
        }
        Command::Crds => print(&manifests::to_yaml(&manifests::crds()?)?),
        Command::Manifests(args) => {
            let only = args.operator_only;
            let options = args.options()?;
            let objects = if only { manifests::operator(&options) } else { manifests::render(&options)? };
            print(&manifests::to_yaml(&objects)?)
        }
    }
}

fn block_on(threads: usize, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let outcome = runtime.block_on(work);
    // A dry run or a question to Prometheus that is still under way must not keep us.
    runtime.shutdown_background();
    outcome
}

/// A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => Ok(outcome?),
    }
}
