//! Given what was seen and what time it is, what to do next. Pure and total: no IO, no clock, no panic. The operator reads the
//! world into an [`Observed`], asks [`decide`], and carries out the [`Plan`].

mod checks;
mod claim;
mod conditions;
mod hold;
pub mod observed;
mod phased_rollout;
pub mod plan;
mod pods;
mod roll;
mod slots;
mod text;
mod time;
pub mod units;
pub mod versions;
mod why;

pub use observed::{
    CheckKey, ConfigProblem, HoldState, Keeper, Observed, PodView, Problem, RefusedPod, Rival, RolloutView, SetView,
    Strategy, Stray, Target, Try,
};
pub use phased_rollout::decide;
pub use plan::{Action, CheckRequest, Event, EventTarget, NewPartition, Plan, Severity};
pub use versions::{
    ChildView, OrphanView, OwnerView, ServiceView, TemplateView, VersionAction, VersionsObserved, VersionsPlan,
    child_name, claim, decide_versions,
};
pub use why::{Motion, WaitsFor, Why};
