//! From a host name to the addresses that may be asked. What is checked here is what is connected to: nobody resolves the name
//! again, so that a name that points elsewhere a moment later changes nothing (DNS rebinding).

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

use crate::policy::AddressPolicy;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Resolution gave only addresses that must not be asked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RefusedAddress(pub(crate) &'static str);

/// Resolution failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unresolved(pub(crate) String);

/// A resolver that answers only addresses that may be asked.
#[derive(Clone, Debug)]
pub(crate) struct Resolver<R = GaiResolver> {
    /// None: every address may be asked.
    policy: Option<AddressPolicy>,
    inner: R,
}

impl Resolver {
    /// The system's resolver.
    pub(crate) fn system(policy: Option<AddressPolicy>) -> Self {
        Self { policy, inner: GaiResolver::new() }
    }
}

impl<R> Service<Name> for Resolver<R>
where
    R: Service<Name>,
    R::Response: Iterator<Item = SocketAddr>,
    R::Error: std::fmt::Display,
    R::Future: Send + 'static,
{
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (policy, resolution) = (self.policy, self.inner.call(name));
        Box::pin(async move {
            let found = resolution.await.map_err(|e| Unresolved(e.to_string()))?;
            let why_not = |address: &SocketAddr| policy.and_then(|policy| policy.refuses(address.ip()));
            let mut refused = None;
            let mut allowed = Vec::new();
            for address in found {
                match why_not(&address) {
                    Some(what) => refused = Some(what),
                    None => allowed.push(address),
                }
            }
            match refused {
                Some(what) if allowed.is_empty() => Err(RefusedAddress(what).into()),
                _ => Ok(allowed.into_iter()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};

    use rstest::rstest;

    use super::*;

    /// Whoever answers for the name answers something else each time.
    #[derive(Clone)]
    struct Rebinding(Vec<Vec<&'static str>>);

    impl Service<Name> for Rebinding {
        type Response = std::vec::IntoIter<SocketAddr>;
        type Error = Infallible;
        type Future = Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Name) -> Self::Future {
            let addresses: Vec<_> = self.0.remove(0).into_iter().map(|text| text.parse().unwrap()).collect();
            ready(Ok(addresses.into_iter()))
        }
    }

    async fn resolve(answers: &[&[&'static str]]) -> Vec<Result<Vec<String>, String>> {
        let inner = Rebinding(answers.iter().map(|answer| answer.to_vec()).collect());
        let mut resolver = Resolver { policy: Some(AddressPolicy::default()), inner };
        let mut found = Vec::new();
        for _ in answers {
            let outcome = resolver.call("prom.example".parse().unwrap()).await;
            found.push(outcome.map(|list| list.map(|a| a.to_string()).collect()).map_err(|e| e.to_string()));
        }
        found
    }

    #[rstest]
    #[case::only_allowed(&["10.0.0.1:0", "[fd12::1]:0"], Ok(vec!["10.0.0.1:0", "[fd12::1]:0"]))]
    #[case::one_refused(&["127.0.0.1:0", "10.0.0.1:0"], Ok(vec!["10.0.0.1:0"]))]
    #[case::only_refused(&["169.254.169.254:0", "[fe80::1]:0"], Err("a link-local address"))]
    #[case::mapped(&["[::ffff:169.254.169.254]:0"], Err("a link-local address"))]
    #[case::nothing(&[], Ok(vec![]))]
    #[tokio::test]
    async fn only_what_may_be_asked_is_connected_to(
        #[case] answer: &[&'static str],
        #[case] want: Result<Vec<&str>, &str>,
    ) {
        let want = want.map(|list| list.into_iter().map(str::to_owned).collect()).map_err(str::to_owned);
        assert_eq!(resolve(&[answer]).await, [want]);
    }

    /// The second answer is checked as the first was.
    #[tokio::test]
    async fn a_name_that_changes_is_checked_each_time() {
        let found = resolve(&[&["10.0.0.1:0"], &["127.0.0.1:0"]]).await;
        assert_eq!(found, [Ok(vec!["10.0.0.1:0".to_owned()]), Err("a loopback address".to_owned())]);
    }
}
