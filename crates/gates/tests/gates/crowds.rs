//! A thousand rollouts at the same time: how often Prometheus is asked, and who waits for whom. The server is one of the test, since it
//! has to count, and to be dead when it is told to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use sts_plus_api::Query;
use sts_plus_gates::{Answer, Freshness, Prober, Secrets};

use crate::server::{Act, ONE, Server, http, json, vector};
use crate::{Data, Error, Fail, Pass, ask_by, assertion, judge, loopback, query, secret};

const MANY: usize = 1000;
const LONG: Duration = Duration::from_mins(1);
/// Requests to one origin that may be under way.
const PLACES: usize = 16;

fn token(token: &str) -> Secrets {
    Secrets { credentials: Some(secret("prom-secret", &[("token", token)])), ..Secrets::default() }
}

/// `query` with a Secret, and with time enough for a busy machine.
fn asked(server: &Server) -> Query {
    let query = assertion(query("up", &server.url()));
    Query { secret_ref: Some("prom-secret".into()), timeout_seconds: 60, ..query }
}

/// One answer to many, of whom each could have asked since `start`.
async fn many(prober: &Prober, server: &Server, tokens: [&str; 2], start: Instant) -> Vec<Answer> {
    let secrets = tokens.map(token);
    let each = (0..MANY).map(|n| ask_by(prober, asked(server), &secrets[n % 2], Freshness::of(start.elapsed(), LONG)));
    join_all(each).await
}

#[track_caller]
fn all_passed(answers: &[Answer]) {
    for answer in answers {
        judge(answer, Pass(Data), "1 series");
    }
}

/// Whoever has made a try wants a newer answer for the next one, a period later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_equal_queries_are_one_request_in_a_period() {
    let server = Server::sending(json(&vector(ONE))).await;
    let prober = loopback();
    for period in 1..=3 {
        all_passed(&many(&prober, &server, ["same", "same\n"], Instant::now()).await);
        assert_eq!(server.received().len(), period);
    }
}

/// The Secrets have the same name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_with_two_credentials_are_two_requests() {
    let server = Server::start(|_, request| {
        let is_known = request.headers("authorization") == ["Bearer right"];
        Act::Send(if is_known { json(&vector(ONE)) } else { http(401, &[], "") })
    })
    .await;
    let answers = many(&loopback(), &server, ["right", "wrong"], Instant::now()).await;
    for (n, answer) in answers.iter().enumerate() {
        judge(answer, if n % 2 == 0 { Pass(Data) } else { Fail(Error) }, "");
    }
    assert_eq!(server.received().len(), 2);
}

/// A request that was sent before the pods were there says nothing about them, even if its answer is still awaited; and when the newer
/// answer has come, it is good for whoever would have taken the older one.
#[tokio::test]
async fn whoever_needs_a_newer_answer_does_not_get_the_one_under_way() {
    let server = Server::start(|n, _| if n == 0 { Act::Silence } else { Act::Send(json(&vector(ONE))) }).await;
    let (prober, start) = (Arc::new(loopback()), Instant::now());
    let (early, query) = (Arc::clone(&prober), asked(&server));
    let waiting =
        tokio::spawn(async move { ask_by(&early, query, &token("x"), Freshness::of(Duration::ZERO, LONG)).await });
    while server.received().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    all_passed(&many(&prober, &server, ["x", "x"], Instant::now()).await);
    assert_eq!(server.received().len(), 2);
    judge(&ask_by(&prober, asked(&server), &token("x"), Freshness::of(start.elapsed(), LONG)).await, Pass(Data), "");
    assert_eq!(server.received().len(), 2);
    waiting.abort();
}

/// Many queries, none like another, to a Prometheus that says nothing: only so many of them are under way, whoever asks another
/// Prometheus has his answer meanwhile, and those who never got a place are told why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_dead_prometheus_keeps_nobody_else_waiting() {
    let (dead, alive) = (Server::start(|_, _| Act::Silence).await, Server::sending(json(&vector(ONE))).await);
    let prober = Arc::new(loopback());
    let (url, asking) = (dead.url(), Arc::clone(&prober));
    let waiting = tokio::spawn(async move {
        join_all((0..20 * PLACES).map(|n| {
            let asked = Query { timeout_seconds: 10, ..query(&format!("up == {n}"), &url) };
            let asking = Arc::clone(&asking);
            async move { ask_by(&asking, asked, &Secrets::default(), Freshness::now()).await }
        }))
        .await
    });
    while dead.received().len() < PLACES {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for n in 0..20 {
        let asked = assertion(query(&format!("up > {n}"), &alive.url()));
        judge(&ask_by(&prober, asked, &Secrets::default(), Freshness::now()).await, Pass(Data), "");
    }
    assert!(!waiting.is_finished(), "the dead one was waited for");
    assert_eq!(dead.received().len(), PLACES);
    let answers = waiting.await.unwrap();
    for answer in &answers {
        judge(answer, Fail(Error), "(timeoutSeconds");
    }
    let is_busy = |answer: &&Answer| answer.record.message.contains("too many queries under way for it, and none of");
    let (busy, asked) = (answers.iter().filter(is_busy).count(), dead.received().len());
    assert_eq!(busy, answers.len() - asked);
    assert!(asked < answers.len() / 2, "{asked}");
}

/// That there was no place is no answer of Prometheus: it is nobody else's, and not kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_was_not_found_is_looked_for_again() {
    let server =
        Server::start(
            |_, request| {
                if request.query().contains("slow") { Act::Silence } else { Act::Send(json(&vector(ONE))) }
            },
        )
        .await;
    let prober = Arc::new(loopback());
    let slow = (0..PLACES).map(|n| {
        let (prober, asked) = (Arc::clone(&prober), query(&format!("slow > {n}"), &server.url()));
        tokio::spawn(async move {
            ask_by(&prober, Query { timeout_seconds: 60, ..asked }, &Secrets::default(), Freshness::now()).await
        })
    });
    let slow: Vec<_> = slow.collect();
    while server.received().len() < PLACES {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let same = |timeout_seconds| Query { timeout_seconds, ..assertion(query("up", &server.url())) };
    let nothing = Secrets::default();
    let ask = |asked| ask_by(&prober, asked, &nothing, Freshness::of(LONG, LONG));
    judge(&ask(same(1)).await, Fail(Error), "none of the 16 places became free in time (timeoutSeconds: 1)");
    for task in slow {
        task.abort();
    }
    judge(&ask(same(1)).await, Pass(Data), "1 series");
}

/// Large answers are read a few at a time, since each may take 4 MiB; small ones are not kept waiting by them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_answers_wait_for_each_other() {
    let large = vector(&vec![ONE; 2000].join(","));
    assert!(large.len() > 64 << 10);
    let server = Server::start(move |_, request| match request.query().as_str() {
        "slow" | "slower" => {
            Act::Drip(http(200, &[("Content-Type", "application/json")], &large)[..large.len()].to_vec())
        }
        "small" => Act::Send(json(&vector(ONE))),
        _ => Act::Send(json(&large)),
    })
    .await;
    let prober = Arc::new(loopback());
    let asked = |expr: &str, timeout_seconds| Query { timeout_seconds, ..assertion(query(expr, &server.url())) };
    let slow: Vec<_> = ["slow", "slower"]
        .map(|expr| {
            let (prober, asked) = (Arc::clone(&prober), asked(expr, 60));
            tokio::spawn(async move { ask_by(&prober, asked, &Secrets::default(), Freshness::now()).await })
        })
        .into();
    let nothing = Secrets::default();
    loop {
        let answer = ask_by(&prober, asked("large", 1), &nothing, Freshness::now()).await;
        if !answer.record.passed {
            judge(
                &answer,
                Fail(Error),
                "too many queries with large answers under way, and this one is larger than 64 KiB",
            );
            break;
        }
    }
    judge(&ask_by(&prober, asked("small", 60), &nothing, Freshness::now()).await, Pass(Data), "1 series");
    for task in slow {
        task.abort();
    }
    judge(&ask_by(&prober, asked("large", 60), &nothing, Freshness::now()).await, Pass(Data), "2000 series");
}
