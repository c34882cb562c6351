//! A Prometheus that demands credentials, and Secrets as people write them.

use rstest::rstest;
use sts_plus_api::{Query, Reason};
use sts_plus_gates::Secrets;
use testcluster::{Access, AuthProxy};

use crate::{Data, Error, Fail, Pass, Problem, Want, ask, assertion, judge, query, rig};

/// Part of every credential; it must show nowhere.
pub const CANARY: &str = "canary-7f3a9c1d5e";

fn bearer() -> Access {
    Access::Bearer(CANARY.to_owned())
}

fn basic() -> Access {
    Access::Basic("prom".to_owned(), CANARY.to_owned())
}

fn secrets(keys: &[(&str, &str)]) -> Secrets {
    Secrets { credentials: Some(crate::secret("prom-secret", keys)), ..Secrets::default() }
}

async fn ask_behind(proxy: &AuthProxy, secrets: &Secrets, secret: Option<&str>) -> sts_plus_gates::Answer {
    let asked = Query { secret_ref: secret.map(str::to_owned), ..query("probe", &proxy.url()) };
    ask(assertion(asked), secrets).await
}

#[rstest]
#[case::token(bearer(), &[("token", "canary-7f3a9c1d5e")], Pass(Data), "passed")]
#[case::token_with_a_line_break(bearer(), &[("token", "canary-7f3a9c1d5e\n")], Pass(Data), "passed")]
#[case::token_of_windows(bearer(), &[("token", "canary-7f3a9c1d5e\r\n")], Pass(Data), "passed")]
#[case::wrong_token(bearer(), &[("token", "canary-7f3a9c1d5f")], Fail(Error), "HTTP 401): check the token, or username and password, in Secret prom-secret")]
#[case::token_where_a_pair_is_wanted(basic(), &[("token", "canary-7f3a9c1d5e")], Fail(Error), "HTTP 401")]
#[case::pair(basic(), &[("username", "prom"), ("password", "canary-7f3a9c1d5e")], Pass(Data), "passed")]
#[case::pair_with_line_breaks(basic(), &[("username", "prom\n"), ("password", "canary-7f3a9c1d5e\n")], Pass(Data), "passed")]
#[case::wrong_password(basic(), &[("username", "prom"), ("password", "canary-7f3a9c1d5f")], Fail(Error), "HTTP 401")]
#[case::pair_where_a_token_is_wanted(bearer(), &[("username", "prom"), ("password", "canary-7f3a9c1d5e")], Fail(Error), "HTTP 401")]
#[case::token_wins(bearer(), &[("token", "canary-7f3a9c1d5e"), ("username", "x"), ("password", "y")], Pass(Data), "passed")]
#[case::more_than_is_wanted(Access::Open, &[("token", "canary-7f3a9c1d5e")], Pass(Data), "passed")]
#[case::half_a_pair(basic(), &[("username", "prom")], Problem(Reason::InvalidCredentials), "spec.check.query.secretRef: Secret prom-secret has the key username but no key password")]
#[case::the_other_half(basic(), &[("password", "canary-7f3a9c1d5e")], Problem(Reason::InvalidCredentials), "no key username")]
#[case::empty_token(bearer(), &[("token", "")], Problem(Reason::InvalidCredentials), "key token of Secret prom-secret is empty")]
#[case::blank_token(bearer(), &[("token", " \n")], Problem(Reason::InvalidCredentials), "holds a space")]
#[case::empty_password(basic(), &[("username", "prom"), ("password", "\n")], Problem(Reason::InvalidCredentials), "key password of Secret prom-secret is empty")]
#[case::token_outside_of_ascii(bearer(), &[("token", "canary-7f3a9c1d5e-ü")], Problem(Reason::InvalidCredentials), "a character outside of ASCII")]
#[case::token_with_a_scheme(bearer(), &[("token", "Bearer canary-7f3a9c1d5e")], Problem(Reason::InvalidCredentials), "leave out Bearer")]
#[case::two_lines(bearer(), &[("token", "canary-7f3a9c1d5e\nX-Evil: 1")], Problem(Reason::InvalidCredentials), "cannot be sent")]
#[case::no_key(bearer(), &[("Token", "canary-7f3a9c1d5e")], Problem(Reason::InvalidCredentials), "has no key token")]
#[tokio::test]
async fn a_secret(#[case] access: Access, #[case] keys: &[(&str, &str)], #[case] want: Want, #[case] words: &str) {
    let proxy = AuthProxy::start(rig::main().await.url()).await.unwrap();
    proxy.demand(access);
    let answer = ask_behind(&proxy, &secrets(keys), Some("prom-secret")).await;
    judge(&answer, want, words);
    let asked = usize::from(answer.problem.is_none());
    assert_eq!(proxy.count(), asked, "nobody is asked with a Secret that cannot be used, and once otherwise");
}

#[rstest]
#[case::none_named(None, Fail(Error), "wants credentials (HTTP 401): name a Secret")]
#[case::missing(
    Some("prom-secret"),
    Problem(Reason::InvalidCredentials),
    "spec.check.query.secretRef names Secret prom-secret, which does not exist"
)]
#[tokio::test]
async fn no_secret(#[case] secret: Option<&str>, #[case] want: Want, #[case] words: &str) {
    let proxy = AuthProxy::start(rig::main().await.url()).await.unwrap();
    proxy.demand(bearer());
    judge(&ask_behind(&proxy, &Secrets::default(), secret).await, want, words);
}

/// 403 is told as 401 is, and what a proxy repeats of a token is hidden.
#[tokio::test]
async fn forbidden() {
    let proxy = AuthProxy::start(rig::main().await.url()).await.unwrap();
    proxy.answer_with(403, &format!("no access with Bearer {CANARY}"));
    let answer = ask_behind(&proxy, &secrets(&[("token", CANARY)]), Some("prom-secret")).await;
    judge(&answer, Fail(Error), "HTTP 403): check the token");
    assert!(answer.record.message.contains("no access with Bearer [hidden]"), "{}", answer.record.message);
}

/// The old token is refused and the new one taken, at once.
#[tokio::test]
async fn rotated() {
    let proxy = AuthProxy::start(rig::main().await.url()).await.unwrap();
    let (old, new) = (format!("{CANARY}-old"), format!("{CANARY}-new"));
    for (demanded, sent, want) in [(&old, &old, Pass(Data)), (&new, &old, Fail(Error)), (&new, &new, Pass(Data))] {
        proxy.demand(Access::Bearer(demanded.clone()));
        let answer = ask_behind(&proxy, &secrets(&[("token", sent.as_str())]), Some("prom-secret")).await;
        judge(&answer, want, "");
    }
}
