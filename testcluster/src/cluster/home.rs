//! The folder of a cluster as something that is claimed, kept or removed, and the state file by which `down` and `status` find again what
//! `up` has left running.

use std::{
    env, fs,
    io::Write as _,
    mem,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::process::{Identity, Janitor};

const STATE: &str = "testcluster.json";

/// What the state file says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// The minor version, such as `1.37`.
    pub kubernetes: String,
    /// The process that started the cluster.
    pub owner: Identity,
    /// What runs on after the owner has ended; empty while the owner watches over it.
    pub components: Vec<Identity>,
}

impl State {
    /// Reads the state file of a folder.
    ///
    /// # Errors
    /// When there is none or it cannot be read.
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(STATE);
        let text =
            fs::read_to_string(&path).with_context(|| format!("{} is not the folder of a cluster", dir.display()))?;
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Whether something of it still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        if self.components.is_empty() {
            return self.owner.is_running();
        }
        self.components.iter().any(Identity::is_running)
    }

    pub(crate) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        // Written beside its place and renamed: `down` must never see a half of it.
        let (path, draft) = (dir.join(STATE), dir.join("testcluster.json.new"));
        fs::write(&draft, serde_json::to_string_pretty(self)?)
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A claimed folder; removed when dropped, and by a janitor when this process is killed.
#[derive(Debug)]
pub(crate) struct Home {
    dir: PathBuf,
    janitor: Option<Janitor>,
}

impl Home {
    /// Claims `dir`, or a new temporary folder.
    pub(crate) fn claim(dir: Option<&Path>, kubernetes: &str) -> anyhow::Result<Self> {
        let dir = match dir {
            Some(dir) => std::path::absolute(dir)?,
            None => tempfile::Builder::new().prefix("sts-plus-").tempdir()?.keep(),
        };
        refuse_others(&dir)?;
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let state = State {
            kubernetes: kubernetes.to_owned(),
            owner: Identity::of("testcluster", std::process::id())?,
            components: Vec::new(),
        };
        fs::File::create_new(dir.join(STATE))
            .and_then(|mut file| file.write_all(serde_json::to_string_pretty(&state)?.as_bytes()))
            .with_context(|| format!("another cluster is just starting in {}", dir.display()))?;
        // Who is never dropped, a static, wants to be kept too: so there is no janitor from the start.
        let janitor = if keep_wanted() {
            eprintln!("testcluster: STS_PLUS_KEEP is set, {} stays", dir.display());
            None
        } else {
            Some(Janitor::spawn(&dir)?)
        };
        Ok(Self { dir, janitor })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Leaves the folder where it is.
    pub(crate) fn keep(mut self) {
        if let Some(janitor) = self.janitor.take() {
            janitor.release();
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // The janitor does the work, so that there is one way to do it, and Drop waits for it.
        drop(mem::take(&mut self.janitor));
    }
}

fn keep_wanted() -> bool {
    env::var_os("STS_PLUS_KEEP").is_some_and(|value| !value.is_empty())
}

fn refuse_others(dir: &Path) -> anyhow::Result<()> {
    let Ok(mut entries) = fs::read_dir(dir) else {
        return Ok(());
    };
    if let Ok(state) = State::read(dir) {
        let is = if state.is_running() { "runs" } else { "has been left" };
        bail!(
            "a cluster {is} in {dir} (Kubernetes {minor}): take another folder, or remove it first with `testcluster down --dir {dir}`",
            minor = state.kubernetes,
            dir = dir.display()
        );
    }
    if entries.next().is_some() {
        bail!("{} is not empty and is not the folder of a cluster: take another one", dir.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_folder_cannot_be_claimed_again_and_is_removed_at_the_end() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("cluster");
        let home = Home::claim(Some(&dir), "1.37").unwrap();
        let error = Home::claim(Some(&dir), "1.36").unwrap_err().to_string();
        assert!(error.contains("a cluster runs in") && error.contains("down --dir"), "{error}");
        drop(home);
        assert!(!dir.exists());
    }

    #[test]
    fn a_folder_of_somebody_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "").unwrap();
        let error = Home::claim(Some(dir.path()), "1.37").unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
        assert!(dir.path().join("thesis.txt").exists());
    }

    #[test]
    fn a_kept_folder_stays() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("cluster");
        Home::claim(Some(&dir), "1.37").unwrap().keep();
        assert!(State::read(&dir).unwrap().is_running(), "its owner, this process, runs");
    }
}
