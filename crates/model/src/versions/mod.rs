//! An ExtendedStatefulSet in the world of the model: what people write into it, the operator that decides with
//! `sts_plus_decide::decide_versions` and carries out what was planned, and its StatefulSets on the native loop. The same for versions side by
//! side and in place.

pub mod clock;
pub mod operator;
pub mod owner;
pub mod users;
pub mod world;
mod writes;

pub use owner::Owner;
pub use world::{Marks, World};
