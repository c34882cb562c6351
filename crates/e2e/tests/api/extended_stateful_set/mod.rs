//! The definition of ExtendedStatefulSet on real API servers: what it keeps, what it refuses and with which sentence, `/scale`, and
//! the policy that fills in a count.

mod counts;
mod cube;
mod fields;
mod names;
mod objects;
mod refusals;
mod shape;
