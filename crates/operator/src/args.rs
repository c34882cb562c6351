//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Safe rollouts of StatefulSets, held between pods until Prometheus checks pass.
#[derive(Debug, Parser)]
#[command(name = "sts-plus", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator until it is told to stop (SIGTERM or Ctrl-C).
    Run(RunArgs),
    /// Print the custom resource definitions.
    Crds,
    /// Print everything that gets installed: definitions, roles, admission policies, and the operator itself if it has an image.
    Manifests(ManifestArgs),
}

/// What an installation can vary.
#[derive(Args, Clone, Debug)]
pub struct ManifestArgs {
    /// Namespace of the operator and of its service account.
    #[arg(long, short = 'n', default_value = crate::rbac::NAMESPACE)]
    pub namespace: String,
    /// User name of an operator that runs outside the cluster; it gets the same rights. Repeat it for several.
    #[arg(long = "identity", value_name = "USER")]
    pub identities: Vec<String>,
    /// Image of the operator. Without it nothing is deployed, and the operator is started by hand.
    #[arg(long)]
    pub image: Option<String>,
}

/// How the operator runs.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Namespace to work in; repeat it for several. Without it: all namespaces.
    #[arg(long = "namespace", short = 'n', value_name = "NAMESPACE")]
    pub namespaces: Vec<String>,
    /// The user name that the API server knows this operator by, if it is not the installed service account. For the logs.
    #[arg(long, value_name = "USER")]
    pub identity: Option<String>,
    /// Whether a Prometheus on a loopback address may be asked. Without it: only outside a cluster, where loopback is your own
    /// machine; inside one it is the operator's pod.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_loopback_prometheus: Option<bool>,
    /// How logs look.
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, env = "STS_PLUS_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// What is logged: a level (error, warn, info, debug, trace) or a filter such as `info,sts_plus=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "STS_PLUS_LOG_LEVEL")]
    pub log_level: String,
}

impl RunArgs {
    /// Whether a Prometheus on a loopback address may be asked, as told or by where the operator runs.
    #[must_use]
    pub fn may_ask_loopback(&self) -> bool {
        self.allow_loopback_prometheus.unwrap_or_else(|| std::env::var_os("KUBERNETES_SERVICE_HOST").is_none())
    }
}

/// How logs look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// One JSON object a line.
    Json,
    /// Text.
    Text,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn namespaces_can_be_repeated() {
        let cli = Cli::parse_from(["sts-plus", "run", "-n", "a", "--namespace", "b"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.namespaces, ["a", "b"]);
        assert_eq!(run.log_format, LogFormat::Auto);
        assert_eq!(run.allow_loopback_prometheus, None);
    }

    #[test]
    fn loopback_can_be_allowed_and_refused() {
        for (flag, allowed) in [("--allow-loopback-prometheus", true), ("--allow-loopback-prometheus=false", false)] {
            let cli = Cli::parse_from(["sts-plus", "run", flag]);
            let Command::Run(run) = cli.command else { panic!("not run") };
            assert_eq!(run.may_ask_loopback(), allowed);
        }
    }
}
