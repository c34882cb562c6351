//! Given what was seen and what time it is, what to do next. Pure and total: no IO, no clock, no panic. The operator reads the
//! world into an [`Observed`], asks [`decide`], and carries out the [`Plan`].

pub mod observed;
pub mod plan;
mod rollout;
pub mod units;
pub mod versions;

pub use observed::{
    CheckKey, ConfigProblem, HoldState, Keeper, Observed, PodView, Problem, RefusedPod, Rival, RolloutView, SetView,
    Strategy, Stray, Target, Try,
};
pub use plan::{Action, CheckRequest, Event, EventTarget, NewPartition, Plan, Severity};
pub use rollout::decide;
pub use versions::{
    ChildView, OrphanView, OwnerView, ServiceView, TemplateView, VersionAction, VersionsObserved, VersionsPlan,
    child_name, claim, decide_versions,
};
