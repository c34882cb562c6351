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

/// Numbers that look random and come again with the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new() -> Self {
        Self(seed().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        // Xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap_or(1)).unwrap_or(0)
    }
}
