//! Whatever goes wrong between the operator and the API server, and whenever the operator is killed: the same end, the same pods
//! deleted in the same order, and no pod rolled that the checks had not allowed.
//!
//! Two stories of a PhasedRollout ([`story::Kind`]) and two of an ExtendedStatefulSet ([`upgrade::Way`]) are played undisturbed once; every
//! other run of them must come to the same. The checks ask the real Prometheus of the test cluster by way of a tap, and who was allowed to
//! move is found out from the tap and from the pods alone. Where there are many runs, a third of them is played every day ([`share::Share`]).

mod crash;
mod leaders;
mod matrix;
mod orphans;
mod quiet;
mod rights;
mod selectors;
pub mod share;
mod story;
mod supervised;
mod upgrade;
mod views;
mod writes;
