//! A stand-in for the kubelet of one node: a pod that is bound to it is Ready at once, and one that is deleted is gone at once. Each of its
//! writes is bound to the UID of the pod: what acts by name hits the successor of a pod under load. Nothing is judged by anything else than the
//! real controller.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client};
use serde_json::{Value, json};
use sts_plus_e2e::{image_of, is_ready, uid_of};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::mirror::{Key, key, lock, until};

/// The name of its node. There is no such object, and nobody who would miss it.
pub const NODE: &str = "stand-in";
/// Requests at the same time.
const AT_ONCE: usize = 64;

/// A pod that is Ready.
#[derive(Clone, Debug)]
pub struct ReadyPod {
    uid: String,
    pub image: String,
    /// When it was so.
    pub since: Timestamp,
}

type Ready = Arc<Mutex<HashMap<Key, ReadyPod>>>;

/// It works until it is dropped.
pub struct Kubelet {
    ready: Ready,
    _work: JoinSet<()>,
}

impl Kubelet {
    pub fn start(client: Client) -> Self {
        let ready = Ready::default();
        let mut work = JoinSet::new();
        work.spawn(follow(client, Arc::clone(&ready)));
        Self { ready, _work: work }
    }

    /// The Ready pods of a namespace with this image.
    pub fn ready(&self, namespace: &str, image: &str) -> Vec<(String, ReadyPod)> {
        let is_wanted = |(key, pod): &(&Key, &ReadyPod)| key.0 == namespace && pod.image == image;
        lock(&self.ready).iter().filter(is_wanted).map(|(key, pod)| (key.1.clone(), pod.clone())).collect()
    }

    /// Waits until there are so many of them.
    pub async fn until_ready(&self, namespace: &str, image: &str, pods: usize) -> anyhow::Result<()> {
        let what = format!("{pods} pods of {namespace} are Ready on {image}");
        until(&what, || self.ready(namespace, image).len() >= pods).await
    }
}

async fn follow(client: Client, ready: Ready) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={NODE}"));
    let mut events = pin!(watch(Api::<Pod>::all(client.clone()), config).default_backoff());
    let (turns, mut writes) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                let (client, ready, turns) = (client.clone(), Arc::clone(&ready), Arc::clone(&turns));
                writes.spawn(async move {
                    let _turn = turns.acquire_owned().await;
                    act(&client, &ready, &pod).await;
                });
            }
            Ok(Event::Delete(pod)) => forget(&ready, &pod),
            // What goes wrong with a watch is tried again.
            Ok(Event::Init | Event::InitDone) | Err(_) => {}
        }
        while writes.try_join_next().is_some() {}
    }
}

/// What is refused was about a pod that is no more, or comes again with the next event.
async fn act(client: &Client, ready: &Ready, pod: &Pod) {
    let (at, uid) = (key(pod), uid_of(pod));
    let api: Api<Pod> = Api::namespaced(client.clone(), &at.0);
    if pod.metadata.deletion_timestamp.is_some() {
        forget(ready, pod);
        let bound = Preconditions { uid: Some(uid), resource_version: None };
        let _ = api.delete(&at.1, &DeleteParams::default().grace_period(0).preconditions(bound)).await;
        return;
    }
    let is_new = lock(ready).get(&at).is_none_or(|known| known.uid != uid);
    if is_new && (is_ready(pod) || make_ready(&api, &at.1, pod).await) {
        lock(ready).insert(at, ReadyPod { uid, image: image_of(pod).to_owned(), since: Timestamp::now() });
    }
}

async fn make_ready(api: &Api<Pod>, name: &str, pod: &Pod) -> bool {
    let patch = Patch::Merge(status(&uid_of(pod), image_of(pod)));
    api.patch_status(name, &PatchParams::default(), &patch).await.is_ok()
}

/// The status of a pod that runs. With another UID the API server refuses it.
fn status(uid: &str, image: &str) -> Value {
    let now = Timestamp::now();
    let conditions = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled", "Ready"]
        .map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": now }));
    json!({
        "metadata": { "uid": uid },
        "status": {
            "phase": "Running",
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": [{
                "name": "app", "image": image, "imageID": image, "ready": true, "started": true, "restartCount": 0,
                "state": { "running": { "startedAt": now } },
            }],
        },
    })
}

fn forget(ready: &Ready, pod: &Pod) {
    let (at, uid) = (key(pod), uid_of(pod));
    let mut ready = lock(ready);
    if ready.get(&at).is_some_and(|known| known.uid == uid) {
        ready.remove(&at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> Pod {
        let body = json!({
            "metadata": { "name": "web-0", "namespace": "ns", "uid": uid },
            "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
        });
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn what_it_writes_makes_a_pod_ready_and_names_its_uid() {
        let written = status("u1", "app:1");
        assert_eq!(written.pointer("/metadata/uid"), Some(&json!("u1")));
        let mut value = serde_json::to_value(pod("u1")).unwrap();
        value["status"] = written["status"].clone();
        assert!(is_ready(&serde_json::from_value(value).unwrap()));
    }

    #[test]
    fn the_end_of_a_pod_is_not_that_of_its_successor() {
        let (ready, now) = (Ready::default(), Timestamp::now());
        lock(&ready).insert(key(&pod("new")), ReadyPod { uid: "new".into(), image: "app:1".into(), since: now });
        forget(&ready, &pod("old"));
        assert_eq!(lock(&ready).len(), 1);
        forget(&ready, &pod("new"));
        assert!(lock(&ready).is_empty());
    }
}
