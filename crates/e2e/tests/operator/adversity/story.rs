//! The two stories, and what is true of every run of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use sts_plus_api::{Phase, names};
use sts_plus_e2e::proxy::{Call, Fault, Kills, Proxy, Record};
use sts_plus_e2e::{Asked, Entry, Scene, Seen, World, image_of, is_ready, objects, ready_since, revision_of, turn};
use tokio::sync::{OnceCell, SemaphorePermit};

use super::supervised::{PATIENCE, Supervised, is_quiet};
use super::writes::{assert_reported, tell};

const GOOD: &str = "app:1";
const NEW: &str = "app:2";
/// A series of this gauge for a pod makes the checks of that pod fail.
const EXPR: &str = r#"app_bad{namespace="${namespace}",pod="${pod}"}"#;

static ROLLOUT: OnceCell<Played> = OnceCell::const_new();
static ROLLBACK: OnceCell<Played> = OnceCell::const_new();

/// What happens in a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Three pods are rolled to a release whose checks pass.
    Rollout,
    /// Two of three pods are rolled; the checks of the second fail, and both go back.
    Rollback,
}

/// How a story ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    phase: Phase,
    partition: Option<i32>,
    written: Option<String>,
    verified: Option<String>,
    previous: Option<String>,
    rejected: Vec<String>,
    /// Image and revision of each pod.
    pods: BTreeMap<String, (String, String)>,
}

/// A story that was played.
#[derive(Clone, Debug)]
pub struct Played {
    /// How it ended.
    pub end: End,
    /// Every pod that left, with its image, in their order.
    pub left: Vec<(String, String)>,
    /// Everything that the operator wrote.
    pub writes: Vec<Record>,
}

impl Played {
    /// The story when nothing goes wrong; played once.
    pub async fn undisturbed(kind: Kind) -> &'static Self {
        let cell = match kind {
            Kind::Rollout => &ROLLOUT,
            Kind::Rollback => &ROLLBACK,
        };
        cell.get_or_init(|| play_to(kind, "undisturbed", |_| None, None)).await
    }
}

/// Plays a story with faults; it must come to the same as the undisturbed one.
pub async fn play(kind: Kind, name: &str, rule: impl FnMut(&Call) -> Option<Fault> + Send + 'static) -> Played {
    play_to(kind, name, rule, Some(Played::undisturbed(kind).await)).await
}

async fn play_to(
    kind: Kind,
    name: &str,
    rule: impl FnMut(&Call) -> Option<Fault> + Send + 'static,
    same: Option<&Played>,
) -> Played {
    // Everybody waits for the undisturbed story, those that have a turn too: it needs none.
    let turn = if same.is_some() { Some(turn().await) } else { None };
    let mut stage = Stage::with_turn(kind, name, turn).await;
    stage.proxy.on(rule);
    stage.start(Vec::new());
    stage.until_rest().await;
    stage.release().await;
    stage.until_over().await;
    stage.end(same).await
}

/// A story that is being played.
pub struct Stage {
    pub scene: Scene,
    pub proxy: Proxy,
    kind: Kind,
    /// How many operators delete: the same UID may be meant by each of them.
    pub operators: usize,
    kills: Option<Kills>,
    operator: Option<Supervised>,
    released: Option<(u64, Timestamp)>,
    _turn: Option<SemaphorePermit<'static>>,
}

impl Stage {
    /// The set with its pods, and the PhasedRollout; no operator yet.
    pub async fn set(kind: Kind, name: &str) -> Self {
        Self::with_turn(kind, name, Some(turn().await)).await
    }

    async fn with_turn(kind: Kind, name: &str, turn: Option<SemaphorePermit<'static>>) -> Self {
        let scene = Scene::at_any_time(name).await;
        let ground = scene.ground;
        let (proxy, kills) = Proxy::start(ground, &scene.namespace).await;
        if kind == Kind::Rollback {
            let labels = [("namespace", scene.namespace.as_str()), ("pod", "web-1")];
            ground.exporter.set("app_bad", &labels, 1.0);
            let query = format!(r#"app_bad{{namespace="{}"}}"#, scene.namespace);
            ground.prometheus().await.wait_for(&query, true).await.expect("the gauge is scraped");
        } else {
            ground.exporter.set("app_bad", &[("namespace", "none")], 1.0);
        }
        scene.create(&objects::set(3)).await;
        scene
            .until_within(PATIENCE, "all pods are Ready", |world| world.all_on(GOOD) && world.controller_has_seen())
            .await;
        scene.create(&rollout(&Scene::prometheus().await)).await;
        Self { scene, proxy, kind, operators: 1, kills: Some(kills), operator: None, released: None, _turn: turn }
    }

    /// Starts the operator; each time it is killed it is started again.
    pub fn start(&mut self, args: Vec<String>) {
        let kills = self.kills.take().expect("it is started once");
        self.operator = Some(Supervised::start(&self.scene, &self.proxy, args, kills));
    }

    pub async fn until_rest(&self) {
        let at_rest = |world: &World| {
            world.is(Phase::Idle) && world.partition() == Some(3) && world.annotation(names::CLAIM) == Some("gate")
        };
        self.scene.until_within(PATIENCE, "at rest", at_rest).await;
    }

    pub async fn release(&mut self) {
        let version = self.scene.tape.entries().last().map_or(0, |entry| entry.version);
        self.released = Some((version, Timestamp::now()));
        self.scene.release(NEW).await;
    }

    pub async fn until(&self, what: &str, wanted: impl Fn(&World) -> bool) -> Arc<World> {
        self.scene.until_within(PATIENCE, what, wanted).await
    }

    fn is_over(&self, world: &World) -> bool {
        match self.kind {
            Kind::Rollout => world.is_complete(NEW),
            Kind::Rollback => world.is(Phase::RolledBack) && world.all_on(GOOD) && world.is_held(),
        }
    }

    /// Until the story is over and the operator, if it was killed lately, has looked at what it left.
    pub async fn until_over(&self) {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            self.until("over", |world| self.is_over(world)).await;
            if is_quiet(&self.proxy) && self.is_over(&self.scene.world()) {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "not quiet: {:#?}", self.proxy.records().last());
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    /// The end: what is true of every run is asserted, and that it came to the same as another one.
    pub async fn end(self, same: Option<&Played>) -> Played {
        let Self { scene, proxy, kind, operators, operator, released, .. } = self;
        let (version, time) = released.expect("it was released");
        operator.expect("it was started").stop().await;
        let entries = scene.tape.entries();
        assert_allowed(&entries, &scene.asked(), time);
        let writes = proxy.writes();
        assert_deleted(&writes, operators);
        let end = end_of(&scene.world());
        let left = left(&entries, version);
        if let Some(other) = same {
            let told = || tell(&writes);
            assert_eq!(end, other.end, "the end of\n{}", told());
            assert_eq!(left, other.left, "the pods that left in\n{}", told());
        }
        if kind == Kind::Rollback {
            let labels = [("namespace", scene.namespace.as_str()), ("pod", "web-1")];
            scene.ground.exporter.remove("app_bad", &labels);
        }
        scene.end().await;
        let played = Played { end, left, writes };
        if let Some(other) = same {
            assert_reported(&played.writes, &other.writes);
        }
        played
    }
}

/// One passed check, one that failed, and the rollout is over for a pod.
fn rollout(url: &str) -> Value {
    let check = json!({
        "initialDelaySeconds": 0, "periodSeconds": 1, "successThreshold": 1, "maxTries": 1, "onFailure": "Rollback",
        "query": { "expr": EXPR, "url": url },
    });
    objects::with(objects::rollout(url), "/spec/check", check)
}

fn end_of(world: &World) -> End {
    let status = world.status();
    let pods = world
        .pods
        .iter()
        .map(|(name, pod)| (name.clone(), (world.image(name).to_owned(), revision_of(pod).to_owned())));
    End {
        phase: status.phase,
        partition: world.partition(),
        written: world.annotation(names::WRITTEN_PARTITION).map(str::to_owned),
        verified: status.verified_revision,
        previous: status.previous_revision,
        rejected: status.rejected_revisions,
        pods: pods.collect(),
    }
}

/// The lives of pods: name, image, and when each began to leave and was first Ready.
struct Life {
    name: String,
    image: String,
    made: (u64, Timestamp),
    ready: Option<Timestamp>,
    left: Option<(u64, Timestamp)>,
}

fn lives(entries: &[Entry]) -> Vec<Life> {
    let mut lives: BTreeMap<String, Life> = BTreeMap::new();
    for entry in entries {
        let Seen::Pod(pod) = &entry.seen else { continue };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let at = (entry.version, entry.arrived);
        let life = lives.entry(uid).or_insert_with(|| Life {
            name: pod.metadata.name.clone().unwrap_or_default(),
            image: image_of(pod).to_owned(),
            made: at,
            ready: None,
            left: None,
        });
        if entry.gone || pod.metadata.deletion_timestamp.is_some() {
            life.left = life.left.or(Some(at));
        } else if is_ready(pod) {
            life.ready = life.ready.or_else(|| ready_since(pod));
        }
    }
    let mut lives: Vec<_> = lives.into_values().collect();
    lives.sort_by_key(|life| life.made.0);
    lives
}

fn left(entries: &[Entry], after: u64) -> Vec<(String, String)> {
    let mut left: Vec<_> =
        lives(entries).into_iter().filter_map(|life| Some((life.left?.0, life.name, life.image))).collect();
    left.sort();
    left.into_iter().filter(|(version, ..)| *version > after).map(|(_, name, image)| (name, image)).collect()
}

/// No pod carries the new release before Prometheus has passed the pod above it, on that release and Ready; the first one not
/// before the preflight has passed. By what Prometheus answered and by what the pods were, not by what the operator says.
fn assert_allowed(entries: &[Entry], asked: &[Asked], released: Timestamp) {
    let lives = lives(entries);
    for (at, life) in lives.iter().enumerate().filter(|(_, life)| life.image == NEW) {
        let before = lives[..at].iter().rfind(|before| before.name == life.name);
        let left = before.and_then(|before| before.left).expect("a pod was there before").1;
        let index: usize = life.name.trim_start_matches("web-").parse().expect("an index");
        let (pod, since) = if index == 2 {
            ("web-2".to_owned(), released)
        } else {
            let above = format!("web-{}", index + 1);
            // The last of those that were Ready when this one went: a pod may be made more than once.
            let on_new = lives[..at].iter().filter(|other| other.name == above && other.image == NEW);
            let ready = on_new.filter_map(|on_new| on_new.ready).rfind(|ready| *ready <= left);
            let Some(ready) = ready else { panic!("{} carries {NEW} and {above} was never Ready on it", life.name) };
            (above, ready)
        };
        let passed = asked
            .iter()
            .any(|asked| asked.is_about(&pod) && asked.has_passed() && asked.at >= since && asked.at <= left);
        assert!(passed, "{} carries {NEW} and no check of {pod} had passed: {asked:?}", life.name);
    }
}

/// Each deletion names the UID that it means, and none was deleted more than once by each operator.
fn assert_deleted(writes: &[Record], operators: usize) {
    let mut deleted: BTreeMap<&str, usize> = BTreeMap::new();
    let accepted =
        |record: &&Record| record.call.is("delete", "pods") && record.answered.is_some_and(|code| code < 300);
    for record in writes.iter().filter(accepted) {
        let uid = record.call.precondition().expect("a deletion names a UID");
        let count = deleted.entry(uid).or_default();
        *count += 1;
        assert!(*count <= operators, "{} was deleted {count} times", record.call.name);
    }
}
