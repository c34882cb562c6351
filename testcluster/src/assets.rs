//! Where the binaries are: in the folder named by `KUBE_ASSETS`, else in the cache, built there when they are missing.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    Minor,
    build::{self, KUBE_BINARIES, Module},
};

/// The folders with the binaries that one cluster runs.
#[derive(Clone, Debug)]
pub struct Assets {
    /// With kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.
    pub kube: PathBuf,
    /// With etcd.
    pub etcd: PathBuf,
    /// With kwok and its `stages` folder.
    pub kwok: PathBuf,
}

impl Assets {
    /// Finds or builds what a cluster of this minor needs. Blocks for minutes when it has to build.
    ///
    /// # Errors
    /// When `KUBE_ASSETS` is set and holds another version or only a part of the control plane; when a build fails.
    pub fn ensure(minor: Minor) -> anyhow::Result<Self> {
        let (modules, cache) = (build::modules_dir(), build::cache_dir()?);
        let given = given_dir(minor);
        let whole = |names: &[&str]| given.as_deref().filter(|dir| missing(dir, names).is_empty());
        let kube = match &given {
            Some(dir) => given_kube(dir, minor)?,
            None => build::ensure(&Module::kube(&modules, minor)?, &cache)?,
        };
        let etcd = match whole(&["etcd"]) {
            Some(dir) => dir.to_owned(),
            None => build::ensure(&Module::etcd(&modules)?, &cache)?,
        };
        let kwok = match whole(&["kwok", "stages"]) {
            Some(dir) => dir.to_owned(),
            None => build::ensure(&Module::kwok(&modules)?, &cache)?,
        };
        Ok(Self { kube, etcd, kwok })
    }

    /// Finds or builds Prometheus and returns its binary.
    ///
    /// # Errors
    /// When the build fails.
    pub fn prometheus() -> anyhow::Result<PathBuf> {
        if let Some(given) = env::var_os("KUBE_ASSETS") {
            let binary = Path::new(&given).join("prometheus");
            if binary.is_file() {
                return Ok(binary);
            }
        }
        let module = Module::prometheus(&build::modules_dir())?;
        Ok(build::ensure(&module, &build::cache_dir()?)?.join("prometheus"))
    }
}

/// The folder of `KUBE_ASSETS`, or the one in it that is named after the minor.
fn given_dir(minor: Minor) -> Option<PathBuf> {
    let given = PathBuf::from(env::var_os("KUBE_ASSETS").filter(|value| !value.is_empty())?);
    let of_minor = given.join(minor.to_string());
    Some(if of_minor.is_dir() { of_minor } else { given })
}

fn given_kube(dir: &Path, minor: Minor) -> anyhow::Result<PathBuf> {
    let missing = missing(dir, &KUBE_BINARIES);
    if !missing.is_empty() {
        bail!(
            "KUBE_ASSETS: {} has no {}; put it there, or unset KUBE_ASSETS to build all of them",
            dir.display(),
            missing.join(", ")
        );
    }
    let server = dir.join("kube-apiserver");
    let output =
        Command::new(&server).arg("--version").output().with_context(|| format!("cannot run {}", server.display()))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !version.starts_with(&format!("Kubernetes v{minor}.")) {
        bail!(
            "KUBE_ASSETS: {} is {version:?}, but Kubernetes {minor} is asked for; keep several minors in folders named 1.36, 1.37, …",
            server.display()
        );
    }
    Ok(dir.to_owned())
}

fn missing<'a>(dir: &Path, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().filter(|name| fs::metadata(dir.join(name)).is_err()).copied().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn given_binaries_must_be_whole_and_of_the_minor() {
        let dir = tempfile::tempdir().unwrap();
        let error = given_kube(dir.path(), Minor::V1_37).unwrap_err().to_string();
        assert!(error.contains("has no kube-apiserver, kube-controller-manager"), "{error}");
        for name in KUBE_BINARIES {
            let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kube-1.36");
            symlink(fake, dir.path().join(name)).unwrap();
        }
        let error = given_kube(dir.path(), Minor::V1_37).unwrap_err().to_string();
        assert!(error.contains("Kubernetes 1.37 is asked for"), "{error}");
        assert_eq!(given_kube(dir.path(), Minor::V1_36).unwrap(), dir.path());
    }
}
