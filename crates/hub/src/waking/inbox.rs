//! What other threads leave for one thread, and whether it sleeps.

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

/// Things due for a thread. The thread looks at the end of each turn, so only one that sleeps costs a system call, and
/// only the first thing after it fell asleep does.
///
/// The thread sets `asleep` and reads `is_due`, the others set `is_due` and read `asleep`. All four steps replace what
/// they read, so of two that meet one sees the other: a plain load could miss both.
#[derive(Debug)]
pub struct Inbox<T> {
    due: Mutex<Due<T>>,
    /// `due` holds something.
    is_due: AtomicBool,
    asleep: AtomicBool,
}

#[derive(Debug, Default)]
struct Due<T> {
    due: T,
    /// The thread ends, and takes over nothing more.
    closed: bool,
}

impl<T: Default> Inbox<T> {
    /// An empty inbox of a thread that runs.
    pub fn new() -> Self {
        Self {
            due: Mutex::default(),
            is_due: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
        }
    }

    /// Adds something. Returns whether the thread sleeps, and the caller must wake it.
    #[must_use]
    pub fn add(&self, add: impl FnOnce(&mut T)) -> bool {
        add(&mut self.lock().due);
        self.note()
    }

    /// Adds that the thread ends. It finds that together with, or after, all that it takes over.
    #[must_use]
    pub fn close(&self, add: impl FnOnce(&mut T)) -> bool {
        let mut held = self.lock();
        held.closed = true;
        add(&mut held.due);
        drop(held);
        self.note()
    }

    /// Adds something that the thread takes over, unless the thread ends: then it comes back.
    pub fn offer<M>(&self, item: M, add: impl FnOnce(&mut T, M)) -> Result<bool, M> {
        let mut held = self.lock();
        if held.closed {
            return Err(item);
        }
        add(&mut held.due, item);
        drop(held);
        Ok(self.note())
    }

    /// Something is due. Returns whether the thread sleeps.
    fn note(&self) -> bool {
        self.is_due.swap(true, Ordering::AcqRel);
        self.asleep.swap(false, Ordering::AcqRel)
    }

    /// Whether there is something to look at.
    pub fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// Moves everything to `into`, which must be empty.
    pub fn take(&self, into: &mut T) {
        if self.is_due.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut self.lock().due, into);
        }
    }

    /// The thread is about to sleep: from now on it is woken. Returns `false` if it must not sleep.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        self.asleep.swap(true, Ordering::AcqRel);
        !self.is_due.fetch_or(false, Ordering::AcqRel)
    }

    /// The thread runs again.
    pub fn wake_up(&self) {
        self.asleep.store(false, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Due<T>> {
        // Nothing that holds this lock can panic half way through a change.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
