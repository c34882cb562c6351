//! What others ask this process over HTTP: whether it is alive, whether it is ready, and its numbers. Nothing here can change
//! anything, and nobody who is slow or says nothing can keep others from it for long.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::metrics::{CONTENT_TYPE, Exposed, Zeros};
use crate::pulse::Pulse;
use crate::watch::Caches;

/// How long and how many. A connection is there for one request.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Until a request has said what it wants.
    headers: Duration,
    /// Until its answer was read.
    connection: Duration,
    /// At the same time; others wait.
    connections: usize,
}

const LIMITS: Limits = Limits { headers: Duration::from_secs(5), connection: Duration::from_secs(30), connections: 64 };
/// The least that hyper takes. Nobody who asks us has more to say.
const MOST_HEADER_BYTES: usize = 8 << 10;
/// After a failure to take a connection: there are too many open files, most likely.
const REST: Duration = Duration::from_millis(100);

/// What the answers are made of.
pub struct Web {
    pulse: Arc<Pulse>,
    exposed: Exposed,
    caches: Vec<Arc<Caches>>,
    stopping: AtomicBool,
}

impl Web {
    /// Of the process with these parts.
    #[must_use]
    pub fn new(pulse: Arc<Pulse>, exposed: Exposed, caches: Vec<Arc<Caches>>) -> Self {
        Self { pulse, exposed, caches, stopping: AtomicBool::new(false) }
    }

    /// Not ready any more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// Listens, so that an address that cannot be had is told at the start.
///
/// # Errors
///
/// If the address cannot be had.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        // The port may have been left to the system.
        tracing::info!("health and metrics are at http://{}", listener.local_addr()?);
        Ok::<_, std::io::Error>(listener)
    };
    bound.await.map_err(|error| anyhow::anyhow!("--web-address {address}: {error}"))
}

/// Answers until it is dropped.
pub async fn serve(listener: TcpListener, web: Arc<Web>) {
    serve_within(LIMITS, listener, router(web)).await;
}

async fn serve_within(limits: Limits, listener: TcpListener, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.headers).keep_alive(false).max_buf_size(MOST_HEADER_BYTES);
    let service = TowerToHyperService::new(router);
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = http.serve_connection(TokioIo::new(stream), service.clone());
                connections.spawn(async move {
                    let outcome = tokio::time::timeout(limits.connection, connection).await;
                    tracing::trace!(?outcome, "a connection has ended");
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("the web server cannot take a connection: {error}");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

fn router(web: Arc<Web>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(web)
}

async fn livez(State(web): State<Arc<Web>>) -> (StatusCode, String) {
    let objects = web.caches.iter().any(|caches| !caches.rollouts.is_empty());
    match web.pulse.check(objects) {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(text) => {
            tracing::error!("not alive: {text}");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{text}\n"))
        }
    }
}

async fn readyz(State(web): State<Arc<Web>>) -> (StatusCode, &'static str) {
    if web.stopping.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "it is being stopped\n")
    } else if web.caches.iter().all(|caches| caches.are_ready()) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not everything was listed yet\n")
    }
}

/// What may be asked for beside the numbers.
#[derive(Debug, Deserialize)]
struct Wanted {
    #[serde(default)]
    zeros: Zeros,
}

async fn metrics(State(web): State<Arc<Web>>, Query(wanted): Query<Wanted>) -> impl IntoResponse {
    // With thousands of objects it takes long enough to be in the way of others.
    let text = tokio::task::spawn_blocking(move || web.exposed.text(wanted.zeros)).await;
    let text = text.map_err(|error| error.to_string()).and_then(|text| text.map_err(|error| error.to_string()));
    match text {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, CONTENT_TYPE)], text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], error),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use axum::body::{Body as Answer, Bytes};
    use http::{Request, Response};
    use kube::client::{Body, ClientBuilder};
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tower::BoxError;

    use super::*;
    use crate::hold::Hold;
    use crate::leader::Guard;
    use crate::watch::{self, Queue, Queues, Scope};
    use crate::wire::WireLayer;

    /// How an API server treats lists and watches.
    #[derive(Clone, Copy, Debug)]
    enum Server {
        /// Lists are empty but for one PhasedRollout or none; a watch brings nothing and ends after two minutes.
        Well { rollouts: usize },
        /// A watch brings nothing and never ends, and no time-out ends it.
        FrozenWatch,
        /// Nothing is ever answered, and no time-out ends that.
        Silent,
        /// Everything is refused with this code.
        Refusing(u16),
    }

    impl Server {
        async fn answer(self, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
            let path = request.uri().path();
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
            let never = futures::stream::pending::<io::Result<Bytes>>();
            let rollout = json!({"apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout",
                "metadata": {"name": "gate", "namespace": "ns"}, "spec": {"targetRef": "web", "skipCheck": true}});
            let (code, body) = match self {
                Self::Silent => std::future::pending().await,
                Self::Refusing(code) => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                        "reason": "Other", "message": "no"});
                    (code, Answer::from(status.to_string()))
                }
                Self::FrozenWatch if is_watch => (200, Answer::from_stream(never)),
                Self::Well { .. } if is_watch => {
                    let end = async {
                        tokio::time::sleep(Duration::from_mins(2)).await;
                        io::Result::Ok(Bytes::new())
                    };
                    (200, Answer::from_stream(futures::stream::once(end)))
                }
                Self::Well { rollouts } if path.ends_with("/phasedrollouts") => {
                    let list = json!({"metadata": {"resourceVersion": "1"}, "items": vec![rollout; rollouts]});
                    (200, Answer::from(list.to_string()))
                }
                Self::Well { .. } | Self::FrozenWatch => {
                    (200, Answer::from(json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string()))
                }
            };
            Ok(Response::builder().status(code).body(body)?)
        }
    }

    /// The streams of an operator beside such a server, and what it says of its health.
    struct Rig {
        web: Arc<Web>,
        wire: WireLayer,
        _streams: JoinSet<()>,
    }

    impl Rig {
        fn new(server: Server) -> Self {
            let wire = WireLayer { guard: Arc::new(Guard::always()), metrics: Arc::default(), pulse: Arc::default() };
            let service = tower::service_fn(move |request| server.answer(request));
            let client = ClientBuilder::new(service, "default").with_layer(&wire).build();
            let mut streams = JoinSet::new();
            let hold = Arc::new(Hold::new(client.clone()));
            for kind in watch::POLICY_KINDS {
                streams.spawn(watch::follow_policy(client.clone(), kind, Arc::clone(&hold)));
            }
            let queues = Queues { rollouts: Queue::new().0, owners: Queue::new().0 };
            let forget: watch::Forget = Arc::new(|_| ());
            let caches = watch::start(&client, &wire.pulse, &Scope::Cluster, 500, &queues, &forget, &mut streams);
            let exposed = Exposed::new(&wire, &[Arc::clone(&caches)]);
            let web = Arc::new(Web::new(Arc::clone(&wire.pulse), exposed, vec![caches]));
            Self { web, wire, _streams: streams }
        }

        async fn alive(&self) -> Result<(), String> {
            let (code, text) = livez(State(Arc::clone(&self.web))).await;
            if code == StatusCode::OK { Ok(()) } else { Err(format!("{} {text}", code.as_u16())) }
        }

        async fn ready(&self) -> u16 {
            readyz(State(Arc::clone(&self.web))).await.0.as_u16()
        }

        /// Asked each 20 seconds, as a probe asks: after how long it is not alive any more, and why.
        async fn dies_within(&self, longest: Duration) -> Option<(Duration, String)> {
            let begun = tokio::time::Instant::now();
            while begun.elapsed() <= longest {
                if let Err(text) = self.alive().await {
                    return Some((begun.elapsed(), text));
                }
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
            None
        }
    }

    const HOUR: Duration = Duration::from_hours(1);

    #[tokio::test(start_paused = true)]
    async fn watches_that_come_round_are_alive_and_lists_make_ready() {
        let rig = Rig::new(Server::Well { rollouts: 0 });
        assert_eq!(rig.ready().await, 503, "nothing was listed yet");
        assert_eq!(rig.dies_within(HOUR).await, None);
        assert_eq!(rig.ready().await, 200);
        rig.web.stop();
        assert_eq!(rig.ready().await, 503);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_refuses_is_no_reason_for_a_restart() {
        for code in [401, 403, 404, 410, 429, 500, 503] {
            let rig = Rig::new(Server::Refusing(code));
            assert_eq!(rig.dies_within(HOUR).await, None, "{code}");
            assert_eq!(rig.ready().await, 503, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_falls_silent_is_started_anew() {
        let rig = Rig::new(Server::FrozenWatch);
        assert_eq!(rig.dies_within(HOUR).await, None);
        assert_eq!(rig.ready().await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_stands_still_is_not_alive_after_some_minutes() {
        let rig = Rig::new(Server::Silent);
        let (after, text) = rig.dies_within(HOUR).await.unwrap();
        assert!(text.starts_with("500 the watch of /"), "{text}");
        assert!(after > Duration::from_mins(5) && after < Duration::from_mins(7), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_looks_at_nothing_is_not_alive() {
        let rig = Rig::new(Server::Well { rollouts: 1 });
        let (after, text) = rig.dies_within(HOUR).await.unwrap();
        assert!(text.starts_with("500 no PhasedRollout was looked at"), "{text}");
        assert!(after > Duration::from_mins(6) && after < Duration::from_mins(8), "{after:?}");
        rig.wire.pulse.glanced();
        assert_eq!(rig.alive().await, Ok(()));
    }

    const SHORT: Limits =
        Limits { headers: Duration::from_millis(300), connection: Duration::from_secs(5), connections: 2 };

    /// What a server with these limits is asked over a connection of its own, until it says no more.
    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        // A connection that is cut may show as a reset.
        let _ = tokio::time::timeout(Duration::from_secs(20), read).await.expect("it ends");
        String::from_utf8(answer).unwrap()
    }

    async fn started(limits: Limits, router: Router) -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, mut tasks) = (listener.local_addr().unwrap(), JoinSet::new());
        tasks.spawn(serve_within(limits, listener, router));
        (address, tasks)
    }

    const WHOLE: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[tokio::test]
    async fn who_sends_half_a_header_is_let_go_and_others_are_answered() {
        let rig = Rig::new(Server::Well { rollouts: 0 });
        let (address, _tasks) = started(SHORT, router(rig.web)).await;
        let begun = std::time::Instant::now();
        let half = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/pl";
        let (first, second, nothing) = tokio::join!(ask(address, half), ask(address, half), ask(address, ""));
        for answer in [first, second, nothing] {
            assert!(!answer.contains("200 OK"), "{answer}");
        }
        assert!(begun.elapsed() >= SHORT.headers && begun.elapsed() < SHORT.connection, "{:?}", begun.elapsed());
        // Both places are free again, and a request needs no more than one.
        let answer = ask(address, WHOLE).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("# EOF\n"), "{answer}");
        assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    }

    #[tokio::test]
    async fn who_does_not_read_the_answer_is_let_go() {
        let limits = Limits { connection: Duration::from_millis(500), connections: 1, ..SHORT };
        let router = Router::new()
            .route("/large", get(|| async { vec![b'x'; 64 << 20] }))
            .route("/small", get(|| async { "small" }));
        let (address, _tasks) = started(limits, router).await;
        let mut stuck = tokio::net::TcpStream::connect(address).await.unwrap();
        stuck.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        stuck.readable().await.unwrap();
        assert!(ask(address, "GET /small HTTP/1.1\r\nHost: x\r\n\r\n").await.ends_with("small"));
    }

    #[tokio::test]
    async fn a_header_without_end_is_refused_and_so_is_a_wish_that_nobody_knows() {
        let rig = Rig::new(Server::Well { rollouts: 0 });
        let (address, _tasks) = started(SHORT, router(rig.web)).await;
        let long = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(MOST_HEADER_BYTES * 2));
        assert!(ask(address, &long).await.starts_with("HTTP/1.1 431"), "it is too large");
        let answer = ask(address, "GET /metrics?zeros=some HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("zeros"), "{answer}");
        let answer = ask(address, "GET /metrics?zeros=omit HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
