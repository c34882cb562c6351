//! Finding a process again after the one that started it has ended. The id alone is not enough, since ids are used again: the start time
//! must be the same too.

use std::{fs, process::Command};

use anyhow::Context as _;
use rustix::process::{Signal, kill_process_group};
use serde::{Deserialize, Serialize};

/// Which process it was, as it is kept in the state file of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// How messages call it.
    pub name: String,
    /// The process id, which is also that of its group.
    pub pid: u32,
    /// When it started, in the words of the system.
    pub started: String,
}

impl Identity {
    /// Takes down who has the id now.
    ///
    /// # Errors
    /// When nobody has.
    pub fn of(name: &str, pid: u32) -> anyhow::Result<Self> {
        let started = start_time(pid).with_context(|| format!("{name} has ended"))?;
        Ok(Self { name: name.to_owned(), pid, started })
    }

    /// Whether that very process is still there and not only waiting to be reaped.
    #[must_use]
    pub fn is_running(&self) -> bool {
        start_time(self.pid).is_some_and(|started| started == self.started)
    }

    /// Kills its group if it is still that very process.
    pub fn kill(&self) {
        if !self.is_running() {
            return;
        }
        if let Ok(pid) = super::pid_of(self.pid) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// The start time of a live process: clock ticks since boot where there is `/proc`, else what `ps` prints.
fn start_time(pid: u32) -> Option<String> {
    if fs::exists("/proc/self/stat").unwrap_or(false) {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the command in brackets and may hold blanks; the third is the state, the 22nd the start time.
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?;
        return if state == "Z" || state == "X" { None } else { fields.nth(18).map(str::to_owned) };
    }
    let output = Command::new("ps").args(["-o", "lstart=", "-p", &pid.to_string()]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!text.is_empty()).then_some(text)
}
