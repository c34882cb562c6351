//! How often the operator wrote, from the audit log of the API server.

use std::sync::Arc;

use testcluster::AuditEntry;

/// The requests that changed something: dry runs and refused ones are not among them.
pub fn writes(requests: &[Arc<AuditEntry>]) -> Vec<&AuditEntry> {
    requests.iter().map(AsRef::as_ref).filter(|entry: &&AuditEntry| entry.is_write() && entry.code < 300).collect()
}

/// How many of them were about a resource, such as `statefulsets`, `phasedrollouts/status`, or `events`.
pub fn count(requests: &[Arc<AuditEntry>], resource: &str) -> usize {
    writes(requests).into_iter().filter(|entry| full_name(entry) == resource).count()
}

/// Resource and subresource.
pub fn full_name(entry: &AuditEntry) -> String {
    if entry.subresource.is_empty() {
        entry.resource.clone()
    } else {
        format!("{}/{}", entry.resource, entry.subresource)
    }
}

/// One line for each write, for messages.
pub fn tell(requests: &[Arc<AuditEntry>]) -> String {
    let line = |entry: &&AuditEntry| format!("{} {} {} {}", entry.answered, entry.verb, full_name(entry), entry.name);
    writes(requests).iter().map(line).collect::<Vec<_>>().join("\n")
}
