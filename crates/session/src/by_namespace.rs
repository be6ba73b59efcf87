//! What each namespace has of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values of namespaces by their names, each made when it is first asked for.
#[derive(Debug)]
pub struct ByNamespace<T>(Mutex<BTreeMap<Box<str>, Arc<T>>>);

impl<T> Default for ByNamespace<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ByNamespace<T> {
    /// That of a namespace.
    pub fn get_or(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let mut all = self.lock();
        if let Some(known) = all.get(name) {
            return Arc::clone(known);
        }
        let new = Arc::new(make());
        all.insert(name.into(), Arc::clone(&new));
        new
    }

    /// Those that were asked for so far.
    pub fn all(&self) -> BTreeMap<Box<str>, Arc<T>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
