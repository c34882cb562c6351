//! What the operator reads of each object: projections that hold only what decisions need, and their conversion into the types
//! of `decide`. Pure. A field of a kind that is not known here can never break a watch.

mod failed_create;
#[cfg(test)]
mod older;
mod owner;
mod pod;
mod rollout;
mod set;

use serde::{Deserialize, Deserializer};

pub use failed_create::{REFUSALS, RefusalObject};
pub use owner::owner_view;
pub use pod::PodObject;
pub use rollout::rollout_view;
pub use set::SetObject;

/// `null` is what an absent field is, as everywhere in the API: serde alone takes only the latter.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
