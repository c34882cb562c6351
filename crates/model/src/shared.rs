//! A part of a world that most of its copies have in common: a search copies worlds all the time and changes little in each.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

/// It reads and is written like a `T`; the first write after a copy takes a copy of the `T`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared<T>(Arc<T>);

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}
