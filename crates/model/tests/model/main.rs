//! The shipped `decide` against the model of the world: observed rows, golden traces, properties, exhaustive search.

mod crashes;
mod deletion;
mod failing;
mod hands;
mod happy;
mod observed;
mod properties;
mod repair;
mod scaling;
mod story;
