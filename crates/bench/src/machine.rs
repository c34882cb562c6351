//! Where, when and of what it was measured.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use jiff::Zoned;

use crate::sizes::Args;

/// One line for each fact.
pub fn facts(operator: &Path, args: &Args) -> anyhow::Result<String> {
    let said = Command::new(operator).arg("--version").output().with_context(|| operator.display().to_string())?;
    let version = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    let cores = std::thread::available_parallelism()?;
    let (processors, memory) = (read("/proc/cpuinfo"), memory(&read("/proc/meminfo")));
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    Ok(format!(
        "- {date}, `make bench SIZE={size}`\n\
         - {cores} cores ({model}), {memory} GiB of memory; load before it began: {load}\n\
         - {version}, commit {revision}, release build\n",
        date = Zoned::now().date(),
        model = model(&processors),
        size = if args.size == crate::sizes::Size::Full { "full" } else { "small" },
        revision = args.revision,
    ))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn model(cpuinfo: &str) -> &str {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(": ")).map_or("unknown model", |(_, model)| model.trim())
}

fn memory(meminfo: &str) -> String {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|number| number.parse::<f64>().ok());
    kibibytes.map_or_else(|| "?".to_owned(), |kibibytes| format!("{:.0}", kibibytes / f64::from(1 << 20)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_from_what_the_kernel_says() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Fast CPU\nmodel name\t: Fast CPU\n"), "Fast CPU");
        assert_eq!(model("processor\t: 0\n"), "unknown model");
        assert_eq!(memory("MemTotal:       16408212 kB\nMemFree: 1 kB\n"), "16");
        assert_eq!(memory(""), "?");
    }
}
