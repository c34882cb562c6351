//! `decide_versions` in a small world: children with pods, a native controller, a clock, users, and an operator that crashes between
//! any two writes. Stories tell what people expect; walks look for what nobody thought of.

mod adversity;
mod change;
mod found;
mod laws;
mod leaving;
mod lost;
mod native;
mod nonsense;
mod refused;
mod scalable;
mod stories;
mod told;
mod users;
mod walks;
mod world;
mod zones;
