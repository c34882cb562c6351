//! Variables in expressions: `${pod}` and friends become values that cannot leave the place where they stand. It must never fill
//! in an empty string for something unknown, never let a value mean more than itself (a dot of a node name is no wildcard in `=~`),
//! and never touch anything else: PromQL braces, `$` without a brace, `$${`.

use std::collections::BTreeMap;

use crate::text::{Place, Scanner, cut, escape, escape_pattern};

/// The variables that an expression may use.
pub const VARIABLES: [&str; 8] =
    ["pod", "ordinal", "namespace", "statefulset", "revision", "previousRevision", "zone", "node"];

/// Why an expression cannot be filled in. Each is a configuration error: a sentence without the field name in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `${` without `}`.
    #[error("has a ${{ without a closing }}, at byte {at}: close it, or write $${{ for a literal ${{")]
    Unterminated {
        /// Offset of the `$` in bytes.
        at: usize,
    },
    /// A name that is none of [`VARIABLES`].
    #[error("uses the unknown variable ${{{name}}}: known are {known}; write $${{ for a literal ${{", known = VARIABLES.join(", "))]
    Unknown {
        /// The name as written, cut.
        name: String,
    },
    /// The variable has no value for this pod now.
    #[error("uses ${{{name}}}, which has no value {cure}")]
    NoValue {
        /// The name of the variable.
        name: String,
        /// When it has one.
        cure: &'static str,
    },
    /// The variable stands outside a string, and its value is not a plain word or number.
    #[error("uses ${{{name}}} outside of quotes, and its value {value} is not a plain word: put quotes around it")]
    NeedsQuotes {
        /// The name of the variable.
        name: String,
        /// Its value, cut.
        value: String,
    },
    /// The variable stands between backticks, where nothing can be escaped.
    #[error("uses ${{{name}}} between backticks, and its value cannot be written there: use double quotes")]
    Backticks {
        /// The name of the variable.
        name: String,
    },
}

/// `expr` with its variables replaced by `values`, each escaped for the place where it stands.
///
/// # Errors
/// A variable is unknown, not closed, has no value (missing or empty), or has one that cannot stand in its place.
pub fn fill(expr: &str, values: &BTreeMap<&'static str, String>) -> Result<String, TemplateError> {
    let mut out = String::with_capacity(expr.len());
    let mut scanner = Scanner::new();
    let mut rest = expr;
    while let Some(c) = rest.chars().next() {
        if scanner.escaped() {
            // Second half of an escape sequence: never the start of a variable.
        } else if let Some(after) = rest.strip_prefix("$${") {
            out.push_str("${");
            rest = after;
            continue;
        } else if let Some(after) = rest.strip_prefix("${") {
            let at = expr.len() - rest.len();
            let (name, tail) = after.split_once('}').ok_or(TemplateError::Unterminated { at })?;
            out.push_str(&value_at(&scanner, name, values)?);
            rest = tail;
            continue;
        }
        scanner.pass(c);
        out.push(c);
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    Ok(out)
}

fn value_at(scanner: &Scanner, name: &str, values: &BTreeMap<&'static str, String>) -> Result<String, TemplateError> {
    if !VARIABLES.contains(&name) {
        return Err(TemplateError::Unknown { name: cut(name, 40) });
    }
    let value = match values.get(name) {
        Some(value) if !value.is_empty() && scanner.in_pattern() => escape_pattern(value),
        Some(value) if !value.is_empty() => value.clone(),
        _ => return Err(TemplateError::NoValue { name: name.to_owned(), cure: cure(name) }),
    };
    match scanner.place() {
        Place::DoubleQuoted | Place::Comment => Ok(escape(&value, '"')),
        Place::SingleQuoted => Ok(escape(&value, '\'')),
        Place::Backticked if value.chars().any(|c| c == '`' || c.is_control()) => {
            Err(TemplateError::Backticks { name: name.to_owned() })
        }
        Place::Backticked => Ok(value),
        Place::Code if value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => Ok(value),
        Place::Code => Err(TemplateError::NeedsQuotes { name: name.to_owned(), value: cut(&value, 80) }),
    }
}

fn cure(name: &str) -> &'static str {
    match name {
        "zone" => "for this pod: its label topology.kubernetes.io/zone is missing; set it or leave the variable out",
        "node" => "for this pod: it has no node yet; leave the variable out",
        "previousRevision" => "now: there is no last good revision yet; leave the variable out",
        _ => "now; leave the variable out",
    }
}

/// A plausible value for every variable, for checks before anything is rolled: no plainer than the real ones may be, so that what
/// would be refused then is refused now.
#[must_use]
pub fn dummies() -> BTreeMap<&'static str, String> {
    let value = |name: &str| match name {
        "pod" => "web-0",
        "ordinal" => "0",
        "revision" => "web-5d4f8c7b9d",
        "previousRevision" => "web-6b7c9d8f54",
        "statefulset" => "web",
        "zone" => "eu-west-1a",
        "node" => "node-1.example",
        _ => "default",
    };
    VARIABLES.into_iter().map(|name| (name, value(name).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn values(pairs: &[(&'static str, &str)]) -> BTreeMap<&'static str, String> {
        pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    // spec: pr§2, L069
    #[rstest]
    #[case::plain(r#"up{job="x"}"#, r#"up{job="x"}"#)]
    #[case::pod(r#"up{pod="${pod}"}"#, r#"up{pod="web-1"}"#)]
    #[case::single(r"up{pod='${pod}'}", r"up{pod='web-1'}")]
    #[case::backtick(r"up{pod=`${pod}`}", r"up{pod=`web-1`}")]
    #[case::number("foo > ${ordinal}", "foo > 1")]
    #[case::part_of_a_name("foo_${ordinal} > 0", "foo_1 > 0")]
    #[case::twice(r#""${pod}${pod}""#, r#""web-1web-1""#)]
    #[case::literal(r#""$${pod}""#, r#""${pod}""#)]
    #[case::literal_and_dollar(r#""$$${pod}""#, r#""$${pod}""#)]
    #[case::regex_end(r#"up{a=~"x$"}"#, r#"up{a=~"x$"}"#)]
    #[case::double_braces(r#""{{ $x }}""#, r#""{{ $x }}""#)]
    #[case::regex_count(r#"up{a=~"x{2}"}"#, r#"up{a=~"x{2}"}"#)]
    #[case::comment("up # ${pod}", "up # web-1")]
    #[case::escapes_stay(r#""\"${pod}""#, r#""\"web-1""#)]
    #[case::escaped_dollar(r#""\${pod}""#, r#""\${pod}""#)]
    #[case::dollar_at_the_end("up$", "up$")]
    fn fills(#[case] expr: &str, #[case] want: &str) {
        assert_eq!(fill(expr, &values(&[("pod", "web-1"), ("ordinal", "1")])).as_deref(), Ok(want));
    }

    // spec: pr§2, L069
    #[rstest]
    #[case::unknown("${podd}", "unknown variable ${podd}")]
    #[case::no_name("${}", "unknown variable ${}")]
    #[case::spaces("${ pod }", "unknown variable ${ pod }")]
    #[case::unterminated(r#"up{a="${pod"}"#, "unknown variable")]
    #[case::unterminated_at_the_end("up ${pod", "without a closing }, at byte 3")]
    #[case::empty(r#"up{z="${zone}"}"#, "topology.kubernetes.io/zone is missing")]
    #[case::missing(r#"up{z="${previousRevision}"}"#, "no last good revision yet")]
    #[case::outside("up == ${pod}", "put quotes around it")]
    #[case::backticks("up{a=`${node}`}", "use double quotes")]
    #[case::in_a_comment("up # ${nope}", "unknown variable")]
    fn refuses(#[case] expr: &str, #[case] want: &str) {
        let found = fill(expr, &values(&[("pod", "web-1"), ("zone", ""), ("node", "a`b")])).unwrap_err().to_string();
        assert!(found.contains(want), "{found}");
    }

    // spec: pr§2, L069
    #[rstest]
    #[case(r#""${node}""#, "\"a\\\"b\\\\c'd`e\\nf\"")]
    #[case("'${node}'", "'a\"b\\\\c\\'d`e\\nf'")]
    fn escapes(#[case] expr: &str, #[case] want: &str) {
        assert_eq!(fill(expr, &values(&[("node", "a\"b\\c'd`e\nf")])).as_deref(), Ok(want));
    }

    /// In a pattern a value matches only itself, and what is around it stays a pattern.
    #[rstest]
    #[case(r#"up{n=~"${node}"}"#, r#"up{n=~"a\\.b\\|c"}"#)]
    #[case(r"up{n!~'x-${node}.*'}", r"up{n!~'x-a\\.b\\|c.*'}")]
    #[case("up{n=~`(${node}|y)`}", r"up{n=~`(a\.b\|c|y)`}")]
    #[case(
        r#"up{n =~ # why
        "${node}"}"#,
        r#"up{n =~ # why
        "a\\.b\\|c"}"#
    )]
    #[case(r#"up{n=~"x",m="${node}"}"#, r#"up{n=~"x",m="a.b|c"}"#)]
    #[case(r#"up{m="=~",n="${node}"}"#, r#"up{m="=~",n="a.b|c"}"#)]
    #[case(r#"up # n=~"${node}""#, r#"up # n=~"a.b|c""#)]
    fn patterns(#[case] expr: &str, #[case] want: &str) {
        assert_eq!(fill(expr, &values(&[("node", "a.b|c")])).as_deref(), Ok(want));
    }

    proptest! {
        #[test]
        fn a_value_in_a_pattern_matches_itself_only(value in r"[a-z0-9.|*+?(){}\[\]^$-]{1,12}") {
            let filled = fill(r#"up{n=~"${pod}"}"#, &values(&[("pod", &value)])).unwrap();
            prop_assert!(crate::promql::check(&filled).is_ok(), "{}", filled);
        }

        #[test]
        fn never_panics(expr in any::<String>(), value in any::<String>()) {
            let _ = fill(&expr, &values(&[("pod", &value)]));
        }

        #[test]
        fn never_panics_on_what_looks_like_a_template(expr in r#"[${}a-z"'`\\#\n ]{0,40}"#, value in any::<String>()) {
            let _ = fill(&expr, &values(&[("pod", &value)]));
        }

        // spec: pr§2, L069
        #[test]
        fn text_without_a_variable_is_untouched(expr in "[^$]{0,80}") {
            prop_assert_eq!(fill(&expr, &BTreeMap::new()), Ok(expr));
        }

        // spec: pr§2
        #[test]
        fn a_value_never_leaves_its_string(value in ".{1,30}", quote in prop_oneof![Just("\""), Just("'"), Just("`")]) {
            if let Ok(filled) = fill(&format!("{quote}${{pod}}{quote}"), &values(&[("pod", &value)])) {
                let mut scanner = Scanner::new();
                let inside = filled.char_indices().filter(|(i, _)| *i + 1 < filled.len());
                for (_, c) in inside {
                    scanner.pass(c);
                    prop_assert!(scanner.place() != Place::Code);
                }
                scanner.pass(quote.chars().next().unwrap());
                prop_assert_eq!(scanner.place(), Place::Code);
            }
        }
    }
}
