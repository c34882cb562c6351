//! The two stories of an ExtendedStatefulSet, and what is true of every run of them: the running version keeps its pods until the next
//! one has all of its own and the Service, a version that failed takes no other with it, and no number is used twice.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};
use sts_plus_api::{UpgradeStep, VersionPhase, names};
use sts_plus_e2e::proxy::{Call, Fault, Kills, Proxy, Record};
use sts_plus_e2e::{Entry, Scene, Seen, View, is_ready, objects, turn};
use tokio::sync::{OnceCell, SemaphorePermit};
use tokio::time::Instant;

use super::supervised::{PATIENCE, Supervised, is_quiet};
use super::writes::{assert_reported, tell};

const PODS: usize = 3;

static PROMOTED: OnceCell<Played> = OnceCell::const_new();
static STALE: OnceCell<Played> = OnceCell::const_new();

/// What becomes of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Its canary is well, and it takes over pods and Service.
    Promoted,
    /// Its canary never is, twice, and version 1 stays.
    Stale,
}

impl Way {
    const fn image(self) -> &'static str {
        match self {
            Self::Promoted => "app:2",
            Self::Stale => "app:2-never-ready",
        }
    }

    /// An upgrade that is to go well has all the time that faults can take.
    const fn watch_seconds(self) -> i32 {
        match self {
            Self::Promoted => 900,
            Self::Stale => 2,
        }
    }
}

/// Replicas, version and mark of a StatefulSet.
type Child = (Option<i32>, Option<String>, Option<String>);

/// How a story ended.
#[derive(Clone, Debug, PartialEq)]
struct End {
    phase: VersionPhase,
    current: Option<i32>,
    update: Option<i32>,
    last: i32,
    versions: BTreeMap<String, bool>,
    /// Step and failures of the upgrade.
    upgrade: Option<(UpgradeStep, i32)>,
    /// Status and reason of each condition.
    conditions: BTreeMap<String, (String, String)>,
    sets: BTreeMap<String, Child>,
    /// Image of each pod, and whether it is Ready.
    pods: BTreeMap<String, (String, bool)>,
    selected: Option<String>,
}

/// A story that was played.
#[derive(Clone, Debug)]
pub struct Played {
    end: End,
    /// Everything that the operator wrote from the release on.
    pub writes: Vec<Record>,
}

impl Played {
    /// The story when nothing goes wrong; played once.
    pub async fn undisturbed(way: Way) -> &'static Self {
        let cell = match way {
            Way::Promoted => &PROMOTED,
            Way::Stale => &STALE,
        };
        cell.get_or_init(|| play_to(way, "undisturbed", |_| None, None)).await
    }
}

/// Plays a story with faults from the release on; it must come to the same as the undisturbed one.
pub async fn play(way: Way, name: &str, rule: impl FnMut(&Call) -> Option<Fault> + Send + 'static) -> Played {
    play_to(way, name, rule, Some(Played::undisturbed(way).await)).await
}

async fn play_to(
    way: Way,
    name: &str,
    rule: impl FnMut(&Call) -> Option<Fault> + Send + 'static,
    same: Option<&Played>,
) -> Played {
    // Everybody waits for the undisturbed story, those that have a turn too: it needs none.
    let turn = if same.is_some() { Some(turn().await) } else { None };
    let stage = Stage::at_rest(way, name, turn).await;
    stage.proxy.on(rule);
    stage.scene.patch("extendedstatefulset/db", &template(way.image())).await;
    stage.until("over", |seen| is_over(seen, way)).await;
    stage.end(same).await
}

/// A story that is being played.
pub struct Stage {
    pub scene: Scene,
    pub proxy: Proxy,
    way: Way,
    operator: Supervised,
    /// How much was recorded and written before the release.
    begun: (u64, usize),
    pub born: BTreeMap<String, String>,
    _turn: Option<SemaphorePermit<'static>>,
}

fn is_over(view: &View, way: Way) -> bool {
    match way {
        Way::Promoted => view.is_only(2),
        Way::Stale => {
            let is_left = view.world.pods.keys().all(|name| name.starts_with("db-v1-"));
            view.is(VersionPhase::Failed) && is_left && view.status.versions.len() == 2
        }
    }
}

impl Stage {
    /// The Service, and version 1 alone with all its pods.
    pub async fn at_rest(way: Way, name: &str, turn: Option<SemaphorePermit<'static>>) -> Self {
        let scene = Scene::at_any_time(name).await;
        let (proxy, kills): (Proxy, Kills) = Proxy::start(scene.ground, &scene.namespace).await;
        // Without an address: the long matrix has more Services than a small range has addresses.
        let service = objects::with(objects::service("live"), "/spec/clusterIP", json!("None"));
        scene.create(&service).await;
        scene.create(&owner(way)).await;
        let operator = Supervised::start(&scene, &proxy, Vec::new(), kills);
        let mut stage = Self { scene, proxy, way, operator, begun: (0, 0), born: BTreeMap::new(), _turn: turn };
        let rest = stage.until("version 1 is there", |seen| seen.is_only(1)).await;
        stage.born = rest.world.uids();
        stage.begun = (rest.world.latest_version(), stage.proxy.writes().len());
        stage
    }

    /// Waits until it looks as wanted and the operator, if it was killed lately, has looked at what it left. The recording is as new as
    /// the status by then.
    async fn until(&self, what: &str, wanted: impl Fn(&View) -> bool) -> View {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.scene.view();
            if wanted(&seen) && is_quiet(&self.proxy) {
                self.scene.catch_up().await;
                let seen = self.scene.view();
                if wanted(&seen) {
                    return seen;
                }
            }
            let told = || format!("{:#?}\n{}", seen.status, tell(&self.proxy.writes()));
            assert!(Instant::now() < end, "not so: {what}\n{}", told());
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    /// The end: what is true of every run is asserted, and that it came to the same as another one.
    async fn end(self, same: Option<&Played>) -> Played {
        let seen = self.scene.view();
        let end = end_of(&seen, selected(&self.scene).await);
        let Self { scene, proxy, way, operator, begun: (version, written), born, .. } = self;
        operator.stop().await;
        let writes = proxy.writes().split_off(written);
        let entries = scene.tape.entries();
        let told = tell(&writes);
        assert_whole(&entries, version, &told);
        assert_numbers(&entries);
        assert_in_order(&writes, way, &told);
        if way == Way::Stale {
            assert_eq!(seen.world.uids(), born, "the very same pods\n{told}");
        }
        if let Some(other) = same {
            assert_eq!(end, other.end, "the end of\n{told}");
        }
        scene.end().await;
        if let Some(other) = same {
            assert_reported(&writes, &other.writes);
        }
        Played { end, writes }
    }
}

fn owner(way: Way) -> Value {
    let strategy = json!({
        "canaries": 1, "retryCount": 1, "canaryWatchSeconds": way.watch_seconds(), "activeService": "live",
    });
    objects::with(objects::extended("db"), "/spec/updateStrategy", strategy)
}

fn template(image: &str) -> Value {
    let containers = json!([{ "name": "app", "image": image }]);
    json!({ "spec": { "template": { "spec": { "template": { "spec": { "containers": containers } } } } } })
}

async fn selected(scene: &Scene) -> Option<String> {
    let service = scene.api("service").get("live").await.expect("it is there");
    Some(service.data["spec"]["selector"].get(names::VERSION)?.as_str()?.to_owned())
}

fn end_of(seen: &View, selected: Option<String>) -> End {
    let View { status, world, .. } = seen;
    let conditions = status.conditions.iter().map(|it| (it.type_.clone(), (it.status.clone(), it.reason.clone())));
    let sets = world.sets.iter().map(|(name, set)| {
        let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
        (name.clone(), (replicas, annotation(set, names::VERSION), annotation(set, names::STALE)))
    });
    let pods = world.pods.iter().map(|(name, pod)| (name.clone(), (world.image(name).to_owned(), is_ready(pod))));
    End {
        phase: status.phase,
        current: status.current_version,
        update: status.update_version,
        last: status.last_version,
        versions: status.versions.clone(),
        upgrade: status.upgrade.as_ref().map(|upgrade| (upgrade.step, upgrade.failures)),
        conditions: conditions.collect(),
        sets: sets.collect(),
        pods: pods.collect(),
        selected,
    }
}

fn annotation(set: &StatefulSet, key: &str) -> Option<String> {
    set.metadata.annotations.as_ref()?.get(key).cloned()
}

/// At every moment since `version` either all pods of version 1 are Ready, or all those of version 2.
fn assert_whole(entries: &[Entry], version: u64, told: &str) {
    let mut ready: BTreeSet<(String, String)> = BTreeSet::new();
    for entry in entries {
        let Seen::Pod(pod) = &entry.seen else { continue };
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let of = labels.get(names::VERSION).cloned().unwrap_or_default();
        let pod_of = (of, pod.metadata.uid.clone().unwrap_or_default());
        if !entry.gone && is_ready(pod) {
            ready.insert(pod_of);
        } else {
            ready.remove(&pod_of);
        }
        let count = |wanted: &str| ready.iter().filter(|(version, _)| version == wanted).count();
        assert!(
            entry.version <= version || count("1") == PODS || count("2") == PODS,
            "{ready:?} at {}\n{told}",
            entry.version
        );
    }
}

/// Each number was given once: one StatefulSet for each name, and no number beyond the second.
fn assert_numbers(entries: &[Entry]) {
    let mut made: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in entries {
        let Seen::Set(set) = &entry.seen else { continue };
        let (name, uid) = (set.metadata.name.clone().unwrap_or_default(), set.metadata.uid.clone().unwrap_or_default());
        made.entry(name).or_default().insert(uid);
    }
    assert_eq!(made.keys().collect::<Vec<_>>(), ["db-v1", "db-v2"]);
    assert!(made.values().all(|uids| uids.len() == 1), "{made:?}");
}

/// Version 1 loses its pods after the Service has changed hands, and its StatefulSet after its pods; nothing at all happens to it for
/// a version that failed. Whatever is changed is named by its UID.
fn assert_in_order(writes: &[Record], way: Way, told: &str) {
    let done: Vec<&Record> = writes.iter().filter(|record| record.answered.is_some_and(|code| code < 300)).collect();
    let first = |verb: &str, resource: &str, name: &str| {
        done.iter().position(|record| record.call.is(verb, resource) && record.call.name == name)
    };
    let (scaled, deleted) = (first("patch", "statefulsets", "db-v1"), first("delete", "statefulsets", "db-v1"));
    let switched = first("patch", "services", "live");
    match way {
        Way::Stale => assert_eq!((scaled, deleted, switched), (None, None, None), "version 1 is not touched\n{told}"),
        Way::Promoted => {
            assert!(
                switched.is_some() && switched < scaled && scaled < deleted,
                "{switched:?} {scaled:?} {deleted:?}\n{told}"
            );
        }
    }
    for record in done.iter().filter(|record| record.call.resource == "statefulsets" && record.call.name == "db-v1") {
        assert!(record.call.precondition().is_some(), "{}", record.call.words());
    }
}
