//! The part of the command line that says which Prometheus may be asked, the way there, and what may be sent.

use anyhow::Context as _;
use clap::Args;
use sts_plus_gates::{AddressPolicy, Origin, Policy, Proxies, SecretPolicy};

/// Which Prometheus may be asked, and with which Secrets.
#[derive(Args, Clone, Debug, Default)]
pub struct PrometheusArgs {
    /// A Prometheus on a loopback address may be asked: on your own machine, or in the operator's own pod inside a cluster.
    #[arg(long)]
    pub allow_loopback_prometheus: bool,
    /// Scheme, host and port of a Prometheus that may be asked, such as `https://prometheus.monitoring:9090`; repeat it for several, or
    /// write commas between them. There are no patterns: each origin is written out. Without it: any.
    #[arg(long = "allowed-origin", alias = "allowed-prometheus-origins", value_name = "URL", value_delimiter = ',')]
    pub allowed_origins: Vec<String>,
    /// Use a Secret that a check names only if it has the label `sts.plus/check-credentials: "true"`. Without it: any of the namespace,
    /// but no token of a service account.
    #[arg(long)]
    pub require_labelled_secrets: bool,
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
        let parsed = self.allowed_origins.iter().zip(1..).map(|(text, position)| {
            Origin::parse(text).map_err(|e| anyhow::anyhow!("--allowed-origin: entry {position} {e}"))
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
            secrets: if self.require_labelled_secrets { SecretPolicy::Labelled } else { SecretPolicy::Any },
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn policy(flags: &[&str]) -> Result<Policy, String> {
        let Command::Run(run) = Cli::parse_from([&["sts-plus", "run"], flags].concat()).command else {
            panic!("not run")
        };
        run.prometheus.policy().map_err(|e| format!("{e:#}"))
    }

    fn origins(flags: &[&str]) -> Result<Vec<String>, String> {
        Ok(policy(flags)?.origins.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn origins_are_given_one_by_one_or_with_commas() {
        assert_eq!(origins(&[]), Ok(Vec::new()));
        let want = ["http://prom:9090", "https://a.example:443", "http://b:80"].map(str::to_owned).to_vec();
        for flags in [
            &["--allowed-origin=prom:9090,HTTPS://A.example", "--allowed-origin", "http://b/"][..],
            // As it was called before.
            &["--allowed-prometheus-origins=prom:9090,https://a.example:443,b"],
        ] {
            assert_eq!(origins(flags).as_ref(), Ok(&want));
        }
    }

    #[test]
    fn what_is_no_origin_is_refused_with_its_place_and_not_repeated() {
        for (flag, want) in [
            ("--allowed-origin=prom:9090,http://me:secret@x", "entry 2 contains credentials"),
            ("--allowed-origin=http://prom/x", "entry 1 has a path"),
            ("--allowed-origin=https://*.example.com", "entry 1 has a *: there are no patterns"),
            ("--allowed-origin=prom:9090,", "entry 2 is empty"),
            ("--allowed-origin=", "entry 1 is empty"),
        ] {
            let error = origins(&[flag]).unwrap_err();
            assert!(error.starts_with("--allowed-origin: ") && error.contains(want), "{error}");
            assert!(!error.contains("secret@"), "{error}");
        }
    }

    #[test]
    fn a_label_is_wanted_only_when_it_is_asked_for() {
        assert_eq!(policy(&[]).unwrap().secrets, SecretPolicy::Any);
        assert_eq!(policy(&["--require-labelled-secrets"]).unwrap().secrets, SecretPolicy::Labelled);
    }
}
