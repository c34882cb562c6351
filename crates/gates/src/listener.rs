//! Who hears how long Prometheus takes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Somebody, or nobody. What is heard: an origin, and the time until its whole answer was there or it was certain that there is none.
#[derive(Clone, Default)]
pub(crate) struct Listener(Option<Arc<Hear>>);

type Hear = dyn Fn(&str, Duration) + Send + Sync;

impl Listener {
    pub(crate) fn new(hear: impl Fn(&str, Duration) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hear)))
    }

    pub(crate) fn tell(&self, origin: &str, took: Duration) {
        if let Some(hear) = &self.0 {
            hear(origin, took);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.0.is_some()).finish()
    }
}
