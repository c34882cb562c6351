//! Builds the components from their Go modules and keeps them in a cache, by version and content of go.mod and go.sum. A folder of the cache
//! is whole or absent: it is built beside its place and renamed. A file lock lets one process build what another one waits for.

mod module;
mod toolchain;

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::process::{Launch, Process};

pub use self::{
    module::{KUBE_BINARIES, Module},
    toolchain::Go,
};

/// How often a running build says that it is still running.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// The folder of this crate with one Go module per component.
#[must_use]
pub fn modules_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("modules")
}

/// The cache: `$STS_PLUS_CACHE`, or `sts-plus` in `$XDG_CACHE_HOME`, or `~/.cache/sts-plus`.
///
/// # Errors
/// When none of the variables that say where is set.
pub fn cache_dir() -> anyhow::Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("STS_PLUS_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("sts-plus")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/sts-plus")))
        .context("where to keep the built binaries? Set STS_PLUS_CACHE or HOME")
}

/// Builds `module` into `cache` unless it is there, and returns the folder with its binaries.
///
/// # Errors
/// When the Go toolchain is missing or too old, when the build fails, or when the cache cannot be written.
pub fn ensure(module: &Module, cache: &Path) -> anyhow::Result<PathBuf> {
    ensure_with(&env::var("PATH").unwrap_or_default(), module, cache)
}

/// [`ensure`] with the toolchain that is in `path`.
fn ensure_with(path: &str, module: &Module, cache: &Path) -> anyhow::Result<PathBuf> {
    let bin = cache.join("bin");
    let place = bin.join(module.cache_key());
    if place.is_dir() {
        return Ok(place);
    }
    let go = Go::find(path, &module.go)?;
    fs::create_dir_all(&bin).with_context(|| format!("cannot make {}", bin.display()))?;
    let _lock = lock(&bin.join(format!("{}.lock", module.cache_key())), module)?;
    if place.is_dir() {
        return Ok(place);
    }
    // What a build that was interrupted has left is ours to remove, under the lock.
    let unfinished = bin.join(format!(".building-{}", module.cache_key()));
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir(&unfinished).with_context(|| format!("cannot write into {}", bin.display()))?;
    compile(module, &go, &unfinished)?;
    fs::rename(&unfinished, &place).with_context(|| format!("cannot make {}", place.display()))?;
    Ok(place)
}

fn lock(path: &Path, module: &Module) -> anyhow::Result<fs::File> {
    let file = fs::File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    if file.try_lock().is_err() {
        say(&format!("waiting for another process that builds {} {}", module.name, module.version));
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

fn compile(module: &Module, go: &Go, out: &Path) -> anyhow::Result<()> {
    let names: Vec<&str> = module.binaries.iter().map(|(_, name)| *name).collect();
    let what = format!("{} {}", names.join(", "), module.version);
    say(&format!("building {what}: about {} on 2 cores, once per machine", module.about));
    let since = Instant::now();
    let log = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let mut args: Vec<OsString> =
        ["build", "-tags", module.tags, "-ldflags", &module.ldflags(), "-o"].iter().map(OsString::from).collect();
    // With several packages Go names the binaries by their folders, which is right for Kubernetes.
    args.push(match module.binaries.as_slice() {
        [(_, name)] => out.join(name).into(),
        _ => out.join("").into(),
    });
    args.extend(module.binaries.iter().map(|(package, _)| OsString::from(package)));
    let process = Process::spawn(&Launch {
        name: format!("go build of {}", module.name),
        program: go.command.clone(),
        args,
        log: log.path().to_owned(),
        dir: Some(module.dir.clone()),
        inherit_env: true,
    })?;
    wait_for_build(process, since)?;
    if module.name == "kwok" {
        copy_stages(go, module, &out.join("stages"))?;
    }
    say(&format!("built {what} in {} s", since.elapsed().as_secs()));
    Ok(())
}

fn wait_for_build(mut process: Process, since: Instant) -> anyhow::Result<()> {
    let mut next = Instant::now() + HEARTBEAT;
    let status = loop {
        if let Some(status) = process.exit_status() {
            break status;
        }
        if Instant::now() >= next {
            say(&format!("  {}: {} s so far", process.name(), since.elapsed().as_secs()));
            next += HEARTBEAT;
        }
        thread::sleep(Duration::from_millis(100));
    };
    if !status.success() {
        bail!("{} failed ({status}):\n{}", process.name(), process.log_tail());
    }
    Ok(())
}

/// The stages that kwok ships in its own module: for nodes and volumes ours would only repeat them.
fn copy_stages(go: &Go, module: &Module, to: &Path) -> anyhow::Result<()> {
    const WANTED: [&str; 6] = [
        "node/fast/node-initialize.yaml",
        "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
        "volume/fast/pv-bind.yaml",
        "volume/fast/pv-delete.yaml",
        "volume/fast/pvc-delete.yaml",
        "volume/fast/pvc-provision.yaml",
    ];
    let output = Command::new(&go.command)
        .current_dir(&module.dir)
        .args(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"])
        .output()
        .context("cannot run go list")?;
    let source = Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("kustomize/stage");
    fs::create_dir_all(to)?;
    for file in WANTED {
        let from = source.join(file);
        let text = fs::read_to_string(&from).with_context(|| format!("cannot read {}", from.display()))?;
        let name = Path::new(file).file_name().unwrap_or_default();
        fs::write(to.join(name), text)?;
    }
    Ok(())
}

/// A line for the person who waits.
pub(crate) fn say(line: &str) {
    eprintln!("testcluster: {line}");
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Rig {
        dir: tempfile::TempDir,
        module: Module,
    }

    impl Rig {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/go");
            symlink(fake, dir.path().join("go")).unwrap();
            fs::write(dir.path().join("env"), "go1.99.0\nlocal\n").unwrap();
            Self { dir, module: Module::etcd(&modules_dir()).unwrap() }
        }

        fn ensure(&self) -> anyhow::Result<PathBuf> {
            ensure_with(self.dir.path().to_str().unwrap(), &self.module, &self.dir.path().join("cache"))
        }

        fn builds(&self) -> usize {
            fs::read_to_string(self.dir.path().join("builds")).unwrap_or_default().lines().count()
        }
    }

    #[test]
    fn what_is_missing_is_built_once_even_when_many_ask_at_the_same_time() {
        let rig = Rig::new();
        let places: Vec<PathBuf> = thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| rig.ensure().unwrap())).collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        for place in places {
            assert_eq!(fs::read_to_string(place.join("etcd")).unwrap(), "whole\n");
        }
        assert_eq!(rig.builds(), 1);
        let asked = fs::read_to_string(rig.dir.path().join("builds")).unwrap();
        assert!(asked.contains("-ldflags -s -w -o") && asked.contains("go.etcd.io/etcd/server/v3"), "{asked}");
    }

    #[test]
    fn what_is_stale_is_built_again() {
        let mut rig = Rig::new();
        let old = rig.ensure().unwrap();
        rig.module.version = "99.0.0".to_owned();
        let new = rig.ensure().unwrap();
        assert_ne!(old, new);
        assert!(old.is_dir(), "who still uses the old one keeps it");
        assert_eq!(rig.builds(), 2);
    }

    #[test]
    fn a_build_that_fails_says_why_and_leaves_no_half() {
        let rig = Rig::new();
        fs::write(rig.dir.path().join("fail"), "").unwrap();
        let error = rig.ensure().unwrap_err().to_string();
        assert!(error.contains("go build of etcd failed") && error.contains("no such package"), "{error}");
        fs::remove_file(rig.dir.path().join("fail")).unwrap();
        let place = rig.ensure().unwrap();
        assert_eq!(fs::read_to_string(place.join("etcd")).unwrap(), "whole\n");
    }
}
