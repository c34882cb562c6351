//! The same on the real control plane: a namespace with all the sets, who acts there, and what the watches say of each set.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};
use sts_plus_e2e::{Ground, client_of, image_of, is_ready, objects, revision_of, template_image, uid_of};
use sts_plus_model::Loop;
use testcluster::{Method, Minor};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::plan::{Act, Born, Field, Kind, Move, Rest, Sequence, State, Status, Together, ordinal_of};

/// What a watch says.
pub enum News {
    Set(StatefulSet),
    /// And whether it is gone.
    Pod(Pod, bool),
    /// Something was not seen.
    Gap,
}

impl From<(StatefulSet, bool)> for News {
    fn from((set, _): (StatefulSet, bool)) -> Self {
        Self::Set(set)
    }
}

impl From<(Pod, bool)> for News {
    fn from((pod, gone): (Pod, bool)) -> Self {
        Self::Pod(pod, gone)
    }
}

/// Who is told what, by name of the set.
type Ears = Arc<BTreeMap<String, UnboundedSender<News>>>;

/// The namespace.
pub struct Place {
    pub sets: Api<StatefulSet>,
    pub pods: Api<Pod>,
    accounts: Api<ServiceAccount>,
    _watches: JoinSet<()>,
}

impl Place {
    /// An empty one; what is said of each of these sets from now on.
    pub async fn new(ground: &Ground, name: &str, sets: &[Sequence]) -> (Self, Vec<UnboundedReceiver<News>>) {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        ground.cluster.request(Method::POST, "/api/v1/namespaces", Some(&body)).await.expect("a namespace can be made");
        let client = client_of(ground.cluster.kubeconfig()).await;
        let (mut ears, mut heard) = (BTreeMap::new(), Vec::new());
        for set in sets {
            let (tell, hear) = unbounded_channel();
            ears.insert(set.name.clone(), tell);
            heard.push(hear);
        }
        let ears = Arc::new(ears);
        let mut watches = JoinSet::new();
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), name);
        let pods: Api<Pod> = Api::namespaced(client.clone(), name);
        follow(&mut watches, sets.clone(), Arc::clone(&ears), kube::ResourceExt::name_any).await;
        follow(&mut watches, pods.clone(), ears, |pod| pod.labels().get("app").cloned().unwrap_or_default()).await;
        (Self { sets, pods, accounts: Api::namespaced(client, name), _watches: watches }, heard)
    }

    /// Does it. The generation of the set after it, if it was written.
    pub async fn act(&self, sequence: &Sequence, act: &Act) -> Option<i64> {
        let (name, born) = (sequence.name.as_str(), &sequence.born);
        let set = match act {
            Act::Birth => {
                let set = serde_json::from_value(newborn(name, born)).expect("a set");
                self.sets.create(&PostParams::default(), &set).await.expect("a set can be made")
            }
            Act::Write(fields) => {
                let fields = fields.iter().map(|field| written(name, born, *field));
                let spec = fields.reduce(merged).expect("something is written");
                self.patched(name, &json!({ "spec": spec })).await
            }
            Act::Delete(ordinal) => {
                let deleted = self.pods.delete(&format!("{name}-{ordinal}"), &DeleteParams::default()).await;
                deleted.expect("a pod can be deleted");
                return None;
            }
            Act::Break(ordinal) => {
                self.stage(&format!("{name}-{ordinal}"), "never-ready").await;
                return None;
            }
            Act::Heal(ordinal) => {
                self.stage(&format!("{name}-{ordinal}"), "healthy").await;
                return None;
            }
            Act::Account(template) => {
                let account = json!({ "metadata": { "name": format!("{name}-{template}") } });
                let account = serde_json::from_value(account).expect("an account");
                self.accounts.create(&PostParams::default(), &account).await.expect("an account can be made");
                return None;
            }
        };
        set.metadata.generation
    }

    /// Makes the controller look at a set again: the length of the history is no matter of its pods. The generation after it.
    pub async fn nudge(&self, name: &str) -> Option<i64> {
        self.patched(name, &json!({ "spec": { "revisionHistoryLimit": 11 } })).await.metadata.generation
    }

    async fn patched(&self, name: &str, body: &Value) -> StatefulSet {
        self.sets.patch(name, &PatchParams::default(), &Patch::Merge(body)).await.expect("a set can be patched")
    }

    /// What a pod is to do from now on (`testcluster/stages/pods.yaml`).
    async fn stage(&self, pod: &str, stage: &str) {
        let body = json!({ "metadata": { "annotations": { "sts-plus.test/stage": stage } } });
        let patched = self.pods.patch(pod, &PatchParams::default(), &Patch::Merge(body)).await;
        patched.expect("a pod can be patched");
    }
}

/// Tells each of `ears` what is said of its set.
async fn follow<K>(watches: &mut JoinSet<()>, api: Api<K>, ears: Ears, set_of: fn(&K) -> String)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    News: From<(K, bool)>,
{
    let mut events = Box::pin(watcher(api, watcher::Config::default()).default_backoff());
    loop {
        match events.next().await {
            Some(Ok(watcher::Event::InitDone)) => break,
            Some(Ok(watcher::Event::InitApply(object))) => panic!("{} is there already", object.name_any()),
            // What goes wrong is tried again.
            _ => {}
        }
    }
    watches.spawn(async move {
        let mut events = pin!(events);
        let tell = |object: K, gone: bool| {
            let ear = ears.get(&set_of(&object)).expect("there are no other sets here");
            // Who has heard enough does not listen any more.
            let _ = ear.send((object, gone).into());
        };
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(object)) => tell(object, false),
                Ok(watcher::Event::Delete(object)) => tell(object, true),
                Ok(watcher::Event::Init) => ears.values().for_each(|ear| drop(ear.send(News::Gap))),
                _ => {}
            }
        }
    });
}

/// A set as it is made.
fn newborn(name: &str, born: &Born) -> Value {
    let set = objects::named(objects::set(born.replicas), name);
    let set = objects::with(set, "/spec/podManagementPolicy", if born.parallel { "Parallel" } else { "OrderedReady" });
    let stop_after = if born.slow { "1s" } else { "0s" };
    let set = objects::with(set, "/spec/template/metadata/annotations/sts-plus.test~1stop-after", stop_after);
    let fields = [Field::Template(1), Field::Partition(born.partition), Field::Start(born.start)];
    let spec = fields.into_iter().map(|field| written(name, born, field)).reduce(merged).expect("three fields");
    merged(set, json!({ "spec": spec }))
}

/// What is written into a spec.
fn written(name: &str, born: &Born, field: Field) -> Value {
    match field {
        Field::Template(template) => {
            let kind = born.kind(template);
            let image = format!("app:{template}{}", if kind == Kind::Broken { "-broken" } else { "" });
            let account = (kind == Kind::Refused).then(|| format!("{name}-{template}"));
            let containers = json!([{ "name": "app", "image": image }]);
            // The second name of the account is an old one for the same.
            let spec = json!({ "containers": containers, "serviceAccountName": account, "serviceAccount": account });
            json!({ "template": { "spec": spec } })
        }
        Field::Replicas(replicas) => json!({ "replicas": replicas }),
        Field::Partition(None) => json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": null } }),
        Field::Partition(partition) => {
            json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": partition } } })
        }
        Field::Start(start) => json!({ "ordinals": { "start": start } }),
    }
}

/// `more` over `object`, map by map.
fn merged(object: Value, more: Value) -> Value {
    match (object, more) {
        (Value::Object(mut object), Value::Object(more)) => {
            for (key, value) in more {
                let before = object.remove(&key).unwrap_or_default();
                object.insert(key, merged(before, value));
            }
            Value::Object(object)
        }
        (_, more) => more,
    }
}

/// Which loop the controller runs, by its version and what the API server says of the feature gate (B9).
pub async fn native_loop(ground: &Ground) -> Loop {
    let client: Client = client_of(ground.cluster.kubeconfig()).await;
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let metrics = client.request_text(request).await.expect("the API server tells its metrics");
    let gate = "kubernetes_feature_enabled{name=\"MaxUnavailableStatefulSet\"";
    let line = metrics.lines().find(|line| line.starts_with(gate)).expect("every feature gate has a metric");
    match (line.ends_with(" 1"), ground.cluster.minor()) {
        (false, _) => Loop::GateOff,
        (true, minor) if minor < Minor::V1_37 => Loop::Gate135,
        (true, _) => Loop::Gate137,
    }
}

/// What the watches have said of one set so far.
#[derive(Default)]
pub struct View {
    set: Option<StatefulSet>,
    pods: BTreeMap<i32, Pod>,
    /// The template of each revision.
    templates: BTreeMap<String, u32>,
    /// All of them, in the order in which they were written.
    pub moves: Vec<Move>,
    /// What the controller has written.
    pub statuses: Vec<Status>,
    /// What cannot be.
    pub fault: Option<String>,
}

impl View {
    /// One more.
    pub fn take(&mut self, news: News) {
        match news {
            News::Gap => self.fault = Some("the recording has a gap".to_owned()),
            News::Pod(pod, gone) => self.take_pod(pod, gone),
            News::Set(set) => self.take_set(set),
        }
    }

    fn take_set(&mut self, set: StatefulSet) {
        if let Some(status) = set.status.as_ref().filter(|status| status.observed_generation.is_some()) {
            if status.observed_generation == set.metadata.generation {
                self.learn(status.update_revision.as_deref().unwrap_or_default(), template_image(&set));
            }
            let status = self.status(status);
            if self.statuses.last() != Some(&status) {
                self.statuses.push(status);
            }
        }
        self.set = Some(set);
    }

    fn take_pod(&mut self, pod: Pod, gone: bool) {
        let ordinal = ordinal_of(&pod.name_any());
        self.learn(revision_of(&pod), image_of(&pod));
        let known = self.pods.get(&ordinal).filter(|known| uid_of(known) == uid_of(&pod));
        if known.is_none() {
            self.moves.push(Move::Made(ordinal, number_of(image_of(&pod))));
        }
        let was_leaving = known.is_some_and(|known| known.metadata.deletion_timestamp.is_some());
        if !was_leaving && (gone || pod.metadata.deletion_timestamp.is_some()) {
            self.moves.push(Move::Left(ordinal));
        }
        if gone {
            self.pods.remove(&ordinal);
        } else {
            self.pods.insert(ordinal, pod);
        }
    }

    /// A revision has one template, and a template one revision, for ever (O10).
    fn learn(&mut self, revision: &str, image: &str) {
        let template = number_of(image);
        let known = self.templates.insert(revision.to_owned(), template);
        let others = self.templates.iter().filter(|(name, number)| *name != revision && **number == template).count();
        if known.is_some_and(|known| known != template) || others > 0 {
            self.fault = Some(format!("template {template} has the revision {revision} now: {:?}", self.templates));
        }
    }

    fn status(&self, status: &StatefulSetStatus) -> Status {
        let template = |revision: &Option<String>| {
            revision.as_ref().and_then(|revision| self.templates.get(revision)).copied().unwrap_or_default()
        };
        Status {
            current: template(&status.current_revision),
            update: template(&status.update_revision),
            replicas: status.replicas,
            ready: status.ready_replicas.unwrap_or_default(),
            current_replicas: status.current_replicas.unwrap_or_default(),
            updated_replicas: status.updated_replicas.unwrap_or_default(),
        }
    }

    /// How it is; None while the controller has not seen the spec of this generation.
    pub fn rest(&self, generation: i64) -> Option<Rest> {
        let set = self.set.as_ref()?;
        let (written, status) = (set.metadata.generation?, set.status.as_ref()?);
        if written < generation || status.observed_generation != Some(written) {
            return None;
        }
        let pods = self.pods.iter().map(|(ordinal, pod)| {
            let state = match (&pod.metadata.deletion_timestamp, is_ready(pod)) {
                (Some(_), _) => State::Leaving,
                (None, true) => State::Ready,
                (None, false) => State::Unready,
            };
            (*ordinal, (number_of(image_of(pod)), state))
        });
        Some(Rest { pods: pods.collect(), status: self.status(status) })
    }

    /// The UIDs of the pods, by name.
    pub fn uids(&self) -> BTreeMap<String, String> {
        self.pods.values().map(|pod| (pod.name_any(), uid_of(pod))).collect()
    }
}

/// The template of an image such as `app:2-broken`.
fn number_of(image: &str) -> u32 {
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    tag.split('-').next().and_then(|number| number.parse().ok()).expect("an image is that of a template")
}

/// Whether the moves so far are those of the model, as far as they go.
pub fn follows(real: &[Move], model: &[Together]) -> bool {
    let mut rest = real;
    for together in model {
        let (now, later) = rest.split_at(rest.len().min(together.len()));
        let mut left = together.clone();
        for one in now {
            let Some(at) = left.iter().position(|it| it == one) else { return false };
            left.swap_remove(at);
        }
        rest = later;
    }
    rest.is_empty()
}

/// Whether the statuses are some of the model's, in its order: the real controller may look once where the model looks twice.
pub fn are_among(real: &[Status], model: &[Status]) -> bool {
    let mut model = model.iter();
    real.iter().all(|status| model.any(|it| it == status))
}
