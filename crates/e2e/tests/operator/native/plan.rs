//! Random sequences of what happens to a StatefulSet, and what the model says that it comes to after each act.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use sts_plus_api::names;
use sts_plus_model::world::template_of;
use sts_plus_model::{Deed, Health, Loop, Release, Set, World};

/// Acts of a sequence after the birth of its set.
const ACTS: usize = 6;
/// So many draws, and there is something that can be done.
const DRAWS: usize = 1000;
/// Longer than the model takes for anything that ends.
const LONG: i64 = 300;
/// More than the controller looks for anything that ends.
const ROUNDS: usize = 1000;

/// What becomes of the pods of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Ready.
    Well,
    /// A crash loop.
    Broken,
    /// Refused by the API server: the service account is missing.
    Refused,
}

/// A set as it is born, always on template 1.
#[derive(Clone, Debug)]
pub struct Born {
    pub parallel: bool,
    pub start: i32,
    pub replicas: i32,
    pub partition: Option<i32>,
    /// Its pods take a moment to end, so that the controller sees them leave.
    pub slow: bool,
    /// Of the templates 1, 2 and 3.
    pub kinds: [Kind; 3],
}

/// A field of the spec, and its new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Template(u32),
    Replicas(i32),
    Partition(Option<i32>),
    Start(i32),
}

/// What is done to a set that is at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// It is made.
    Birth,
    /// One patch.
    Write(Vec<Field>),
    /// The pod of this ordinal is deleted.
    Delete(i32),
    /// It is not Ready any more.
    Break(i32),
    /// It becomes Ready after all.
    Heal(i32),
    /// The service account that this template names is made.
    Account(u32),
}

/// What became of a pod, by ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// A pod was made from this template.
    Made(i32, u32),
    /// A pod was deleted.
    Left(i32),
}

/// Moves that may come in any order.
pub type Together = Vec<Move>;

/// How a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    Unready,
    Leaving,
}

/// What the controller writes. Revisions are told by the number of their template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub current: u32,
    pub update: u32,
    pub replicas: i32,
    pub ready: i32,
    pub current_replicas: i32,
    pub updated_replicas: i32,
}

/// A set and its pods when nothing moves any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    pub pods: BTreeMap<i32, (u32, State)>,
    pub status: Status,
}

/// An act, and what the model says that it comes to.
#[derive(Clone, Debug)]
pub struct Stop {
    pub act: Act,
    pub rest: Rest,
    pub moves: Vec<Together>,
    /// Each status on the way.
    pub statuses: Vec<Status>,
    /// Those since the pods changed last: nothing can have come between.
    pub settled: Vec<Status>,
}

/// What happens to one set.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Of the set as well.
    pub name: String,
    pub born: Born,
    pub stops: Vec<Stop>,
}

impl Sequence {
    /// The sequence of this number: the same one for the same seed.
    pub fn draw(seed: u64, number: u64, native: Loop) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed.wrapping_mul(1000).wrapping_add(number));
        let name = format!("seq-{number}");
        let born = Born::draw(&mut dice);
        let mut world = born.world(&name, native);
        let mut stops = vec![Stop::of(Act::Birth, &mut world, &name).expect("a newborn comes to rest")];
        for _ in 0..ACTS {
            let stop = (0..DRAWS).find_map(|_| {
                let act = Act::draw(&mut dice, &world, &name)?;
                let (after, stop) = try_out(&world, &name, act)?;
                world = after;
                Some(stop)
            });
            stops.push(stop.expect("there is always something that can be done"));
        }
        Self { name, born, stops }
    }
}

/// What the model says of an act. None if that rests on whether the controller looks at a pod between its deletion and its end, or between
/// its birth and its being Ready: the real one may look or not (B3: without a partition a stale counter decides). Nor if it never rests: with
/// Parallel and without a partition a broken pod may be replaced for ever by another of its kind.
fn try_out(world: &World, name: &str, act: Act) -> Option<(World, Stop)> {
    let [mut slow, mut fast] = [world.clone(), world.clone()];
    fast.grace = 0;
    for release in fast.releases.values_mut().filter(|release| release.health == WELL.health) {
        release.health = Health::ReadyAfter(0);
    }
    let stop = Stop::of(act.clone(), &mut slow, name)?;
    let same = Stop::of(act, &mut fast, name)?;
    (stop.rest == same.rest && by_ordinal(&stop.moves) == by_ordinal(&same.moves)).then_some((slow, stop))
}

fn by_ordinal(moves: &[Together]) -> BTreeMap<i32, Vec<Move>> {
    let mut all = BTreeMap::<i32, Vec<Move>>::new();
    for one in moves.iter().flatten() {
        let (Move::Made(ordinal, _) | Move::Left(ordinal)) = one;
        all.entry(*ordinal).or_default().push(*one);
    }
    all
}

const WELL: Release = Release { health: Health::ReadyAfter(1), metric: sts_plus_model::Metric::Pass };
const BROKEN: Release = Release { health: Health::Crashing, ..WELL };

impl Born {
    fn draw(dice: &mut fastrand::Rng) -> Self {
        let kind = |dice: &mut fastrand::Rng, well: u32, refused: u32| match dice.u32(0..100) {
            it if it < well => Kind::Well,
            it if it < 100 - refused => Kind::Broken,
            _ => Kind::Refused,
        };
        let replicas = dice.i32(1..=4);
        Self {
            parallel: dice.bool(),
            start: if dice.bool() { 3 } else { 0 },
            replicas,
            partition: partition(dice, replicas),
            slow: dice.u32(0..4) == 0,
            kinds: [kind(dice, 85, 0), kind(dice, 60, 15), kind(dice, 60, 15)],
        }
    }

    /// A cluster of the model with nothing but this set.
    fn world(&self, name: &str, native: Loop) -> World {
        let mut world = World::empty();
        world.native = native;
        for (template, kind) in (1..).zip(self.kinds) {
            world.releases.insert(template, if kind == Kind::Broken { BROKEN } else { WELL });
            if kind == Kind::Refused {
                world.refused_templates.insert(template);
            }
        }
        world.add_set(name, self.replicas, 1);
        let set = world.sets.get_mut(name).expect("it was made");
        (set.parallel, set.start, set.partition) = (self.parallel, self.start, self.partition);
        world
    }

    /// What becomes of the pods of a template.
    pub fn kind(&self, template: u32) -> Kind {
        self.kinds[template as usize - 1]
    }
}

/// None, the full hold, or one that divides the pods.
fn partition(dice: &mut fastrand::Rng, replicas: i32) -> Option<i32> {
    match dice.u32(0..10) {
        0 | 1 => None,
        2 => Some(names::HOLD),
        3..6 => Some(0),
        _ => Some(dice.i32(0..=replicas)),
    }
}

impl Act {
    /// One that changes something. None if the dice fell on what cannot be done.
    fn draw(dice: &mut fastrand::Rng, world: &World, name: &str) -> Option<Self> {
        let set = &world.sets[name];
        let pod_that = |dice: &mut fastrand::Rng, ready: Option<bool>| {
            let fits = |(ordinal, pod): (&i32, &sts_plus_model::Pod)| {
                ready.is_none_or(|ready| pod.ready == ready).then_some(*ordinal)
            };
            dice.choice(set.pods.iter().filter_map(fits).collect::<Vec<_>>())
        };
        match dice.u32(0..100) {
            0..56 => Field::draw_some(dice, set).map(Self::Write),
            56..68 => pod_that(dice, None).map(Self::Delete),
            68..81 => pod_that(dice, Some(false)).map(Self::Heal),
            81..90 => pod_that(dice, Some(true)).map(Self::Break),
            _ => dice.choice(world.refused_templates.iter()).copied().map(Self::Account),
        }
    }

    fn perform(&self, world: &mut World, name: &str) {
        world.tale.clear();
        match self {
            Self::Birth => {}
            Self::Write(fields) => world.edit(name, "writes", |set| {
                for field in fields {
                    match *field {
                        Field::Template(template) => set.template = template,
                        Field::Replicas(replicas) => set.replicas = replicas,
                        Field::Partition(partition) => set.partition = partition,
                        Field::Start(start) => set.start = start,
                    }
                }
            }),
            Self::Delete(ordinal) => world.delete_pod(name, *ordinal),
            Self::Break(ordinal) => world.break_pod(name, *ordinal),
            Self::Heal(ordinal) => world.heal_pod(name, *ordinal),
            Self::Account(template) => {
                world.refused_templates.remove(template);
            }
        }
    }
}

impl Field {
    /// Mostly one; a release often comes with something else.
    fn draw_some(dice: &mut fastrand::Rng, set: &Set) -> Option<Vec<Self>> {
        let replicas = |dice: &mut fastrand::Rng| {
            let replicas = if dice.u32(0..8) == 0 { 0 } else { dice.i32(1..=4) };
            (replicas != set.replicas).then_some(Self::Replicas(replicas))
        };
        let hold = |dice: &mut fastrand::Rng| {
            let partition = partition(dice, set.replicas);
            (partition != set.partition).then_some(Self::Partition(partition))
        };
        let fields = match dice.u32(0..64) {
            0..30 => {
                let template = dice.u32(1..=3);
                let release = (template != set.template).then_some(Self::Template(template))?;
                let more = match dice.u32(0..4) {
                    0 => replicas(dice),
                    1 => hold(dice),
                    _ => None,
                };
                [Some(release), more].into_iter().flatten().collect()
            }
            30..44 => vec![replicas(dice)?],
            44..60 => vec![hold(dice)?],
            _ => vec![Self::Start(if set.start == 0 { 3 } else { 0 })],
        };
        Some(fields)
    }
}

impl Stop {
    /// What the model comes to by itself after this act. None if it never rests, which it may not without a partition.
    fn of(act: Act, world: &mut World, name: &str) -> Option<Self> {
        act.perform(world, name);
        let on_the_way = statuses(world, name);
        let set = &world.sets[name];
        let may_never_rest = set.partition.is_none();
        assert!(on_the_way.is_some() || may_never_rest, "never at rest: {act:?} of {set:#?}\n{}", world.tale.story());
        let (statuses, settled) = on_the_way?;
        Some(Self { act, rest: Rest::of(set), moves: moves(world, set.parallel), statuses, settled })
    }
}

/// Lets the model go on until nothing is due any more. Each status on the way, and those since the pods changed last; None if it never ends.
fn statuses(world: &mut World, name: &str) -> Option<(Vec<Status>, Vec<Status>)> {
    let (end, mut all, mut settled) = (world.now + LONG, Vec::new(), Vec::new());
    loop {
        loop {
            let lived = world.live();
            let before = world.sets[name].pods.clone();
            let synced = world.sync(name);
            let set = &world.sets[name];
            all.push(Status::of(set));
            if lived || set.pods != before {
                settled.clear();
            }
            if set.pods == before && settled.last() != all.last() {
                settled.extend(all.last().copied());
            }
            if all.len() > ROUNDS {
                return None;
            }
            if !lived && !synced {
                break;
            }
        }
        match world.next_due() {
            Some(next) if next > end => return None,
            Some(next) => world.now = next,
            None => return Some((all, settled)),
        }
    }
}

/// What the model did. With OrderedReady one thing comes after the other; with Parallel what it does in one moment comes in any order.
fn moves(world: &World, parallel: bool) -> Vec<Together> {
    let mut all: Vec<(i64, Together)> = Vec::new();
    for (at, deed) in world.tale.lines() {
        let one = match deed {
            Deed::Created(pod, _, revision) => Move::Made(ordinal_of(pod), template_of(revision)),
            Deed::Deleted(_, pod) => Move::Left(ordinal_of(pod)),
            _ => continue,
        };
        match all.last_mut() {
            Some((before, together)) if parallel && before == at => together.push(one),
            _ => all.push((*at, vec![one])),
        }
    }
    all.into_iter().map(|(_, together)| together).collect()
}

/// The ordinal of a pod.
pub fn ordinal_of(pod: &str) -> i32 {
    pod.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok()).expect("a pod of a set has an ordinal")
}

impl Status {
    fn of(set: &Set) -> Self {
        let status = &set.status;
        let template = |revision: &Option<String>| revision.as_deref().map_or(0, template_of);
        Self {
            current: template(&status.current),
            update: template(&status.update),
            replicas: status.replicas,
            ready: status.ready,
            current_replicas: status.current_replicas,
            updated_replicas: status.updated_replicas,
        }
    }
}

impl Rest {
    fn of(set: &Set) -> Self {
        let pods = set.pods.iter().map(|(ordinal, pod)| {
            let state = match (pod.gone_at, pod.ready) {
                (Some(_), _) => State::Leaving,
                (None, true) => State::Ready,
                (None, false) => State::Unready,
            };
            (*ordinal, (template_of(&pod.revision), state))
        });
        Self { pods: pods.collect(), status: Status::of(set) }
    }
}

impl Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { current, update, replicas, ready, current_replicas, updated_replicas } = self;
        write!(f, "{current}->{update} {replicas}/{ready}/{current_replicas}/{updated_replicas}")
    }
}

impl Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (ordinal, (template, state)) in &self.pods {
            let mark = match state {
                State::Ready => "",
                State::Unready => "!",
                State::Leaving => "-",
            };
            write!(f, "{ordinal}:{template}{mark} ")?;
        }
        write!(f, "({})", self.status)
    }
}

impl Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Born { parallel, start, replicas, partition, kinds, .. } = &self.born;
        let policy = if *parallel { "Parallel" } else { "OrderedReady" };
        write!(f, "{}: {policy}, start {start}, {replicas} replicas, partition {partition:?}, {kinds:?}", self.name)?;
        self.stops.iter().try_for_each(|stop| write!(f, "\n  {:?} -> {}", stop.act, stop.rest))
    }
}
