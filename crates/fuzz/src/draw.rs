//! Values from bytes. Extremes and neighbours are frequent, and an end of the bytes gives the plainest value of a kind.

use arbitrary::Unstructured;
use jiff::{SignedDuration, Timestamp};

/// Bytes that are used up as values.
pub(crate) struct Draw<'a>(Unstructured<'a>);

impl<'a> Draw<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From 0 to `below` - 1.
    pub(crate) fn below(&mut self, below: u8) -> u8 {
        self.0.arbitrary::<u8>().unwrap_or_default() % below
    }

    /// True in one of `of` cases.
    pub(crate) fn rarely(&mut self, of: u8) -> bool {
        self.below(of) == of - 1
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    /// One of these.
    pub(crate) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        let count = u8::try_from(of.len()).expect("a short list");
        of[usize::from(self.below(count))].clone()
    }

    /// Now and then one of these.
    pub(crate) fn maybe<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        self.flag().then(|| self.one(of))
    }

    /// Up to `most` values.
    pub(crate) fn list<T>(&mut self, most: u8, mut draw: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| draw(self)).collect()
    }

    /// Mostly a small number, sometimes one at the end of the range, sometimes any.
    pub(crate) fn number(&mut self) -> i32 {
        match self.below(12) {
            8 => i32::MAX,
            9 => i32::MIN,
            10 => -1,
            11 => self.0.arbitrary().unwrap_or_default(),
            small => i32::from(small),
        }
    }

    /// As [`Self::number`], for generations.
    pub(crate) fn generation(&mut self) -> i64 {
        match self.below(8) {
            6 => i64::MAX,
            7 => i64::MIN,
            small => i64::from(small),
        }
    }

    /// Mostly within an hour of [`noon`], sometimes at the end of all times.
    pub(crate) fn time(&mut self) -> Timestamp {
        match self.below(16) {
            13 => Timestamp::MIN,
            14 => Timestamp::MAX,
            15 => Timestamp::UNIX_EPOCH,
            _ => {
                let seconds = self.0.arbitrary::<i16>().unwrap_or_default() % 3600;
                noon().saturating_add(SignedDuration::from_secs(seconds.into())).unwrap_or(noon())
            }
        }
    }

    pub(crate) fn maybe_time(&mut self) -> Option<Timestamp> {
        self.flag().then(|| self.time())
    }
}

/// The time around which things happen.
pub(crate) fn noon() -> Timestamp {
    Timestamp::from_second(1_767_355_200).unwrap_or_default()
}
