//! Every write with every fault.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use sts_plus_e2e::proxy::{Call, Fault, Moment, Record};

use super::story::{Kind, Played, play};
use super::upgrade::{self, Way};
use super::writes::{Words, faults, once};

/// A story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tale {
    Rollout(Kind),
    Upgrade(Way),
}

const ROLLOUTS: [Tale; 2] = [Tale::Rollout(Kind::Rollout), Tale::Rollout(Kind::Rollback)];
const UPGRADES: [Tale; 2] = [Tale::Upgrade(Way::Promoted), Tale::Upgrade(Way::Stale)];
const FAULTS: [Fault; 10] = [
    Fault::Killed(Moment::Before),
    Fault::Refused(409),
    Fault::Refused(500),
    Fault::Lost(504),
    Fault::Killed(Moment::During),
    Fault::Refused(422),
    Fault::Lost(500),
    Fault::Killed(Moment::After),
    Fault::Refused(429),
    Fault::Refused(504),
];
/// Beyond the ten, met by every write of one run.
const MORE: [Fault; 5] =
    [Fault::Refused(503), Fault::Lost(503), Fault::Reset, Fault::Cut, Fault::Delayed(Duration::from_millis(400))];

/// Plays only the runs whose kind and name contain it: what is printed of a run that failed can be given here.
const ONLY: &str = "STS_PLUS_E2E_RUN";

/// A write, in words, and what went wrong with it.
type Pair = (String, String);

impl Tale {
    /// What the operator writes when nothing goes wrong.
    async fn undisturbed(self) -> &'static [Record] {
        match self {
            Self::Rollout(kind) => &Played::undisturbed(kind).await.writes,
            Self::Upgrade(way) => &upgrade::Played::undisturbed(way).await.writes,
        }
    }

    /// What it writes when this goes wrong. It must come to the same.
    async fn play(self, name: &str, rule: impl FnMut(&Call) -> Option<Fault> + Send + 'static) -> Vec<Record> {
        match self {
            Self::Rollout(kind) => play(kind, name, rule).await.writes,
            Self::Upgrade(way) => upgrade::play(way, name, rule).await.writes,
        }
    }
}

/// One run: the fault of each write the first time that it comes by.
struct Run {
    tale: Tale,
    name: String,
    faults: Vec<(String, Fault)>,
}

impl Run {
    fn rule(&self) -> impl FnMut(&Call) -> Option<Fault> + Send + 'static {
        let (mut faults, mut words) = (self.faults.clone(), Words::default());
        move |call| {
            if !call.is_write() {
                return None;
            }
            let words = words.of(call);
            let at = faults.iter().position(|(known, _)| *known == words)?;
            Some(faults.swap_remove(at).1)
        }
    }

    fn told(&self) -> String {
        format!("{:?}-{}", self.tale, self.name)
    }

    /// The pairs that came to pass.
    async fn play(self) -> BTreeSet<Pair> {
        faults(&self.tale.play(&self.name, self.rule()).await)
    }
}

/// Plays them, as many at the same time as there are turns; what came to pass in each. A run that fails does not stop the others.
async fn play_all(mut runs: Vec<Run>) -> Vec<BTreeSet<Pair>> {
    if let Ok(only) = std::env::var(ONLY) {
        runs.retain(|run| run.told().contains(&only));
    }
    let count = runs.len();
    let mut outcomes = futures::stream::iter(runs)
        .map(|run| async {
            let told = run.told();
            let outcome = AssertUnwindSafe(run.play()).catch_unwind().await;
            (told, outcome.map_err(|panic| text(&*panic)))
        })
        .buffer_unordered(32);
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    while let Some((told, outcome)) = outcomes.next().await {
        match outcome {
            Ok(pairs) => good.push(pairs),
            Err(error) => bad.push(format!("{told}: {error}")),
        }
        if (good.len() + bad.len()).is_multiple_of(20) {
            println!("{} of {count} runs, {} failed", good.len() + bad.len(), bad.len());
        }
    }
    assert!(bad.is_empty(), "{} of {count} runs failed:\n{}", bad.len(), bad.join("\n"));
    good
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic").to_owned()
}

/// Writes that meet their faults in the same run. One that goes wrong is made again, so that those after it come by all the same.
fn layers(tale: Tale, words: &[String]) -> Vec<Vec<String>> {
    let every = |second: usize| words.iter().skip(second).step_by(2).cloned().collect();
    match tale {
        // Of two that follow each other one goes well: what it has done is seen and told before it is undone.
        Tale::Rollout(Kind::Rollout) => vec![every(0), every(1)],
        // Of a rollback few are left; what an upgrade has come to is seen, and nothing of it is undone.
        Tale::Rollout(Kind::Rollback) | Tale::Upgrade(_) => vec![words.to_vec()],
    }
}

/// Every write of these stories meets every fault, several of them in one run: from run to run each write meets the next fault of the
/// ten. What a story has in common with the one before is not repeated. Besides, every write of one run of `more` meets each of the
/// other faults. Runs take the time of the machine, not that of waits: there should be few of them.
async fn assert_every_pair(tales: &[Tale], more: Option<Tale>) {
    let (mut runs, mut wanted) = (Vec::new(), BTreeSet::new());
    // They take longest.
    for (tale, (number, fault)) in
        more.into_iter().flat_map(|tale| MORE.into_iter().enumerate().map(move |it| (tale, it)))
    {
        let faults = once(tale.undisturbed().await).into_iter().map(|words| (words, fault.clone())).collect();
        runs.push(Run { tale, name: format!("more{number}"), faults });
    }
    for (tale, words) in stories(tales).await {
        println!("{tale:?}: {} writes: {words:#?}", words.len());
        wanted.extend(words.iter().flat_map(|words| FAULTS.map(|fault| (words.clone(), format!("{fault:?}")))));
        for (number, layer) in layers(tale, &words).into_iter().enumerate() {
            for shift in 0..FAULTS.len() {
                let fault = |at: usize| FAULTS[(at + shift) % FAULTS.len()].clone();
                let faults = layer.iter().enumerate().map(|(at, words)| (words.clone(), fault(at))).collect();
                runs.push(Run { tale, name: format!("layer{number}-shift{shift}"), faults });
            }
        }
    }
    let (count, outcomes) = (runs.len(), play_all(runs).await);
    let met: BTreeSet<Pair> = outcomes.into_iter().flatten().collect();
    let missing: Vec<_> = wanted.difference(&met).collect();
    println!(
        "{count} runs: {} pairs of a write and a fault, and {} that did not come to pass: {missing:#?}",
        wanted.len(),
        missing.len()
    );
    // Events of one run of the operator follow each other: the next one is not written when it was killed at the one before.
    // Each pair on its own is played by the long test.
    assert!(std::env::var_os(ONLY).is_some() || missing.len() * 10 <= wanted.len(), "{} are missing", missing.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_of_a_rollout_meets_every_fault_and_the_end_is_the_same() {
    assert_every_pair(&ROLLOUTS, Some(ROLLOUTS[1])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_of_an_upgrade_meets_every_fault_and_the_end_is_the_same() {
    assert_every_pair(&UPGRADES, None).await;
}

/// The writes of each story, without those of the one before.
async fn stories(tales: &[Tale]) -> Vec<(Tale, Vec<String>)> {
    join_all(tales.iter().map(|tale| tale.undisturbed())).await;
    let (mut stories, mut known) = (Vec::new(), BTreeSet::new());
    for tale in tales {
        let words = once(tale.undisturbed().await);
        stories.push((*tale, words.into_iter().filter(|words| known.insert(words.clone())).collect()));
    }
    stories
}

/// One fault in each run: every write of these stories with every fault.
async fn assert_every_pair_alone(tales: &[Tale]) {
    let mut runs = Vec::new();
    for (tale, words) in stories(tales).await {
        println!("{tale:?}: {} writes", words.len());
        for (at, words) in words.into_iter().enumerate() {
            for (number, fault) in FAULTS.into_iter().chain(MORE).enumerate() {
                runs.push(Run { tale, name: format!("w{at}f{number}"), faults: vec![(words.clone(), fault)] });
            }
        }
    }
    let (count, outcomes) = (runs.len(), play_all(runs).await);
    let met = outcomes.iter().filter(|pairs| !pairs.is_empty()).count();
    println!("{count} runs, the fault came to pass in {met}");
    assert!(met * 100 >= count * 98, "in {} runs nothing went wrong", count - met);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long: part of `make soak`"]
async fn every_fault_alone_at_every_write_of_a_rollout_and_the_end_is_the_same() {
    assert_every_pair_alone(&ROLLOUTS).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long: part of `make soak`"]
async fn every_fault_alone_at_every_write_of_an_upgrade_and_the_end_is_the_same() {
    assert_every_pair_alone(&UPGRADES).await;
}
