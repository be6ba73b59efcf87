//! What other threads have queued for one thread, and whether it sleeps.

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

/// Work queued for a thread. The thread checks it at the end of each turn, so a system call is
/// needed only for the first addition after it fell asleep.
///
/// The thread sets `asleep` and then reads `is_due`; the others set `is_due` and then read
/// `asleep`. All four steps are atomic swaps, so that at least one side sees the other, which plain
/// loads would not guarantee.
#[derive(Debug)]
pub struct Inbox<T> {
    due: Mutex<Due<T>>,
    /// Whether `due` contains anything.
    is_due: AtomicBool,
    asleep: AtomicBool,
}

#[derive(Debug, Default)]
struct Due<T> {
    due: T,
    /// Whether the thread is stopping and takes nothing over.
    closed: bool,
}

impl<T: Default> Inbox<T> {
    /// The empty inbox of a running thread.
    pub fn new() -> Self {
        Self {
            due: Mutex::default(),
            is_due: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
        }
    }

    /// Adds something. Returns whether the thread is asleep, and the caller must wake it.
    #[must_use]
    pub fn add(&self, add: impl FnOnce(&mut T)) -> bool {
        add(&mut self.lock().due);
        self.note()
    }

    /// Adds the request to stop. The thread finds it together with, or after, everything it takes
    /// over.
    #[must_use]
    pub fn close(&self, add: impl FnOnce(&mut T)) -> bool {
        let mut held = self.lock();
        held.closed = true;
        add(&mut held.due);
        drop(held);
        self.note()
    }

    /// Adds something that the thread takes over. Returns it if the thread is stopping.
    pub fn offer<M>(&self, item: M, add: impl FnOnce(&mut T, M)) -> Result<bool, M> {
        let mut held = self.lock();
        if held.closed {
            return Err(item);
        }
        add(&mut held.due, item);
        drop(held);
        Ok(self.note())
    }

    /// Sets the flag. Returns whether the thread is asleep.
    fn note(&self) -> bool {
        self.is_due.swap(true, Ordering::AcqRel);
        self.asleep.swap(false, Ordering::AcqRel)
    }

    /// Whether there is anything to handle.
    pub fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// Moves everything to `into`, which must be empty.
    pub fn take(&self, into: &mut T) {
        if self.is_due.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut self.lock().due, into);
        }
    }

    /// Called when the thread is about to sleep and must be woken from now on. Returns `false` if
    /// it must not sleep.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        self.asleep.swap(true, Ordering::AcqRel);
        !self.is_due.fetch_or(false, Ordering::AcqRel)
    }

    /// Called when the thread runs again.
    pub fn wake_up(&self) {
        self.asleep.store(false, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Due<T>> {
        // No holder of this lock can panic halfway through a change.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
