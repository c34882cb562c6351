//! How many decisions a second: 10,000 rollouts at rest, and 10,000 in motion. `cargo run --release -p sts-plus-model --example decisions`

use std::hint::black_box;
use std::time::Instant;

use sts_plus_decide::{Observed, decide};
use sts_plus_model::World;
use sts_plus_model::world::{ROLLOUT, SET, stamp};

const ROLLOUTS: usize = 10_000;
const LOOKS: usize = 10;

fn main() {
    let mut world = World::new(5);
    tell("at rest", &vec![seen(&world); ROLLOUTS]);
    // Every moment of one rollout, in turn.
    let mut moments = Vec::new();
    world.set_template(SET, 2);
    while moments.len() < 200 {
        world.pass(1);
        moments.push(seen(&world));
    }
    tell("in motion", &moments.iter().cycle().take(ROLLOUTS).cloned().collect::<Vec<_>>());
}

type Seen = (Observed, i64);

fn seen(world: &World) -> Seen {
    #[allow(clippy::expect_used, reason = "it is there from the start")]
    let observed = world.observe(ROLLOUT).expect("a rollout");
    (observed, world.now)
}

#[allow(clippy::cast_precision_loss, reason = "a rate, not a count")]
fn tell(what: &str, all: &[Seen]) {
    let begun = Instant::now();
    for _ in 0..LOOKS {
        for (observed, now) in all {
            black_box(decide(black_box(observed), stamp(*now)));
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let made = all.len() * LOOKS;
    println!("{what}: {made} decisions in {seconds:.2} s, {:.0} a second", made as f64 / seconds);
}
