//! The command line.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::leader::{Election, Timing};
use crate::prometheus_args::PrometheusArgs;
use crate::pulse::Pulse;

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
    /// Let go of every StatefulSet (nothing rolls), then remove everything that was installed. Works with and without a running
    /// operator, and after parts were removed by other means.
    Uninstall(UninstallArgs),
}

/// What is uninstalled.
#[derive(Args, Clone, Debug)]
pub struct UninstallArgs {
    /// Namespace of the operator and of its service account.
    #[arg(long, short = 'n', default_value = crate::rbac::NAMESPACE)]
    pub namespace: String,
    /// How long it may take until every StatefulSet is let go, and then until everything is gone, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
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
    /// Print only what runs the operator in the cluster.
    #[arg(long, requires = "image")]
    pub operator_only: bool,
    /// Namespace in which the operator is to work, which must exist; repeat it for several. Its rights over the objects of users are roles
    /// in these namespaces then, and it is started with `--namespace` for each. Without it: all namespaces, by a `ClusterRole`.
    #[arg(long = "watch-namespace", value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    pub watch_namespaces: Vec<String>,
    /// Name of the lease, as in `run --leader-elect-name`: the Role of the election names it.
    #[arg(long, value_name = "NAME", default_value = crate::rbac::NAME, value_parser = NonEmptyStringValueParser::new())]
    pub leader_elect_name: String,
    /// More flags of `sts-plus run` for the operator in the cluster, after a `--`: `-- --require-labelled-secrets`.
    #[arg(last = true, value_name = "FLAGS OF RUN", requires = "image")]
    pub run: Vec<String>,
}

impl ManifestArgs {
    /// What is installed.
    ///
    /// # Errors
    ///
    /// If `run` would not take its flags.
    pub fn options(self) -> anyhow::Result<crate::manifests::Options> {
        let run = ["sts-plus", "run"].into_iter().chain(self.run.iter().map(String::as_str));
        if let Err(error) = Cli::try_parse_from(run) {
            anyhow::bail!("the flags after -- are for `sts-plus run`, which does not take them: {error}");
        }
        let mut watched = self.watch_namespaces;
        watched.sort();
        watched.dedup();
        Ok(crate::manifests::Options {
            namespace: self.namespace,
            identities: self.identities,
            image: self.image,
            watched,
            lease: self.leader_elect_name,
            run: self.run,
        })
    }
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
    /// How much is done at once, and how often.
    #[command(flatten)]
    pub work: WorkArgs,
    /// Where /livez, /readyz and /metrics are answered, or `off`. Without it: on 0.0.0.0:8080 inside a cluster, else nowhere.
    #[arg(long, value_name = "ADDRESS")]
    pub web_address: Option<String>,
    /// Which Prometheus may be asked.
    #[command(flatten)]
    pub prometheus: PrometheusArgs,
    /// Of several operators one works.
    #[command(flatten)]
    pub leader: LeaderArgs,
    /// How logs look.
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, env = "STS_PLUS_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// What is logged: a level (error, warn, info, debug, trace) or a filter such as `info,sts_plus=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "STS_PLUS_LOG_LEVEL")]
    pub log_level: String,
}

impl RunArgs {
    /// Where to listen.
    ///
    /// # Errors
    ///
    /// If it is no address.
    pub fn web_address(&self) -> anyhow::Result<Option<SocketAddr>> {
        let told = self.web_address.as_deref().unwrap_or(if is_in_cluster() { "0.0.0.0:8080" } else { "off" });
        if told == "off" {
            return Ok(None);
        }
        Ok(Some(
            told.parse().with_context(|| format!("--web-address {told} is no address with a port, and not `off`"))?,
        ))
    }
}

/// How much is done at once, and how often.
#[derive(Args, Clone, Debug)]
pub struct WorkArgs {
    /// So many objects are looked at and written at the API server at the same time, a quarter of them in one namespace. There are as many places
    /// more for what holds a release, and for what a check has answered.
    #[arg(long, value_name = "COUNT", default_value_t = WorkArgs::default().concurrency, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub concurrency: u16,
    /// Each object at rest is looked at within so many seconds, whatever the watches say. With more than 800 objects it takes longer.
    #[arg(long, value_name = "SECONDS", default_value_t = WorkArgs::default().resync, value_parser = clap::value_parser!(u64).range(30..=86400))]
    pub resync: u64,
    /// So many objects are asked for in one page of a list.
    #[arg(long, value_name = "COUNT", default_value_t = WorkArgs::default().page_size, value_parser = clap::value_parser!(u32).range(10..=10000))]
    pub page_size: u32,
    /// Threads that work. Without it: as many as there are processors, 4 at most.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub worker_threads: Option<u16>,
}

/// As without any flag.
impl Default for WorkArgs {
    fn default() -> Self {
        Self { concurrency: 64, resync: 300, page_size: 500, worker_threads: None }
    }
}

impl WorkArgs {
    /// How many threads work.
    #[must_use]
    pub fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from).min(4);
        self.worker_threads.map_or_else(cores, usize::from)
    }
}

/// How one of several operators is elected.
#[derive(Args, Clone, Debug)]
pub struct LeaderArgs {
    /// Whether only the operator that holds the lease works. Without it: only inside a cluster.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub leader_elect: Option<bool>,
    /// Namespace of the lease. Without it: the operator's own.
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    pub leader_elect_namespace: Option<String>,
    /// Name of the lease. Operators for different namespaces need different ones.
    #[arg(long, value_name = "NAME", default_value = crate::rbac::NAME)]
    pub leader_elect_name: String,
    /// Another operator takes over when the leader gave no sign of life for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=120))]
    pub leader_elect_lease: u64,
    /// A leader that could not renew the lease for so many seconds stops.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=120))]
    pub leader_elect_renew: u64,
    /// Seconds between two renewals.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=120))]
    pub leader_elect_retry: u64,
}

/// Whether we run in a pod of the cluster that we work on. A kubeconfig may name another one.
#[must_use]
pub fn is_in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && std::env::var_os("KUBECONFIG").is_none()
}

impl LeaderArgs {
    /// Starts the election, if there is to be one.
    ///
    /// # Errors
    ///
    /// If the times do not fit together, or the configuration cannot be used.
    pub fn start(&self, config: &kube::Config, pulse: &Arc<Pulse>) -> anyhow::Result<Election> {
        let seconds = std::time::Duration::from_secs;
        let timing = Timing {
            lease: seconds(self.leader_elect_lease),
            renew: seconds(self.leader_elect_renew),
            retry: seconds(self.leader_elect_retry),
        };
        let timing = timing.checked().map_err(anyhow::Error::msg)?;
        if !self.leader_elect.unwrap_or_else(is_in_cluster) {
            return Ok(Election::none());
        }
        let own = if is_in_cluster() { config.default_namespace.as_str() } else { crate::rbac::NAMESPACE };
        let namespace = self.leader_elect_namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(own);
        // A client of its own: a write that hangs elsewhere does not delay a renewal.
        let client = kube::Client::try_from(config.clone())?;
        Ok(Election::start(client, namespace, &self.leader_elect_name, timing, pulse))
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
    fn there_are_as_many_threads_as_processors_and_four_at_most_unless_told_otherwise() {
        assert!((1..=4).contains(&WorkArgs::default().threads()));
        assert_eq!(WorkArgs { worker_threads: Some(7), ..WorkArgs::default() }.threads(), 7);
    }

    #[test]
    fn namespaces_can_be_repeated() {
        let cli = Cli::parse_from(["sts-plus", "run", "-n", "a", "--namespace", "b"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.namespaces, ["a", "b"]);
        assert_eq!(run.log_format, LogFormat::Auto);
    }

    fn options(flags: &[&str]) -> anyhow::Result<crate::manifests::Options> {
        let Command::Manifests(args) = Cli::try_parse_from([&["sts-plus", "manifests"], flags].concat())?.command
        else {
            panic!("not manifests")
        };
        args.options()
    }

    #[test]
    fn without_a_flag_the_usual_is_printed() {
        assert_eq!(options(&[]).unwrap(), crate::manifests::Options::default());
    }

    #[test]
    fn each_namespace_gets_its_role_once() {
        let flags =
            ["--watch-namespace", "b", "--watch-namespace=a", "--watch-namespace=b", "--leader-elect-name=ours"];
        let options = options(&flags).unwrap();
        assert_eq!((options.watched, options.lease.as_str()), (vec!["a".to_owned(), "b".to_owned()], "ours"));
    }

    #[test]
    fn flags_that_run_would_not_take_are_told_before_anything_is_printed() {
        let with = |flag| options(&["--image=i", "--", flag]);
        assert_eq!(with("--require-labelled-secrets").unwrap().run, ["--require-labelled-secrets"]);
        let error = with("--require-labeled-secrets").unwrap_err().to_string();
        assert!(error.contains("the flags after -- are for `sts-plus run`") && error.contains("labeled"), "{error}");
        assert!(options(&["--", "--require-labelled-secrets"]).is_err(), "nobody is started with it");
        assert!(options(&["--watch-namespace="]).is_err());
    }

    #[test]
    fn the_web_server_can_be_put_anywhere_and_switched_off() {
        for (flag, address) in [("--web-address=127.0.0.1:1", Some("127.0.0.1:1")), ("--web-address=off", None)] {
            let Command::Run(run) = Cli::parse_from(["sts-plus", "run", flag]).command else { panic!("not run") };
            assert_eq!(run.web_address().unwrap(), address.map(|address| address.parse().unwrap()));
        }
        let Command::Run(run) = Cli::parse_from(["sts-plus", "run", "--web-address=x"]).command else {
            panic!("not run")
        };
        assert!(run.web_address().is_err());
    }

    #[test]
    fn the_lease_outlives_the_renewal_unless_told_otherwise() {
        let cli = Cli::parse_from(["sts-plus", "run"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        let leader = run.leader;
        assert_eq!((leader.leader_elect, leader.leader_elect_name.as_str()), (None, "sts-plus"));
        assert_eq!((leader.leader_elect_lease, leader.leader_elect_renew, leader.leader_elect_retry), (15, 10, 2));
    }

    #[test]
    fn loopback_is_asked_only_when_it_is_allowed() {
        for (flags, allowed) in [(&[][..], false), (&["--allow-loopback-prometheus"], true)] {
            let cli = Cli::parse_from([&["sts-plus", "run"], flags].concat());
            let Command::Run(run) = cli.command else { panic!("not run") };
            assert_eq!(run.prometheus.allow_loopback_prometheus, allowed);
        }
    }
}
