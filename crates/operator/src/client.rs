//! The way to the API server: one client for everything but the election, with our name on every request, without silent retries, and a deadline
//! for every call that is no watch.

use std::time::Duration;

use http::{HeaderValue, header};
use kube::client::ClientBuilder;
use kube::{Client, Config};

use crate::errors::Error;
use crate::wire::WireLayer;

/// The `User-Agent` of every request.
pub const USER_AGENT: &str = concat!("sts-plus/", env!("CARGO_PKG_VERSION"));

/// How long one call may take. A watch has its own idle time-out.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// How long the API server keeps a watch open, in seconds: a connection that died without a word is noticed after that time.
pub const WATCH_SECONDS: u32 = 120;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than a silent watch lasts.
const READ_TIMEOUT: Duration = Duration::from_mins(3);

/// The cluster that the environment names: the service account in a pod, else the kubeconfig. TLS is that of ring from now on.
///
/// # Errors
///
/// If there is no usable configuration.
pub async fn config() -> Result<Config, kube::Error> {
    // Fails only if somebody has chosen before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(tuned(Config::infer().await.map_err(kube::Error::InferConfig)?))
}

/// The client of everything but the election: its writes leave only while we lead.
///
/// # Errors
///
/// If the configuration cannot be used.
pub fn guarded(config: Config, wire: &WireLayer) -> Result<Client, kube::Error> {
    Ok(ClientBuilder::try_from(config)?.with_layer(wire).build())
}

/// The configuration with our name and time-outs. There are no retries below us: a write that was refused or lost is decided anew
/// on what is then seen, never sent again blindly.
#[must_use]
pub fn tuned(mut config: Config) -> Config {
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(USER_AGENT)));
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    config
}

/// Waits for the answer of one call, at most [`CALL_DEADLINE`].
///
/// # Errors
///
/// The error of the call with its name, or [`Error::Deadline`].
pub async fn deadline<T>(
    call: impl Into<String> + Send,
    answer: impl Future<Output = Result<T, kube::Error>> + Send,
) -> Result<T, Error> {
    match tokio::time::timeout(CALL_DEADLINE, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(Error::api(call, source)),
        Err(_) => Err(Error::Deadline { call: call.into(), after: CALL_DEADLINE }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::Class;

    #[test]
    fn the_client_has_our_name_and_no_retries() {
        let config = tuned(Config::new(http::Uri::from_static("http://localhost:1")));
        assert!(config.headers.iter().any(|(name, value)| name == header::USER_AGENT && value == USER_AGENT));
        assert!(!config.default_retry);
        assert!(config.connect_timeout.is_some() && config.read_timeout.is_some() && config.write_timeout.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends() {
        let error = deadline::<()>("reading StatefulSet web", std::future::pending()).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient);
        assert_eq!(error.to_string(), "reading StatefulSet web: no answer within 10 s");
    }
}
