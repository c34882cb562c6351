//! Logs: text for a person at a terminal, one JSON object a line for everything else. Nothing is logged that comes out of a Secret.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::args::LogFormat;

/// Starts the logs on standard error. A panic becomes a log line like any other.
///
/// # Errors
///
/// If `level` is no filter, or logs were started before.
pub fn start(format: LogFormat, level: &str) -> anyhow::Result<()> {
    // The client library repeats our own lines and wraps each in a span of its own; a filter can still ask for it by name.
    let filter = EnvFilter::try_new(format!("kube_runtime=error,kube_client=error,{level}"))
        .with_context(|| format!("--log-level {level} is no level and no filter"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE)
        .with_target(false);
    let started = if is_text(format) {
        builder.with_ansi(std::io::stderr().is_terminal()).try_init()
    } else {
        builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
    };
    started.map_err(|error| anyhow::anyhow!("the logs could not be started: {error}"))?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panic: {}", panic_text(panic.payload()));
    }));
    Ok(())
}

fn is_text(format: LogFormat) -> bool {
    match format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => std::io::stderr().is_terminal(),
    }
}

/// The text of a panic.
#[must_use]
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_owned())
}
