//! The audit log of the API server, line by line: who wrote what, how often. One entry per answered request; a watch appears when it ends.

use std::{
    collections::HashMap,
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    mem,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::watch;

/// Between two looks at the length of the file.
const PAUSE: Duration = Duration::from_millis(20);

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Who asked; with impersonation the user that was acted as.
    pub user: String,
    /// Who impersonated that user, if it was so.
    pub impersonated_by: Option<String>,
    /// The User-Agent header.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// The API group, empty for the core.
    pub group: String,
    /// The plural name, such as `statefulsets`; empty for other paths.
    pub resource: String,
    /// Such as `status`, or empty.
    pub subresource: String,
    /// Empty for what has none.
    pub namespace: String,
    /// Empty for lists.
    pub name: String,
    /// The HTTP status.
    pub code: u16,
    /// Whether nothing was to be persisted.
    pub dry_run: bool,
    /// Path and query.
    pub uri: String,
    /// When the request arrived.
    pub received: Timestamp,
    /// When it was answered.
    pub answered: Timestamp,
}

impl AuditEntry {
    /// Whether it asked for a change that was to be persisted.
    #[must_use]
    pub fn is_write(&self) -> bool {
        let writes = ["create", "update", "patch", "delete", "deletecollection"];
        writes.contains(&self.verb.as_str()) && !self.dry_run
    }
}

/// The entries of a log or of a namespace in it, in the order in which they were answered.
pub type AuditEntries = Vec<Arc<AuditEntry>>;

/// The audit log of a cluster. Each line is read and parsed once, however many ask and however often.
#[derive(Debug)]
pub struct AuditLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    known: Mutex<Known>,
    /// How long the file is, for those who wait.
    length: watch::Sender<u64>,
    /// Whether a thread looks at the length.
    is_watched: Mutex<bool>,
}

/// What has been read.
#[derive(Debug, Default)]
struct Known {
    offset: u64,
    all: AuditEntries,
    by_namespace: HashMap<String, AuditEntries>,
}

impl AuditLog {
    pub(super) fn new(path: PathBuf) -> Self {
        let length = watch::Sender::new(0);
        Self { shared: Arc::new(Shared { path, known: Mutex::default(), length, is_watched: Mutex::new(false) }) }
    }

    /// All entries since the start of the cluster.
    ///
    /// # Errors
    /// When the log cannot be read or holds a line that is not understood.
    pub fn entries(&self) -> anyhow::Result<AuditEntries> {
        Ok(self.shared.read()?.all.clone())
    }

    /// The entries of objects in a namespace.
    ///
    /// # Errors
    /// When the log cannot be read or holds a line that is not understood.
    pub fn entries_in(&self, namespace: &str) -> anyhow::Result<AuditEntries> {
        Ok(self.shared.read()?.by_namespace.get(namespace).cloned().unwrap_or_default())
    }

    /// Waits until the entries of a namespace are as wanted. They are looked at when there is a new one.
    ///
    /// # Errors
    /// When that is not so within `patience`, or the log cannot be read.
    pub async fn until(
        &self,
        namespace: &str,
        patience: Duration,
        wanted: impl Fn(&[Arc<AuditEntry>]) -> bool,
    ) -> anyhow::Result<()> {
        let mut growth = self.shared.watch()?;
        let wait = async {
            let mut seen = None;
            loop {
                let entries = self.entries_in(namespace)?;
                if seen != Some(entries.len()) && wanted(&entries) {
                    return Ok(());
                }
                seen = Some(entries.len());
                growth.changed().await?;
            }
        };
        let in_time = tokio::time::timeout(patience, wait).await;
        in_time.with_context(|| format!("not in the audit log of {namespace} within {} s", patience.as_secs()))?
    }
}

impl Shared {
    /// Reads what has been written since the last time.
    fn read(&self) -> anyhow::Result<MutexGuard<'_, Known>> {
        let why = || format!("cannot read {}", self.path.display());
        let mut known = lock(&self.known);
        let mut file = fs::File::open(&self.path).with_context(why)?;
        file.seek(SeekFrom::Start(known.offset)).with_context(why)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(why)?;
        // The last line may be half written.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(whole);
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let new = lines.map(|line| parse(line).map(Arc::new)).collect::<anyhow::Result<AuditEntries>>()?;
        known.offset += u64::try_from(whole)?;
        for entry in new {
            known.by_namespace.entry(entry.namespace.clone()).or_default().push(Arc::clone(&entry));
            known.all.push(entry);
        }
        Ok(known)
    }

    /// Tells when the file grows. One thread looks for all who wait, and only while somebody does.
    fn watch(self: &Arc<Self>) -> anyhow::Result<watch::Receiver<u64>> {
        let mut is_watched = lock(&self.is_watched);
        let growth = self.length.subscribe();
        if !*is_watched {
            let log = Arc::downgrade(self);
            let look = move || {
                while log.upgrade().is_some_and(|log| log.look()) {
                    thread::sleep(PAUSE);
                }
            };
            thread::Builder::new().name("audit log".to_owned()).spawn(look).context("cannot start a thread")?;
            *is_watched = true;
        }
        Ok(growth)
    }

    /// False when nobody waits any longer.
    fn look(&self) -> bool {
        let mut is_watched = lock(&self.is_watched);
        *is_watched = self.length.receiver_count() > 0;
        let length = fs::metadata(&self.path).map_or(0, |file| file.len());
        self.length.send_if_modified(|known| mem::replace(known, length) != length);
        *is_watched
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parse(line: &[u8]) -> anyhow::Result<AuditEntry> {
    let raw: Raw = serde_json::from_slice(line).context("not a line of an audit log")?;
    let object = raw.object_ref.unwrap_or_default();
    let query = raw.request_uri.split_once('?').map_or("", |(_, query)| query);
    let dry_run = query.split('&').any(|pair| pair == "dryRun=All");
    let (user, impersonated_by) = match raw.impersonated_user {
        Some(acted_as) => (acted_as.username, Some(raw.user.username)),
        None => (raw.user.username, None),
    };
    Ok(AuditEntry {
        user,
        impersonated_by,
        user_agent: raw.user_agent,
        verb: raw.verb,
        group: object.api_group,
        resource: object.resource,
        subresource: object.subresource,
        namespace: object.namespace,
        name: object.name,
        code: raw.response_status.code,
        dry_run,
        uri: raw.request_uri,
        received: raw.request_received_timestamp,
        answered: raw.stage_timestamp,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: RawUser,
    impersonated_user: Option<RawUser>,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<RawObject>,
    #[serde(default)]
    response_status: RawStatus,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct RawUser {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawObject {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
struct RawStatus {
    #[serde(default)]
    code: u16,
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const LINE: &str = r#"{"kind":"Event","level":"Metadata","auditID":"1","stage":"ResponseComplete","requestURI":"/apis/apps/v1/namespaces/ns/statefulsets/web?dryRun=All&fieldManager=x","verb":"patch","user":{"username":"admin","groups":["system:masters"]},"impersonatedUser":{"username":"ops"},"sourceIPs":["127.0.0.1"],"userAgent":"sts-plus/0.1.0","objectRef":{"resource":"statefulsets","namespace":"ns","name":"web","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00.100000Z"}"#;

    fn line_in(namespace: &str) -> String {
        LINE.replace(r#""namespace":"ns""#, &format!(r#""namespace":"{namespace}""#))
    }

    #[test]
    fn whole_lines_are_read_once_and_found_by_their_namespace() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let log = AuditLog::new(file.path().to_owned());
        write!(file, "{LINE}\n{}", &LINE[..20]).unwrap();
        let entries = log.entries().unwrap();
        assert_eq!(entries.len(), 1, "the half line waits");
        let entry = &entries[0];
        assert_eq!((entry.user.as_str(), entry.impersonated_by.as_deref()), ("ops", Some("admin")));
        assert_eq!((entry.resource.as_str(), entry.name.as_str(), entry.code), ("statefulsets", "web", 200));
        assert!(entry.dry_run && !entry.is_write());
        writeln!(file, "{}\n{}", &LINE[20..], line_in("other")).unwrap();
        assert_eq!(log.entries().unwrap().len(), 3);
        let mine = log.entries_in("ns").unwrap();
        assert!(mine.len() == 2 && Arc::ptr_eq(&mine[0], entry), "parsed once");
        assert_eq!(log.entries_in("other").unwrap().len(), 1);
        assert!(log.entries_in("nowhere").unwrap().is_empty());
    }

    #[tokio::test]
    async fn all_who_wait_are_woken_by_a_line_of_their_namespace() {
        const PATIENCE: Duration = Duration::from_mins(1);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let log = AuditLog::new(file.path().to_owned());
        let until = |namespace: &'static str, count| {
            log.until(namespace, PATIENCE, move |entries: &[Arc<AuditEntry>]| entries.len() == count)
        };
        let write = async {
            while log.shared.length.receiver_count() < 3 {
                tokio::task::yield_now().await;
            }
            writeln!(file, "{}", line_in("one")).unwrap();
            until("one", 1).await.unwrap();
            writeln!(file, "{}\n{}", line_in("two"), line_in("one")).unwrap();
        };
        let (one, two, again, ()) = tokio::join!(until("one", 2), until("two", 1), until("two", 1), write);
        one.and(two).and(again).unwrap();
        let none = log.until("three", Duration::from_millis(1), |entries| !entries.is_empty()).await;
        assert!(none.unwrap_err().to_string().contains("not in the audit log of three"));
        let end = std::time::Instant::now() + PATIENCE;
        while *lock(&log.shared.is_watched) {
            assert!(std::time::Instant::now() < end, "nobody waits, and the file is still looked at");
            thread::sleep(PAUSE);
        }
        until("two", 1).await.unwrap();
    }
}
