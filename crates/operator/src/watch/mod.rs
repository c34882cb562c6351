//! Every stream of the operator in one place: what is watched, what of it is kept, and who looks again when something changes. A stream
//! that fails pauses and comes back; it never slows another stream or the controller.

mod cache;
mod caches;
mod concern;
mod follow;
mod interest;
mod queue;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use sts_plus_api::{ExtendedStatefulSet, PhasedRollout};
use tokio::task::JoinSet;

pub use cache::{Cache, Keyed, Writer};
pub use caches::{Caches, ServiceObject};
use concern::{Concerned, Concerns};
use follow::{Heard, Name, follow};
pub use queue::Queue;

use crate::admission;
use crate::client::WATCH_SECONDS;
use crate::hold::Hold;
use crate::pace::Pace;
use crate::pulse::Pulse;
use crate::views::{PodObject, REFUSALS, RefusalObject, SetObject};

/// Called with the UID of each object that is gone: nothing is to be remembered of it.
pub type Forget = Arc<dyn Fn(&str) + Send + Sync>;

/// The queues of one scope.
#[derive(Clone)]
pub struct Queues {
    /// Of PhasedRollouts.
    pub rollouts: Queue<PhasedRollout>,
    /// Of ExtendedStatefulSets.
    pub owners: Queue<ExtendedStatefulSet>,
}

impl Queues {
    /// All look again.
    pub fn wake_all(&self, caches: &Caches) {
        self.rollouts.ask(caches.all_rollouts(), "who leads");
        self.owners.ask(caches.all_owners(), "who leads");
    }

    /// The PhasedRollouts of one namespace look again.
    pub fn wake_rollouts_in(&self, namespace: &str, caches: &Caches) {
        let of_it = caches
            .rollouts
            .state_filter(|rollout: &PhasedRollout| rollout.metadata.namespace.as_deref() == Some(namespace));
        self.rollouts.ask(of_it.iter().map(|rollout| ObjectRef::from_obj(&**rollout)), "the hold");
    }

    fn wake(&self, concerned: Concerned, what: &'static str) {
        self.rollouts.ask(concerned.rollouts, what);
        self.owners.ask(concerned.owners, what);
    }
}

/// Every pod that a StatefulSet made has this label; others are not even sent to us.
const STATEFULSET_PODS: &str = "statefulset.kubernetes.io/pod-name";

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// A resource that is not served, or that we may not watch, is tried again this often at most.
const LONGEST_PAUSE_OF_POLICIES: Duration = Duration::from_mins(5);

/// Where one set of streams looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces.
    Cluster,
    /// One namespace.
    Namespace(String),
}

impl Scope {
    /// One scope for each namespace, or the cluster if there is none.
    #[must_use]
    pub fn of(namespaces: &[String]) -> Vec<Self> {
        let mut names: Vec<String> = namespaces.to_vec();
        names.sort();
        names.dedup();
        if names.is_empty() { vec![Self::Cluster] } else { names.into_iter().map(Self::Namespace).collect() }
    }

    fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match self {
            Self::Cluster => Api::all(client.clone()),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        }
    }
}

fn pace() -> Pace {
    Pace::new(FIRST_PAUSE, LONGEST_PAUSE)
}

fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS)
}

/// Starts the streams of one scope. They end when `tasks` is dropped or shut down.
pub fn start(
    client: &Client,
    pulse: &Arc<Pulse>,
    scope: &Scope,
    page_size: u32,
    queues: &Queues,
    forget: &Forget,
    tasks: &mut JoinSet<()>,
) -> Arc<Caches> {
    let (rollouts, sets, pods) = (Writer::default(), Writer::default(), Writer::default());
    let (owners, refusals, services) = (Writer::default(), Writer::default(), Writer::default());
    let caches = Arc::new(Caches {
        rollouts: rollouts.cache(),
        owners: owners.cache(),
        sets: sets.cache(),
        pods: pods.cache(),
        refusals: refusals.cache(),
        services: services.cache(),
    });
    let config = || config().page_size(page_size);
    let mut streams = Streams { client, pulse, scope, queues, forget, caches: &caches, tasks };
    streams.start("PhasedRollouts", DEFINED, config(), rollouts, interest::decoded);
    streams.start("ExtendedStatefulSets", DEFINED, config(), owners, interest::decoded);
    streams.start("StatefulSets", ALLOWED, config(), sets, |event| Some(interest::each(event, SetObject::shrunk)));
    // Pods that no StatefulSet controls are dropped.
    let labelled = config().labels(STATEFULSET_PODS);
    streams.start("Pods", ALLOWED, labelled, pods, |event| interest::owned(interest::each(event, PodObject::shrunk)));
    let selected = config().fields(REFUSALS);
    streams.start("Events", ALLOWED_OR_UNTOLD, selected, refusals, |event| {
        Some(interest::each(event, RefusalObject::shrunk))
    });
    streams.start("Services", ALLOWED_OR_LATE, config(), services, |event| {
        Some(interest::each(event, interest::versioned))
    });
    caches
}

const DEFINED: &str =
    "check that the custom resource definition is installed (sts-plus crds) and that the credentials are valid";
const ALLOWED: &str = "allow it in the operator's role (sts-plus manifests)";
const ALLOWED_OR_UNTOLD: &str =
    "allow it in the operator's role (sts-plus manifests); without it nobody is told why a pod cannot be made";
const ALLOWED_OR_LATE: &str = "allow it in the operator's role (sts-plus manifests); without it a changed selector is put back some minutes later";

/// What the streams of one scope have in common.
struct Streams<'a> {
    client: &'a Client,
    pulse: &'a Arc<Pulse>,
    scope: &'a Scope,
    queues: &'a Queues,
    forget: &'a Forget,
    caches: &'a Arc<Caches>,
    tasks: &'a mut JoinSet<()>,
}

impl Streams<'_> {
    /// Starts one. `keep` turns an event into what is kept of it, or drops it; whom a change concerns looks again.
    fn start<W, K>(
        &mut self,
        what: &'static str,
        cure: &'static str,
        config: watcher::Config,
        mut writer: Writer<K>,
        keep: impl Fn(Event<W>) -> Option<Event<K>> + Send + 'static,
    ) where
        W: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
        K: Concerns + Send + Sync,
    {
        let api = self.scope.api::<W>(self.client);
        let (pulse, forget) = (Arc::clone(self.pulse), Arc::clone(self.forget));
        let (caches, queues) = (Arc::clone(self.caches), self.queues.clone());
        let hear = move |heard: Heard<W>| match heard {
            Heard::Event(event) => {
                let changes = keep(event).map(|event| writer.apply(&event));
                for change in changes.iter().flatten() {
                    if let Some(gone) = change.gone() {
                        forget(gone);
                    }
                    queues.wake(K::concerned(change, &caches), what);
                }
            }
            Heard::Refused => writer.refused(),
        };
        self.tasks.spawn(async move { follow(Name { what, cure }, Some(&pulse), api, config, pace(), hear).await });
    }
}

/// The kinds of the admission policies that keep the hold, and of their bindings.
pub const POLICY_KINDS: [&str; 4] = [
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// An admission policy that keeps the hold, or its binding: a change of it makes the hold be found out anew. Our role lets us see
/// this name only. An API server that does not serve the kind, or does not let us see it, is no fault.
pub async fn follow_policy(client: Client, kind: &'static str, hold: Arc<Hold>) {
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &ApiResource::from_gvk(&gvk));
    let mut first = true;
    follow(
        Name { what: kind, cure: "without it a change of the policy is noticed some minutes later" },
        None,
        api,
        config().fields(&format!("metadata.name={}", admission::HOLD)),
        Pace::new(Duration::from_secs(5), LONGEST_PAUSE_OF_POLICIES),
        |heard| match heard {
            Heard::Event(Event::InitDone) if first => first = false,
            Heard::Event(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => hold.policies_changed(),
            // What comes after a refusal is news.
            Heard::Refused => first = false,
            Heard::Event(Event::Init | Event::InitApply(_)) => {}
        },
    )
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_namespace_means_all_of_them() {
        assert_eq!(Scope::of(&[]), [Scope::Cluster]);
    }

    #[test]
    fn each_namespace_is_watched_once() {
        let names = ["b".to_owned(), "a".to_owned(), "b".to_owned()];
        assert_eq!(Scope::of(&names), [Scope::Namespace("a".to_owned()), Scope::Namespace("b".to_owned())]);
    }
}
