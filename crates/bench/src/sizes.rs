//! The command line: what is measured, and how much of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// How much of everything, unless it is said one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// A look: a few minutes.
    Small,
    /// What the goals are about: hours.
    Full,
}

/// A part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Many rollouts at once, beside a roll without a gate.
    Rolls,
    /// Many objects at rest, the start among them, failover, and equal queries.
    Crowd,
}

/// Measures the operator and prints one table.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
pub struct Args {
    /// The binary of the operator.
    #[arg(long, value_name = "FILE")]
    pub operator: PathBuf,
    /// How much of everything.
    #[arg(long, value_enum, default_value_t = Size::Small, env = "SIZE")]
    pub size: Size,
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Rolls, Part::Crowd], env = "BENCH_PARTS")]
    pub parts: Vec<Part>,
    /// StatefulSets of three pods that are rolled at once.
    #[arg(long, env = "BENCH_ROLLOUTS")]
    pub rollouts: Option<usize>,
    /// Managed StatefulSets at rest, one step after the other, with commas.
    #[arg(long, value_delimiter = ',', env = "BENCH_MANAGED")]
    pub managed: Vec<usize>,
    /// Foreign StatefulSets: of pods there are five times as many, of Secrets and ConfigMap objects as many each.
    #[arg(long, env = "BENCH_FOREIGN")]
    pub foreign: Option<usize>,
    /// How long requests are counted at rest.
    #[arg(long, value_name = "SECONDS", env = "BENCH_REST_SECONDS")]
    pub rest_seconds: Option<u64>,
    /// How many rollouts ask the same query.
    #[arg(long, env = "BENCH_EQUAL_QUERIES")]
    pub equal_queries: Option<usize>,
    /// A command that runs another operator, measured beside this one. docs/performance.md says what it has to do.
    #[arg(long, value_name = "COMMAND", env = "OTHER")]
    pub other: Option<String>,
    /// The commit of the operator, for the page.
    #[arg(long, default_value = "unknown")]
    pub revision: String,
    /// The page with a place for the table, which is replaced.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// How much of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub rollouts: usize,
    /// Ascending.
    pub managed: Vec<usize>,
    pub foreign: usize,
    pub rest: Duration,
    pub equal_queries: usize,
}

impl Args {
    pub fn sizes(&self) -> Sizes {
        let usual = match self.size {
            Size::Small => Sizes {
                rollouts: 10,
                managed: vec![0, 100],
                foreign: 100,
                rest: Duration::from_secs(15),
                equal_queries: 50,
            },
            Size::Full => Sizes {
                rollouts: 100,
                managed: vec![0, 1_000, 5_000, 10_000],
                foreign: 10_000,
                rest: Duration::from_mins(10),
                equal_queries: 1_000,
            },
        };
        let mut managed = if self.managed.is_empty() { usual.managed } else { self.managed.clone() };
        managed.sort_unstable();
        Sizes {
            rollouts: self.rollouts.unwrap_or(usual.rollouts),
            managed,
            foreign: self.foreign.unwrap_or(usual.foreign),
            rest: self.rest_seconds.map_or(usual.rest, Duration::from_secs),
            equal_queries: self.equal_queries.unwrap_or(usual.equal_queries),
        }
    }

    /// The command of another operator, if one was given.
    pub fn other(&self) -> Option<&str> {
        self.other.as_deref().map(str::trim).filter(|command| !command.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn sizes(flags: &[&str]) -> Sizes {
        Args::parse_from([&["bench", "--operator", "x"], flags].concat()).sizes()
    }

    #[test]
    fn full_is_what_the_goals_are_about_and_each_size_can_be_said() {
        Args::command().debug_assert();
        let full = sizes(&["--size", "full"]);
        assert_eq!((full.rollouts, full.managed.as_slice()), (100, [0, 1_000, 5_000, 10_000].as_slice()));
        let mine = sizes(&["--size=full", "--managed=7,3", "--rest-seconds=1", "--foreign=0"]);
        assert_eq!(mine, Sizes { managed: vec![3, 7], rest: Duration::from_secs(1), foreign: 0, ..full });
    }
}
