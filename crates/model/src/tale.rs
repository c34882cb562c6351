//! What happened, in order: the golden traces are rendered from it.

use std::fmt;

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The StatefulSet controller.
    Native,
    /// `sts-plus`.
    Operator,
    /// A person, `GitOps`, a drain.
    User,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A person did this.
    User(String),
    /// The partition of a set was written.
    Partition {
        /// Name of the set.
        set: String,
        /// Value before.
        from: Option<i32>,
        /// Value after.
        to: Option<i32>,
        /// Writer.
        who: Who,
    },
    /// The operator changed annotations only.
    Annotated(String),
    /// The operator wrote to the PhasedRollout: finalizer or annotation.
    Lifecycle(String),
    /// A pod was deleted.
    Deleted(Who, String),
    /// A pod was made: name, UID, revision.
    Created(String, u64, String),
    /// A pod became Ready.
    Ready(String),
    /// `currentRevision` changed.
    Current(String),
    /// One try: cycle and outcome.
    Checked(String, &'static str),
    /// The status was written: phase, reason of Ready, message.
    Status(String, String, String),
    /// An event was recorded: `PR` or `STS`, reason, note.
    Event(&'static str, String, String),
    /// The operator was stopped before its next write.
    Crashed,
    /// A write was refused.
    Refused,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(what) => write!(f, "user: {what}"),
            Self::Partition { set, from, to, who } => {
                write!(f, "{}: {set} partition {} -> {}", name(*who), shown(*from), shown(*to))
            }
            Self::Annotated(set) => write!(f, "operator: annotations of {set}"),
            Self::Lifecycle(what) => write!(f, "operator: {what}"),
            Self::Deleted(who, pod) => write!(f, "{}: deletes {pod}", name(*who)),
            Self::Created(pod, uid, revision) => write!(f, "native: makes {pod} #{uid} at {revision}"),
            Self::Ready(pod) => write!(f, "pod: {pod} is Ready"),
            Self::Current(revision) => write!(f, "native: current revision {revision}"),
            Self::Checked(cycle, outcome) => write!(f, "check: {cycle}: {outcome}"),
            Self::Status(phase, reason, _) => write!(f, "status: {phase} {reason}"),
            Self::Event(on, reason, _) => write!(f, "event: {on} {reason}"),
            Self::Crashed => f.write_str("operator: crashes"),
            Self::Refused => f.write_str("operator: write refused"),
        }
    }
}

fn name(who: Who) -> &'static str {
    match who {
        Who::Native => "native",
        Who::Operator => "operator",
        Who::User => "user",
    }
}

fn shown(partition: Option<i32>) -> String {
    match partition {
        None => "none".to_owned(),
        Some(i32::MAX) => "hold".to_owned(),
        Some(value) => value.to_string(),
    }
}

/// Deeds with their times.
#[derive(Clone, Debug, Default)]
pub struct Tale {
    lines: Vec<(i64, Deed)>,
}

impl Tale {
    /// Adds one.
    pub fn push(&mut self, now: i64, deed: Deed) {
        self.lines.push((now, deed));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// All of them, with their times.
    #[must_use]
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &(i64, Deed)> {
        self.lines.iter()
    }

    /// All of them.
    #[must_use]
    pub fn deeds(&self) -> impl DoubleEndedIterator<Item = &Deed> {
        self.lines.iter().map(|(_, deed)| deed)
    }

    /// True if the operator has written a status.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.deeds().any(|deed| matches!(deed, Deed::Status(..)))
    }

    /// How many there are of a kind.
    pub fn count(&self, is: impl Fn(&Deed) -> bool) -> usize {
        self.deeds().filter(|deed| is(deed)).count()
    }

    /// One line each, with the seconds since the first one.
    #[must_use]
    pub fn story(&self) -> String {
        let first = self.lines.first().map_or(0, |(at, _)| *at);
        let lines: Vec<_> = self.lines.iter().map(|(at, deed)| format!("{:>4} {deed}", at - first)).collect();
        lines.join("\n")
    }

    /// As [`Tale::story`], with what statuses and events say.
    #[must_use]
    pub fn long_story(&self) -> String {
        let first = self.lines.first().map_or(0, |(at, _)| *at);
        let line = |(at, deed): &(i64, Deed)| match deed {
            Deed::Status(_, _, text) | Deed::Event(_, _, text) => format!("{:>4} {deed} | {text}", at - first),
            _ => format!("{:>4} {deed}", at - first),
        };
        self.lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
