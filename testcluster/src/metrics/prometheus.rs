//! The real Prometheus on loopback, scraping several times a second, so that a test sees within a second what it has set.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use http::Method;
use serde_json::{Value, json};

use crate::{
    assets::Assets,
    http_client::HttpClient,
    ports,
    process::{Launch, Process},
};

const PATIENCE: Duration = Duration::from_mins(1);
const ATTEMPTS: u32 = 4;

/// What Prometheus scrapes and how.
#[derive(Clone, Debug)]
pub struct PrometheusConfig {
    /// Between two scrapes.
    pub scrape_interval: Duration,
    /// How long a sample is seen when its series neither goes on nor is marked as ended.
    pub lookback: Duration,
    /// `127.0.0.1:<port>` of each target; more can be added by [`Prometheus::set_targets`].
    pub targets: Vec<String>,
    /// More of the configuration file, as a JSON merge patch of it. Its relative paths begin in the folder of the data.
    pub document: Value,
    /// More flags of the command line, `--name=value` each.
    pub flags: Vec<String>,
}

impl Default for PrometheusConfig {
    fn default() -> Self {
        Self {
            scrape_interval: Duration::from_millis(250),
            lookback: Duration::from_secs(5),
            targets: Vec::new(),
            document: json!({}),
            flags: Vec::new(),
        }
    }
}

impl PrometheusConfig {
    /// The usual intervals and these targets.
    #[must_use]
    pub fn scraping(targets: &[String]) -> Self {
        Self { targets: targets.to_vec(), ..Self::default() }
    }
}

/// A running Prometheus. It ends when it is dropped, and with this process in any case; its folder stays.
#[derive(Debug)]
pub struct Prometheus {
    process: Option<Process>,
    launch: Launch,
    dir: PathBuf,
    url: String,
    client: HttpClient,
}

impl Prometheus {
    /// Builds it if needed, starts it on a free loopback port with its data in `dir`, and returns when it answers queries.
    ///
    /// # Errors
    /// When it cannot be built, or does not get ready within a minute.
    pub async fn start(dir: &Path, config: &PrometheusConfig) -> anyhow::Result<Self> {
        let program = tokio::task::spawn_blocking(Assets::prometheus).await??;
        let dir = std::path::absolute(dir)?;
        fs::create_dir_all(dir.join("targets")).with_context(|| format!("cannot make {}", dir.display()))?;
        write_targets(&dir, &config.targets)?;
        fs::write(dir.join("prometheus.yaml"), document(&dir, config).to_string())?;
        for _ in 0..ATTEMPTS {
            let port = ports::free(1)?.first().copied().context("one port was asked for")?;
            let url = format!("http://127.0.0.1:{port}");
            let mut prometheus = Self {
                process: None,
                launch: launch(&program, &dir, port, config),
                client: HttpClient::plain(&url)?,
                url,
                dir: dir.clone(),
            };
            if prometheus.run().await? {
                return Ok(prometheus);
            }
        }
        bail!("no free port for Prometheus in {ATTEMPTS} attempts")
    }

    /// `http://127.0.0.1:<port>`; the same after [`Prometheus::stop`] and [`Prometheus::restart`].
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends it; connections are refused from now on.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(process) = self.process.take() {
            tokio::task::spawn_blocking(move || process.stop(Duration::from_secs(5))).await?;
        }
        Ok(())
    }

    /// Starts it again on the same port and data, after a stop.
    ///
    /// # Errors
    /// When it runs, or does not get ready within a minute.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        if self.process.is_some() {
            bail!("Prometheus runs already");
        }
        if !self.run().await? {
            bail!("somebody else has taken the port of Prometheus");
        }
        Ok(())
    }

    /// Freezes it: connections are accepted and nothing is answered.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&mut self) -> anyhow::Result<()> {
        self.process.as_mut().context("Prometheus does not run")?.pause()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&mut self) -> anyhow::Result<()> {
        self.process.as_mut().context("Prometheus does not run")?.resume()
    }

    /// Scrapes these targets from now on, `127.0.0.1:<port>` each.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set_targets(&self, targets: &[String]) -> anyhow::Result<()> {
        write_targets(&self.dir, targets)
    }

    /// An instant query; `data` of the answer (`resultType` and `result`).
    ///
    /// # Errors
    /// When Prometheus does not answer or finds the expression bad.
    pub async fn query(&self, expression: &str) -> anyhow::Result<Value> {
        let path = format!("/api/v1/query?query={}", percent_encoded(expression));
        let answer = self.client.json(&Method::GET, &path, None).await?;
        answer.get("data").cloned().context("the answer holds no data")
    }

    /// Waits until an instant query returns some series (`nonempty`), or none.
    ///
    /// # Errors
    /// When that is not so within a minute, with the last answer; when the expression is bad.
    pub async fn wait_for(&self, expression: &str, nonempty: bool) -> anyhow::Result<Value> {
        self.wait_until(expression, |data| {
            let series = data.get("result").and_then(Value::as_array);
            series.is_some_and(|series| series.is_empty() != nonempty)
        })
        .await
    }

    /// Waits until the data of an instant query is as wanted, and returns it.
    ///
    /// # Errors
    /// When that is not so within a minute, with the last answer; when the expression is bad.
    pub async fn wait_until(&self, expression: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let until = Instant::now() + PATIENCE;
        loop {
            let data = self.query(expression).await?;
            if wanted(&data) {
                return Ok(data);
            }
            if Instant::now() >= until {
                bail!("{expression}: not as wanted within {} s: {data}", PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// For `up`, which leaves it running.
    pub(crate) fn into_process(mut self) -> Option<Process> {
        self.process.take()
    }

    /// Starts the process and waits until it answers; false when somebody else has the port.
    async fn run(&mut self) -> anyhow::Result<bool> {
        let process = self.process.insert(Process::spawn(&self.launch)?);
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = is_ready(&self.client, &self.dir).await;
            if let Some(status) = process.exit_status() {
                let log = process.log_tail();
                self.process = None;
                if ports::was_taken(&log) {
                    return Ok(false);
                }
                bail!("Prometheus has ended ({status}):\n{log}");
            }
            match answer {
                Ok(()) => return Ok(true),
                Err(error) if Instant::now() >= until => {
                    return Err(error.context(format!("Prometheus does not get ready:\n{}", process.log_tail())));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// Ready, and ours: the data folder is the one we gave it.
async fn is_ready(client: &HttpClient, dir: &Path) -> anyhow::Result<()> {
    let (status, text) = client.get("/-/ready").await?;
    if !status.is_success() {
        bail!("{status}: {text}");
    }
    let flags = client.json(&Method::GET, "/api/v1/status/flags", None).await?;
    let data = flags.pointer("/data/storage.tsdb.path").and_then(Value::as_str);
    if data.map(Path::new) != Some(&dir.join("data")) {
        bail!("another Prometheus answers");
    }
    Ok(())
}

fn launch(program: &Path, dir: &Path, port: u16, config: &PrometheusConfig) -> Launch {
    let path = |name: &str, file: &str| format!("--{name}={}", dir.join(file).display());
    let args = [
        path("config.file", "prometheus.yaml"),
        path("storage.tsdb.path", "data"),
        format!("--web.listen-address=127.0.0.1:{port}"),
        format!("--query.lookback-delta={}ms", config.lookback.as_millis()),
        "--storage.tsdb.retention.time=1d".to_owned(),
        "--log.level=warn".to_owned(),
    ];
    Launch {
        name: "prometheus".to_owned(),
        program: program.to_owned(),
        args: args.iter().chain(&config.flags).map(Into::into).collect(),
        log: dir.join("prometheus.log"),
        dir: Some(dir.to_owned()),
        inherit_env: false,
    }
}

fn document(dir: &Path, config: &PrometheusConfig) -> Value {
    let interval = format!("{}ms", config.scrape_interval.as_millis());
    let mut document = json!({
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "evaluation_interval": "1s",
        },
        "scrape_configs": [{
            "job_name": "test",
            // Tests set `pod`, `namespace`, `job` and so on themselves.
            "honor_labels": true,
            "file_sd_configs": [{
                "files": [dir.join("targets/*.json").display().to_string()],
                "refresh_interval": "1s",
            }],
        }],
    });
    json_patch::merge(&mut document, &config.document);
    document
}

fn write_targets(dir: &Path, targets: &[String]) -> anyhow::Result<()> {
    let groups = json!([{ "targets": targets }]);
    let (path, draft) = (dir.join("targets/test.json"), dir.join("targets/test.json.new"));
    fs::write(&draft, groups.to_string())
        .and_then(|()| fs::rename(&draft, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn percent_encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
