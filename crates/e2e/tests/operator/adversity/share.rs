//! How much of many runs is played: every day a third, all of them in `make soak`. Which third, and everything else that is left to chance,
//! follows from one number, which is printed and can be given again.

use std::sync::LazyLock;

use jiff::Timestamp;

/// The number of a run that failed is given here to play it again.
const SEED: &str = "STS_PLUS_E2E_SEED";
const PARTS: u64 = 3;

static CHOSEN: LazyLock<u64> = LazyLock::new(|| {
    let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| u64::try_from(Timestamp::now().as_nanosecond() % 1_000_000_007).unwrap_or(1))
});

/// The number of this process. Each test that rests on it says it where it fails.
pub fn seed() -> u64 {
    println!("{SEED}={}", *CHOSEN);
    *CHOSEN
}

/// How much is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Every third of them.
    Third,
    /// All of them.
    All,
}

impl Share {
    /// Those that are played.
    pub fn of<T>(self, all: impl IntoIterator<Item = T>) -> Vec<T> {
        let first = seed() % PARTS;
        let is_played = |at: u64| self == Self::All || at % PARTS == first;
        (0..).zip(all).filter(|(at, _)| is_played(*at)).map(|(_, it)| it).collect()
    }
}

/// Random numbers that come again with the same seed.
pub fn dice() -> fastrand::Rng {
    fastrand::Rng::with_seed(seed())
}
