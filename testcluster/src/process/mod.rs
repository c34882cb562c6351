//! A process that cannot outlive its owner. Each one is started through a few lines of `sh`, which become the process itself (`exec`) and leave
//! behind, in the same process group, a watcher that reads from a pipe of the owner (the leash). When the owner ends, for whatever reason,
//! SIGKILL included, the kernel closes the pipe and the watcher kills the group. Nothing but groups that were started here is ever signalled.

mod identity;

use std::{
    ffi::OsString,
    fs,
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

pub use self::identity::Identity;

/// The watcher and the step into the real process. `stdin` is the leash; only the watcher keeps it.
const LEASH: &str = r#"
exec 3<&0 </dev/null
( read -r word <&3; [ "$word" = release ] || kill -KILL 0 ) &
exec 3<&-
exec "$@"
"#;

/// Removes a folder when its owner is gone, unless told to keep it: what `Drop` cannot do after SIGKILL or for a static.
const JANITOR: &str = r#"
read -r word
[ "$word" = release ] && exit
for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  rm -rf "$1" && exit
  sleep 0.1
done
"#;

/// Of components: Go collects garbage less often. That costs memory and saves CPU time, which is what bounds a run of all tests.
const COMPONENT_ENV: [(&str, &str); 1] = [("GOGC", "400")];

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// How messages call it.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where stdout and stderr go; appended to.
    pub log: PathBuf,
    /// The working folder, if another than ours.
    pub dir: Option<PathBuf>,
    /// Whether it gets our environment. Components get only PATH and HOME, and what is set for all of them.
    pub inherit_env: bool,
}

/// A process that was started here.
#[derive(Debug)]
pub struct Process {
    launch: Launch,
    child: Child,
    leash: Option<ChildStdin>,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// When the log cannot be opened or `sh` cannot be run. A program that is missing shows as an early exit.
    pub fn spawn(launch: &Launch) -> anyhow::Result<Self> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(&launch.log)
            .with_context(|| format!("cannot open {}", launch.log.display()))?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", LEASH, "sh"])
            .arg(&launch.program)
            .args(&launch.args)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        if let Some(dir) = &launch.dir {
            command.current_dir(dir);
        }
        if !launch.inherit_env {
            let keep = ["PATH", "HOME"].into_iter();
            let kept: Vec<_> = keep.filter_map(|name| Some((name, std::env::var_os(name)?))).collect();
            command.env_clear().envs(kept).envs(COMPONENT_ENV);
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {}", launch.name))?;
        let leash = child.stdin.take();
        Ok(Self { launch: launch.clone(), child, leash, status: None })
    }

    /// How messages call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.launch.name
    }

    /// The process id, which is also that of its group.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, when it has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// The last lines it has written.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.launch.log, 15)
    }

    /// Freezes it (SIGSTOP): its sockets stay open and nothing is answered, once this returns: a signal reaches one thread after the other.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        let any_change = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid_of(self.id())?), any_change)
            .with_context(|| format!("cannot stop {}", self.launch.name))?;
        Ok(())
    }

    /// Lets it go on after [`Process::pause`].
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        if let Some(status) = self.exit_status() {
            anyhow::bail!("{} has ended ({status})", self.launch.name);
        }
        let pid = pid_of(self.id())?;
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.launch.name))
    }

    /// Asks it to end (SIGTERM), and kills it when it has not ended after `patience`.
    pub fn stop(mut self, patience: Duration) {
        if self.signal(Signal::TERM).is_ok() {
            let until = Instant::now() + patience;
            while self.exit_status().is_none() && Instant::now() < until {
                thread::sleep(Duration::from_millis(10));
            }
        }
        // The rest is Drop.
    }

    /// Lets it run on after we have ended, and says how to find it again.
    ///
    /// # Errors
    /// When it has already ended.
    pub fn release(mut self) -> anyhow::Result<Identity> {
        if let Some(status) = self.exit_status() {
            anyhow::bail!("{} has ended ({status}):\n{}", self.launch.name, self.log_tail());
        }
        let identity = Identity::of(&self.launch.name, self.id())?;
        let mut leash = self.leash.take().context("it was released before")?;
        leash.write_all(b"release\n")?;
        // Drop must not kill it.
        self.status = Some(ExitStatus::default());
        Ok(identity)
    }

    fn kill(&mut self) {
        if let Ok(pid) = pid_of(self.child.id()) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Without a leash it was released. With one the watcher still holds the group, even when the process itself has ended.
        if self.leash.is_some() {
            self.kill();
        }
    }
}

/// Removes a folder at the end of this process.
#[derive(Debug)]
pub struct Janitor {
    child: Child,
    leash: Option<ChildStdin>,
}

impl Janitor {
    /// Watches over `dir`.
    ///
    /// # Errors
    /// When `sh` cannot be run.
    pub fn spawn(dir: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", JANITOR, "sh"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        let leash = child.stdin.take();
        Ok(Self { child, leash })
    }

    /// Leaves the folder alone.
    pub fn release(mut self) {
        if let Some(mut leash) = self.leash.take() {
            let _ = leash.write_all(b"release\n");
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.leash.take());
        let _ = self.child.wait();
    }
}

fn pid_of(id: u32) -> anyhow::Result<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw).with_context(|| format!("{id} is no process id"))
}

/// The last `lines` lines of a file, or an empty string.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all.get(from..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(dir: &Path, script: &str) -> Launch {
        Launch {
            name: "sample".to_owned(),
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            log: dir.join("sample.log"),
            dir: None,
            inherit_env: false,
        }
    }

    fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_mins(1);
        while !done() {
            assert!(Instant::now() < until, "not within a minute: {what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_dropped_process_and_its_children_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::spawn(&launch(dir.path(), "sleep 600 & echo $!; wait")).unwrap();
        let log = dir.path().join("sample.log");
        wait_until("the child has told its id", || !tail(&log, 1).is_empty());
        let grandchild: u32 = tail(&log, 1).parse().unwrap();
        let found = Identity::of("sleep", grandchild).unwrap();
        assert!(found.is_running());
        drop(process);
        wait_until("the grandchild is gone", || !found.is_running());
    }

    #[test]
    fn an_early_end_is_seen_with_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = Process::spawn(&launch(dir.path(), "echo why >&2; exit 3")).unwrap();
        wait_until("it has ended", || process.exit_status().is_some());
        assert_eq!(process.exit_status().unwrap().code(), Some(3));
        assert_eq!(process.log_tail(), "why");
        assert!(process.pause().unwrap_err().to_string().contains("has ended"));
    }

    #[test]
    fn a_released_process_runs_on_until_it_is_ended_by_its_identity() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::spawn(&launch(dir.path(), "exec sleep 600")).unwrap();
        let identity = process.release().unwrap();
        assert!(identity.is_running());
        let stranger = Identity { started: "0".to_owned(), ..identity.clone() };
        assert!(!stranger.is_running(), "the same id with another start time is another process");
        stranger.kill();
        assert!(identity.is_running());
        identity.kill();
        wait_until("it is gone", || !identity.is_running());
    }

    #[test]
    fn a_janitor_removes_the_folder_unless_released() {
        let dir = tempfile::tempdir().unwrap();
        let (gone, kept) = (dir.path().join("gone"), dir.path().join("kept"));
        fs::create_dir(&gone).unwrap();
        fs::create_dir(&kept).unwrap();
        drop(Janitor::spawn(&gone).unwrap());
        Janitor::spawn(&kept).unwrap().release();
        assert!(!gone.exists());
        assert!(kept.exists());
    }
}
