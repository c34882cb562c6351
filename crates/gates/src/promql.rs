//! PromQL before it is sent: is it well formed, does it return series, and which metrics must exist for its answer to mean
//! anything. It must never panic or overflow the stack, whatever is written, and never evaluates anything.

use std::collections::BTreeSet;
use std::time::Duration;

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{self, Expr, VectorSelector};

use crate::text::{Place, Scanner, cut, escape, one_line};

/// Deepest nesting of parentheses. The parser's tree is walked and dropped recursively, so its depth must be bounded.
const MAX_NESTING: usize = 100;
/// Most operators in one expression: a chain of them is a tree of that depth.
const MAX_OPERATORS: usize = 400;
/// Most metrics that one expression may name if their existence is to be asked for.
pub const MAX_METRICS: usize = 64;
/// How far an instant selector of Prometheus looks back by default.
const LOOKBACK: Duration = Duration::from_mins(5);
/// The label under which [`missing_query`] returns the position of a missing metric.
pub const MISSING_LABEL: &str = "sts_plus_missing";

/// Why an expression is refused; a sentence without the field name in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromqlError {
    /// Nothing is there.
    #[error("is empty: write an expression such as up == 0")]
    Empty,
    /// Too deep or too long to be parsed safely.
    #[error("has more than {max} {what}: split it into several queries")]
    TooComplex {
        /// The limit.
        max: usize,
        /// What there is too much of.
        what: &'static str,
    },
    /// The parser's message.
    #[error("is not valid PromQL: {0}")]
    Syntax(String),
    /// It is well formed and returns no series.
    #[error("returns a {kind} and must return a vector: {cure}")]
    NotVector {
        /// `scalar` or `string`.
        kind: &'static str,
        /// What to write.
        cure: &'static str,
    },
}

/// An expression that is well formed and returns series: an instant vector, or a range vector such as `up[5m]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// What must exist, each once, in alphabetical order.
    pub metrics: Vec<Metric>,
}

/// Something whose existence can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric {
    /// For people: the metric name, or the selector if there is no name.
    pub shown: String,
    /// The selector, `{__name__="up"}`.
    selector: String,
    /// The range over which the expression looks, if it is longer than the lookback.
    range: Option<Duration>,
}

/// Checks an expression without variables.
///
/// # Errors
/// It is empty, too complex, no valid PromQL, or returns a scalar or a string.
pub fn check(expr: &str) -> Result<Parsed, PromqlError> {
    if expr.trim().is_empty() {
        return Err(PromqlError::Empty);
    }
    let expr = quoted(expr);
    guard(&expr)?;
    let tree = parse(&expr)?;
    match tree.value_type() {
        ValueType::Vector | ValueType::Matrix => {}
        ValueType::Scalar => {
            return Err(PromqlError::NotVector {
                kind: "scalar",
                cure: "compare a metric, for example up == 0, or write vector(…) around a scalar and compare that",
            });
        }
        ValueType::String => {
            return Err(PromqlError::NotVector { kind: "string", cure: "compare a metric, for example up == 0" });
        }
    }
    let mut found = Found::default();
    collect(&tree, &mut found);
    if found.has_empty_name {
        return Err(PromqlError::Syntax(
            "a label has an empty name: write the name of a label before the =".to_owned(),
        ));
    }
    Ok(Parsed { metrics: found.metrics.into_iter().collect() })
}

/// `expr` with double quotes in place of backticks: the parser takes a backslash between backticks for an escape, Prometheus takes
/// it for itself, as in `` =~`a\.b` ``.
fn quoted(expr: &str) -> String {
    let mut out = String::with_capacity(expr.len());
    let mut scanner = Scanner::new();
    let mut raw = String::new();
    for c in expr.chars() {
        let before = scanner.place();
        scanner.pass(c);
        match (before, scanner.place()) {
            (Place::Code, Place::Backticked) => {}
            (Place::Backticked, Place::Backticked) => raw.push(c),
            (Place::Backticked, _) => {
                out.push('"');
                out.push_str(&escape(&raw, '"'));
                out.push('"');
                raw.clear();
            }
            _ => out.push(c),
        }
    }
    if scanner.place() == Place::Backticked {
        // Never closed: for the parser to say so.
        out.push('`');
        out.push_str(&raw);
    }
    out
}

/// Refuses what could make the parser's recursive tree too deep. Counts at least what the tree can hold.
fn guard(expr: &str) -> Result<(), PromqlError> {
    let mut scanner = Scanner::new();
    let (mut depth, mut operators, mut in_braces) = (0_usize, 0_usize, false);
    let mut word = String::new();
    for c in expr.chars() {
        let code = scanner.place() == Place::Code;
        scanner.pass(c);
        if code && (c.is_ascii_alphanumeric() || c == '_' || c == ':') {
            word.push(c.to_ascii_lowercase());
            continue;
        }
        operators += usize::from(is_word_operator(&word));
        word.clear();
        match c {
            _ if !code => {}
            '{' => in_braces = true,
            '}' => in_braces = false,
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '+' | '-' | '*' | '/' | '%' | '^' | '<' | '>' | '=' | '!' => {
                operators += usize::from(!in_braces);
            }
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(PromqlError::TooComplex { max: MAX_NESTING, what: "parentheses inside each other" });
        }
        if operators > MAX_OPERATORS {
            return Err(PromqlError::TooComplex { max: MAX_OPERATORS, what: "operators" });
        }
    }
    Ok(())
}

fn is_word_operator(word: &str) -> bool {
    matches!(word, "and" | "or" | "unless" | "atan2")
}

/// The parser has panicked on odd input (a range of 1e300 seconds, for one); such an expression is refused like any other.
fn parse(expr: &str) -> Result<Expr, PromqlError> {
    std::panic::catch_unwind(|| parser::parse(expr))
        .unwrap_or_else(|_| Err("the parser cannot read it; look for very large or negative numbers".to_owned()))
        .map_err(|message| PromqlError::Syntax(explain(&message)))
}

/// The parser's message, with what it does not say: it knows no experimental syntax (of the expressions in the tests of
/// Prometheus 3, arithmetic in durations, `anchored`, `smoothed`, `</` and `>/` are all that it refuses).
fn explain(message: &str) -> String {
    let message = cut(&one_line(message), 300);
    match message.as_str() {
        "invalid promql query" => {
            "something is missing or in the wrong place (experimental syntax of Prometheus is not known here)"
                .to_owned()
        }
        _ => message,
    }
}

/// What was found in an expression.
#[derive(Default)]
struct Found {
    metrics: BTreeSet<Metric>,
    /// Some matcher names no label (`{""="x"}`), which the parser takes and Prometheus does not.
    has_empty_name: bool,
}

fn collect(tree: &Expr, found: &mut Found) {
    match tree {
        Expr::Aggregate(e) => {
            collect(&e.expr, found);
            e.param.iter().for_each(|param| collect(param, found));
        }
        Expr::Unary(e) => collect(&e.expr, found),
        Expr::Binary(e) => {
            collect(&e.lhs, found);
            collect(&e.rhs, found);
        }
        Expr::Paren(e) => collect(&e.expr, found),
        Expr::Subquery(e) => collect(&e.expr, found),
        Expr::Call(e) => e.args.args.iter().for_each(|arg| collect(arg, found)),
        Expr::VectorSelector(e) => metrics_of(e, None, found),
        Expr::MatrixSelector(e) => metrics_of(&e.vs, Some(e.range).filter(|range| *range > LOOKBACK), found),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

fn metrics_of(selector: &VectorSelector, range: Option<Duration>, found: &mut Found) {
    let plain = std::slice::from_ref(&selector.matchers.matchers);
    let groups = if selector.matchers.or_matchers.is_empty() { plain } else { &selector.matchers.or_matchers };
    found.has_empty_name |= groups.iter().flatten().any(|matcher| matcher.name.is_empty());
    if let Some(name) = selector.name.as_ref().filter(|name| !name.is_empty()) {
        let selector = format!("{{__name__=\"{}\"}}", escape(name, '"'));
        found.metrics.insert(Metric { shown: name.clone(), selector, range });
        return;
    }
    for group in groups {
        let named: Vec<&Matcher> = group.iter().filter(|m| selects_a_name(m)).collect();
        let used = if named.is_empty() { group.iter().collect() } else { named };
        if !used.iter().any(|matcher| is_proper(matcher)) {
            // Prometheus takes no selector that may match everything.
            continue;
        }
        let selector = format!("{{{}}}", used.iter().map(|m| matcher_text(m)).collect::<Vec<_>>().join(","));
        let shown = match used.as_slice() {
            [only] if only.name == "__name__" && matches!(only.op, MatchOp::Equal) => only.value.clone(),
            _ => selector.clone(),
        };
        found.metrics.insert(Metric { shown, selector, range });
    }
}

fn selects_a_name(matcher: &Matcher) -> bool {
    matcher.name == "__name__" && matches!(matcher.op, MatchOp::Equal | MatchOp::Re(_)) && is_proper(matcher)
}

/// True if it cannot match a series without the label.
fn is_proper(matcher: &Matcher) -> bool {
    match &matcher.op {
        MatchOp::Equal => !matcher.value.is_empty(),
        MatchOp::NotEqual => matcher.value.is_empty(),
        MatchOp::Re(pattern) => !pattern.is_match(""),
        MatchOp::NotRe(pattern) => pattern.is_match(""),
    }
}

fn matcher_text(matcher: &Matcher) -> String {
    let op = match matcher.op {
        MatchOp::Equal => "=",
        MatchOp::NotEqual => "!=",
        MatchOp::Re(_) => "=~",
        MatchOp::NotRe(_) => "!~",
    };
    let plain = matcher.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let name = if plain { matcher.name.clone() } else { format!("\"{}\"", escape(&matcher.name, '"')) };
    format!("{name}{op}\"{}\"", escape(&matcher.value, '"'))
}

/// An instant query that returns one series for each of `metrics` that does not exist, with its position in the label
/// [`MISSING_LABEL`]. Empty answer: all exist. None if there is nothing to ask for.
///
/// A metric counts as existing if it has a sample within the lookback of Prometheus, or within the range over which the
/// expression looks if that is longer.
#[must_use]
pub fn missing_query(metrics: &[Metric]) -> Option<String> {
    let parts: Vec<String> = metrics
        .iter()
        .enumerate()
        .map(|(i, metric)| {
            let absent = match metric.range {
                None => format!("absent({})", metric.selector),
                Some(range) => format!("absent_over_time({}[{}ms])", metric.selector, range.as_millis()),
            };
            format!("label_replace({absent},\"{MISSING_LABEL}\",\"{i}\",\"\",\"\")")
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(" or "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("up", &["up"])]
    #[case("up{}", &["up"])]
    #[case("up == 0", &["up"])]
    #[case("sum by (job) (rate(errors_total{job=\"a\"}[5m])) / sum(rate(requests_total[5m])) > 0.01", &["errors_total", "requests_total"])]
    #[case("topk(scalar(limit), foo)", &["foo", "limit"])]
    #[case("absent(up{job=\"x\"})", &["up"])]
    #[case("{__name__=\"my.metric\"}", &["my.metric"])]
    #[case("{\"my.metric\", job=\"x\"}", &["my.metric"])]
    #[case("{__name__=~\"a|b\",job=\"x\"}", &["{__name__=~\"a|b\"}"])]
    #[case("{__name__=\"\",job=\"x\"}", &["{__name__=\"\",job=\"x\"}"])]
    #[case("{\"\",job=\"x\"}", &["{__name__=\"\",job=\"x\"}"])]
    #[case("{__name__=~\".*\",job=\"x\"}", &["{__name__=~\".*\",job=\"x\"}"])]
    #[case("{job=\"x\",le!=\"1\"}", &["{job=\"x\",le!=\"1\"}"])]
    #[case("max_over_time(a[1h:1m]) unless b offset 5m", &["a", "b"])]
    #[case("vector(1) == 0", &[])]
    #[case("up # a comment (((", &["up"])]
    #[case("-up", &["up"])]
    #[case("count_values(\"v\", x)", &["x"])]
    #[case("ALERTS{alertstate=\"firing\"} @ end()", &["ALERTS"])]
    #[case("histogram_quantile(0.99, sum by (le) (rate(a_bucket[5m]))) > 1 and on() b", &["a_bucket", "b"])]
    #[case("up{a=~\"x{2}|y{z}\"}", &["up"])]
    #[case("up[5m]", &["up"])]
    #[case("(up[5m:1m])", &["up"])]
    fn accepts(#[case] expr: &str, #[case] metrics: &[&str]) {
        let parsed = check(expr).unwrap();
        assert_eq!(parsed.metrics.iter().map(|m| m.shown.as_str()).collect::<Vec<_>>(), metrics);
        if let Some(query) = missing_query(&parsed.metrics) {
            check(&query).unwrap_or_else(|e| panic!("{query}: {e}"));
        }
    }

    #[rstest]
    #[case("", "is empty")]
    #[case("  \n", "is empty")]
    #[case("# only a comment", "is not valid PromQL")]
    #[case("up{", "unexpected end of input inside braces")]
    #[case("up ==", "something is missing or in the wrong place")]
    #[case("up == 0)", "unexpected right parenthesis")]
    #[case("{}", "at least one non-empty matcher")]
    #[case("nosuch(up)", "unknown function with name 'nosuch'")]
    #[case("1 == 1", "BOOL modifier")]
    #[case("up{a=\"x}", "unterminated quoted string")]
    #[case("up{a=~\"(\"}", "illegal regex")]
    #[case("1", "returns a scalar and must return a vector")]
    #[case("(1 + 2)", "returns a scalar")]
    #[case("scalar(up)", "vector(…)")]
    #[case("time()", "returns a scalar")]
    #[case("\"text\"", "returns a string")]
    #[case("up[99999999999999999999999999999]", "is not valid PromQL")]
    #[case("SELECT * FROM x", "is not valid PromQL")]
    fn refuses(#[case] expr: &str, #[case] want: &str) {
        let found = check(expr).unwrap_err().to_string();
        assert!(found.contains(want), "{found}");
    }

    #[rstest]
    #[case::parens("(".repeat(8192))]
    #[case::closed("(".repeat(4000) + "up" + &")".repeat(4000))]
    #[case::calls("abs(".repeat(2000) + "up" + &")".repeat(100))]
    #[case::after_backticks("count(a{b=`\\`}) > ".to_owned() + &"(".repeat(4000) + "up" + &")".repeat(4000))]
    #[case::minus("-".repeat(8190) + "up")]
    #[case::sums("a+".repeat(4000) + "a")]
    #[case::powers("a^".repeat(4000) + "a")]
    #[case::words("a or ".repeat(1600) + "a")]
    #[case::words_in_lines("a\nor\t".repeat(1600) + "a")]
    #[case::subqueries("((".repeat(700) + "a" + &")[5m:])[1h:]".repeat(700))]
    fn hostile_nesting_is_refused(#[case] expr: String) {
        assert!(matches!(check(&expr), Err(PromqlError::TooComplex { .. })));
    }

    /// A backtick that is not closed hides nothing: the parser sees it too.
    #[rstest]
    #[case("`\\``".to_owned() + &"(".repeat(4000) + "up" + &")".repeat(4000))]
    #[case("{a=`\\``}".to_owned() + &"-".repeat(4000) + "up")]
    fn an_open_backtick_is_refused(#[case] expr: String) {
        assert!(matches!(check(&expr), Err(PromqlError::Syntax(_))));
    }

    /// As Prometheus reads them: what is between backticks stands for itself.
    #[rstest]
    #[case(r"up{a=~`x\.y\d+`}", r#"up{a=~"x\\.y\\d+"}"#)]
    #[case("up{a=`say \"x\"`}", r#"up{a="say \"x\""}"#)]
    #[case("up{a='`',b=`'`}", "up{a='`',b=\"'\"}")]
    #[case("up # `", "up # `")]
    #[case("up{a=`two\nlines`}", r#"up{a="two\nlines"}"#)]
    fn backticks(#[case] expr: &str, #[case] want: &str) {
        assert_eq!(quoted(expr), want);
        check(expr).unwrap();
    }

    /// Just inside the limits, on the small stack of a runtime thread.
    #[rstest]
    #[case("(".repeat(100) + "up" + &")".repeat(100))]
    #[case("a+".repeat(400) + "a")]
    #[case("a^".repeat(400) + "a")]
    #[case("-".repeat(400) + "a")]
    #[case("-(".repeat(99) + "a^b^c" + &")".repeat(99))]
    fn the_limits_fit_a_small_stack(#[case] expr: String) {
        let small = std::thread::Builder::new().stack_size(1 << 20);
        small.spawn(move || check(&expr).map(|_| ()).unwrap()).unwrap().join().unwrap();
    }

    #[test]
    fn many_matchers_are_no_operators() {
        let matchers: Vec<String> = (0..600).map(|i| format!("l{i}!=\"\"")).collect();
        check(&format!("up{{{}}}", matchers.join(","))).unwrap();
    }

    #[test]
    fn asks_for_what_is_missing() {
        let parsed = check("rate(b[1h]) > 0 or a{x=\"1\"}").unwrap();
        assert_eq!(
            missing_query(&parsed.metrics).unwrap(),
            "label_replace(absent({__name__=\"a\"}),\"sts_plus_missing\",\"0\",\"\",\"\") or \
             label_replace(absent_over_time({__name__=\"b\"}[3600000ms]),\"sts_plus_missing\",\"1\",\"\",\"\")"
        );
    }

    proptest! {
        #[test]
        fn never_panics(expr in any::<String>()) {
            let _ = check(&expr);
        }

        #[test]
        fn never_panics_on_what_looks_like_promql(expr in r#"([a-z]{1,3}|[0-9]{1,4}[smhdwy]?|"[a-z]"|[-+*/^%(){}\[\],=!~:@# ]|offset|by|sum|rate|or){0,30}"#) {
            if let Some(query) = check(&expr).ok().and_then(|parsed| missing_query(&parsed.metrics)) {
                prop_assert!(check(&query).is_ok(), "{}", query);
            }
        }
    }
}
