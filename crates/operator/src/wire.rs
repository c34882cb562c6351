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
            if is_followed(request.uri()) {
                self.layer.pulse.watched(request.uri().path());
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

/// Whether it belongs to a stream that is followed for ever. The policies may not be served, and are asked for less and less then.
fn is_followed(uri: &Uri) -> bool {
    (has(uri, "watch=") || has(uri, "limit=")) && !uri.path().starts_with("/apis/admissionregistration.k8s.io/")
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

    #[test]
    fn lists_and_watches_of_streams_are_signs_of_life() {
        for (uri, followed) in [
            ("/api/v1/pods?&watch=true&timeoutSeconds=120", true),
            ("/api/v1/pods?&limit=500", true),
            ("/api/v1/namespaces/ns/pods?labelSelector=app%3Dlimit", false),
            ("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies?watch=true", false),
        ] {
            assert_eq!(is_followed(&Uri::from_static(uri)), followed, "{uri}");
        }
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
