//! Where a rollout stands: one constructor for each reason, with motion, phase, whom it waits for, and the sentence. Nothing here decides.

use jiff::Timestamp;
use sts_plus_api::{Check, CheckRecord, Phase, Reason, Verdict, names};

use crate::{
    checks::{Cycle, last_words},
    observed::{ConfigProblem, Keeper},
    slots::Slots,
    text::plain,
    time::clock,
    units::Partition,
};

const MESSAGE_BYTES: usize = 512;

/// Who has to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// Nobody: it is at rest.
    Rest,
    /// The operator, the controllers, or time.
    Moving,
    /// It is held by something unusual that may go away by itself or that a person wanted.
    Held,
    /// A person, or checks that begin to pass.
    Stalled,
    /// A person, and the StatefulSet is not under a hold of ours.
    Refused,
}

/// For whom it waits, and so what would change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Nothing is pending.
    Nobody,
    /// The StatefulSet controller, or a pod that it makes.
    Controller,
    /// A pod that does not come up, or that nobody ends.
    Pod,
    /// The next check, or an answer of Prometheus.
    Check,
    /// A person: an annotation, another spec, another template.
    Person,
}

/// Where a rollout stands, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Who has to do something.
    pub motion: Motion,
    /// One word for people.
    pub phase: Phase,
    /// The reason of its conditions and events.
    pub reason: Reason,
    /// For whom it waits.
    pub waits_for: WaitsFor,
    /// One sentence.
    pub message: String,
}

/// What people call the object that a rollout belongs to, and its fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub(crate) keeper: Keeper,
    pub(crate) deadline: &'static str,
    pub(crate) paused: &'static str,
}

impl Words {
    pub(crate) const PHASED_ROLLOUT: Self =
        Self { keeper: Keeper::PhasedRollout, deadline: "spec.progressDeadlineSeconds", paused: "spec.paused is true" };

    /// `the annotation sts.plus/retry`, and which value of it has been used up.
    fn retry(self, used: Option<&str>) -> String {
        let annotation = self.keeper.retry_annotation();
        used.map_or_else(
            || format!("the annotation {annotation}"),
            |used| format!("the annotation {annotation} (with another value than {used})"),
        )
    }
}

/// The kinds of check cycle of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Preflight,
    Pod,
    Final,
}

impl Kind {
    /// Before the pod's name, which two cycles may share.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Preflight => "preflight: ",
            Self::Final => "final: ",
            Self::Pod => "",
        }
    }
}

impl Why {
    fn new(motion: Motion, phase: Phase, reason: Reason, waits_for: WaitsFor, message: impl AsRef<str>) -> Self {
        Self { motion, phase, reason, waits_for, message: plain(message.as_ref(), MESSAGE_BYTES) }
    }

    /// The set cannot be taken or is not there.
    pub(crate) fn refused(reason: Reason, message: String) -> Self {
        Self::new(Motion::Refused, Phase::Blocked, reason, WaitsFor::Person, message)
    }

    pub(crate) fn skip_check(is_rolled: bool) -> Self {
        let message = "spec.skipCheck is true: the normal rolling update is in force, without checks".to_owned();
        let (motion, phase, waits_for) = if is_rolled {
            (Motion::Rest, Phase::Idle, WaitsFor::Nobody)
        } else {
            (Motion::Moving, Phase::Rolling, WaitsFor::Controller)
        };
        Self::new(motion, phase, Reason::SkipCheck, waits_for, message)
    }

    pub(crate) fn awaiting_controller(set: &str, is_claimed_now: bool) -> Self {
        let message = if is_claimed_now {
            format!("StatefulSet {set} is claimed and held; its controller has not yet seen the latest change")
        } else {
            format!("the controller of StatefulSet {set} has not yet seen the latest change")
        };
        Self::new(Motion::Moving, Phase::Rolling, Reason::AwaitingController, WaitsFor::Controller, message)
    }

    pub(crate) fn started(message: String) -> Self {
        Self::new(Motion::Moving, Phase::Checking, Reason::RolloutStarted, WaitsFor::Check, message)
    }

    pub(crate) fn pending(slots: &Slots) -> Self {
        let (wanted, carried, all) = (slots.wanted, slots.count_wanted(), slots.replicas());
        Self::started(format!("revision {wanted} is pending and held; {carried} of {all} pods carry it"))
    }

    pub(crate) fn partition_allowed(slots: &Slots) -> Self {
        let (allowed, wanted) = (slots.partition().0, slots.wanted);
        let message = format!(
            "{} allowed partition {allowed} for {wanted}; indexes from {allowed} up may roll",
            names::ALLOW_PARTITION
        );
        Self::new(Motion::Moving, Phase::Rolling, Reason::PartitionAllowed, WaitsFor::Controller, message)
    }

    pub(crate) fn partition_drift(slots: &Slots, expected: Partition) -> Self {
        let writer = slots.set.partition_manager.as_deref().unwrap_or("another writer");
        let message = format!(
            "{writer} lowered the partition of StatefulSet {} to {}; it is put back to {}",
            slots.set.name,
            slots.partition().0,
            expected.0
        );
        Self::new(Motion::Held, Phase::Held, Reason::PartitionDrift, WaitsFor::Controller, message)
    }

    pub(crate) fn no_pods(set: &str, danger: Option<&str>) -> Self {
        let (waits_for, message) = if let Some(danger) = danger {
            (WaitsFor::Person, format!("StatefulSet {set} has no pods left: {danger}"))
        } else {
            let message = format!("StatefulSet {set} has no replicas; nothing was rolled and nothing was checked");
            (WaitsFor::Nobody, message)
        };
        Self::new(Motion::Rest, Phase::Idle, Reason::NoPods, waits_for, message)
    }

    /// Nothing is pending; a pod may still be on its way back.
    pub(crate) fn at_rest(slots: &Slots, is_completed: bool) -> Self {
        let (phase, reason, checked) = if is_completed {
            (Phase::Completed, Reason::Completed, "the rollout is complete")
        } else {
            (Phase::Idle, Reason::AtRest, "nothing is pending")
        };
        if let Some(obstacle) = slots.obstacle(&[]) {
            let message = format!("nothing is pending; {}", obstacle.describe(slots));
            return Self::new(Motion::Rest, phase, Reason::PodsNotAvailable, WaitsFor::Pod, message);
        }
        let message = format!("all {} pods carry {}; {checked}", slots.replicas(), slots.wanted);
        Self::new(Motion::Rest, phase, reason, WaitsFor::Nobody, message)
    }

    pub(crate) fn paused(slots: &Slots, words: Words) -> Self {
        let message = format!(
            "{}: {} of {} pods carry {}, no further pod is rolled and nothing is checked",
            words.paused,
            slots.count_wanted(),
            slots.replicas(),
            slots.wanted
        );
        Self::new(Motion::Held, Phase::Paused, Reason::Paused, WaitsFor::Person, message)
    }

    pub(crate) fn unusable(problem: &ConfigProblem) -> Self {
        Self::new(Motion::Stalled, Phase::Blocked, problem.reason, WaitsFor::Person, problem.message.clone())
    }

    pub(crate) fn rolling(message: String) -> Self {
        Self::new(Motion::Moving, Phase::Rolling, Reason::PodRolling, WaitsFor::Controller, message)
    }

    pub(crate) fn held_as_a_whole(slots: &Slots) -> Self {
        Self::rolling(format!("no pod carries {} any more; it is held as a whole", slots.wanted))
    }

    pub(crate) fn awaiting_flip(slots: &Slots) -> Self {
        Self::rolling(format!(
            "all {} pods carry {}; its controller has not yet made it the current revision",
            slots.replicas(),
            slots.wanted
        ))
    }

    pub(crate) fn repairing(message: String) -> Self {
        Self::new(Motion::Moving, Phase::Rolling, Reason::Repairing, WaitsFor::Controller, message)
    }

    pub(crate) fn blocked_by_pod(message: String) -> Self {
        Self::new(Motion::Held, Phase::Held, Reason::BlockedByPod, WaitsFor::Pod, message)
    }

    pub(crate) fn pods_not_available(message: String) -> Self {
        Self::new(Motion::Held, Phase::Held, Reason::PodsNotAvailable, WaitsFor::Pod, message)
    }

    pub(crate) fn not_rolled_yet(slots: &Slots, what: &str) -> Self {
        Self::pods_not_available(format!("no pod of StatefulSet {} is rolled yet: {what}", slots.set.name))
    }

    pub(crate) fn awaiting_approval(pod: &str, wanted: &str, index: i32, given: Option<&str>) -> Self {
        let other = given.map_or_else(String::new, |given| {
            format!("; the annotation says {given}, which is not this step and is ignored")
        });
        let message =
            format!("spec.pauseBefore: {pod} waits for the annotation {}: {wanted}/{index}{other}", names::APPROVE);
        Self::new(Motion::Held, Phase::Paused, Reason::AwaitingApproval, WaitsFor::Person, message)
    }

    pub(crate) fn checking(kind: Kind, pod: &str, cycle: &Cycle, check: &Check, checks: &[CheckRecord]) -> Self {
        let reason = match kind {
            Kind::Preflight => Reason::Preflight,
            Kind::Final => Reason::FinalChecks,
            Kind::Pod => Reason::Checking,
        };
        let (what, due) = (kind.words(), cycle.next.map(clock).unwrap_or_default());
        let message = if cycle.last.is_none() {
            format!("{what}{pod} is available; first check at {due}")
        } else {
            format!(
                "{what}{pod}: {} of {} consecutive checks passed, {} of {} tries; {}; next check at {due}",
                cycle.passes,
                check.success_threshold,
                cycle.tries,
                check.max_tries,
                last_words(checks, check)
            )
        };
        Self::new(Motion::Moving, Phase::Checking, reason, WaitsFor::Check, message)
    }

    /// The last check was made, and there is no usable answer.
    pub(crate) fn unanswered(pod: &str, record: &CheckRecord, due: Timestamp) -> Self {
        let (reason, what) = match record.verdict {
            Verdict::Unproven => (Reason::MetricMissing, "the metric does not exist"),
            _ => (Reason::PrometheusUnreachable, "no usable answer"),
        };
        let message = format!("{pod}: {what} from {}: {}; next try at {}", record.endpoint, record.message, clock(due));
        Self::new(Motion::Held, Phase::Held, reason, WaitsFor::Check, message)
    }

    pub(crate) fn failed(reason: Reason, waits_for: WaitsFor, message: String) -> Self {
        Self::new(Motion::Stalled, Phase::Failed, reason, waits_for, message)
    }

    /// The checks have failed before, and go on.
    pub(crate) fn failing(pod: &str, needs_person: bool, cycle: &Cycle, last: &str, more: &str) -> Self {
        let due = cycle.next.map(clock).unwrap_or_default();
        let waits_for = if needs_person { WaitsFor::Person } else { WaitsFor::Check };
        Self::failed(
            Reason::ChecksFailed,
            waits_for,
            format!("{pod}: checks failed; {last}; {more}; next check at {due}"),
        )
    }

    /// What ends a failure.
    pub(crate) fn way_on(
        words: Words,
        retry: Option<&str>,
        needs_person: bool,
        cycle: &Cycle,
        check: &Check,
    ) -> String {
        if needs_person {
            format!("it continues with {} or a new revision", words.retry(retry))
        } else {
            format!("{} of {} consecutive passes to continue", cycle.passes, check.success_threshold)
        }
    }

    pub(crate) fn rejected(slots: &Slots, words: Words, retry: Option<&str>, good: &str, went_back: bool) -> Self {
        let (wanted, keeper, retry) = (slots.wanted, words.keeper, words.retry(retry));
        let is_all_good = slots.pods().all(|(_, pod)| pod.revision.as_deref() == Some(good));
        let (phase, pods) = if went_back && is_all_good {
            (Phase::RolledBack, format!("all pods are back on {good}"))
        } else {
            let phase = if went_back && slots.lowest_wanted().is_none() { Phase::RolledBack } else { Phase::Held };
            (phase, format!("{} of {} pods carry it", slots.count_wanted(), slots.replicas()))
        };
        let message = if slots.has_flipped() {
            let back = if good == wanted { String::new() } else { format!(" back to {good} or") };
            format!(
                "{wanted} was rejected and nothing can hold it, it is the current revision of the StatefulSet; {pods}; change the \
                 template{back} to a mended one, or set {retry} on the {keeper} to have it checked again"
            )
        } else {
            format!(
                "{wanted} was rejected and is held; {pods}; change the template, or set {retry} on the {keeper} to try it again"
            )
        };
        Self::new(Motion::Stalled, phase, Reason::RevisionRejected, WaitsFor::Person, message)
    }

    pub(crate) fn rolling_back(message: String) -> Self {
        Self::new(Motion::Moving, Phase::RollingBack, Reason::RollingBack, WaitsFor::Controller, message)
    }

    pub(crate) fn rollback_stopped(message: String) -> Self {
        Self::new(Motion::Stalled, Phase::RollingBack, Reason::RollingBack, WaitsFor::Person, message)
    }

    /// No progress for longer than the spec allows: told, and held for a scale-up. The next progress clears it.
    pub(crate) fn overdue(self, words: Words, since: Timestamp, seconds: i32) -> Self {
        let message = format!("no progress since {} ({} {seconds}); {}", clock(since), words.deadline, self.message);
        Self::new(Motion::Stalled, self.phase, Reason::ProgressDeadlineExceeded, self.waits_for, message)
    }
}
