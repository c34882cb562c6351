//! The one table: what was measured, and the goal beside it.

use anyhow::Context as _;

const BEGIN: &str = "<!-- make bench: begin -->\n";
const END: &str = "<!-- make bench: end -->";

/// One line.
#[derive(Clone, Debug)]
pub struct Row {
    what: String,
    value: String,
    goal: String,
}

impl Row {
    /// A value without a goal.
    pub fn new(what: impl Into<String>, value: impl Into<String>) -> Self {
        Self { what: what.into(), value: value.into(), goal: String::new() }
    }

    /// It is met by `measured` up to `most`.
    #[must_use]
    pub fn at_most(self, most: f64, measured: f64) -> Self {
        let verdict =
            if measured <= most { "met".to_owned() } else { format!("**missed by {}**", number(measured - most)) };
        Self { goal: format!("≤ {}: {verdict}", number(most)), ..self }
    }

    /// As [`Row::at_most`] where the goal is about this size.
    #[must_use]
    pub fn at_most_if(self, is_about: bool, most: f64, measured: f64) -> Self {
        if is_about { self.at_most(most, measured) } else { self }
    }
}

/// The rows as markdown that can be read as it is.
pub fn markdown(rows: &[Row]) -> String {
    let head = Row { what: "measured".to_owned(), value: "value".to_owned(), goal: "goal".to_owned() };
    let all: Vec<[&str; 3]> =
        std::iter::once(&head).chain(rows).map(|row| [row.what.as_str(), &row.value, &row.goal]).collect();
    let width = |column: usize| all.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..3).map(|column| width(column).unwrap_or_default()).collect();
    let line = |cells: [&str; 3]| {
        let cells: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let rule = format!("| {} |\n", rule.join(" | "));
    let mut lines = all.into_iter().map(line);
    let head = lines.next().unwrap_or_default();
    head + &rule + &lines.collect::<String>()
}

/// A page with what was measured in the place for it, in place of what was there.
pub fn put(page: &str, measured: &str) -> anyhow::Result<String> {
    let why = || format!("the page has no place for the table: a line {} and a line {END}", BEGIN.trim());
    let (before, rest) = page.split_once(BEGIN).with_context(why)?;
    let (_, after) = rest.split_once(END).with_context(why)?;
    Ok(format!("{before}{BEGIN}\n{measured}\n{END}{after}"))
}

/// With as many places as say something: 12.3, 1.25, 7.
pub fn number(value: f64) -> String {
    let text = if value.abs() >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") };
    match text.trim_end_matches('0').trim_end_matches('.') {
        "" | "-0" => "0".to_owned(),
        short => short.to_owned(),
    }
}

/// Bytes in MiB.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_or_missed_by_so_much() {
        let rows = [
            Row::new("time", "32 s").at_most(1.5, 4.0),
            Row::new("memory", "20 MiB").at_most(24.0, 20.0),
            Row::new("other", "1").at_most_if(false, 0.0, 1.0),
        ];
        let want = "\
| measured | value  | goal                      |
| -------- | ------ | ------------------------- |
| time     | 32 s   | ≤ 1.5: **missed by 2.5** |
| memory   | 20 MiB | ≤ 24: met                |
| other    | 1      |                          |
";
        let squeezed = |text: &str| text.replace([' ', '-'], "");
        assert_eq!(squeezed(&markdown(&rows)), squeezed(want));
        let table = markdown(&rows);
        let mut widths = table.lines().map(|line| line.chars().count());
        let first = widths.next();
        assert!(widths.all(|width| Some(width) == first), "aligned:\n{table}");
    }

    #[test]
    fn numbers_have_the_places_that_say_something() {
        for (value, text) in [(0.0, "0"), (7.0, "7"), (1.254, "1.25"), (12.34, "12.3"), (100.0, "100"), (0.004, "0")] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn the_page_has_a_place_for_the_table_and_what_was_there_is_replaced() {
        let page = include_str!("../../../docs/performance.md");
        let once = put(page, "table 1").unwrap();
        let twice = put(&once, "table 2").unwrap();
        assert!(once.contains("\ntable 1\n") && !once.contains("table 2"));
        assert_eq!(twice, once.replace("table 1", "table 2"));
        assert!(put("no place", "x").unwrap_err().to_string().contains("has no place"));
    }
}
