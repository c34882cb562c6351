//! The checks of every kind of object: one try of all queries, and the Secrets that they need.

pub(crate) mod attempt;
pub(crate) mod secrets;

pub(crate) use attempt::{Attempt, validate};
pub use attempt::{Prober, prober};
use sts_plus_decide::ConfigProblem;
use sts_plus_gates::Problem;

fn config_problem(problem: Problem) -> ConfigProblem {
    ConfigProblem { reason: problem.reason, message: problem.message }
}
