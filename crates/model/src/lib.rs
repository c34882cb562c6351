//! The native StatefulSet controller, pods, users and faults as a state machine over the shipped decide code.
//!
//! `world` holds the objects, `native` restates the StatefulSet controller (rows B1–B7 and O1–O41 of the project's notes on it),
//! `kubelet` lets pods live and die, `users` writes as people and `GitOps` do (through the admission policy, if it is on), `operator`
//! observes, asks `sts_plus_decide::decide` and applies, `clock` puts it all in turn, and `rules` watches that no pod leaves the
//! last good revision without the checks it needs. No IO and no real clock: the same steps give the same world.
//! `random` is for tests that draw these steps. `versions` is an ExtendedStatefulSet over the same native loop.

pub mod clock;
pub mod kubelet;
pub mod native;
pub mod operator;
pub mod prometheus;
pub mod random;
pub mod rules;
pub mod shared;
pub mod tale;
pub mod users;
pub mod versions;
pub mod world;

pub use clock::Ended;
pub use native::Loop;
pub use operator::Stop;
pub use prometheus::{Answer, Metric};
pub use shared::Shared;
pub use tale::{Deed, Tale, Who};
pub use world::{Health, Pod, Release, Rollout, Set, World};
