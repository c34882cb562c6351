//! The operator as it is shipped: the real binary, with the token of its service account, for one namespace. It can be stopped,
//! killed, frozen, and started again; it ends with the scenario, and with this process in any case.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use crate::Ground;

/// How long a graceful stop may take: longer than the operator allows itself.
const STOP: Duration = Duration::from_secs(15);
/// How Linux counts processor time for users.
const TICKS_PER_SECOND: u64 = 100;

/// The shell becomes the operator. What it leaves behind in the same process group waits for the end of a pipe that only we hold,
/// and then kills the group: the kernel closes the pipe however we end.
const LEASH: &str = r#"exec 4<&0 </dev/null; (read -r _ <&4; kill -KILL 0) & exec 4<&-; exec "$@""#;

/// A running operator.
#[derive(Debug)]
pub struct Operator {
    child: Child,
    _leash: Option<ChildStdin>,
    log: PathBuf,
}

impl Operator {
    /// Starts one for `namespace`; its log is appended to the file `log`.
    pub fn start(ground: &Ground, namespace: &str, log: &Path, args: &[&str]) -> Self {
        Self::start_as(ground.operator_program(), ground.operator_kubeconfig(), namespace, log, args)
    }

    /// The same with another binary or kubeconfig.
    pub fn start_as(program: &Path, kubeconfig: &Path, namespace: &str, log: &Path, args: &[&str]) -> Self {
        Self::start_in(program, kubeconfig, namespace, log, args, &[])
    }

    /// The same with more variables in its environment.
    pub fn start_in(
        program: &Path,
        kubeconfig: &Path,
        namespace: &str,
        log: &Path,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let usual = ["run", "--namespace", namespace, "--allow-loopback-prometheus", "--log-format", "text"];
        let args = [&usual[..], &["--log-level", "info,sts_plus=debug"], args].concat();
        Self::spawn(program, kubeconfig, log, &args, variables)
    }

    /// Any program with these arguments and nothing else, such as an operator for all namespaces.
    pub fn spawn(program: &Path, kubeconfig: &Path, log: &Path, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("the log of the operator can be written");
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", LEASH, "sh"])
            .arg(program)
            .args(args)
            .envs(variables.iter().copied())
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::piped())
            .stdout(file.try_clone().expect("a file can be opened twice"))
            .stderr(file)
            .process_group(0);
        let mut child = command.spawn().expect("sh can be run");
        let leash = child.stdin.take();
        Self { child, _leash: leash, log: log.to_owned() }
    }

    /// SIGKILL, and it is gone when this returns.
    pub fn kill(mut self) {
        self.end();
    }

    /// SIGTERM; how it ended. It must end by itself.
    pub async fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        let ended = tokio::time::timeout(STOP, async {
            loop {
                if let Ok(Some(status)) = self.child.try_wait() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        ended.await.expect("the operator ends when it is told to")
    }

    /// SIGSTOP: it holds its connections and does nothing, once this returns: a signal reaches one thread after the other.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let stopped = waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT);
        stopped.expect("the operator stops");
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// True until it has ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Everything it has logged, and those before it with the same file.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The most memory that it has had resident so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.memory_as("VmHWM:")
    }

    /// The memory that it has resident, in bytes.
    pub fn memory(&self) -> u64 {
        self.memory_as("VmRSS:")
    }

    fn memory_as(&self, field: &str) -> u64 {
        let status = self.proc("status");
        let value = status.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB"));
        value.and_then(|value| value.parse::<u64>().ok()).expect("the kernel counts it") << 10
    }

    /// The processor time that it has used so far, that of the kernel for it included.
    pub fn cpu_time(&self) -> Duration {
        let stat = self.proc("stat");
        // What comes before may hold blanks: it is the name of the program in parentheses. Then the state, which is field 3.
        let (_, fields) = stat.rsplit_once(") ").expect("the name ends");
        let ticks = fields.split(' ').skip(14 - 3).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
        Duration::from_millis(ticks.sum::<u64>() * 1000 / TICKS_PER_SECOND)
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("it runs")
    }

    fn pid(&self) -> Pid {
        let id = i32::try_from(self.child.id()).expect("a process id");
        Pid::from_raw(id).expect("a process id is not 0")
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the operator can be signalled");
    }

    /// Ends the operator and the watcher of its leash: both, and nothing else, are in the group.
    fn end(&mut self) {
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn time_and_memory_are_those_of_the_program() {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let busy = ["-c", "while :; do :; done"];
        let program = Operator::spawn(Path::new("/bin/sh"), Path::new("/dev/null"), log.path(), &busy, &[]);
        let end = Instant::now() + crate::PATIENCE;
        while program.cpu_time() < Duration::from_millis(50) {
            assert!(Instant::now() < end, "a loop uses the processor: {:?}", program.cpu_time());
            std::thread::sleep(Duration::from_millis(10));
        }
        let (memory, peak) = (program.memory(), program.peak_memory());
        assert!(0 < memory && memory <= peak && peak < 64 << 20, "{memory} {peak}");
        program.kill();
    }
}
