//! What the command does besides starting: it knows a cluster only by its folder.

use std::{
    env,
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::{
    Builder, Cluster, Minor, Prometheus, PrometheusConfig,
    assets::Assets,
    cluster::State,
    http_client::HttpClient,
    metrics, ports,
    process::{Identity, Launch, Process},
};

const PATIENCE: Duration = Duration::from_secs(20);
const ATTEMPTS: u32 = 4;

/// What a shell needs to know of a cluster: names and values of variables.
pub type Exports = Vec<(&'static str, String)>;

/// A cluster and what was asked for beside it. All of it ends when it is dropped.
#[derive(Debug)]
pub struct Running {
    // Before the cluster, whose folder holds their files.
    others: Vec<Process>,
    exports: Exports,
    cluster: Cluster,
}

impl Running {
    /// How to reach it.
    #[must_use]
    pub fn exports(&self) -> Exports {
        self.exports.clone()
    }

    /// Leaves all of it running after this process has ended.
    ///
    /// # Errors
    /// When something has ended meanwhile; then all of it is stopped.
    pub fn detach(self) -> anyhow::Result<()> {
        self.cluster.detach_with(self.others).map(drop)
    }
}

/// Starts a cluster, on demand with a Prometheus that scrapes the files `metrics/*.prom` in its folder.
///
/// # Errors
/// When something does not start; then nothing is left.
pub async fn start(builder: Builder, with_prometheus: bool) -> anyhow::Result<Running> {
    if with_prometheus {
        // Before the folder is made: it may take minutes.
        tokio::task::spawn_blocking(Assets::prometheus).await??;
    }
    let cluster = builder.start().await?;
    let mut exports = vec![("KUBECONFIG", cluster.kubeconfig().display().to_string())];
    let mut others = Vec::new();
    if with_prometheus {
        let files = cluster.dir().join("metrics");
        let (exporter, target) = start_exporter(&files, &cluster.logs_dir()).await?;
        let config = PrometheusConfig::scraping(&[target]);
        let prometheus = Prometheus::start(&cluster.dir().join("prometheus"), &config).await?;
        exports.push(("PROMETHEUS_URL", prometheus.url().to_owned()));
        exports.push(("METRICS_DIR", files.display().to_string()));
        others.push(exporter);
        others.extend(prometheus.into_process());
    }
    Ok(Running { others, exports, cluster })
}

/// Serves the `*.prom` files of a folder to Prometheus, until it is killed.
///
/// # Errors
/// When it cannot listen.
pub async fn exporter(listen: SocketAddr, dir: &Path) -> anyhow::Result<()> {
    metrics::serve_files(listen, dir).await
}

/// Runs [`exporter`] in a process of its own, since this one ends; returns it and its address.
async fn start_exporter(files: &Path, logs: &Path) -> anyhow::Result<(Process, String)> {
    fs::create_dir_all(files)?;
    for _ in 0..ATTEMPTS {
        let port = ports::free(1)?.first().copied().context("one port was asked for")?;
        let target = format!("127.0.0.1:{port}");
        let args: [OsString; 5] =
            ["exporter".into(), "--listen".into(), target.clone().into(), "--dir".into(), files.into()];
        let mut process = Process::spawn(&Launch {
            name: "exporter".to_owned(),
            program: env::current_exe().context("where is this program?")?,
            args: args.to_vec(),
            log: logs.join("exporter.log"),
            dir: None,
            inherit_env: false,
        })?;
        let client = HttpClient::plain(&format!("http://{target}"))?;
        let until = Instant::now() + PATIENCE;
        while process.exit_status().is_none() && Instant::now() < until {
            if client.get("/metrics").await.is_ok() && process.exit_status().is_none() {
                return Ok((process, target));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if !ports::was_taken(&process.log_tail()) {
            bail!("the exporter does not start:\n{}", process.log_tail());
        }
    }
    bail!("no free port for the exporter in {ATTEMPTS} attempts")
}

/// Builds what is not in the cache yet. Blocks.
///
/// # Errors
/// When a build fails.
pub fn build(minors: &[Minor], prometheus: bool) -> anyhow::Result<()> {
    for minor in minors {
        Assets::ensure(*minor)?;
    }
    if prometheus {
        Assets::prometheus()?;
    }
    Ok(())
}

/// Stops the cluster of a folder and removes the folder.
///
/// # Errors
/// When it is not the folder of a cluster, when another process is just starting one in it, or when something cannot be stopped.
pub fn down(dir: &Path) -> anyhow::Result<()> {
    let state = State::read(dir)?;
    if state.components.is_empty() && state.owner.is_running() {
        bail!("the cluster in {} belongs to process {} and ends with it", dir.display(), state.owner.pid);
    }
    state.components.iter().for_each(Identity::kill);
    let until = Instant::now() + PATIENCE;
    while state.is_running() {
        if Instant::now() >= until {
            bail!("could not stop what runs in {}", dir.display());
        }
        thread::sleep(Duration::from_millis(20));
    }
    fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    eprintln!("testcluster: stopped and removed {}", dir.display());
    Ok(())
}

/// Prints one line per component.
///
/// # Errors
/// When it is not the folder of a cluster, or one of its components does not run.
pub fn status(dir: &Path) -> anyhow::Result<()> {
    let state = State::read(dir)?;
    println!("Kubernetes {} in {}", state.kubernetes, dir.display());
    if state.components.is_empty() {
        let runs = if state.owner.is_running() { "runs" } else { "has ended" };
        println!("its owner, process {}, {runs}", state.owner.pid);
    }
    for component in &state.components {
        let runs = if component.is_running() { "runs" } else { "has ended" };
        println!("{:<24} {:>8}  {runs}", component.name, component.pid);
    }
    let ended = state.components.iter().any(|component| !component.is_running());
    if ended || !state.is_running() {
        bail!("not all of it runs");
    }
    Ok(())
}
