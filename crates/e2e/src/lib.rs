//! Scenarios of the real operator against a real control plane and a real Prometheus: what the tests in `tests/` share.
//!
//! [`Ground`] is what all scenarios of a test binary stand on: a cluster with everything installed, a Prometheus, and the operator's
//! binary. A [`Scene`] is one scenario: a namespace of its own, an operator of its own that works in that namespace only, and a
//! [`Tape`] that records what the API server said, in its order. [`story`] tells a tape as lines that a person can read, [`moves`]
//! finds out who allowed each pod to move, [`Asked`] is what Prometheus was asked, and [`audit`] counts requests. A [`proxy`] makes things
//! go wrong on the way to the API server.
//!
//! Nothing here waits for luck: every wait has a condition and a deadline, and says what it waited for.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "a harness for tests: a scenario that cannot go on ends by a panic that says why"
)]

mod asked;
pub mod audit;
mod canary;
mod ground;
pub mod kstatus;
pub mod moves;
pub mod objects;
mod operator;
pub mod proxy;
mod scene;
pub mod story;
mod tape;
mod versions;
mod world;
mod write;

pub use asked::Asked;
pub use canary::CANARY;
pub use ground::{
    Ground, OWNER, Policies, SharedGround, eventually, is_refusing_left_out, minor, operator_binary, unlike_a_test,
};
pub use operator::Operator;
pub use scene::{PATIENCE, Scene, client_of, turn};
pub use tape::{Entry, Seen, Tape};
pub use versions::View;
pub use world::{World, image_of, is_ready, partition_of, ready_since, revision_of, template_image, uid_of};
pub use write::{Reply, answer};
