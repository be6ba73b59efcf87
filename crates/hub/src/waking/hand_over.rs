//! How threads that commit hand over: one writes at a time, and the changes that gather meanwhile find a thread.
//!
//! A thread whose turn ends while another one writes leaves its name and goes on. The thread that has written looks at
//! the names **and then** at the changes. So it passes the changes to a thread that left its name, or it finds changes
//! whose thread comes too late with its name, and the committing thread gets them.

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError, TryLockError};

/// What writes commits, and the threads that wait for it.
#[derive(Debug)]
pub(crate) struct HandOver<W, T> {
    writer: Mutex<W>,
    /// Threads whose turn ended while another thread wrote.
    queue: Mutex<Vec<T>>,
}

/// A thread asks to write.
#[derive(Debug)]
pub(crate) enum Asked<'a, W> {
    /// No other thread writes.
    Granted(MutexGuard<'a, W>),
    /// The thread that writes passes the changes on.
    Queued,
    /// A thread has panicked while it wrote.
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
        // A panic of another thread that held this lock ends the daemon: `Committer::watch`.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer, for a thread that does not wait: if another thread writes, it leaves its name.
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

    /// The thread has written, and has let go of the writer. Returns the thread that commits next, or `Err` if there are
    /// changes and no such thread: then the committing thread must.
    pub(crate) fn pass_on(&self, is_urgent: impl FnOnce() -> bool) -> Result<Option<T>, NoThread> {
        let waiting = std::mem::take(&mut *self.queue());
        if !is_urgent() {
            return Ok(None);
        }
        waiting.into_iter().next().map(Some).ok_or(NoThread)
    }

    /// The writer's lock, which a thread that panicked while it wrote has poisoned.
    pub(crate) const fn writer(&self) -> &Mutex<W> {
        &self.writer
    }

    fn queue(&self) -> MutexGuard<'_, Vec<T>> {
        // Nothing that holds this lock can panic half way through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is something to commit, and no thread waits for that.
#[derive(Debug)]
pub(crate) struct NoThread;

/// Whether the committing thread rests.
#[derive(Debug)]
pub(crate) struct Idle(AtomicBool);

impl Idle {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// The committing thread has nothing to do, as far as it knows. Returns whether it may park: it looks once more after
    /// it has announced that.
    #[must_use]
    pub(crate) fn may_park(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.0.swap(true, Ordering::AcqRel);
        !has_work()
    }

    /// There is work. Returns whether the committing thread must be unparked.
    #[must_use]
    pub(crate) fn must_wake(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}
