//! What can be said about a check before Prometheus is asked: URL, variables, PromQL, contradictions. Pure; it reads no Secret.

use sts_plus_api::{Check, SuccessWhen};

use crate::endpoint::Endpoint;
use crate::policy::Policy;
use crate::problem::Problem;
use crate::promql::{self, MAX_METRICS};
use crate::question::{Question, questions};
use crate::template;
use crate::text::one_line;
use crate::tls;

/// Everything that is wrong with the queries of `check`, each problem once, in the order of the queries. Each names its field,
/// such as `spec.check.queries[1].expr`, and the cure.
#[must_use]
pub fn validate(check: &Check, policy: &Policy) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    for question in questions(check) {
        let found = [allowed(&question, policy).err(), expr_problem(&question), tls_problem(&question)];
        for problem in found.into_iter().flatten() {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    problems
}

/// The endpoint of `question`.
fn endpoint(question: &Question<'_>) -> Result<Endpoint, Problem> {
    let field = &question.url_field;
    let Some(url) = question.url else {
        return Err(Problem::url(format!("{field} is missing: give the URL of Prometheus there or in spec.check.url")));
    };
    Endpoint::parse(url).map_err(|e| Problem::url(format!("{field} {e}")))
}

/// The endpoint of `question`, if it may be asked as far as that can be said without resolving its host.
pub(crate) fn allowed(question: &Question<'_>, policy: &Policy) -> Result<Endpoint, Problem> {
    let endpoint = endpoint(question)?;
    match policy.refuses(&endpoint) {
        Some(why) => Err(Problem::url(format!("{} {why}", question.url_field))),
        None => Ok(endpoint),
    }
}

fn expr_problem(question: &Question<'_>) -> Option<Problem> {
    let field = &question.field;
    let problem = |e: String| Some(Problem::query(one_line(&format!("{field}.expr {e}"))));
    let filled = match template::fill(&question.query.expr, &template::dummies()) {
        Ok(filled) => filled,
        Err(e) => return problem(e.to_string()),
    };
    match promql::check(&filled) {
        Err(e) => problem(e.to_string()),
        Ok(parsed) if question.query.success_when == SuccessWhen::NoData && parsed.metrics.len() > MAX_METRICS => {
            problem(format!("names more than {MAX_METRICS} metrics: split it into several queries"))
        }
        Ok(_) => None,
    }
}

/// Contradictions in `tls`, and between `tls` and the URL.
pub(crate) fn tls_problem(question: &Question<'_>) -> Option<Problem> {
    let tls = question.query.tls.as_ref()?;
    let field = &question.field;
    if let Err(e) = tls::check(tls) {
        return Some(Problem::url(format!("{field}.tls.{e}")));
    }
    match endpoint(question) {
        Ok(endpoint) if !endpoint.is_https() => Some(Problem::url(format!(
            "{field}.tls is set, and {} is no https URL: write https:// there or remove tls",
            question.url_field
        ))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sts_plus_api::{Query, Reason, Tls};

    use super::*;
    use crate::policy::AddressPolicy;

    fn query(expr: &str, url: &str) -> Query {
        Query { expr: expr.into(), url: Some(url.into()), timeout_seconds: 5, ..Query::default() }
    }

    fn all(check: &Check) -> Vec<Problem> {
        validate(check, &Policy::from(AddressPolicy { allow_loopback: true }))
    }

    fn one(query: Query) -> Check {
        Check { query: Some(query), ..Check::default() }
    }

    #[rstest]
    #[case("up{}", "prom:9000/xx")]
    #[case("up{pod=\"${pod}\",z=~'${zone}',n=`${node}`} == ${ordinal}", "https://prom")]
    #[case(
        "kube_pod_info{namespace=\"${namespace}\",created_by_name=\"${statefulset}\",r!=\"${revision}\",p!=\"${previousRevision}\"}",
        "[::1]:9090"
    )]
    fn accepts(#[case] expr: &str, #[case] url: &str) {
        assert_eq!(all(&one(query(expr, url))), []);
    }

    // spec: pr§1, L029
    #[rstest]
    #[case(
        "up{",
        "prom",
        Reason::InvalidQuery,
        "spec.check.query.expr is not valid PromQL: unexpected end of input inside braces"
    )]
    #[case(
        "up{pod=\"${podd}\"}",
        "prom",
        Reason::InvalidQuery,
        "spec.check.query.expr uses the unknown variable ${podd}: known are pod, ordinal,"
    )]
    #[case("up == ${pod}", "prom", Reason::InvalidQuery, "spec.check.query.expr uses ${pod} outside of quotes")]
    #[case("lag_${zone} > 1", "prom", Reason::InvalidQuery, "spec.check.query.expr uses ${zone} outside of quotes")]
    #[case("up == ${node}", "prom", Reason::InvalidQuery, "spec.check.query.expr uses ${node} outside of quotes")]
    #[case("1", "prom", Reason::InvalidQuery, "spec.check.query.expr returns a scalar and must return a vector")]
    #[case("up", "ftp://prom", Reason::InvalidUrl, "spec.check.query.url has a scheme other than http and https")]
    #[case("up", "http://me:secret@prom", Reason::InvalidUrl, "spec.check.query.url contains credentials")]
    fn names_field_and_cure(#[case] expr: &str, #[case] url: &str, #[case] reason: Reason, #[case] start: &str) {
        let problems = all(&one(query(expr, url)));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].reason, reason);
        assert!(problems[0].message.starts_with(start), "{}", problems[0].message);
        assert!(!problems[0].message.contains("secret@"));
    }

    #[test]
    fn a_shared_problem_is_told_once_and_others_by_position() {
        let bad = |expr: &str| Query { expr: expr.into(), ..Query::default() };
        let check =
            Check { queries: vec![bad("up"), bad("up{"), bad("}")], url: Some("ftp://x".into()), ..Check::default() };
        let problems = all(&check);
        let starts: Vec<&str> = problems.iter().map(|p| p.message.split(' ').next().unwrap()).collect();
        assert_eq!(starts, ["spec.check.url", "spec.check.queries[1].expr", "spec.check.queries[2].expr"]);
    }

    /// What must not be asked is told before anything is rolled.
    #[rstest]
    #[case("http://169.254.169.254/latest", "spec.check.query.url names a host that is a link-local address")]
    #[case("127.0.0.1:9090", "spec.check.query.url names a host that is a loopback address")]
    #[case("http://prom:9091", "spec.check.query.url names http://prom:9091, and this operator asks only the origins")]
    fn what_must_not_be_asked(#[case] url: &str, #[case] start: &str) {
        let origins = vec![crate::endpoint::Origin::parse("prom:9090").unwrap()];
        let policy = Policy { origins, ..Policy::default() };
        let problems = validate(&one(query("up", url)), &policy);
        assert_eq!((problems.len(), problems[0].reason), (1, Reason::InvalidUrl));
        assert!(problems[0].message.starts_with(start), "{}", problems[0].message);
        assert_eq!(validate(&one(query("up", "http://prom:9090/x")), &policy), []);
    }

    #[test]
    fn a_missing_url_is_named() {
        let check = one(Query { url: None, ..query("up", "") });
        assert_eq!(
            all(&check)[0].message,
            "spec.check.query.url is missing: give the URL of Prometheus there or in spec.check.url"
        );
    }

    #[rstest]
    #[case(Tls { server_name: Some("not a name".into()), ..Tls::default() }, "https://prom", "spec.check.query.tls.serverName is no valid host name")]
    #[case(Tls { insecure_skip_verify: true, ca_secret_ref: Some("ca".into()), ..Tls::default() }, "https://prom", "spec.check.query.tls.insecureSkipVerify is true, and caSecretRef")]
    #[case(Tls::default(), "prom:9090", "spec.check.query.tls is set, and spec.check.query.url is no https URL")]
    fn contradictions_of_tls(#[case] tls: Tls, #[case] url: &str, #[case] start: &str) {
        let problems = all(&one(Query { tls: Some(tls), ..query("up", url) }));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].message.starts_with(start), "{problems:?}");
    }

    #[test]
    fn too_many_metrics_to_ask_for() {
        let names: Vec<String> = (0..=MAX_METRICS).map(|i| format!("m{i}")).collect();
        let expr = names.join(" or ");
        assert!(all(&one(query(&expr, "prom")))[0].message.contains("more than 64 metrics"));
        let asserted = Query { success_when: SuccessWhen::Data, ..query(&expr, "prom") };
        assert_eq!(all(&one(asserted)), []);
    }
}
