//! Small helpers for text: cutting to a number of bytes, one line, and where in a PromQL text a character stands. They must
//! never split a character and never panic on any input.

const ELLIPSIS: &str = "…";

/// `text` in at most `max` bytes, cut at a character boundary and with an ellipsis if something is missing.
pub(crate) fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max.saturating_sub(ELLIPSIS.len()));
    let mut short = text.get(..end).unwrap_or_default().to_owned();
    if short.len() + ELLIPSIS.len() <= max {
        short.push_str(ELLIPSIS);
    }
    short
}

/// `text` with every run of white space and control characters as one space, and none at the ends.
pub(crate) fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// What a character of a PromQL text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Code,
    Comment,
    DoubleQuoted,
    SingleQuoted,
    Backticked,
}

/// Follows a PromQL text character by character.
#[derive(Debug)]
pub(crate) struct Scanner {
    place: Place,
    escaped: bool,
    /// The last two characters of code that are no white space.
    tail: [char; 2],
}

impl Scanner {
    pub(crate) fn new() -> Self {
        Self { place: Place::Code, escaped: false, tail: ['\0'; 2] }
    }

    /// The place of the next character.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// True if the next character belongs to an escape sequence of a quoted string.
    pub(crate) fn escaped(&self) -> bool {
        self.escaped
    }

    /// True inside a string that is the pattern of a matcher, `=~` or `!~`.
    pub(crate) fn in_pattern(&self) -> bool {
        !matches!(self.place, Place::Code | Place::Comment) && matches!(self.tail, ['=' | '!', '~'])
    }

    /// Moves past `c`.
    pub(crate) fn pass(&mut self, c: char) {
        if self.escaped {
            self.escaped = false;
            return;
        }
        if self.place == Place::Code && !matches!(c, '"' | '\'' | '`' | '#') && !c.is_whitespace() {
            let [_, last] = self.tail;
            self.tail = [last, c];
        }
        let was_string = !matches!(self.place, Place::Code | Place::Comment);
        self.place = match (self.place, c) {
            (Place::Code, '"') => Place::DoubleQuoted,
            (Place::Code, '\'') => Place::SingleQuoted,
            (Place::Code, '`') => Place::Backticked,
            (Place::Code, '#') => Place::Comment,
            (Place::DoubleQuoted, '"')
            | (Place::SingleQuoted, '\'')
            | (Place::Backticked, '`')
            | (Place::Comment, '\n' | '\r') => Place::Code,
            (place @ (Place::DoubleQuoted | Place::SingleQuoted), '\\') => {
                self.escaped = true;
                place
            }
            (place, _) => place,
        };
        if was_string && self.place == Place::Code {
            self.tail = ['\0'; 2];
        }
    }
}

/// `value` for the inside of a PromQL string in `quote` (`"` or `'`).
pub(crate) fn escape(value: &str, quote: char) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == '\\' || c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_ascii_control() => out.extend(['\\', 'x', hex(u32::from(c) >> 4), hex(u32::from(c) & 15)]),
            c => out.push(c),
        }
    }
    out
}

/// `value` as a regular expression (RE2) that matches only itself.
pub(crate) fn escape_pattern(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn hex(digit: u32) -> char {
    char::from_digit(digit, 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("short", 5, "short")]
    #[case("shorter", 6, "sho…")]
    #[case("ääää", 7, "ää…")]
    #[case("ääää", 6, "ä…")]
    #[case("abc", 2, "")]
    #[case("", 0, "")]
    fn cuts(#[case] text: &str, #[case] max: usize, #[case] want: &str) {
        assert_eq!(cut(text, max), want);
    }

    #[test]
    fn makes_one_line() {
        assert_eq!(one_line("  a\r\n\tb\0c  "), "a b c");
    }

    proptest! {
        #[test]
        fn never_longer_than_asked(text in any::<String>(), max in 0_usize..64) {
            prop_assert!(cut(&text, max).len() <= max);
        }

        #[test]
        fn an_escaped_value_stays_inside_its_quotes(value in any::<String>(), quote in prop_oneof![Just('"'), Just('\'')]) {
            let mut scanner = Scanner::new();
            scanner.pass(quote);
            let place = scanner.place();
            for c in escape(&value, quote).chars() {
                scanner.pass(c);
                prop_assert_eq!(scanner.place(), place);
            }
            scanner.pass(quote);
            prop_assert_eq!(scanner.place(), Place::Code);
        }
    }
}
