//! The commands that a person would type: kubectl, and the script behind `make install run uninstall`. Each has a deadline.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use testcluster::{Launch, Process};
use tokio::{io::AsyncWriteExt as _, process::Command};

/// The namespace of the demo, on any cluster.
pub(crate) const NAMESPACE: &str = "sts-plus-demo";
const DEADLINE: Duration = Duration::from_secs(150);

/// Where commands act.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    variables: Vec<(&'static str, PathBuf)>,
}

impl Commands {
    /// On the cluster of this kubeconfig, with the operator that was built beside this program, and with this kubectl if one is given.
    /// What kubectl keeps goes into `cache`.
    pub(crate) fn new(kubeconfig: &Path, kubectl: Option<PathBuf>, cache: PathBuf) -> anyhow::Result<Self> {
        let operator = env::current_exe()?.with_file_name("sts-plus");
        if !operator.is_file() {
            bail!("{} is missing: run `make demo`, which builds it", operator.display());
        }
        let mut variables =
            vec![("KUBECONFIG", kubeconfig.to_owned()), ("STS_PLUS", operator), ("KUBECACHEDIR", cache)];
        variables.extend(kubectl.map(|path| ("KUBECTL", path)));
        Ok(Self { variables })
    }

    /// Runs `kubectl` and returns what it said, stdout and stderr in one. It must succeed.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        self.kubectl_with("", args).await
    }

    /// As [`Commands::kubectl`], with something to read.
    pub(crate) async fn kubectl_with(&self, stdin: &str, args: &[&str]) -> anyhow::Result<String> {
        let all: Vec<&str> = ["kubectl"].iter().chain(args).copied().collect();
        self.script_with(stdin, &all).await
    }

    /// Runs `kubectl`, which must be refused, and returns what it said.
    pub(crate) async fn kubectl_refused(&self, args: &[&str]) -> anyhow::Result<String> {
        let all: Vec<&str> = ["kubectl"].iter().chain(args).copied().collect();
        let (succeeded, text) = self.run("", &all).await?;
        if succeeded {
            bail!("{} was not refused: {text}", all.join(" "));
        }
        Ok(text)
    }

    /// Runs `scripts/operator`, which must succeed.
    pub(crate) async fn script(&self, args: &[&str]) -> anyhow::Result<String> {
        self.script_with("", args).await
    }

    async fn script_with(&self, stdin: &str, args: &[&str]) -> anyhow::Result<String> {
        let (succeeded, text) = self.run(stdin, args).await?;
        if !succeeded {
            bail!("{}: {text}", args.join(" "));
        }
        Ok(text)
    }

    /// Whether it succeeded, and what it said.
    async fn run(&self, stdin: &str, args: &[&str]) -> anyhow::Result<(bool, String)> {
        let mut command = Command::new(script());
        command.args(args).envs(self.variables.iter().cloned());
        // Ctrl-C ends the story, not a command of the clean-up.
        command.process_group(0).kill_on_drop(true);
        let output = answer(command, stdin).await.with_context(|| args.join(" "))?;
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Ok((output.status.success(), text.trim().to_owned()))
    }

    /// Starts `make run` in the namespace of the demo. It ends with this process in any case.
    pub(crate) fn run_operator(&self, log: &Path) -> anyhow::Result<Process> {
        let mut args: Vec<_> =
            self.variables.iter().map(|(name, value)| format!("{name}={}", value.display())).collect();
        args.push(script().display().to_string());
        args.extend(
            ["run", "--allow-loopback-prometheus", "--log-format", "text", "--namespace", NAMESPACE].map(str::to_owned),
        );
        Process::spawn(&Launch {
            name: "the operator".to_owned(),
            program: "/usr/bin/env".into(),
            args: args.into_iter().map(Into::into).collect(),
            log: log.to_owned(),
            dir: None,
            inherit_env: true,
        })
    }
}

/// The file of the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn script() -> PathBuf {
    file("scripts/operator")
}

async fn answer(mut command: Command, stdin: &str) -> anyhow::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let pipe = child.stdin.take();
    let whole = async {
        if let Some(mut pipe) = pipe {
            // It may end without reading; how it ended tells more than the broken pipe.
            let _ = pipe.write_all(stdin.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(DEADLINE, whole).await;
    Ok(output.with_context(|| format!("not within {} s", DEADLINE.as_secs()))??)
}
