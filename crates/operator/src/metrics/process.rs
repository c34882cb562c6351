//! The process, under the names that every Prometheus client uses. Read at the moment of the scrape; on a system without `/proc`, or
//! where it is not to be read, there is nothing.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// What it has used.
#[derive(Debug)]
pub(super) struct Process;

/// CPU and start in seconds, memory in bytes.
struct Usage {
    cpu: f64,
    started: Option<f64>,
    resident: f64,
    virtual_memory: f64,
    threads: f64,
    files: Option<f64>,
    most_files: Option<f64>,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(usage) = read() else { return Ok(()) };
        encoder
            .encode_descriptor("process_cpu_seconds", "CPU time of user and system", None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, f64>(&usage.cpu, None)?;
        let gauges = [
            ("process_start_time_seconds", "Start of the process as Unix time", usage.started),
            ("process_resident_memory_bytes", "Memory that is in use", Some(usage.resident)),
            ("process_virtual_memory_bytes", "Memory that is reserved", Some(usage.virtual_memory)),
            ("process_threads", "Threads", Some(usage.threads)),
            ("process_open_fds", "Open files and connections", usage.files),
            ("process_max_fds", "Most files and connections that may be open", usage.most_files),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
#[allow(clippy::cast_precision_loss, reason = "no process uses so much")]
fn read() -> Option<Usage> {
    use procfs::WithCurrentSystemInfo as _;

    let process = procfs::process::Process::myself().ok()?;
    let stat = process.stat().ok()?;
    let ticks = procfs::ticks_per_second() as f64;
    let started = procfs::boot_time_secs().ok().map(|boot| boot as f64 + stat.starttime as f64 / ticks);
    let most = process.limits().ok().map(|limits| limits.max_open_files.soft_limit);
    Some(Usage {
        cpu: stat.utime.saturating_add(stat.stime) as f64 / ticks,
        started,
        resident: stat.rss_bytes().get() as f64,
        virtual_memory: stat.vsize as f64,
        threads: stat.num_threads as f64,
        files: process.fd_count().ok().map(|count| count as f64),
        most_files: most.and_then(|most| match most {
            procfs::process::LimitValue::Value(most) => Some(most as f64),
            procfs::process::LimitValue::Unlimited => None,
        }),
    })
}

#[cfg(not(target_os = "linux"))]
fn read() -> Option<Usage> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn the_process_is_told_as_it_is() {
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(Process));
        encode(&mut text, &registry).unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") < value("process_max_fds"));
        assert!(value("process_threads") >= 1.0);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        let age = jiff::Timestamp::now().as_duration().as_secs_f64() - value("process_start_time_seconds");
        assert!((-5.0..86_400.0).contains(&age), "{age}");
    }
}
