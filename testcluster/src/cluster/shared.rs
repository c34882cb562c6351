//! One cluster for all tests of a process. A static is never dropped: the leashes of its processes and the janitor of its folder end it with
//! the process, however that ends.

use anyhow::anyhow;
use tokio::sync::OnceCell;

use super::{Builder, Cluster};

/// A cluster that is started by the first test that needs it. One static per minor and set of feature gates:
///
/// ```no_run
/// use testcluster::{Cluster, Minor, SharedCluster};
///
/// static CLUSTER: SharedCluster = SharedCluster::new(|| Cluster::builder().kubernetes(Minor::V1_37));
///
/// # async fn example() -> anyhow::Result<()> {
/// let cluster = CLUSTER.get().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SharedCluster {
    describe: fn() -> Builder,
    cell: OnceCell<Result<Cluster, String>>,
}

impl SharedCluster {
    /// Takes down how to start it; nothing runs yet.
    #[must_use]
    pub const fn new(describe: fn() -> Builder) -> Self {
        Self { describe, cell: OnceCell::const_new() }
    }

    /// The cluster, started by the first call. Calls at the same time wait for it; after a failure all of them get the same error.
    ///
    /// # Errors
    /// When it did not start.
    pub async fn get(&self) -> anyhow::Result<&Cluster> {
        let start = || async { (self.describe)().start().await.map_err(|error| format!("{error:#}")) };
        match self.cell.get_or_init(start).await {
            Ok(cluster) => Ok(cluster),
            Err(error) => Err(anyhow!(error.clone())),
        }
    }
}
