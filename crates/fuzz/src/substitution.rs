//! A template and a value: whatever the value is, the expression keeps its structure, and the value stands inside its string
//! literal and nowhere else. The first byte of the input is the length of the value, then come the value and the template.

use std::collections::BTreeMap;

use promql_parser::{
    label::{MatchOp, Matcher},
    parser::{self, Expr},
};
use sts_plus_gates::{promql, template};

/// A word that stands for itself in every place of an expression.
const MARKER: &str = "MARKERWORD";

/// How a template is filled in.
pub type Fill = fn(&str, &BTreeMap<&'static str, String>) -> Option<String>;

/// # Panics
/// Something breaks.
pub fn run(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first() else { return };
    let (value, template) = rest.split_at(rest.len().min(usize::from(*length)));
    let (value, template) = (String::from_utf8_lossy(value), String::from_utf8_lossy(template));
    holds(&template, &value, |template, values| template::fill(template, values).ok());
    let metrics = promql::check(&template).map(|parsed| parsed.metrics).unwrap_or_default();
    if let Some(query) = promql::missing_query(&metrics) {
        assert!(promql::check(&query).is_ok(), "the question is no PromQL: {query}");
    }
}

/// What must hold for `fill`, which is a parameter so that a test can show that a worse one is noticed.
///
/// # Panics
/// It does not hold.
pub fn holds(template: &str, value: &str, fill: Fill) {
    let filled_with = |value: &str| {
        let mut values = template::dummies();
        values.insert("pod", value.to_owned());
        fill(template, &values)
    };
    let Some(filled) = filled_with(value) else { return };
    if value.is_empty() {
        let plain = filled_with(MARKER).unwrap_or_default();
        assert_eq!(plain, filled, "an empty value is filled in");
        return;
    }
    // The parser takes a backslash between backticks for an escape, Prometheus does not.
    if template.contains(MARKER) || filled.contains('`') && filled.contains('\\') {
        return;
    }
    let Some(plain) = filled_with(MARKER).filter(|plain| promql::check(plain).is_ok()) else { return };
    let Ok(expected) = parser::parse(&plain) else { return };
    let shown = format!("{expected:?}");
    let (mut all, mut in_strings) = (shown.matches(MARKER).count(), 0);
    strings(&expected, &mut |text| in_strings += text.matches(MARKER).count());
    // `StringLiteral` and `Matcher` show a text once.
    all -= in_strings;
    if all > 0 {
        return;
    }
    let found = parser::parse(&filled).unwrap_or_else(|e| panic!("{value:?} makes {filled:?} no PromQL: {e}"));
    let value = format!("{value:?}");
    let value = value.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
    assert_eq!(format!("{found:?}"), shown.replace(MARKER, value), "{filled:?} has another structure");
}

/// Every string in which a value keeps its meaning: literals and the values of plain matchers.
fn strings(tree: &Expr, found: &mut impl FnMut(&str)) {
    match tree {
        Expr::Aggregate(e) => {
            strings(&e.expr, found);
            e.param.iter().for_each(|param| strings(param, found));
        }
        Expr::Unary(e) => strings(&e.expr, found),
        Expr::Binary(e) => {
            strings(&e.lhs, found);
            strings(&e.rhs, found);
        }
        Expr::Paren(e) => strings(&e.expr, found),
        Expr::Subquery(e) => strings(&e.expr, found),
        Expr::Call(e) => e.args.args.iter().for_each(|arg| strings(arg, found)),
        Expr::VectorSelector(e) => matchers(e, found),
        Expr::MatrixSelector(e) => matchers(&e.vs, found),
        Expr::StringLiteral(e) => found(&e.val),
        Expr::NumberLiteral(_) | Expr::Extension(_) => {}
    }
}

fn matchers(selector: &parser::VectorSelector, found: &mut impl FnMut(&str)) {
    let all = selector.matchers.matchers.iter().chain(selector.matchers.or_matchers.iter().flatten());
    let is_plain = |matcher: &&Matcher| matches!(matcher.op, MatchOp::Equal | MatchOp::NotEqual);
    all.filter(is_plain).for_each(|matcher| found(&matcher.value));
}
