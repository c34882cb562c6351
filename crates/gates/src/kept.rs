//! What is kept for others, within a number of bytes. What was used longest ago makes room; nothing else does, so whoever keeps
//! something says how large it is as soon as that is known.

use std::sync::Arc;

use lru::LruCache;

/// Everything that makes two requests the same, as a keyed hash: no credential is kept.
pub(crate) type Fingerprint = [u8; 32];

/// What an entry takes beside its texts: fingerprint, links, and the entry itself.
const OVERHEAD: usize = 512;

/// Entries by fingerprint.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    entries: LruCache<Fingerprint, Weighed<T>>,
    bytes: usize,
    budget: usize,
}

#[derive(Debug)]
struct Weighed<T> {
    entry: Arc<T>,
    bytes: usize,
}

impl<T> Kept<T> {
    /// Nothing yet, and never more than `budget` bytes.
    pub(crate) fn new(budget: usize) -> Self {
        Self { entries: LruCache::unbounded(), bytes: 0, budget }
    }

    /// The entry, which counts as used now.
    pub(crate) fn get(&mut self, fingerprint: &Fingerprint) -> Option<&Arc<T>> {
        self.entries.get(fingerprint).map(|kept| &kept.entry)
    }

    /// Keeps `entry` in the place of another.
    pub(crate) fn put(&mut self, fingerprint: Fingerprint, entry: Arc<T>) {
        self.forget_if(&fingerprint, |_| true);
        self.entries.put(fingerprint, Weighed { entry, bytes: OVERHEAD });
        self.bytes += OVERHEAD;
        self.make_room();
    }

    /// Notes that the texts of `entry` take so many bytes. Nothing happens if it is not kept any more.
    pub(crate) fn weigh(&mut self, fingerprint: &Fingerprint, entry: &Arc<T>, texts: usize) {
        let Some(kept) = self.entries.peek_mut(fingerprint).filter(|kept| Arc::ptr_eq(&kept.entry, entry)) else {
            return;
        };
        let bytes = OVERHEAD + texts;
        self.bytes = self.bytes - kept.bytes + bytes;
        kept.bytes = bytes;
        self.make_room();
    }

    /// Forgets what stands there, if it is `entry`.
    pub(crate) fn forget(&mut self, fingerprint: &Fingerprint, entry: &Arc<T>) {
        self.forget_if(fingerprint, |kept| Arc::ptr_eq(kept, entry));
    }

    /// Forgets all that is of no use.
    pub(crate) fn forget_all(&mut self, is_useless: impl Fn(&Arc<T>) -> bool) {
        let bytes = &mut self.bytes;
        self.entries.retain(|_, kept| {
            let is_kept = !is_useless(&kept.entry);
            *bytes -= if is_kept { 0 } else { kept.bytes };
            is_kept
        });
    }

    fn forget_if(&mut self, fingerprint: &Fingerprint, is_meant: impl Fn(&Arc<T>) -> bool) {
        if self.entries.peek(fingerprint).is_some_and(|kept| is_meant(&kept.entry))
            && let Some(kept) = self.entries.pop(fingerprint)
        {
            self.bytes -= kept.bytes;
        }
    }

    fn make_room(&mut self) {
        while self.bytes > self.budget {
            let Some((_, kept)) = self.entries.pop_lru() else { break };
            self.bytes -= kept.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(sizes: &[usize]) -> (Kept<u8>, Vec<Arc<u8>>) {
        let mut kept = Kept::new(10 * OVERHEAD);
        let entries: Vec<_> = (0..sizes.len()).map(|n| Arc::new(u8::try_from(n).unwrap())).collect();
        for (entry, texts) in entries.iter().zip(sizes) {
            kept.put([**entry; 32], Arc::clone(entry));
            kept.weigh(&[**entry; 32], entry, *texts);
        }
        (kept, entries)
    }

    fn there(kept: &Kept<u8>) -> Vec<u8> {
        let mut there: Vec<_> = kept.entries.iter().map(|(_, kept)| *kept.entry).collect();
        there.sort_unstable();
        let sum: usize = kept.entries.iter().map(|(_, kept)| kept.bytes).sum();
        assert_eq!(sum, kept.bytes);
        assert!(kept.bytes <= kept.budget);
        there
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let (mut kept, _) = filled(&[0; 10]);
        assert_eq!(there(&kept).len(), 10);
        assert!(kept.get(&[0; 32]).is_some());
        kept.put([10; 32], Arc::new(10));
        assert_eq!(there(&kept), [0, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn bytes_count_and_not_entries() {
        let (kept, _) = filled(&[0, 0, 4 * OVERHEAD, 4 * OVERHEAD]);
        assert_eq!(there(&kept), [2, 3]);
        let (kept, _) = filled(&[0, 0, 10 * OVERHEAD]);
        assert_eq!(there(&kept), [0_u8; 0], "larger than all that may be kept");
    }

    #[test]
    fn what_is_not_kept_any_more_weighs_nothing() {
        let (mut kept, entries) = filled(&[0, 0]);
        let newer = Arc::new(7);
        kept.put([0; 32], Arc::clone(&newer));
        kept.weigh(&[0; 32], &entries[0], 9 * OVERHEAD);
        kept.forget(&[0; 32], &entries[0]);
        assert_eq!(there(&kept), [1, 7]);
        kept.forget(&[0; 32], &newer);
        kept.forget_all(|entry| **entry == 1);
        assert_eq!((there(&kept), kept.bytes), (vec![], 0));
    }
}
