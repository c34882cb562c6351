//! What the real Prometheus answers by itself.

use rstest::rstest;
use sts_plus_api::{OnMissingMetric, Query, Reason, SuccessWhen};
use sts_plus_gates::Secrets;

use crate::{Data, Error, Fail, NoData, Pass, Problem, Unproven, Want, ask, assertion, judge, query, rig};

use SuccessWhen::{Data as Assert, NoData as Alert};

#[rstest]
// Types of results.
#[case::vector("probe", Alert, Fail(Data), "1 series returned by probe, first probe{")]
#[case::vector_asserted("probe", Assert, Pass(Data), "passed (successWhen Data)")]
#[case::empty_vector("probe == 0", Alert, Pass(NoData), "no series returned by probe == 0: passed")]
#[case::empty_vector_asserted("probe == 0", Assert, Fail(NoData), "not passed (successWhen Data)")]
#[case::matrix("probe[5s]", Alert, Fail(Data), "= 1: not passed")]
#[case::matrix_asserted("probe[5s]", Assert, Pass(Data), "1 series returned by probe[5s]")]
#[case::empty_matrix(r#"probe{job="none"}[5s]"#, Alert, Pass(NoData), "no series returned")]
#[case::empty_matrix_asserted(r#"probe{job="none"}[5s]"#, Assert, Fail(NoData), "not passed")]
#[case::subquery("(probe == 1)[5s:1s]", Assert, Pass(Data), "1 series")]
#[case::scalar("scalar(probe)", Assert, Problem(Reason::InvalidQuery), "returns a scalar and must return a vector")]
#[case::number("1", Alert, Problem(Reason::InvalidQuery), "returns a scalar")]
#[case::time("time() - 5", Assert, Problem(Reason::InvalidQuery), "returns a scalar")]
#[case::string(r#""text""#, Assert, Problem(Reason::InvalidQuery), "returns a string and must return a vector")]
#[case::scalar_as_vector("vector(scalar(probe)) == 1", Alert, Fail(Data), "first {} = 1")]
// Values.
#[case::nan("odd_number", Alert, Fail(Data), "= NaN")]
#[case::nan_asserted("odd_number", Assert, Pass(Data), "= NaN")]
#[case::nan_compared("odd_number > 0", Alert, Pass(NoData), "no series")]
#[case::infinity("probe / 0", Alert, Fail(Data), "= +Inf")]
#[case::minus_infinity("-probe / 0", Alert, Fail(Data), "= -Inf")]
#[case::huge("probe * 1e308", Assert, Pass(Data), "passed")]
#[case::native_histogram("latency", Alert, Fail(Data), "= histogram count=6 sum=7.5")]
#[case::native_histogram_asserted("latency", Assert, Pass(Data), "histogram count=6")]
#[case::native_histograms_over_time("latency[5s]", Assert, Pass(Data), "= histogram count=6 sum=7.5")]
#[case::quantile_of_it("histogram_quantile(0.5, latency) > 0", Assert, Pass(Data), "1 series")]
#[case::count_of_it("histogram_count(latency) == 6", Alert, Fail(Data), "= 6")]
// Labels and series.
#[case::no_labels("sum(probe)", Alert, Fail(Data), "first {} = 1")]
#[case::unicode_value(r#"city{name=~".*東京.*"}"#, Assert, Pass(Data), "Zürich 東京 🚀")]
#[case::unicode_name(r#"{"http.näme","status.code"="500"}"#, Alert, Fail(Data), "http.näme{")]
#[case::long_label("long", Alert, Fail(Data), "not passed (successWhen NoData)")]
#[case::stale("gone", Alert, Pass(NoData), "no series")]
#[case::stale_asserted("gone", Assert, Fail(NoData), "no series")]
#[case::stale_but_in_range("gone[10m]", Assert, Pass(Data), "1 series")]
#[case::external_label(r#"probe{region="north"}"#, Assert, Fail(NoData), "no series")]
#[case::recording_rule("job:probe:sum > 0", Alert, Fail(Data), "job=\\\"x\\\"")]
#[case::alert_firing(r#"ALERTS{alertname="Lagging",alertstate="firing"}"#, Alert, Fail(Data), "1 series")]
// The language.
#[case::at_end("probe @ end()", Assert, Pass(Data), "1 series")]
#[case::at_the_epoch("probe @ 0", Alert, Pass(NoData), "no series")]
#[case::offset_back("probe offset 1h", Alert, Pass(NoData), "no series")]
#[case::offset_ahead("probe offset -1h", Assert, Fail(NoData), "no series")]
#[case::max_of_subquery("max_over_time((probe > 0)[5s:1s]) > 0", Alert, Fail(Data), "= 1")]
#[case::absent_and_there("absent(probe)", Alert, Pass(NoData), "no series")]
#[case::absent_and_gone(r#"absent(probe{job="y"})"#, Alert, Fail(Data), "job=\\\"y\\\"")]
#[case::absent_for_a_while(r#"absent_over_time(probe{job="y"}[1s])"#, Assert, Pass(Data), "1 series")]
#[case::lines_and_comments("probe # the probe\n  == 0 # is down", Alert, Pass(NoData), "no series")]
#[case::joined("twin * on(n) group_left() twin > 3", Alert, Fail(Data), "= 4")]
// Notes, which say nothing about the answer, and warnings, after which it may be a part.
#[case::info_with_data("rate(probe[5s]) >= 0", Assert, Pass(Data), "1 series")]
#[case::info_without_data("rate(probe[5s]) > 1", Alert, Pass(NoData), "no series")]
#[case::warning_with_data("quantile(2, probe)", Alert, Fail(Error), "with a warning, so the answer may be partial")]
#[case::warning_with_data_asserted("quantile(2, probe)", Assert, Pass(Data), "= +Inf: passed")]
#[case::warning_without_data("quantile(2, probe) < 0", Alert, Fail(Error), "quantile value should be between 0 and 1")]
#[case::warning_without_data_asserted("quantile(2, probe) < 0", Assert, Fail(Error), "does not count")]
#[case::mixed_histograms("sum({__name__=~\"latency|probe\"})", Alert, Fail(Error), "does not count")]
// What it refuses.
#[case::many_to_many("twin * on() twin", Alert, Fail(Error), "execution: found duplicate series")]
#[case::many_to_many_asserted("twin * on() twin", Assert, Fail(Error), "HTTP 422")]
#[case::not_enabled("mad_over_time(probe[5s]) > 0", Alert, Fail(Error), "HTTP 400, bad_data")]
#[case::bad_regex(r#"probe{job=~"("}"#, Alert, Problem(Reason::InvalidQuery), "is not valid PromQL")]
#[case::bad_syntax("probe ==", Alert, Problem(Reason::InvalidQuery), "spec.check.query.expr is not valid PromQL")]
#[case::unknown_function("nosuch(probe)", Assert, Problem(Reason::InvalidQuery), "nosuch")]
// Variables, whatever their values are.
// spec: pr§3, L027, L060
#[case::in_double_quotes(r#"oddly{v="${node}"}"#, Assert, Pass(Data), "1 series")]
#[case::in_single_quotes("oddly{v='${node}'}", Assert, Pass(Data), "1 series")]
#[case::in_a_selector_of_names("{__name__='oddly',v=\"${zone}\"}", Assert, Pass(Data), "= 2")]
#[case::between_backticks("oddly{v=`${zone}`}", Assert, Pass(Data), "= 2")]
#[case::in_a_pattern(r#"oddly{v=~"${zone}"}"#, Assert, Pass(Data), "1 series returned by oddly{v=~\"eu\\\\.west\"}")]
#[case::in_a_pattern_in_single_quotes("oddly{v=~'${zone}|none'}", Assert, Pass(Data), "1 series")]
#[case::in_a_pattern_between_backticks("oddly{v=~`${zone}`}", Assert, Pass(Data), "1 series")]
#[case::odd_in_a_pattern(r#"oddly{v=~"${node}"}"#, Assert, Pass(Data), "1 series")]
#[case::not_in_a_pattern("count(oddly{v!~\"${zone}\"}) == 2", Assert, Pass(Data), "1 series")]
#[case::line_break_between_backticks("oddly{v=`${node}`}", Assert, Problem(Reason::InvalidQuery), "use double quotes")]
#[case::unknown(r#"probe{job="${nope}"}"#, Alert, Problem(Reason::InvalidQuery), "uses the unknown variable ${nope}")]
#[case::without_a_value(
    r#"probe{job="${previousRevision}"}"#,
    Alert,
    Problem(Reason::InvalidQuery),
    "which has no value now"
)]
#[case::literal(r#"probe{job="$${pod}"}"#, Alert, Pass(NoData), "no series returned by probe{job=\"${pod}\"}")]
#[case::injection(r#"oddly{v="${node}"} == 5 or probe{job="${node}"}"#, Alert, Pass(NoData), "no series")]
#[case::in_a_label_function(r#"label_replace(probe, "n", "${node}", "", "")"#, Assert, Pass(Data), "1 series")]
#[tokio::test]
async fn an_answer(#[case] expr: &str, #[case] style: SuccessWhen, #[case] want: Want, #[case] words: &str) {
    let asked = Query { success_when: style, ..query(expr, rig::main().await.url()) };
    let answer = ask(asked, &Secrets::default()).await;
    // Labels are shown as PromQL writes them.
    judge(&answer, want, &words.replace("\\\"", "\""));
}

#[rstest]
#[case::series("sum by (i) (many)", Alert, Fail(Data), "5000 series returned")]
#[case::over_4_mib("many", Alert, Fail(Error), "larger than 4 MiB: aggregate in the expression")]
#[case::over_4_mib_asserted("many", Assert, Fail(Error), "larger than 4 MiB")]
#[case::aggregated("count(many) == 5000", Assert, Pass(Data), "= 5000")]
#[case::none_of_many("many > 1", Alert, Pass(NoData), "no series")]
#[tokio::test]
async fn a_large_answer(#[case] expr: &str, #[case] style: SuccessWhen, #[case] want: Want, #[case] words: &str) {
    let asked = Query { success_when: style, ..query(expr, rig::heavy().await.url()) };
    judge(&ask(asked, &Secrets::default()).await, want, words);
}

/// Limits of Prometheus itself.
#[rstest]
#[case::too_slow(0, "max_over_time(vector(1)[100d:1s]) > 1", "HTTP 503, timeout: query timed out")]
#[case::too_many_samples(
    1,
    "max_over_time(vector(1)[100d:1s]) > 0",
    "HTTP 422, execution: query processing would load too many samples"
)]
#[tokio::test]
async fn a_limit(#[case] server: usize, #[case] expr: &str, #[case] words: &str) {
    let url = rig::limited().await[server].url();
    for success_when in [Alert, Assert] {
        judge(&ask(Query { success_when, ..query(expr, url) }, &Secrets::default()).await, Fail(Error), words);
    }
}

/// An empty answer to a question about something that does not exist at all.
// spec: pr§1, L062
#[rstest]
#[case::typo("prob > 1", Unproven, "Prometheus has no metric prob: not passed")]
#[case::exists("probe > 1", NoData, "passed")]
#[case::exists_with_other_labels(r#"probe{job="none"}"#, NoData, "passed")]
#[case::one_of_two("probe > 1 or prob > 1", Unproven, "no metric prob:")]
#[case::by_regex(r#"{__name__=~"prob|robe"} > 1"#, Unproven, "no metric {__name__=~")]
#[case::by_regex_and_there(r#"{__name__=~"prob.*"} > 1"#, NoData, "passed")]
#[case::by_labels_only(r#"{job="none"}"#, Unproven, "no metric {job=\"none\"}")]
#[case::unicode(r#"{"http.näme"} > 1"#, NoData, "passed")]
#[case::unicode_typo(r#"{"http.nome"} > 1"#, Unproven, "no metric http.nome")]
#[case::stale("gone", Unproven, "no metric gone")]
#[case::stale_but_in_a_long_range("count_over_time(gone[10m]) > 1e9", NoData, "passed")]
#[case::native_histogram("histogram_count(latency) > 9", NoData, "passed")]
#[case::recorded("job:probe:sum > 1", NoData, "passed")]
#[case::no_metric_at_all("vector(1) == 0", NoData, "passed")]
#[case::absent("absent(probe)", NoData, "passed")]
#[case::range(r#"probe{job="none"}[5s]"#, NoData, "passed")]
#[tokio::test]
async fn a_missing_metric(#[case] expr: &str, #[case] verdict: sts_plus_api::Verdict, #[case] words: &str) {
    let url = rig::main().await.url();
    for policy in [OnMissingMetric::Hold, OnMissingMetric::Pass] {
        let answer = ask(Query { on_missing_metric: policy, ..query(expr, url) }, &Secrets::default()).await;
        let is_missing = verdict == Unproven;
        match policy {
            OnMissingMetric::Hold if is_missing => judge(&answer, Fail(Unproven), words),
            OnMissingMetric::Hold => judge(&answer, Pass(NoData), words),
            OnMissingMetric::Pass => judge(&answer, Pass(NoData), "passed"),
        }
        let warned = answer.warnings.iter().any(|(reason, _)| *reason == Reason::PassedOnMissingMetric);
        assert_eq!(warned, is_missing && policy == OnMissingMetric::Pass, "{:?}", answer.warnings);
    }
}

/// What is shown of a large answer is bounded, and the count is the whole one.
#[tokio::test]
async fn what_is_shown_is_bounded() {
    let many = ask(query("sum by (i) (many)", rig::heavy().await.url()), &Secrets::default()).await.record;
    assert_eq!((many.series_count as usize, many.series.len()), (rig::MANY, 3));
    let long = ask(assertion(query("long", rig::main().await.url())), &Secrets::default()).await.record;
    assert!(long.series[0].labels.len() <= 256 && long.series[0].labels.ends_with('…'), "{long:?}");
}
