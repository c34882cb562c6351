//! Finds the Go toolchain and says, when it is missing or too old, which one is needed and how to get it. Never installs anything.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

/// A Go toolchain that is there.
#[derive(Clone, Debug)]
pub struct Go {
    /// The `go` command.
    pub command: PathBuf,
}

impl Go {
    /// Looks for `go` in `path` (the form of `$PATH`) and asks for its release.
    ///
    /// # Errors
    /// When there is none, or when it is older than `needed` and may not fetch a newer one by itself.
    pub fn find(path: &str, needed: &str) -> anyhow::Result<Self> {
        let Some(command) = env::split_paths(path).map(|dir| dir.join("go")).find(|candidate| candidate.is_file())
        else {
            bail!("the Go toolchain is missing: there is no `go` in PATH. {}", cure(needed));
        };
        let answer = go_env(&command)?;
        let mut lines = answer.lines();
        let version = lines.next().unwrap_or_default().trim_start_matches("go").to_owned();
        let fetches_newer = lines.next().is_some_and(|toolchain| toolchain != "local");
        if !fetches_newer && release(&version) < release(needed) {
            bail!("the Go toolchain is too old: {} is Go {version}. {}", command.display(), cure(needed));
        }
        Ok(Self { command })
    }
}

fn cure(needed: &str) -> String {
    format!(
        "Building the control plane needs Go {needed} or newer: install it from https://go.dev/dl/ or with the package manager of \
         the system, and put its bin folder into PATH. Or name a folder with built binaries in KUBE_ASSETS."
    )
}

fn go_env(command: &Path) -> anyhow::Result<String> {
    let output = Command::new(command)
        .args(["env", "GOVERSION", "GOTOOLCHAIN"])
        .current_dir(env::temp_dir())
        .output()
        .with_context(|| format!("cannot run {}", command.display()))?;
    if !output.status.success() {
        bail!("{} env failed: {}", command.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The numbers of a release for comparison; what follows a number (`rc1`) is left out.
fn release(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map_while(|part| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_missing_toolchain_is_named_with_its_cure() {
        let message = Go::find("", "1.26.0").unwrap_err().to_string();
        for part in ["Go toolchain is missing", "1.26.0 or newer", "go.dev/dl", "KUBE_ASSETS"] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
    }

    #[test]
    fn a_toolchain_that_is_too_old_is_named_unless_it_fetches_a_newer_one() {
        let fake = |toolchain: &str| {
            let dir = tempfile::tempdir().unwrap();
            let go = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/go");
            symlink(go, dir.path().join("go")).unwrap();
            fs::write(dir.path().join("env"), format!("go1.25.4\n{toolchain}\n")).unwrap();
            dir
        };
        let local = fake("local");
        let message = Go::find(local.path().to_str().unwrap(), "1.26.0").unwrap_err().to_string();
        assert!(message.contains("too old") && message.contains("1.25.4"), "{message}");
        let auto = fake("auto");
        assert!(Go::find(auto.path().to_str().unwrap(), "1.26.0").is_ok());
    }

    #[test]
    fn releases_compare_by_number() {
        assert!(release("1.9") < release("1.26.0"));
        assert!(release("1.27rc1") > release("1.26.8"));
    }
}
