//! How an act waits: changes are taken as they come, and told in the order of time.

use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

use crate::{
    seen::{Change, Changes},
    stage::Stage,
    tell::{Lines, Teller},
};

/// The watches are streams of their own. A line waits this long, so that lines are told in the order of time.
const ORDERED_AFTER: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(100);

/// What comes in, and the lines that it became.
pub(crate) struct Watch<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) tell: &'a Teller,
    pub(crate) lines: Lines,
    changes: Changes,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(stage: &'a Stage, tell: &'a Teller, changes: Changes) -> Self {
        Self { stage, tell, lines: Lines::default(), changes }
    }

    /// The next change, unless none comes soon.
    async fn next(&mut self) -> anyhow::Result<Option<Change>> {
        tokio::select! {
            change = self.changes.next() => change.map(Some),
            () = tokio::time::sleep(TICK) => Ok(None),
        }
    }

    fn flush(&mut self, age: Duration) {
        self.lines.flush(self.tell, age);
    }
}

/// An act that is watched.
pub(crate) trait Watched<'a>: Sized {
    fn watch(&mut self) -> &mut Watch<'a>;

    /// What a change comes to.
    async fn take(&mut self, change: Change) -> anyhow::Result<()>;

    /// Phase and message, for when it took too long.
    fn stand(&self) -> String;

    /// Tells what happens until `done`.
    async fn until(&mut self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        while !done(self) {
            if let Some(change) = self.watch().next().await? {
                self.take(change).await?;
            }
            self.watch().flush(ORDERED_AFTER);
            self.watch().stage.check_operator()?;
            if Instant::now() >= deadline {
                self.watch().flush(Duration::ZERO);
                bail!("not within {} s: {what}; {}", limit.as_secs(), self.stand());
            }
        }
        self.watch().flush(Duration::ZERO);
        Ok(())
    }
}
