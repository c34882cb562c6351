//! What the last look at the API server saw, so that a cache that is behind it is not decided on: a watch may have fallen silent.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::written::number;

/// Versions that were seen: of the StatefulSets and pods, by UID, and of the list of pods.
#[derive(Clone, Debug, Default)]
pub(super) struct LastLook {
    /// The term as leader in which it was made.
    term: u64,
    sets: BTreeMap<String, u64>,
    pods: BTreeMap<String, u64>,
    list: u64,
}

impl LastLook {
    /// Of these StatefulSets and pods, which were listed at version `list`.
    pub(super) fn of<'a>(
        term: u64,
        sets: impl Iterator<Item = &'a ObjectMeta>,
        pods: impl Iterator<Item = &'a ObjectMeta>,
        list: Option<&str>,
    ) -> Self {
        Self { term, sets: versions(sets), pods: versions(pods), list: age(list) }
    }

    /// True if a cache with these has seen all that this look has: nothing older, no pod that was gone, and each that was there. A look of
    /// another term says nothing: whoever led since may have gone on.
    pub(super) fn is_seen<'a>(
        &self,
        term: u64,
        sets: impl Iterator<Item = &'a ObjectMeta>,
        pods: impl Iterator<Item = &'a ObjectMeta>,
    ) -> bool {
        let (sets, pods) = (versions(sets), versions(pods));
        let has = |cached: &BTreeMap<String, u64>, seen: &BTreeMap<String, u64>| {
            seen.iter().all(|(uid, seen)| cached.get(uid).is_some_and(|cached| cached >= seen))
        };
        let is_new = |(uid, version): (&String, &u64)| self.pods.contains_key(uid) || *version > self.list;
        self.term == term && has(&sets, &self.sets) && has(&pods, &self.pods) && pods.iter().all(is_new)
    }
}

fn versions<'a>(objects: impl Iterator<Item = &'a ObjectMeta>) -> BTreeMap<String, u64> {
    objects.map(|meta| (meta.uid.clone().unwrap_or_default(), age(meta.resource_version.as_deref()))).collect()
}

/// What is no number is as old as can be.
fn age(version: Option<&str>) -> u64 {
    number(version).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, version: u64) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.to_owned()), resource_version: Some(version.to_string()), ..ObjectMeta::default() }
    }

    #[test]
    fn a_cache_that_is_behind_the_last_look_is_known() {
        let (set, pods) = (meta("s", 5), [meta("a", 7), meta("b", 8)]);
        let look = LastLook::of(1, [&set].into_iter(), pods.iter(), Some("10"));
        let is_seen = |set: &ObjectMeta, pods: &[ObjectMeta]| look.is_seen(1, [set].into_iter(), pods.iter());
        assert!(is_seen(&set, &pods));
        assert!(is_seen(&meta("s", 6), &[meta("a", 7), meta("b", 11), meta("c", 12)]), "newer, and one that is new");
        assert!(!is_seen(&meta("s", 4), &pods), "an older StatefulSet");
        assert!(!is_seen(&set, &[meta("a", 7), meta("b", 6)]), "an older pod");
        assert!(!is_seen(&set, &[meta("a", 7)]), "one that was there is missing");
        assert!(!is_seen(&set, &[meta("a", 7), meta("b", 8), meta("c", 9)]), "one that was gone is there");
        assert!(!look.is_seen(2, [&set].into_iter(), pods.iter()), "somebody else has led since");
    }
}
