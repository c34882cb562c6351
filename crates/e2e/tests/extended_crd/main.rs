//! The definition of ExtendedStatefulSet on real API servers: what it keeps, what it refuses and with which sentence, `/scale`, and
//! the policy that fills in a count.

#![allow(clippy::indexing_slicing, reason = "a test may panic; an index into JSON does not")]

mod counts;
mod cube;
mod fields;
mod names;
mod refusals;
#[path = "../rig/mod.rs"]
mod rig;
mod scene;
#[path = "../rig/schema.rs"]
mod schema;
mod shape;
