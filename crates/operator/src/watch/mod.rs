//! Every stream of the operator in one place: what is watched, what of it is kept, and which PhasedRollouts look again when
//! something changes. A stream that fails pauses and comes back; it never slows another stream or the controller.

mod cache;
mod caches;
mod follow;
mod interest;

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::core::{DeserializeGuard, GroupVersionKind};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use sts_plus_api::{ExtendedStatefulSet, PhasedRollout, names};
use tokio::task::JoinSet;

pub use cache::{Cache, Writer};
pub use caches::{Caches, ServiceObject};
use follow::{Change, Name, follow};
use interest::Seen;

use crate::admission;
use crate::client::WATCH_SECONDS;
use crate::hold::Hold;
use crate::pace::Pace;
use crate::pulse::Pulse;
use crate::views::{PodObject, REFUSALS, RefusalObject, SetObject};

/// Where the streams say which object to look at.
pub type Queue<K = PhasedRollout> = UnboundedSender<ObjectRef<K>>;

/// The queues of one scope.
#[derive(Clone)]
pub struct Queues {
    /// Of PhasedRollouts.
    pub rollouts: Queue,
    /// Of ExtendedStatefulSets.
    pub owners: Queue<ExtendedStatefulSet>,
}

impl Queues {
    /// All look again.
    pub fn wake_all(&self, caches: &Caches) {
        send(&self.rollouts, caches.all_rollouts());
        send(&self.owners, caches.all_owners());
    }

    /// The PhasedRollouts of one namespace look again.
    pub fn wake_rollouts_in(&self, namespace: &str, caches: &Caches) {
        let of_it = |rollout: &ObjectRef<PhasedRollout>| rollout.namespace.as_deref() == Some(namespace);
        send(&self.rollouts, caches.all_rollouts().into_iter().filter(of_it));
    }

    /// The ExtendedStatefulSet that made a StatefulSet or pod with these labels looks again.
    fn wake_owner(&self, metadata: &ObjectMeta) {
        let label = metadata.labels.as_ref().and_then(|labels| labels.get(names::OWNER));
        if let (Some(owner), Some(namespace)) = (label, &metadata.namespace) {
            send(&self.owners, [ObjectRef::new(owner).within(namespace)]);
        }
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
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
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
    queues: &Queues,
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
    let pulse = || Arc::clone(pulse);
    tasks.spawn(follow_rollouts(pulse(), scope.api(client), rollouts, Arc::clone(&caches), queues.rollouts.clone()));
    tasks.spawn(follow_owners(pulse(), scope.api(client), owners, Arc::clone(&caches), queues.owners.clone()));
    tasks.spawn(follow_sets(pulse(), scope.api(client), sets, Arc::clone(&caches), queues.clone()));
    tasks.spawn(follow_pods(pulse(), scope.api(client), pods, Arc::clone(&caches), queues.clone()));
    tasks.spawn(follow_refusals(pulse(), scope.api(client), refusals, Arc::clone(&caches), queues.clone()));
    tasks.spawn(follow_services(pulse(), scope.api(client), services, Arc::clone(&caches), queues.owners.clone()));
    caches
}

/// PhasedRollouts: the object itself and its rivals look again, but not for a status that we wrote.
async fn follow_rollouts(
    pulse: Arc<Pulse>,
    api: Api<DeserializeGuard<PhasedRollout>>,
    mut writer: Writer<PhasedRollout>,
    caches: Arc<Caches>,
    queue: Queue,
) {
    let mut seen = Seen::default();
    follow(
        Name {
            what: "PhasedRollouts",
            cure: "check that the custom resource definition is installed (sts-plus crds) and that the credentials are valid"
        },
        Some(&pulse),
        api,
        config(),
        pace(),
        |event| {
            let event = interest::decoded(event)?;
            writer.apply(&event);
            Some(event)
        },
        |change| match change {
            Change::Object(rollout) if seen.is_news(rollout) => {
                send(&queue, std::iter::once(ObjectRef::from_obj(rollout)));
                send(&queue, caches.rivals_of(rollout, &[]).iter().map(|rival| ObjectRef::from_obj(&**rival)));
            }
            Change::Object(_) => {}
            Change::Gone(rollout) => {
                seen.forget(rollout);
                send(&queue, caches.rivals_of(rollout, &[]).iter().map(|rival| ObjectRef::from_obj(&**rival)));
            }
            Change::Everything => send(&queue, caches.all_rollouts()),
        },
    )
    .await;
}

/// ExtendedStatefulSets: the object itself looks again, but not for a status that we wrote.
async fn follow_owners(
    pulse: Arc<Pulse>,
    api: Api<DeserializeGuard<ExtendedStatefulSet>>,
    mut writer: Writer<ExtendedStatefulSet>,
    caches: Arc<Caches>,
    queue: Queue<ExtendedStatefulSet>,
) {
    let mut seen = Seen::default();
    follow(
        Name {
            what: "ExtendedStatefulSets",
            cure: "check that the custom resource definition is installed (sts-plus crds) and that the credentials are valid"
        },
        Some(&pulse),
        api,
        config(),
        pace(),
        |event| {
            let event = interest::decoded(event)?;
            writer.apply(&event);
            Some(event)
        },
        |change| match change {
            Change::Object(owner) if seen.is_news(owner) => send(&queue, [ObjectRef::from_obj(owner)]),
            Change::Object(_) => {}
            Change::Gone(owner) => seen.forget(owner),
            Change::Everything => send(&queue, caches.all_owners()),
        },
    )
    .await;
}

/// StatefulSets: the PhasedRollouts that target or claim one, and the ExtendedStatefulSet that made it, look again.
async fn follow_sets(
    pulse: Arc<Pulse>,
    api: Api<SetObject>,
    mut writer: Writer<SetObject>,
    caches: Arc<Caches>,
    queues: Queues,
) {
    follow(
        Name { what: "StatefulSets", cure: "allow it in the operator's role (sts-plus manifests)" },
        Some(&pulse),
        api,
        config(),
        pace(),
        |event| {
            let event = interest::each(event, SetObject::shrunk);
            writer.apply(&event);
            Some(event)
        },
        |change| match change {
            Change::Object(set) | Change::Gone(set) => {
                queues.wake_owner(&set.metadata);
                send(&queues.rollouts, caches.rollouts_of(set.namespace(), set.name(), set.claimed_by()));
            }
            Change::Everything => queues.wake_all(&caches),
        },
    )
    .await;
}

/// Pods of StatefulSets: the PhasedRollouts of the set that controls one look again. Other pods are dropped.
async fn follow_pods(
    pulse: Arc<Pulse>,
    api: Api<PodObject>,
    mut writer: Writer<PodObject>,
    caches: Arc<Caches>,
    queues: Queues,
) {
    follow(
        Name { what: "Pods", cure: "allow it in the operator's role (sts-plus manifests)" },
        Some(&pulse),
        api,
        config().labels(STATEFULSET_PODS),
        pace(),
        |event| {
            let event = interest::owned(interest::each(event, PodObject::shrunk))?;
            writer.apply(&event);
            Some(event)
        },
        |change| match change {
            Change::Object(pod) | Change::Gone(pod) => {
                queues.wake_owner(&pod.metadata);
                if let (Some(namespace), Some(owner)) = (pod.metadata.namespace.as_deref(), pod.owner_set()) {
                    let claim = caches.set(namespace, &owner.name).and_then(|set| set.claimed_by().map(str::to_owned));
                    send(&queues.rollouts, caches.rollouts_of(namespace, &owner.name, claim.as_deref()));
                }
            }
            // A pod that went meanwhile is told by nobody else.
            Change::Everything => queues.wake_all(&caches),
        },
    )
    .await;
}

/// Pods that could not be made (a quota, a policy): the PhasedRollouts of the set, and the ExtendedStatefulSet that made it, say why they
/// wait.
async fn follow_refusals(
    pulse: Arc<Pulse>,
    api: Api<RefusalObject>,
    mut writer: Writer<RefusalObject>,
    caches: Arc<Caches>,
    queues: Queues,
) {
    follow(
        Name {
            what: "Events",
            cure: "allow it in the operator's role (sts-plus manifests); without it nobody is told why a pod cannot be made"
        },
        Some(&pulse),
        api,
        config().fields(REFUSALS),
        pace(),
        |event| {
            let event = interest::each(event, RefusalObject::shrunk);
            writer.apply(&event);
            Some(event)
        },
        |change| {
            if let Change::Object(event) = change
                && let (Some(namespace), Some(set)) = (event.metadata.namespace.as_deref(), event.set())
            {
                send(&queues.rollouts, caches.rollouts_of(namespace, set, None));
                caches.set(namespace, set).iter().for_each(|set| queues.wake_owner(&set.metadata));
            }
        },
    )
    .await;
}

/// Services: the ExtendedStatefulSets whose versions one selects look again. Which ones these are says the name: the mark of ours is an
/// annotation, by which the API server selects nothing.
async fn follow_services(
    pulse: Arc<Pulse>,
    api: Api<ServiceObject>,
    mut writer: Writer<ServiceObject>,
    caches: Arc<Caches>,
    queue: Queue<ExtendedStatefulSet>,
) {
    follow(
        Name {
            what: "Services",
            cure: "allow it in the operator's role (sts-plus manifests); without it a changed selector is put back some minutes later"
        },
        Some(&pulse),
        api,
        config(),
        pace(),
        |event| {
            let event = interest::each(event, interest::versioned);
            writer.apply(&event);
            Some(event)
        },
        |change| match change {
            Change::Object(service) | Change::Gone(service) => {
                if let (Some(namespace), Some(name)) = (&service.metadata.namespace, &service.metadata.name) {
                    send(&queue, caches.owners_of_service(namespace, name));
                }
            }
            Change::Everything => send(&queue, caches.all_owners()),
        },
    )
    .await;
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
        Some,
        |change| match change {
            Change::Everything if first => first = false,
            Change::Object(_) | Change::Gone(_) if first => {}
            Change::Everything | Change::Object(_) | Change::Gone(_) => hold.policies_changed(),
        },
    )
    .await;
}

/// Asks for a look at each object. The receiver goes only when the operator stops.
pub fn send<K>(queue: &Queue<K>, objects: impl IntoIterator<Item = ObjectRef<K>>)
where
    K: Resource,
    K::DynamicType: std::hash::Hash + Eq,
{
    for object in objects {
        let _ = queue.unbounded_send(object);
    }
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
