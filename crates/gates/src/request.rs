//! One instant query as an HTTP request. It must carry at most one Authorization header (lesson L073) and ask for no compression.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method};
use http_body_util::Full;
use url::Url;

use crate::credentials::Credentials;

/// A request that can be written any number of times, for a redirect within the same origin.
#[derive(Clone, Debug)]
pub(crate) struct QueryRequest {
    pub(crate) url: Url,
    body: Bytes,
    timeout: Duration,
    user_agent: HeaderValue,
    credentials: Option<Credentials>,
}

impl QueryRequest {
    /// An instant query of `expr` at `url`; `timeout` is for the whole exchange and is told to Prometheus too.
    pub(crate) fn new(
        url: Url,
        expr: &str,
        timeout: Duration,
        user_agent: HeaderValue,
        credentials: Option<Credentials>,
    ) -> Self {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("query", expr)
            .append_pair("timeout", &format!("{}s", timeout.as_secs()))
            .finish();
        Self { url, body: Bytes::from(body), timeout, user_agent, credentials }
    }

    /// The same, and `VictoriaMetrics` answers for now and not for 30 s ago (`-search.latencyOffset`). Others do not know the
    /// parameter, and may refuse what they do not know.
    pub(crate) fn for_now(&self) -> Self {
        Self { body: [&*self.body, b"&nocache=1"].concat().into(), ..self.clone() }
    }

    /// Time for the whole exchange.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// All that makes it this request and no other.
    pub(crate) fn parts(&self) -> [Option<&[u8]>; 3] {
        let credentials = self.credentials.as_ref().map(|credentials| credentials.header().as_bytes());
        [Some(self.url.as_str().as_bytes()), Some(&self.body), credentials]
    }

    /// The request as it goes to `url`: the form is the body of a POST, and the query of the URL of a GET.
    pub(crate) fn to_http(&self, method: &Method, url: &Url) -> Result<http::Request<Full<Bytes>>, http::Error> {
        let request = http::Request::builder()
            .method(method)
            .header(ACCEPT, "application/json")
            .header(ACCEPT_ENCODING, "identity")
            // An answer from before the question is none: neither of a cache on the way, nor of the one inside Mimir, Cortex and Thanos.
            .header(CACHE_CONTROL, "no-cache, no-store")
            .header(USER_AGENT, self.user_agent.clone());
        let mut request = if method == Method::GET {
            let mut url = url.clone();
            url.set_query(std::str::from_utf8(&self.body).ok());
            request.uri(url.as_str()).body(Full::default())?
        } else {
            let request = request.uri(url.as_str()).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            request.body(Full::new(self.body.clone()))?
        };
        if let Some(credentials) = &self.credentials {
            request.headers_mut().insert(AUTHORIZATION, credentials.header().clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::credentials::SecretData;

    // spec: pr§3, L073
    #[tokio::test]
    async fn is_a_form_post_with_one_authorization() {
        let data = [("token".to_owned(), b"t0ken".to_vec())].into();
        let credentials = Credentials::read(&SecretData { name: "s".into(), data }).unwrap();
        let url = Url::parse("http://prom:9090/x/api/v1/query").unwrap();
        let agent = HeaderValue::from_static("sts-plus/0.1.0");
        let query =
            QueryRequest::new(url.clone(), "a{b=\"c&d\"} == 0 + 1", Duration::from_secs(7), agent, Some(credentials));
        for _ in 0..1000 {
            let request = query.to_http(&Method::POST, &url).unwrap();
            assert_eq!(request.headers().get_all(AUTHORIZATION).iter().count(), 1);
        }
        let request = query.to_http(&Method::POST, &url).unwrap();
        assert_eq!(request.method(), Method::POST);
        assert_eq!(request.uri().path(), "/x/api/v1/query");
        assert_eq!(request.headers()[ACCEPT_ENCODING], "identity");
        assert_eq!(request.headers()[CACHE_CONTROL], "no-cache, no-store");
        assert_eq!(request.headers()[USER_AGENT], "sts-plus/0.1.0");
        assert!(!format!("{query:?}{request:?}").contains("t0ken"));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let form = "query=a%7Bb%3D%22c%26d%22%7D+%3D%3D+0+%2B+1&timeout=7s";
        assert_eq!(body, form);
        let request = query.to_http(&Method::GET, &url).unwrap();
        assert_eq!((request.method(), request.uri().query()), (&Method::GET, Some(form)));
        assert_eq!(request.headers().get_all(AUTHORIZATION).iter().count(), 1);
        assert!(request.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}
