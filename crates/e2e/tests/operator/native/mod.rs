//! The model of the StatefulSet controller against the real one, without the operator: hundreds of sets on the shared control plane, to each of
//! which happens a random sequence of things. After each act both come to rest, and must look the same: the pods by ordinal with their template
//! and whether they are Ready, both revisions, and every counter of the status. So must the way there: which pods were made and deleted, in
//! their order; and with OrderedReady each status on the way is one of the model's, in its order.
//!
//! What is not compared: whether there is each status of the model, since the real controller may look once where the model looks twice; with
//! Parallel the order of what the model does in one moment; acts that come while something moves; and `minReadySeconds`. What depends in the
//! model on whether the controller looks in between, or never ends, is not done at all ([`plan`]).

mod plan;
mod real;

use std::collections::BTreeSet;
use std::time::Instant;

use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::ListParams;
use sts_plus_e2e::{Ground, PATIENCE, Policies, turn, uid_of};
use sts_plus_model::Loop;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use crate::adversity::share::seed;
use plan::{Act, Born, Field, Kind, Move, Sequence, State, Status, Stop, Together};
use real::{News, Place, View, are_among, follows, native_loop};

const SEQUENCES: u64 = 200;
/// Sets to which something happens at the same time.
const AT_ONCE: usize = 40;
/// It is enough to know of so many that went wrong.
const ENOUGH: usize = 5;
/// Plays only the sequence of this name.
const ONLY: &str = "STS_PLUS_E2E_RUN";

/// A sequence on its way.
struct Played<'a> {
    sequence: &'a Sequence,
    place: &'a Place,
    news: UnboundedReceiver<News>,
    view: View,
    /// What the model has done so far.
    moves: Vec<Together>,
    /// What it has written.
    statuses: Vec<Status>,
    /// That of the spec which was written last.
    generation: i64,
}

impl Played<'_> {
    /// To the end, or what went wrong.
    async fn play(mut self) -> Result<Self, String> {
        for stop in &self.sequence.stops {
            let written = self.place.act(self.sequence, &stop.act).await;
            self.generation = written.unwrap_or(self.generation);
            self.moves.extend(stop.moves.iter().cloned());
            self.statuses.extend(stop.statuses.iter().copied());
            self.until(stop).await.map_err(|why| self.told(stop, why))?;
        }
        // It stays so when the controller looks once more.
        let last = self.sequence.stops.last().expect("it was born");
        self.generation = self.place.nudge(&self.sequence.name).await.unwrap_or(self.generation);
        self.until(last).await.map_err(|why| self.told(last, why))?;
        Ok(self)
    }

    /// Waits until the real set is at rest as the model says, for as long as anything happens.
    async fn until(&mut self, stop: &Stop) -> Result<(), &'static str> {
        let moves = self.moves.iter().map(Vec::len).sum::<usize>();
        loop {
            if self.view.fault.is_some() || !follows(&self.view.moves, &self.moves) {
                return Err("it moves otherwise");
            }
            if !self.sequence.born.parallel && !are_among(&self.view.statuses, &self.statuses) {
                return Err("it has a status that the model never has");
            }
            if self.view.moves.len() == moves && self.view.rest(self.generation).as_ref() == Some(&stop.rest) {
                let same = self.view.statuses.ends_with(&stop.settled);
                return if same { Ok(()) } else { Err("it comes to rest by other statuses") };
            }
            match timeout(PATIENCE, self.news.recv()).await {
                Ok(Some(news)) => self.view.take(news),
                Ok(None) => return Err("the watches have ended"),
                Err(_) => return Err("it stays otherwise"),
            }
        }
    }

    /// What went wrong, for a person.
    fn told(&self, stop: &Stop, why: &str) -> String {
        let Stop { act, rest, settled, .. } = stop;
        let Self { sequence, view, moves, statuses, .. } = self;
        let shown = |all: &[Status]| all.iter().map(Status::to_string).collect::<Vec<_>>().join(", ");
        let real = view.rest(0).map(|rest| rest.to_string()).unwrap_or_default();
        format!(
            "{sequence}\nafter {act:?} {why}: {:?}\n  model: {rest}\n  real:  {real}\n  model: {moves:?}\n  real:  {:?}\n\
             \x20 model: {}; {}\n  real:  {}\nSTS_PLUS_E2E_SEED={} {ONLY}={} plays it again",
            view.fault.as_deref().unwrap_or_default(),
            view.moves,
            shown(statuses),
            shown(settled),
            shown(&view.statuses),
            seed(),
            sequence.name
        )
    }
}

/// Plays all of them; those that came to what the model says, and what went wrong with the others.
async fn play_all<'a>(
    sequences: &'a [Sequence],
    place: &'a Place,
    heard: Vec<UnboundedReceiver<News>>,
) -> (Vec<Played<'a>>, Vec<String>) {
    let played = sequences.iter().zip(heard).map(|(sequence, news)| Played {
        sequence,
        place,
        news,
        view: View::default(),
        moves: Vec::new(),
        statuses: Vec::new(),
        generation: 0,
    });
    let mut outcomes = futures::stream::iter(played).map(Played::play).buffer_unordered(AT_ONCE);
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    while let Some(outcome) = outcomes.next().await {
        match outcome {
            Ok(played) => good.push(played),
            Err(why) => bad.push(why),
        }
        if bad.len() >= ENOUGH {
            break;
        }
    }
    (good, bad)
}

/// No pod of theirs has moved since, and none is leaving.
async fn assert_at_rest(place: &Place, played: &[Played<'_>]) {
    let listed = place.pods.list(&ListParams::default()).await.expect("pods can be listed").items;
    let stay = listed.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let there: BTreeSet<_> = stay.map(|pod| (pod.name_any(), uid_of(pod))).collect();
    let seen: BTreeSet<_> = played.iter().flat_map(|it| it.view.uids()).collect();
    let different: Vec<_> = there.symmetric_difference(&seen).collect();
    assert!(different.is_empty(), "seed {}: moved after the end: {different:?}", seed());
}

/// What is said of the model is said of all that it knows: nothing that it can do is left out by chance.
fn assert_varied(sequences: &[Sequence]) {
    let stops = || sequences.iter().flat_map(|sequence| sequence.stops.iter().map(move |stop| (&sequence.born, stop)));
    let at_least = |least: usize, what: &str, is: &dyn Fn(&Born, &Stop) -> bool| {
        let count = stops().filter(|(born, stop)| is(born, stop)).count();
        println!("{count} stops: {what}");
        assert!(count >= least, "{count} stops: {what}");
    };
    let wrote = |stop: &Stop, is: fn(&Field) -> bool| matches!(&stop.act, Act::Write(all) if all.iter().any(is));
    at_least(300, "with OrderedReady", &|born, _| !born.parallel);
    at_least(300, "with Parallel", &|born, _| born.parallel);
    at_least(300, "of a set that began at 3", &|born, _| born.start == 3);
    at_least(150, "another template", &|_, stop| wrote(stop, |field| matches!(field, Field::Template(_))));
    at_least(80, "scaled", &|_, stop| wrote(stop, |field| matches!(field, Field::Replicas(_))));
    at_least(80, "another partition", &|_, stop| wrote(stop, |field| matches!(field, Field::Partition(Some(_)))));
    at_least(10, "no partition", &|_, stop| wrote(stop, |field| matches!(field, Field::Partition(None))));
    at_least(10, "another start", &|_, stop| wrote(stop, |field| matches!(field, Field::Start(_))));
    at_least(60, "a pod is deleted", &|_, stop| matches!(stop.act, Act::Delete(_)));
    at_least(20, "a pod recovers", &|_, stop| matches!(stop.act, Act::Heal(_)));
    at_least(20, "a pod breaks", &|_, stop| matches!(stop.act, Act::Break(_)));
    at_least(100, "of a set whose pods take a moment to end", &|born, _| born.slow);
    at_least(3, "an account is made", &|_, stop| matches!(stop.act, Act::Account(_)));
    at_least(150, "a pod is not Ready", &|_, stop| stop.rest.pods.values().any(|(_, state)| *state == State::Unready));
    at_least(50, "pods of two templates", &|_, stop| {
        stop.rest.pods.values().map(|(template, _)| template).collect::<BTreeSet<_>>().len() > 1
    });
    at_least(100, "two revisions", &|_, stop| stop.rest.status.current != stop.rest.status.update);
    at_least(5, "refused", &|born, stop| {
        born.kind(stop.rest.status.update) == Kind::Refused || born.kind(stop.rest.status.current) == Kind::Refused
    });
}

// spec: native§2, native§3, native§4, native§5, native§6, native§7, native§9
#[tokio::test(flavor = "multi_thread")]
async fn the_model_of_the_controller_and_the_real_one_make_the_same_moves_and_come_to_the_same() {
    let _turn = turn().await;
    let ground = Ground::get(Policies::Installed).await;
    let (native, seed) = (native_loop(ground).await, seed());
    let mut sequences: Vec<_> = (0..SEQUENCES).map(|number| Sequence::draw(seed, number, native)).collect();
    assert_varied(&sequences);
    if let Ok(only) = std::env::var(ONLY) {
        sequences.retain(|sequence| sequence.name == only);
        assert!(!sequences.is_empty(), "{ONLY}={only}: there is no such sequence");
    }
    let (place, heard) = Place::new(ground, "native", &sequences).await;
    let started = Instant::now();
    let (good, bad) = play_all(&sequences, &place, heard).await;
    let moves: usize = good.iter().map(|it| it.view.moves.len()).sum();
    println!("{native:?}: {} sequences, {moves} moves, {:.0?}", good.len(), started.elapsed());
    assert!(bad.is_empty(), "seed {seed}: {} of {SEQUENCES}:\n{}", bad.len(), bad.join("\n\n"));
    assert_at_rest(&place, &good).await;
}

#[test]
fn a_sequence_comes_again_with_its_seed_and_number() {
    let drawn = |seed, number| Sequence::draw(seed, number, Loop::Gate137).to_string();
    assert_eq!(drawn(7, 3), drawn(7, 3));
    assert_ne!(drawn(7, 3), drawn(7, 4));
    assert_ne!(drawn(7, 3), drawn(8, 3));
}

#[test]
fn a_move_of_another_pod_or_in_another_order_or_one_too_many_is_seen() {
    let model = [vec![Move::Left(1)], vec![Move::Made(1, 2), Move::Made(2, 2)]];
    let [left, one, two] = [Move::Left(1), Move::Made(1, 2), Move::Made(2, 2)];
    for real in [&[][..], &[left], &[left, one], &[left, one, two], &[left, two, one]] {
        assert!(follows(real, &model), "{real:?}");
    }
    for real in [&[one][..], &[Move::Left(2)], &[left, Move::Made(1, 1)], &[left, one, one], &[left, one, two, left]] {
        assert!(!follows(real, &model), "{real:?}");
    }
}

#[test]
fn a_status_may_be_left_out_and_none_may_be_added() {
    let status = |ready| Status { current: 1, update: 1, replicas: 3, ready, current_replicas: 3, updated_replicas: 3 };
    let model = [0, 1, 2, 3].map(status);
    for real in [&[][..], &[0, 1, 2, 3], &[0, 3], &[2]] {
        assert!(are_among(&real.iter().copied().map(status).collect::<Vec<_>>(), &model), "{real:?}");
    }
    for real in [&[4][..], &[1, 0], &[0, 0], &[3, 4]] {
        assert!(!are_among(&real.iter().copied().map(status).collect::<Vec<_>>(), &model), "{real:?}");
    }
}
