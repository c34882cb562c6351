//! The part of the command line that says which Prometheus may be asked, and the way there.

use anyhow::Context as _;
use clap::Args;
use sts_plus_gates::{AddressPolicy, Origin, Policy, Proxies};

/// Which Prometheus may be asked.
#[derive(Args, Clone, Debug, Default)]
pub struct PrometheusArgs {
    /// A Prometheus on a loopback address may be asked: on your own machine, or in the operator's own pod inside a cluster.
    #[arg(long)]
    pub allow_loopback_prometheus: bool,
    /// Scheme, host and port of a Prometheus that may be asked, such as `https://prometheus.monitoring:9090`; several with commas,
    /// or by repeating it. Without it: any.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub allowed_prometheus_origins: Vec<String>,
    /// Ask through the proxies that `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` name. Without it they are ignored.
    #[arg(long)]
    pub prometheus_proxy_from_environment: bool,
}

impl PrometheusArgs {
    /// What is asked and how.
    ///
    /// # Errors
    ///
    /// If an origin of the list is none, or a proxy variable cannot be used.
    pub fn policy(&self) -> anyhow::Result<Policy> {
        // What is wrong is told by position: a text that is no origin may hold a password.
        let parsed = self.allowed_prometheus_origins.iter().zip(1..).map(|(text, position)| {
            Origin::parse(text).map_err(|e| anyhow::anyhow!("--allowed-prometheus-origins: entry {position} {e}"))
        });
        let proxies = if self.prometheus_proxy_from_environment {
            Proxies::from_environment().context("--prometheus-proxy-from-environment")?
        } else {
            Proxies::default()
        };
        Ok(Policy {
            addresses: AddressPolicy { allow_loopback: self.allow_loopback_prometheus },
            origins: parsed.collect::<anyhow::Result<_>>()?,
            proxies,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::{Cli, Command};

    fn origins(flags: &[&str]) -> Result<Vec<String>, String> {
        let Command::Run(run) = Cli::parse_from([&["sts-plus", "run"], flags].concat()).command else {
            panic!("not run")
        };
        let policy = run.prometheus.policy().map_err(|e| format!("{e:#}"))?;
        Ok(policy.origins.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn origins_are_given_with_commas_or_one_by_one() {
        assert_eq!(origins(&[]), Ok(Vec::new()));
        let flags =
            ["--allowed-prometheus-origins=prom:9090,https://a.example", "--allowed-prometheus-origins=http://b"];
        let want = ["http://prom:9090", "https://a.example:443", "http://b:80"].map(str::to_owned).to_vec();
        assert_eq!(origins(&flags), Ok(want));
    }

    #[test]
    fn what_is_no_origin_is_refused_with_its_place_and_not_repeated() {
        for (flag, want) in [
            ("--allowed-prometheus-origins=prom:9090,http://me:secret@x", "entry 2 contains credentials"),
            ("--allowed-prometheus-origins=http://prom/x", "entry 1 has a path"),
            ("--allowed-prometheus-origins=prom:9090,", "entry 2 is empty"),
            ("--allowed-prometheus-origins=", "entry 1 is empty"),
        ] {
            let error = origins(&[flag]).unwrap_err();
            assert!(error.starts_with("--allowed-prometheus-origins: ") && error.contains(want), "{error}");
            assert!(!error.contains("secret@"), "{error}");
        }
    }
}
