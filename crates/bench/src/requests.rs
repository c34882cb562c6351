//! What a user asked the API server for, counted by verb and resource from its audit log. Leases are left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sts_plus_e2e::audit::full_name;
use testcluster::AuditEntry;

/// Requests of one user.
pub struct Requests(Vec<Arc<AuditEntry>>);

/// How many of each, such as `patch statefulsets`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<String, usize>);

impl Requests {
    /// Those that have arrived since then.
    pub fn of(all: &[Arc<AuditEntry>], user: &str, from: Timestamp) -> Self {
        let is_wanted =
            |entry: &&Arc<AuditEntry>| entry.user == user && entry.received >= from && entry.resource != "leases";
        Self(all.iter().filter(is_wanted).cloned().collect())
    }

    /// Those that have arrived before then.
    pub fn until(self, end: Timestamp) -> Self {
        Self(self.0.into_iter().filter(|entry| entry.received < end).collect())
    }

    /// What was to be persisted, refused or not.
    pub fn writes(&self) -> Tally {
        self.tally(AuditEntry::is_write)
    }

    /// What was read, without watches: one is logged when it ends.
    pub fn reads(&self) -> Tally {
        self.tally(is_read)
    }

    pub fn dry_runs(&self) -> usize {
        self.tally(|entry| entry.dry_run).total()
    }

    pub fn reads_of(&self, resource: &str) -> usize {
        self.tally(|entry| is_read(entry) && entry.resource == resource).total()
    }

    pub fn last_write(&self) -> Option<Timestamp> {
        self.0.iter().filter(|entry| entry.is_write()).map(|entry| entry.answered).max()
    }

    /// When the first write that was not refused was answered.
    pub fn first_write(&self) -> Option<Timestamp> {
        self.0.iter().filter(|entry| entry.is_write() && entry.code < 300).map(|entry| entry.answered).min()
    }

    /// The patches of StatefulSets that were not refused: which one, and when they arrived. By name, in their order.
    pub fn patches_of_sets(&self) -> BTreeMap<String, Vec<Timestamp>> {
        let mut patches: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
        let is_patch = |entry: &&Arc<AuditEntry>| full_name(entry) == "statefulsets" && entry.is_write();
        for entry in self.0.iter().filter(is_patch).filter(|entry| entry.code < 300) {
            patches.entry(entry.name.clone()).or_default().push(entry.received);
        }
        for times in patches.values_mut() {
            times.sort_unstable();
        }
        patches
    }

    fn tally(&self, counts: impl Fn(&AuditEntry) -> bool) -> Tally {
        let mut tally = Tally::default();
        for entry in self.0.iter().filter(|entry| counts(entry)) {
            *tally.0.entry(format!("{} {}", entry.verb, full_name(entry))).or_default() += 1;
        }
        tally
    }
}

fn is_read(entry: &AuditEntry) -> bool {
    ["get", "list"].contains(&entry.verb.as_str()) && !entry.resource.is_empty()
}

impl Tally {
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// For each of so many, those that are most first: `2.5: patch statefulsets 1.5, create events 1`.
    pub fn for_each_of(&self, count: usize) -> String {
        let share = |number: usize| crate::table::number(number as f64 / count.max(1) as f64);
        let mut parts: Vec<(&String, &usize)> = self.0.iter().collect();
        parts.sort_by_key(|(_, number)| std::cmp::Reverse(**number));
        let parts: Vec<String> = parts.iter().map(|(what, number)| format!("{what} {}", share(**number))).collect();
        let total = share(self.total());
        if parts.is_empty() { total } else { format!("{total}: {}", parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(user: &str, verb: &str, resource: &str, second: i64, dry_run: bool) -> Arc<AuditEntry> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let time = Timestamp::from_second(second).unwrap();
        Arc::new(AuditEntry {
            user: user.to_owned(),
            impersonated_by: None,
            user_agent: String::new(),
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: "ns".to_owned(),
            name: "web".to_owned(),
            code: 200,
            dry_run,
            uri: String::new(),
            received: time,
            answered: time,
        })
    }

    #[test]
    fn requests_of_one_user_are_told_apart_and_counted_for_each_pod() {
        let all = [
            entry("us", "patch", "statefulsets", 1, false),
            entry("us", "patch", "statefulsets", 5, false),
            entry("us", "patch", "statefulsets", 6, true),
            entry("us", "create", "events", 6, false),
            entry("us", "create", "events", 7, false),
            entry("us", "update", "leases", 7, false),
            entry("us", "get", "phasedrollouts", 7, false),
            entry("us", "watch", "pods", 7, false),
            entry("us", "get", "", 7, false),
            entry("them", "patch", "statefulsets", 7, false),
            entry("us", "patch", "phasedrollouts/status", 9, false),
        ];
        let since = Requests::of(&all, "us", Timestamp::from_second(2).unwrap());
        let (writes, reads) = (since.writes(), since.reads());
        assert_eq!(
            writes.for_each_of(2),
            "2: create events 1, patch phasedrollouts/status 0.5, patch statefulsets 0.5"
        );
        assert_eq!(reads.for_each_of(1), "1: get phasedrollouts 1");
        assert_eq!((since.dry_runs(), since.reads_of("phasedrollouts"), since.reads_of("secrets")), (1, 1, 0));
        assert_eq!(since.patches_of_sets()["web"], [Timestamp::from_second(5).unwrap()]);
        assert_eq!((since.first_write(), since.last_write()), (Some(all[1].answered), Some(all[10].answered)));
        assert_eq!(since.until(Timestamp::from_second(6).unwrap()).writes().total(), 1);
        assert_eq!(Tally::default().for_each_of(3), "0");
    }
}
