//! The last thing that a request passes before it leaves for the API server: a write leaves only while we lead and is counted, and
//! each new watch is a sign of life.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response, Uri};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use crate::leader::Guard;
use crate::metrics::Metrics;
use crate::pulse::Pulse;

/// A write that was kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not written: this operator does not lead (any more)")]
pub struct NotLeading;

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
        if request.method() == Method::GET {
            if has(request.uri(), "watch=") {
                self.layer.pulse.came_round(request.uri().path());
            }
            return Box::pin(self.inner.call(request));
        }
        if !self.layer.guard.is_open() {
            return Box::pin(std::future::ready(Err(NotLeading.into())));
        }
        if has(request.uri(), "dryRun=All") {
            return Box::pin(self.inner.call(request));
        }
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let (metrics, answer) = (Arc::clone(&self.layer.metrics), self.inner.call(request));
        Box::pin(async move {
            let answer = answer.await;
            metrics.wrote(&method, &path, answer.as_ref().ok().map(|response| response.status().as_u16()));
            answer
        })
    }
}

fn has(uri: &Uri, parameter: &str) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with(parameter)))
}

#[cfg(test)]
mod tests {
    use kube::client::ClientBuilder;
    use kube::{Api, Client};

    use super::*;

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
}
