//! What a person reads: aligned, with the seconds since the start, in colours only on a terminal.

use std::{
    env,
    io::{IsTerminal as _, Stdout, Write as _, stdout},
    time::Duration,
};

use jiff::{Timestamp, Unit};

const WIDTH: usize = 110;
/// Where the text of an event begins.
const MARGIN: usize = 21;

/// A colour, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Dim,
    Bold,
    Good,
    Bad,
    Moved,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dim => "\x1b[2m",
            Self::Bold => "\x1b[1m",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[31m",
            Self::Moved => "\x1b[36m",
        }
    }
}

/// Writes to standard output.
#[derive(Debug)]
pub(crate) struct Teller {
    since: Timestamp,
    colours: bool,
    out: Stdout,
}

impl Teller {
    pub(crate) fn new() -> Self {
        let colours = stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
        Self::with(colours)
    }

    fn with(colours: bool) -> Self {
        Self { since: Timestamp::now(), colours, out: stdout() }
    }

    /// A new part of the story.
    pub(crate) fn title(&self, text: &str) {
        let line = "─".repeat(WIDTH.saturating_sub(text.chars().count() + 4));
        self.line("");
        self.line(&format!(
            "{} {} {}",
            self.paint(Tone::Dim, "──"),
            self.paint(Tone::Bold, text),
            self.paint(Tone::Dim, &line)
        ));
    }

    /// Something that happens now: what, and to whom.
    pub(crate) fn event(&self, tone: Tone, kind: &str, text: &str) {
        self.event_at(Timestamp::now(), tone, kind, text);
    }

    /// Something that happened at `time`.
    pub(crate) fn event_at(&self, time: Timestamp, tone: Tone, kind: &str, text: &str) {
        let seconds = (time - self.since).total(Unit::Second).unwrap_or_default();
        let time = self.paint(Tone::Dim, &format!("{:6.1} s", seconds.max(0.0)));
        let text = text.replace('\n', &format!("\n{}", " ".repeat(MARGIN)));
        self.line(&format!("{time}  {}  {text}", self.paint(tone, &format!("{kind:<9}"))));
    }

    /// A text that fits beside the time and the kind of an event.
    pub(crate) fn fitted(text: &str) -> String {
        wrap(text, WIDTH - MARGIN).join("\n")
    }

    /// A command as a person would type it.
    pub(crate) fn command(&self, text: &str) {
        self.line(&format!("{} {}", self.paint(Tone::Dim, "$"), self.paint(Tone::Bold, text)));
    }

    /// What a command answered.
    pub(crate) fn answer(&self, text: &str) {
        for line in text.lines() {
            self.wrapped("  ", line, Tone::Plain);
        }
    }

    /// A remark.
    pub(crate) fn note(&self, text: &str) {
        self.wrapped("", text, Tone::Dim);
    }

    /// Why the demo itself failed.
    pub(crate) fn failure(&self, text: &str) {
        self.line("");
        self.wrapped("", &format!("The demo failed: {text}"), Tone::Bad);
    }

    /// A line as it is.
    pub(crate) fn line(&self, text: &str) {
        // A reader that has gone ends nothing: the clean-up still has to be done.
        let _ = writeln!(&self.out, "{text}");
    }

    /// How long it has been.
    pub(crate) fn seconds(&self) -> f64 {
        (Timestamp::now() - self.since).total(Unit::Second).unwrap_or_default()
    }

    /// In colour on a terminal.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        if !self.colours || tone == Tone::Plain || text.is_empty() {
            return text.to_owned();
        }
        format!("{}{text}\x1b[0m", tone.code())
    }

    fn wrapped(&self, indent: &str, text: &str, tone: Tone) {
        for line in wrap(text, WIDTH.saturating_sub(indent.len())) {
            self.line(&format!("{indent}{}", self.paint(tone, &line)));
        }
    }
}

/// Lines that wait for older ones to arrive.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<(Timestamp, Tone, &'static str, String)>);

impl Lines {
    /// Something that happened at `time`.
    pub(crate) fn push(&mut self, time: Timestamp, tone: Tone, kind: &'static str, text: String) {
        self.0.push((time, tone, kind, text));
    }

    /// Tells the lines that are older than `age`, in the order of time.
    pub(crate) fn flush(&mut self, tell: &Teller, age: Duration) {
        let until = Timestamp::now() - age;
        self.0.sort_by_key(|(time, ..)| *time);
        let ripe = self.0.partition_point(|(time, ..)| *time <= until);
        for (time, tone, kind, text) in self.0.drain(..ripe) {
            tell.event_at(time, tone, kind, &text);
        }
    }
}

/// Lines of at most `width` characters; a longer word has a line of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(last) = lines.last_mut() else { continue };
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a verylongword b", 4), ["a", "verylongword", "b"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn there_are_no_escapes_without_a_terminal() {
        let teller = Teller::with(false);
        assert_eq!(teller.paint(Tone::Bad, "x"), "x");
        let teller = Teller::with(true);
        assert_eq!(teller.paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(teller.paint(Tone::Plain, "x"), "x");
    }
}
