//! The audit log of the API server, line by line: who wrote what, how often. One entry per answered request; a watch appears when it ends.

use std::{
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Deserialize;

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

/// Reads the audit log from where the last reading ended.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
    offset: u64,
}

impl AuditLog {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, offset: 0 }
    }

    /// Forgets what has been written so far.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn skip(&mut self) -> anyhow::Result<()> {
        self.read().map(drop)
    }

    /// What has been written since the last call, in the order in which it was answered. The first call reads from the start.
    ///
    /// # Errors
    /// When the log cannot be read or holds a line that is not understood.
    pub fn read(&mut self) -> anyhow::Result<Vec<AuditEntry>> {
        let why = || format!("cannot read {}", self.path.display());
        let mut file = fs::File::open(&self.path).with_context(why)?;
        file.seek(SeekFrom::Start(self.offset)).with_context(why)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(why)?;
        // The last line may be half written.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(whole);
        self.offset += u64::try_from(whole)?;
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(parse).collect()
    }
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

    #[test]
    fn reads_whole_lines_once() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut log = AuditLog::new(file.path().to_owned());
        write!(file, "{LINE}\n{}", &LINE[..20]).unwrap();
        let entries = log.read().unwrap();
        assert_eq!(entries.len(), 1, "the half line waits");
        let entry = &entries[0];
        assert_eq!((entry.user.as_str(), entry.impersonated_by.as_deref()), ("ops", Some("admin")));
        assert_eq!((entry.resource.as_str(), entry.name.as_str(), entry.code), ("statefulsets", "web", 200));
        assert!(entry.dry_run && !entry.is_write());
        writeln!(file, "{}", &LINE[20..]).unwrap();
        assert_eq!(log.read().unwrap().len(), 1);
        assert_eq!(log.read().unwrap().len(), 0);
    }
}
