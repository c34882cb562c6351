//! How tests with random input run: what failed before comes first, then new cases with a seed that is printed.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{Write, stderr};
use std::thread;

use proptest::test_runner::{Config, RngSeed};

/// So many cases, with another seed each time. `PROPTEST_CASES` and `PROPTEST_RNG_SEED` take the place of either. What fails is kept in
/// the folder `proptest-regressions` beside that of the test.
#[must_use]
pub fn cases(cases: u32) -> Config {
    let usual = Config::default();
    let seed = match usual.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().build_hasher().finish(),
    };
    let test = thread::current();
    // Written past the capture of the test: of one that hangs or is killed, this is all that is left.
    let _ = writeln!(stderr(), "PROPTEST_RNG_SEED={seed} repeats {}", test.name().unwrap_or("the tests"));
    Config { cases, rng_seed: RngSeed::Fixed(seed), max_shrink_iters: 20_000, ..usual }
}
