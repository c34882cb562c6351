//! The command of the rig for people and for the Makefile: `up`, `down`, `status`, `build`.

mod cli;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    cli::run(cli::Args::parse())
}
