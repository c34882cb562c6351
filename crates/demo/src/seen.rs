//! What the API server shows, as it changes: StatefulSets, pods, the PhasedRollout and the ExtendedStatefulSet. Four watches, one channel.

use std::{fmt::Debug, path::Path};

use anyhow::Context as _;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    core::NamespaceResourceScope,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use sts_plus_api::{ExtendedStatefulSet, PhasedRollout};
use tokio::{sync::mpsc, task::JoinSet};

/// A change.
#[derive(Debug)]
pub(crate) enum Change {
    /// A StatefulSet is now like this.
    Set(Box<StatefulSet>),
    /// A StatefulSet is gone; this is how it was last.
    SetGone(Box<StatefulSet>),
    /// A pod is now like this.
    Pod(Box<Pod>),
    /// A pod is gone; this is how it was last.
    Gone(Box<Pod>),
    /// The PhasedRollout is now like this.
    Rollout(Box<PhasedRollout>),
    /// The ExtendedStatefulSet is now like this.
    Extended(Box<ExtendedStatefulSet>),
}

/// Changes in the namespace of the demo, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Changes {
    receiver: mpsc::UnboundedReceiver<Change>,
    _watches: JoinSet<()>,
}

impl Changes {
    /// Starts to watch `namespace`.
    pub(crate) fn watch(client: &Client, namespace: &str) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        let set =
            |gone: bool, set| Some(if gone { Change::SetGone(Box::new(set)) } else { Change::Set(Box::new(set)) });
        let pod = |gone: bool, pod| Some(if gone { Change::Gone(Box::new(pod)) } else { Change::Pod(Box::new(pod)) });
        let rollout = |gone: bool, rollout| Some(Change::Rollout(Box::new(rollout))).filter(|_| !gone);
        let extended = |gone: bool, owner| Some(Change::Extended(Box::new(owner))).filter(|_| !gone);
        watches.spawn(forward(stream::<StatefulSet>(client, namespace), sender.clone(), set));
        watches.spawn(forward(stream::<Pod>(client, namespace), sender.clone(), pod));
        watches.spawn(forward(stream::<PhasedRollout>(client, namespace), sender.clone(), rollout));
        watches.spawn(forward(stream::<ExtendedStatefulSet>(client, namespace), sender, extended));
        Self { receiver, _watches: watches }
    }

    /// The next change.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Change> {
        self.receiver.recv().await.context("the watches have ended")
    }
}

fn stream<K>(client: &Client, namespace: &str) -> impl Stream<Item = watcher::Result<Event<K>>> + use<K>
where
    K: kube::Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    watcher::watcher(Api::<K>::namespaced(client.clone(), namespace), watcher::Config::default())
}

/// Errors are left out: the watcher comes back by itself, and whoever waits has a deadline.
async fn forward<K: Send>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    to: mpsc::UnboundedSender<Change>,
    change: impl Fn(bool, K) -> Option<Change> + Send,
) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let seen = match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => change(false, object),
            Ok(Event::Delete(object)) => change(true, object),
            Ok(Event::Init | Event::InitDone) => None,
            Err(_) => {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                None
            }
        };
        if let Some(seen) = seen
            && to.send(seen).is_err()
        {
            return;
        }
    }
}

/// A client for the current context of a kubeconfig, or of several in the form of `$PATH`.
pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let mut merged = Kubeconfig::default();
    for path in std::env::split_paths(kubeconfig) {
        let one = Kubeconfig::read_from(&path).with_context(|| format!("cannot use {}", path.display()))?;
        merged = merged.merge(one)?;
    }
    let config = Config::from_custom_kubeconfig(merged, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
