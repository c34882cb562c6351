//! The last thing that a request passes before it leaves for the API server: a write leaves only while we lead and is counted, each
//! call is measured, and each new watch is a sign of life.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::leader::Guard;
use crate::metrics::{Metrics, verb_of_request};
use crate::pulse::Pulse;

/// A write that was kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not written: this operator does not lead (any more)")]
pub struct NotLeading;

/// A write without an answer at the end of our time: the next leader may write from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer while this operator led: what became of it is read before anything else is written")]
pub struct LedNoMore;

/// Puts a [`Wire`] around a service.
#[derive(Clone, Debug)]
pub struct WireLayer {
    /// Writes pass while it is open.
    pub guard: Arc<Guard>,
    /// Where they are counted.
    pub metrics: Arc<Metrics>,
    /// Where watches leave their mark.
    pub pulse: Arc<Pulse>,
}

impl<S> Layer<S> for WireLayer {
    type Service = Wire<S>;

    fn layer(&self, inner: S) -> Wire<S> {
        Wire { inner, layer: self.clone() }
    }
}

/// A service that keeps writes back while we do not lead.
#[derive(Debug)]
pub struct Wire<S> {
    inner: S,
    layer: WireLayer,
}

impl<S, B> Service<Request<Body>> for Wire<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let verb = verb_of_request(request.method(), request.uri());
        let is_read = request.method() == Method::GET;
        let mut pause = Duration::ZERO;
        if verb == "watch" {
            self.layer.pulse.came_round(request.uri().path());
            pause = self.layer.pulse.next_watch(request.uri().path());
        }
        if !is_read && !self.layer.guard.is_open() {
            return Box::pin(std::future::ready(Err(NotLeading.into())));
        }
        let is_write = !is_read && verb != "dry-run";
        let write = is_write.then(|| (request.method().clone(), request.uri().path().to_owned()));
        let call = Call { verb, begun: Instant::now(), code: None, write, metrics: Arc::clone(&self.layer.metrics) };
        let guard = Arc::clone(&self.layer.guard);
        let answer = self.inner.call(request);
        Box::pin(async move {
            // The whole of it, which ends with this.
            let mut call = call;
            // The request is not sent before its answer is asked for.
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let answer = tokio::select! {
                answer = answer => answer,
                () = guard.closed(), if is_write => Err(LedNoMore.into()),
            };
            call.code = answer.as_ref().ok().map(|response| response.status().as_u16());
            answer
        })
    }
}

/// A call under way. It is measured when it ends, also when nobody waits for its answer any more.
struct Call {
    verb: &'static str,
    begun: Instant,
    code: Option<u16>,
    /// Method and path of a write.
    write: Option<(Method, String)>,
    metrics: Arc<Metrics>,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.metrics.called(self.verb, self.code, self.begun.elapsed());
        if let Some((method, path)) = &self.write {
            self.metrics.wrote(method, path, self.code);
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::client::ClientBuilder;
    use kube::{Api, Client};

    use super::*;
    use crate::metrics::{Exposed, Zeros};

    fn client(guard: Guard) -> Client {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let body = if request.method() == Method::GET {
                r#"{"metadata":{"name":"read"}}"#
            } else {
                r#"{"metadata":{"name":"written"}}"#
            };
            Ok::<_, BoxError>(Response::new(Body::from(body.as_bytes().to_vec())))
        });
        ClientBuilder::new(service, "default").with_layer(&layer(guard)).build()
    }

    fn layer(guard: Guard) -> WireLayer {
        WireLayer { guard: Arc::new(guard), metrics: Arc::default(), pulse: Arc::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_of_a_followed_stream_is_a_sign_of_life_and_nothing_else_is_awaited() {
        let layer = layer(Guard::always());
        let pulse = Arc::clone(&layer.pulse);
        let service =
            tower::service_fn(|_: Request<Body>| async move { Ok::<_, BoxError>(Response::new(Body::empty())) });
        let mut wire = layer.layer(service);
        let mut get = async |uri: &'static str| {
            let request = Request::get(uri).body(Body::empty()).unwrap();
            wire.call(request).await.unwrap();
        };
        pulse.follows("/api/v1/pods");
        let almost = std::time::Duration::from_mins(5);
        tokio::time::advance(almost).await;
        get("/api/v1/pods?&watch=true&timeoutSeconds=120").await;
        get("/api/v1/nodes?&limit=500").await;
        get("/api/v1/services?&watch=true").await;
        tokio::time::advance(almost).await;
        assert_eq!(pulse.check(false), Ok(()), "what was read once is not awaited again");
        get("/api/v1/pods?&limit=500").await;
        tokio::time::advance(almost).await;
        assert!(pulse.check(false).unwrap_err().contains("/api/v1/pods"), "a list alone is none");
        get("/api/v1/pods?&watch=true&timeoutSeconds=120").await;
        assert_eq!(pulse.check(false), Ok(()), "a watch that nobody follows is not awaited either");
    }

    #[tokio::test]
    async fn a_write_ends_with_our_time_as_leader() {
        let guard = Guard::always();
        let layer = layer(guard);
        let silent = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>());
        let request = || Request::delete("/api/v1/namespaces/ns/pods/web-0").body(Body::empty()).unwrap();
        let (mut wire, second) = (layer.layer(silent), std::time::Duration::from_secs(1));
        let write = tokio::spawn(wire.call(request()));
        tokio::time::sleep(second / 100).await;
        layer.guard.close();
        let ended = tokio::time::timeout(second, write).await.expect("it does not wait for its answer").unwrap();
        assert!(ended.unwrap_err().is::<LedNoMore>());
    }

    async fn delete(client: Client) -> Result<(), kube::Error> {
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(client);
        pods.delete("web-0", &kube::api::DeleteParams::default()).await.map(drop)
    }

    #[tokio::test]
    async fn a_write_leaves_only_while_we_lead_and_a_read_always() {
        assert!(delete(client(Guard::always())).await.is_ok());
        let waiting = client(Guard::waiting());
        let error = delete(waiting.clone()).await.unwrap_err();
        assert!(crate::errors::told(&error).contains("does not lead"), "{error}");
        assert_eq!(crate::errors::class_of(&error), crate::errors::Class::Transient);
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(waiting);
        assert!(pods.get("read").await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn each_call_is_measured_by_verb_and_code_and_one_that_nobody_waits_for_too() {
        let layer = layer(Guard::always());
        let service = tower::service_fn(|request: Request<Body>| async move {
            let slow = request.uri().path().ends_with("slow");
            tokio::time::sleep(std::time::Duration::from_secs(if slow { 60 } else { 1 })).await;
            Ok::<_, BoxError>(Response::builder().status(409).body(Body::empty())?)
        });
        let mut wire = layer.layer(service);
        let path = "/apis/apps/v1/namespaces/ns/statefulsets";
        for (method, uri) in [(Method::GET, path.to_owned()), (Method::PATCH, format!("{path}/web?&dryRun=All"))] {
            let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            wire.call(request).await.unwrap();
        }
        let slow = wire.call(Request::get(format!("{path}/slow")).body(Body::empty()).unwrap());
        assert!(tokio::time::timeout(std::time::Duration::from_secs(10), slow).await.is_err());
        let text = Exposed::new(&layer, &[]).text(Zeros::Keep).unwrap();
        for row in
            [r#"verb="list",code="409"} 1.0"#, r#"verb="dry-run",code="409"} 1.0"#, r#"verb="get",code="none"} 10.0"#]
        {
            let row = format!("sts_plus_api_request_duration_seconds_sum{{{row}");
            assert!(text.lines().any(|line| line == row), "{row} is not in\n{text}");
        }
        assert!(!text.contains("sts_plus_api_writes_total{"), "nothing was written: {text}");
    }
}
