//! What the operator reads of each object: projections that hold only what decisions need, and their conversion into the types
//! of `decide`. Pure. A field of a kind that is not known here can never break a watch.

mod pod;
mod refusal;
mod rollout;
mod set;

pub use pod::PodObject;
pub use refusal::{REFUSALS, RefusalObject};
pub use rollout::rollout_view;
pub use set::SetObject;
