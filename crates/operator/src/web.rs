//! What others ask this process over HTTP: whether it is alive, whether it is ready, and its numbers. Nothing here can change
//! anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::metrics::{CONTENT_TYPE, Exposed};
use crate::pulse::Pulse;
use crate::watch::Caches;

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
    let router = router(web);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::warn!("the web server has ended: {error}");
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

async fn metrics(State(web): State<Arc<Web>>) -> impl IntoResponse {
    match web.exposed.text() {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, CONTENT_TYPE)], text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use axum::body::{Body as Answer, Bytes};
    use futures::channel::mpsc;
    use http::{Request, Response};
    use kube::client::{Body, ClientBuilder};
    use serde_json::json;
    use tokio::task::JoinSet;
    use tower::BoxError;

    use super::*;
    use crate::hold::Hold;
    use crate::leader::Guard;
    use crate::watch::{self, Queues, Scope};
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
            let queues = Queues { rollouts: mpsc::unbounded().0, owners: mpsc::unbounded().0 };
            let caches = watch::start(&client, &wire.pulse, &Scope::Cluster, &queues, &mut streams);
            let exposed = Exposed::new(Arc::clone(&wire.metrics), vec![Arc::clone(&caches)], Arc::clone(&wire.guard));
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
        drop(rig.wire.pulse.run());
        assert_eq!(rig.alive().await, Ok(()));
    }
}
