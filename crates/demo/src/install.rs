//! What gets installed for the demo, and on a cluster of the user's own what of it was not there before and goes again.

use std::collections::BTreeSet;

use anyhow::bail;

use crate::commands::Commands;

/// Objects that were installed by us, as kubectl names them.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    names: BTreeSet<String>,
}

impl Installed {
    /// Installs it unless all of it is there, and gives the names of all of it.
    pub(crate) async fn ensure(commands: &Commands) -> anyhow::Result<(Self, BTreeSet<String>)> {
        let wanted = names(commands, "names").await?;
        let before = names(commands, "list").await?;
        let names: BTreeSet<String> = wanted.difference(&before).cloned().collect();
        if !names.is_empty() {
            commands.script(&["install"]).await?;
        }
        Ok((Self { names }, wanted))
    }

    /// Removes what was not there before.
    pub(crate) async fn remove(&mut self, commands: &Commands) -> anyhow::Result<()> {
        let names = std::mem::take(&mut self.names);
        if names.is_empty() {
            return Ok(());
        }
        let mut args = vec!["delete", "--ignore-not-found", "--timeout=120s", "--namespace", "sts-plus-system"];
        args.extend(names.iter().map(String::as_str));
        commands.kubectl(&args).await?;
        Ok(())
    }
}

async fn names(commands: &Commands, which: &str) -> anyhow::Result<BTreeSet<String>> {
    Ok(commands
        .script(&[which])
        .await?
        .lines()
        .filter(|line| !line.contains(char::is_whitespace))
        .map(str::to_owned)
        .collect())
}

/// Another operator would carry out the demo's rollout as well, and cannot reach its Prometheus.
pub(crate) async fn refuse_a_second_operator(commands: &Commands) -> anyhow::Result<()> {
    let args =
        ["get", "deployment", "sts-plus", "--namespace", "sts-plus-system", "--ignore-not-found", "--output", "name"];
    if !commands.kubectl(&args).await?.is_empty() {
        bail!(
            "an operator runs in this cluster (Deployment sts-plus), and the demo brings its own: use another cluster"
        );
    }
    Ok(())
}
