//! What all stories have in common: an operator that is started again, and when it has nothing more to
//! do.

use std::time::Duration;

use jiff::Timestamp;
use sts_plus_e2e::proxy::{Fault, Kills, Proxy, Record};
use sts_plus_e2e::{Operator, Scene};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Long, since a run may meet a fault at each of its writes, and the machine may be busy.
pub const PATIENCE: Duration = Duration::from_mins(3);
/// An operator that has asked for nothing for so long has nothing more to do.
const QUIET: Duration = Duration::from_millis(1500);
/// The operator, if it was killed lately, has looked at what it left, and asks for nothing more.
pub fn is_quiet(proxy: &Proxy) -> bool {
    let records = proxy.records();
    let killed = records.iter().rposition(|record| matches!(record.fault, Some(Fault::Killed(_))));
    let since = killed.map_or(records.as_slice(), |killed| &records[killed + 1..]);
    let looked = since.iter().any(|record| record.call.is("watch", "pods"));
    let counts = |record: &&Record| record.call.resource != "leases" && record.call.verb != "watch";
    let last = records.iter().rfind(counts).map_or(Timestamp::MIN, |record| record.at);
    looked && Timestamp::now().duration_since(last) >= jiff::SignedDuration::try_from(QUIET).expect("short")
}

/// An operator that is started again each time it was killed.
pub struct Supervised {
    stop: oneshot::Sender<()>,
    task: JoinSet<bool>,
}

impl Supervised {
    /// Starts it.
    pub fn start(scene: &Scene, proxy: &Proxy, args: Vec<String>, mut asked: Kills) -> Self {
        let (ground, namespace, log) = (scene.ground, scene.namespace.clone(), scene.log_file().to_owned());
        let kubeconfig = proxy.kubeconfig().to_owned();
        let start = move || {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            Operator::start_as(ground.operator_program(), &kubeconfig, &namespace, &log, &args)
        };
        let (stop, mut stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut operator = start();
            loop {
                tokio::select! {
                    Some(dead) = asked.recv() => {
                        operator.kill();
                        let _ = dead.send(());
                        operator = start();
                    }
                    _ = &mut stopped => return operator.is_running(),
                }
            }
        });
        Self { stop, task }
    }

    /// Its end. It must not have come by itself.
    pub async fn stop(mut self) {
        let _ = self.stop.send(());
        let is_running = self.task.join_next().await.expect("a task").expect("no panic");
        assert!(is_running, "the operator has ended by itself");
    }
}
