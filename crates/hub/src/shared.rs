//! State that threads share without a protocol of their own; `waking` has those that need one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A flag that any thread reads and sets. A thread that sees it set also sees what the other one
/// did before.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    #[cfg(test)]
    pub(crate) const fn new(yes: bool) -> Self {
        Self(AtomicBool::new(yes))
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, yes: bool) {
        self.0.store(yes, Ordering::Release);
    }

    /// Sets it, and returns the previous value.
    pub(crate) fn replace(&self, yes: bool) -> bool {
        self.0.swap(yes, Ordering::AcqRel)
    }
}

/// Locks a mutex of which no holder can panic halfway through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
