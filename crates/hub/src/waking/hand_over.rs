//! Passes the writing of commits between threads: one writes at a time, and changes that gather
//! meanwhile are never left without a thread.
//!
//! A thread whose turn ends while another one writes queues its name and continues. The writing
//! thread checks the queue **and then** the changes when it is done. So either it passes the
//! changes to a queued thread, or it finds changes whose thread is too late to queue, and the
//! committing thread gets them.

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError, TryLockError};

/// The writer of commits, and the threads that wait for it.
#[derive(Debug)]
pub(crate) struct HandOver<W, T> {
    writer: Mutex<W>,
    /// Threads whose turn ended while another thread was writing.
    queue: Mutex<Vec<T>>,
}

/// The result of asking to write.
#[derive(Debug)]
pub(crate) enum Asked<'a, W> {
    /// No other thread is writing.
    Granted(MutexGuard<'a, W>),
    /// The writing thread will pass the changes on.
    Queued,
    /// A thread panicked while it was writing.
    Broken,
}

impl<W, T> HandOver<W, T> {
    pub(crate) fn new(writer: W) -> Self {
        Self {
            writer: Mutex::new(writer),
            queue: Mutex::new(Vec::new()),
        }
    }

    /// Waits for the writer.
    pub(crate) fn lock(&self) -> MutexGuard<'_, W> {
        // If another thread panicked while it held this lock, the daemon exits: `Committer::watch`.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gets the writer without blocking: if another thread is writing, queues this thread's name.
    pub(crate) fn ask(&self, name: impl FnOnce() -> T) -> Asked<'_, W> {
        match self.writer.try_lock() {
            Ok(writer) => Asked::Granted(writer),
            Err(TryLockError::WouldBlock) => {
                self.queue().push(name());
                Asked::Queued
            }
            Err(TryLockError::Poisoned(_)) => Asked::Broken,
        }
    }

    /// Called after writing, with the writer released. Returns the thread that commits next, or
    /// `Err` if there are changes but no such thread, so that the committing thread must commit.
    pub(crate) fn pass_on(&self, is_urgent: impl FnOnce() -> bool) -> Result<Option<T>, NoThread> {
        let waiting = std::mem::take(&mut *self.queue());
        if !is_urgent() {
            return Ok(None);
        }
        waiting.into_iter().next().map(Some).ok_or(NoThread)
    }

    /// The writer's lock, which is poisoned if a thread panicked while writing.
    pub(crate) const fn writer(&self) -> &Mutex<W> {
        &self.writer
    }

    fn queue(&self) -> MutexGuard<'_, Vec<T>> {
        // No holder of this lock can panic halfway through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is something to commit, but no thread waits to do it.
#[derive(Debug)]
pub(crate) struct NoThread;

/// Whether the committing thread is parked.
#[derive(Debug)]
pub(crate) struct Idle(AtomicBool);

impl Idle {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Called when the committing thread sees no work. Returns whether it may park, by checking
    /// once more after it has announced that.
    #[must_use]
    pub(crate) fn may_park(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.0.swap(true, Ordering::AcqRel);
        !has_work()
    }

    /// Called when there is work. Returns whether the committing thread must be unparked.
    #[must_use]
    pub(crate) fn must_wake(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}
