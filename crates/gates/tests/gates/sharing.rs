//! Many who ask the same, and the real Prometheus behind a proxy that counts.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use rstest::rstest;
use sts_plus_api::{OnMissingMetric, Query, Tls};
use sts_plus_gates::{AddressPolicy, Answer, Freshness, Prober, Secrets};
use testcluster::{Access, AuthProxy, Authority, TlsProxy};
use tokio::time::MissedTickBehavior;

use crate::server::{Act, ONE, Server, json, vector};
use crate::{Data, Error, Fail, NoData, Pass, ask_by, assertion, judge, prober, query, rig, secret};

const LONG: Duration = Duration::from_mins(1);

fn loopback() -> Arc<Prober> {
    Arc::new(prober(AddressPolicy { allow_loopback: true }.into()))
}

/// Anything of the last minute will do.
fn lately() -> Freshness {
    Freshness::of(LONG, LONG)
}

async fn counting() -> AuthProxy {
    AuthProxy::start(rig::main().await.url()).await.unwrap()
}

/// The time at which Prometheus evaluated the expression tells one answer from another.
fn now(url: &str) -> Query {
    assertion(query("vector(time())", url))
}

/// That time, since the epoch.
fn value(answer: &Answer) -> Duration {
    assert!(answer.record.passed, "{}", answer.record.message);
    Duration::from_secs_f64(answer.record.series[0].value.parse().unwrap())
}

#[tokio::test]
async fn twenty_at_once_are_one_request() {
    let (proxy, prober) = (counting().await, loopback());
    let url = proxy.url();
    let secrets = Secrets::default();
    let answers = join_all((0..20).map(|_| ask_by(&prober, now(&url), &secrets, lately()))).await;
    assert_eq!(proxy.count(), 1);
    assert!(answers.iter().all(|answer| value(answer) == value(&answers[0])));
}

/// What is measured is what Prometheus was asked, and not what somebody was told of it.
#[tokio::test]
async fn a_request_that_many_share_is_measured_once_and_one_that_fails_too() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ears = Arc::clone(&heard);
    let hear = move |origin: &str, took| ears.lock().unwrap().push((origin.to_owned(), took));
    let prober = Arc::new(prober(AddressPolicy { allow_loopback: true }.into()).heard_by(hear));
    let server = Server::start(|n, _| if n == 0 { Act::Send(json(&vector(ONE))) } else { Act::Reset }).await;
    let secrets = Secrets::default();
    join_all((0..5).map(|_| ask_by(&prober, assertion(query("up", &server.url())), &secrets, lately()))).await;
    ask_by(&prober, assertion(query("down", &server.url())), &secrets, lately()).await;
    let origin = format!("http://{}", server.url());
    let heard = heard.lock().unwrap();
    assert_eq!(heard.iter().map(|(origin, _)| origin.as_str()).collect::<Vec<_>>(), [&origin; 2]);
    assert!(heard.iter().all(|(_, took)| *took > Duration::ZERO), "{heard:?}");
}

/// Each asks in its own rhythm; together they ask once in a period, and nobody gets the same answer in two tries.
#[tokio::test]
async fn twenty_in_their_own_rhythm_are_one_request_in_a_period() {
    const PERIOD: Duration = Duration::from_secs(1);
    const PERIODS: u32 = 6;
    let (proxy, prober) = (counting().await, loopback());
    let (url, start) = (proxy.url(), Instant::now());
    let rollouts = (0..20).map(|n| {
        let (prober, url) = (Arc::clone(&prober), url.clone());
        tokio::spawn(async move {
            tokio::time::sleep(PERIOD * n / 20).await;
            let (mut seen, mut ticks) = (Vec::new(), tokio::time::interval(PERIOD));
            // As tries are made: a period after the last one, however late that was.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for _ in 0..PERIODS {
                ticks.tick().await;
                seen.push(value(&ask_by(&prober, now(&url), &Secrets::default(), Freshness::of(LONG, PERIOD)).await));
            }
            seen
        })
    });
    for seen in join_all(rollouts).await {
        let seen = seen.unwrap();
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "the same answer in two tries: {seen:?}");
    }
    // An answer is used for nine tenths of a period; alone they would be 120.
    let most = start.elapsed().div_duration_f64(PERIOD * 9 / 10).ceil() + 1.0;
    assert!(
        f64::from(u32::try_from(proxy.count()).unwrap()) <= most,
        "{} requests in {:?}",
        proxy.count(),
        start.elapsed()
    );
    assert!(proxy.count() >= PERIODS as usize);
}

/// An answer from before the pods were there says nothing about them.
#[tokio::test]
async fn nothing_from_before_the_pods_were_there() {
    let (proxy, prober, secrets) = (counting().await, loopback(), Secrets::default());
    let before = value(&ask_by(&prober, now(&proxy.url()), &secrets, lately()).await);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let rolled = Freshness::of(Duration::from_millis(20), LONG);
    let after = value(&ask_by(&prober, now(&proxy.url()), &secrets, rolled).await);
    assert!(after > before);
    assert_eq!(proxy.count(), 2);
    // The newer answer is good for both.
    assert_eq!(value(&ask_by(&prober, now(&proxy.url()), &secrets, lately()).await), after);
    assert_eq!(proxy.count(), 2);
}

fn token(token: &str) -> Secrets {
    Secrets { credentials: Some(secret("prom-secret", &[("token", token)])), ..Secrets::default() }
}

/// Whoever has no right to an answer does not get it from somebody who has, and a refusal is nobody else's.
#[tokio::test]
async fn credentials_are_never_shared() {
    let (proxy, prober) = (counting().await, loopback());
    proxy.demand(Access::Bearer("good-token".to_owned()));
    let asked = |secret: bool| Query { secret_ref: secret.then(|| "prom-secret".to_owned()), ..now(&proxy.url()) };
    let tries = [
        (true, token("bad-token"), Fail(Error)),
        (true, token("good-token"), Pass(Data)),
        (true, token("bad-token"), Fail(Error)),
        (true, token("good-token\n"), Pass(Data)),
        (false, Secrets::default(), Fail(Error)),
        (true, token("good-tokem"), Fail(Error)),
    ];
    for (named, secrets, want) in &tries {
        judge(&ask_by(&prober, asked(*named), secrets, lately()).await, *want, "");
    }
    // The good one twice is one request, and so is the bad one.
    assert_eq!(proxy.count(), 4);
    assert_eq!(proxy.seen().iter().filter(|request| request.status == 200).count(), 1);
    let shown = format!("{prober:?}");
    assert!(!shown.contains("good-token") && !shown.contains("bad-token"), "{shown}");
}

#[rstest]
#[case::query(|asked: Query| Query { expr: "vector(time()) > 0".into(), ..asked })]
#[case::timeout(|asked: Query| Query { timeout_seconds: 19, ..asked })]
#[case::path(|asked: Query| Query { url: asked.url.map(|url| url.replace("127.0.0.1", "localhost")), ..asked })]
#[tokio::test]
async fn what_differs_is_asked_for_itself(#[case] change: fn(Query) -> Query) {
    let (proxy, prober, secrets) = (counting().await, loopback(), Secrets::default());
    for asked in [now(&proxy.url()), change(now(&proxy.url())), now(&proxy.url()), change(now(&proxy.url()))] {
        judge(&ask_by(&prober, asked, &secrets, lately()).await, Pass(Data), "");
    }
    assert_eq!(proxy.count(), 2);
}

/// Somebody who trusts another authority, or has another certificate, gets no answer that he could not have had himself.
#[tokio::test]
async fn tls_is_never_shared() {
    let (own, foreign) = (Authority::new().unwrap(), Authority::new().unwrap());
    let proxy = TlsProxy::start(rig::main().await.url(), &own.sign("localhost").unwrap(), Some(&own)).await.unwrap();
    let prober = loopback();
    let (me, stranger) = (own.sign("me").unwrap(), foreign.sign("me").unwrap());
    let tls = Tls { ca_secret_ref: Some("ca".into()), cert_secret_ref: Some("me".into()), ..Tls::default() };
    let named = Tls { server_name: Some("other.example".into()), ..tls.clone() };
    for (tls, authority, client, want) in [
        (&tls, &own, &me, Pass(Data)),
        (&tls, &foreign, &me, Fail(Error)),
        (&tls, &own, &stranger, Fail(Error)),
        (&named, &own, &me, Fail(Error)),
        (&tls, &own, &me, Pass(Data)),
    ] {
        let secrets = Secrets {
            ca: Some(secret("ca", &[("ca.crt", authority.pem())])),
            client_certificate: Some(secret("me", &[("tls.crt", &client.certificate), ("tls.key", &client.key)])),
            ..Secrets::default()
        };
        let asked = Query { tls: Some(tls.clone()), ..now(&format!("https://localhost:{}", proxy.port())) };
        judge(&ask_by(&prober, asked, &secrets, lately()).await, want, "");
    }
}

/// The second question of a check, whether the metric exists, is shared as the first is.
#[tokio::test]
async fn the_question_which_metrics_exist_is_shared_too() {
    let (proxy, prober, secrets) = (counting().await, loopback(), Secrets::default());
    for _ in 0..3 {
        let asked = Query { on_missing_metric: OnMissingMetric::Hold, ..query("probe > 1", &proxy.url()) };
        judge(&ask_by(&prober, asked, &secrets, lately()).await, Pass(NoData), "");
    }
    assert_eq!(proxy.count(), 2);
}

/// He who asked is gone (his rollout has changed); who waits for the same gets his answer all the same.
#[tokio::test]
async fn whoever_asked_may_go_away() {
    let server = Server::start(|n, _| if n == 0 { Act::Silence } else { Act::Send(json(&vector(ONE))) }).await;
    let (prober, url) = (loopback(), server.url());
    let asking = |prober: Arc<Prober>, url: String| async move {
        ask_by(&prober, assertion(query("up", &url)), &Secrets::default(), lately()).await
    };
    let first = tokio::spawn(asking(Arc::clone(&prober), url.clone()));
    while server.received().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = tokio::spawn(asking(prober, url));
    tokio::time::sleep(Duration::from_millis(50)).await;
    first.abort();
    judge(&second.await.unwrap(), Pass(Data), "1 series");
    assert_eq!(server.received().len(), 2);
}

/// Of an answer only what is needed is kept, and not even that if it is large.
#[rstest]
#[case::small(ONE.to_owned(), 1)]
#[case::many_series(vec![ONE; 10_000].join(","), 1)]
#[case::large_labels(ONE.replace('x', &"x".repeat(100_000)), 2)]
#[tokio::test]
async fn only_small_answers_are_kept(#[case] series: String, #[case] requests: usize) {
    let server = Server::sending(json(&vector(&series))).await;
    let prober = loopback();
    for _ in 0..2 {
        let asked = assertion(query("up", &server.url()));
        judge(&ask_by(&prober, asked, &Secrets::default(), lately()).await, Pass(Data), "");
    }
    assert_eq!(server.received().len(), requests);
}
