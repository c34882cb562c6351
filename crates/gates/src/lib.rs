//! Prometheus: from a query as a user wrote it to a verdict. Everything is pure except `transport`, the one file that touches the
//! network, and its parts `resolve` and `proxy`. This crate never decides what a verdict means for a rollout, never reads from or
//! writes to the API server, and never lets a token or password into a sentence, a record, a log line or a `Debug` output.
//!
//! The way of one query: [`question`] finds it in the spec, [`template`] fills in the variables, [`endpoint`], [`credentials`]
//! and `tls` prepare where and how to ask, [`policy`] says whether that is allowed, `request` writes the request, `shared` sends it
//! once for all who ask the same and keeps the answer in `kept`, `places` bounds how many are under way, `transport` carries it, [`decode`] reads the answer, [`verdict`] judges it, [`prober`] ties these
//! together. [`validate()`] runs all that needs no answer beforehand.

pub mod credentials;
pub mod decode;
pub mod endpoint;
mod kept;
mod listener;
mod places;
pub mod policy;
pub mod prober;
pub mod problem;
pub mod promql;
pub mod proxy;
pub mod question;
mod request;
mod resolve;
mod shared;
pub mod template;
mod text;
mod tls;
mod transport;
pub mod validate;
pub mod verdict;

pub use credentials::{SecretData, Secrets};
pub use endpoint::{Endpoint, Origin};
pub use policy::{AddressPolicy, Policy, SecretPolicy};
pub use prober::{Answer, Prober, check_secrets};
pub use problem::Problem;
pub use proxy::Proxies;
pub use question::{Question, questions};
pub use shared::Freshness;
pub use validate::validate;
