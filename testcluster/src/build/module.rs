//! One folder of `modules/`: what it builds, at which version, and the fingerprint that keys the cache. Reads two files, builds nothing.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use crate::Minor;

/// A Go module of ours and the binaries that come out of it.
#[derive(Clone, Debug)]
pub struct Module {
    /// `kube`, `etcd`, `kwok` or `prometheus`.
    pub name: &'static str,
    /// The folder with go.mod and go.sum.
    pub dir: PathBuf,
    /// The version of what is built, without the `v`.
    pub version: String,
    /// The lowest Go release that go.mod asks for, such as `1.26.0`.
    pub go: String,
    /// The Go packages to build and the names of their binaries.
    pub binaries: Vec<(String, &'static str)>,
    /// Build tags.
    pub tags: &'static str,
    /// How long a cold build takes on two cores, for the progress lines.
    pub about: &'static str,
    fingerprint: String,
}

/// The binaries of a control plane.
pub const KUBE_BINARIES: [&str; 4] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];

impl Module {
    /// The control plane of a minor.
    ///
    /// # Errors
    /// When there is no folder for that minor; the message lists those that exist.
    pub fn kube(modules: &Path, minor: Minor) -> anyhow::Result<Self> {
        let dir = modules.join(format!("kube-{minor}"));
        if !dir.is_dir() {
            bail!(
                "no module for Kubernetes {minor}: known are {} (modules/README.md says how to add one)",
                known_minors(modules).join(", ")
            );
        }
        let binaries = KUBE_BINARIES.iter().map(|name| (format!("k8s.io/kubernetes/cmd/{name}"), *name)).collect();
        Self::read("kube", dir, binaries, "", "6 minutes")
    }

    /// The store.
    ///
    /// # Errors
    /// When go.mod or go.sum cannot be read.
    pub fn etcd(modules: &Path) -> anyhow::Result<Self> {
        let package = "go.etcd.io/etcd/server/v3".to_owned();
        Self::read("etcd", modules.join("etcd"), vec![(package, "etcd")], "", "half a minute")
    }

    /// The simulator of nodes and pods.
    ///
    /// # Errors
    /// When go.mod or go.sum cannot be read.
    pub fn kwok(modules: &Path) -> anyhow::Result<Self> {
        let package = "sigs.k8s.io/kwok/cmd/kwok".to_owned();
        Self::read("kwok", modules.join("kwok"), vec![(package, "kwok")], "", "a minute")
    }

    /// The metrics server.
    ///
    /// # Errors
    /// When go.mod or go.sum cannot be read.
    pub fn prometheus(modules: &Path) -> anyhow::Result<Self> {
        let package = "github.com/prometheus/prometheus/cmd/prometheus".to_owned();
        Self::read(
            "prometheus",
            modules.join("prometheus"),
            vec![(package, "prometheus")],
            "remove_all_sd",
            "2 minutes",
        )
    }

    fn read(
        name: &'static str,
        dir: PathBuf,
        binaries: Vec<(String, &'static str)>,
        tags: &'static str,
        about: &'static str,
    ) -> anyhow::Result<Self> {
        let read = |file: &str| {
            let path = dir.join(file);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
        let package = binaries.first().map_or("", |(package, _)| package.as_str());
        let version = required_version(&go_mod, package)
            .with_context(|| format!("{} requires no module that holds {package}", dir.display()))?;
        let go = go_mod
            .lines()
            .find_map(|line| line.strip_prefix("go "))
            .with_context(|| format!("{}/go.mod has no go line", dir.display()))?
            .trim()
            .to_owned();
        let mut module = Self { name, version, go, binaries, tags, about, fingerprint: String::new(), dir };
        let flags = format!("{} {}", module.ldflags(), module.tags);
        module.fingerprint = fingerprint(&[&go_mod, &go_sum, &flags]);
        Ok(module)
    }

    /// The name of its folder in the cache: changes with the version, with either file, and with the build flags.
    #[must_use]
    pub fn cache_key(&self) -> String {
        format!("{}-{}-{}", self.name, self.version, self.fingerprint)
    }

    /// The linker flags: no debug information, and for Kubernetes the version that `/version` and the User-Agent name.
    #[must_use]
    pub fn ldflags(&self) -> String {
        if self.name != "kube" {
            return "-s -w".to_owned();
        }
        let mut numbers = self.version.split('.');
        let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
        let component = "k8s.io/component-base/version";
        format!(
            "-s -w -X {component}.gitVersion=v{version} -X {component}.gitMajor={major} -X {component}.gitMinor={minor} \
             -X k8s.io/client-go/pkg/version.gitVersion=v{version}",
            version = self.version
        )
    }
}

/// The version that go.mod requires of the module with the longest path that is a prefix of `package`, without the `v`.
fn required_version(go_mod: &str, package: &str) -> Option<String> {
    go_mod
        .lines()
        .filter(|line| !line.contains("=>"))
        .filter_map(|line| {
            let mut words = line.trim().trim_start_matches("require ").split_whitespace();
            Some((words.next()?, words.next()?))
        })
        .filter(|(path, version)| version.starts_with('v') && is_within(package, path))
        .max_by_key(|(path, _)| path.len())
        .map(|(_, version)| version.trim_start_matches('v').to_owned())
}

fn is_within(package: &str, module: &str) -> bool {
    package.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn known_minors(modules: &Path) -> Vec<String> {
    let mut known: Vec<String> = fs::read_dir(modules)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("kube-").map(str::to_owned)
        })
        .collect();
    known.sort();
    known
}

/// FNV-1a over the parts and their lengths, as 16 hex digits. It tells contents apart; it is no protection against forgery.
fn fingerprint(parts: &[&str]) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash = OFFSET;
    for part in parts {
        for byte in part.len().to_le_bytes().iter().chain(part.as_bytes()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(go_mod: &str, go_sum: &str) -> (tempfile::TempDir, Module) {
        let dir = tempfile::tempdir().unwrap();
        let etcd = dir.path().join("etcd");
        fs::create_dir(&etcd).unwrap();
        fs::write(etcd.join("go.mod"), go_mod).unwrap();
        fs::write(etcd.join("go.sum"), go_sum).unwrap();
        let module = Module::etcd(dir.path()).unwrap();
        (dir, module)
    }

    const GO_MOD: &str = "module x\n\ngo 1.26.0\n\nrequire (\n\tgo.etcd.io/etcd/server v3.0.0\n\tgo.etcd.io/etcd/server/v3 v3.6.16 // indirect\n)\n";

    #[test]
    fn version_comes_from_the_require_line_of_the_module_that_holds_the_package() {
        let (_dir, module) = folder(GO_MOD, "");
        assert_eq!(module.version, "3.6.16");
        assert_eq!(module.go, "1.26.0");
    }

    #[test]
    fn a_change_of_go_mod_or_go_sum_or_version_makes_the_cache_stale() {
        let key = |go_mod: &str, go_sum: &str| folder(go_mod, go_sum).1.cache_key();
        let first = key(GO_MOD, "a h1:x\n");
        assert_eq!(first, key(GO_MOD, "a h1:x\n"), "the same content keeps its place");
        assert_ne!(first, key(GO_MOD, "a h1:y\n"));
        assert_ne!(first, key(&format!("{GO_MOD}// more\n"), "a h1:x\n"));
        let newer = key(&GO_MOD.replace("3.6.16", "3.6.17"), "a h1:x\n");
        assert!(newer.starts_with("etcd-3.6.17-"), "{newer}");
    }

    #[test]
    fn every_module_of_this_crate_can_be_read() {
        let modules = crate::build::modules_dir();
        let kube = Module::kube(&modules, Minor::V1_37).unwrap();
        assert!(kube.version.starts_with("1.37."), "{}", kube.version);
        assert!(kube.ldflags().contains("gitMinor=37"));
        assert!(Module::kube(&modules, Minor::V1_36).unwrap().version.starts_with("1.36."));
        for module in [Module::etcd, Module::kwok, Module::prometheus] {
            assert!(!module(&modules).unwrap().version.is_empty());
        }
    }

    #[test]
    fn an_unknown_minor_names_the_known_ones() {
        let error = Module::kube(&crate::build::modules_dir(), Minor::new(1, 2)).unwrap_err();
        assert!(error.to_string().contains("1.36, 1.37"), "{error}");
    }
}
