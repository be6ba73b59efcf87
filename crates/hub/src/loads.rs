//! The work of the thread that moves bodies ([`crate::loading`]), and its figures. Shared with the hub.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use windlass_engine::{JobId, Stored};
use windlass_store::BodyReader;

use crate::mailbox::Mailbox;

/// A client waits for a body, or will soon.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) job: JobId,
    pub(crate) from: Stored,
    /// Whose mail, or whose command, waits for it.
    pub(crate) who: Option<Arc<Mailbox>>,
    /// Only mail needs it: the job keeps it as far as there is room.
    pub(crate) is_for_mail: bool,
}

/// The thread's work.
#[derive(Debug, Default)]
pub struct Loading {
    todo: Mutex<Todo>,
    pub(crate) thread: OnceLock<Thread>,
    pub(crate) reader: OnceLock<BodyReader>,
    /// Bodies cannot leave memory now: the disk is full, or none is left that could.
    pub(crate) is_stuck: AtomicBool,
    pub(crate) figures: LoadFigures,
}

#[derive(Debug, Default)]
pub(crate) struct Todo {
    pub(crate) loads: Vec<Load>,
    /// Places that are free once this commit is on the disk.
    pub(crate) freed: VecDeque<(u64, Vec<Stored>)>,
    pub(crate) is_short: bool,
}

/// Figures for metrics.
#[derive(Debug, Default)]
pub struct LoadFigures {
    /// Bodies that were read.
    pub loads: AtomicU64,
    /// Bodies for which a client waited.
    pub waited: AtomicU64,
    /// The time that reads have taken, in microseconds.
    pub load_us: AtomicU64,
    /// Bodies that could not be read.
    pub failed: AtomicU64,
    /// Bytes of the file on the disk.
    pub disk_bytes: AtomicU64,
}

impl Loading {
    /// Figures for metrics.
    pub const fn figures(&self) -> &LoadFigures {
        &self.figures
    }

    /// Reads bodies, if any can be stored.
    pub(crate) fn reader(&self) -> io::Result<&BodyReader> {
        self.reader
            .get()
            .ok_or_else(|| io::Error::other("no scratch file"))
    }

    /// Whether bodies can leave memory.
    pub(crate) fn makes_room(&self) -> bool {
        self.thread.get().is_some() && !self.is_stuck.load(Ordering::Acquire)
    }

    /// Loads these bodies.
    pub(crate) fn load(&self, loads: Vec<Load>) {
        if !loads.is_empty() {
            self.add(|todo| todo.loads.extend(loads));
        }
    }

    /// These places are free once this commit is on the disk.
    pub(crate) fn free(&self, commit: u64, places: Vec<Stored>) {
        if !places.is_empty() {
            self.add(|todo| todo.freed.push_back((commit, places)));
        }
    }

    /// Memory is short.
    pub(crate) fn make_room(&self) {
        if self.makes_room() && !std::mem::replace(&mut self.lock().is_short, true) {
            self.add(|_| {});
        }
    }

    fn add(&self, add: impl FnOnce(&mut Todo)) {
        add(&mut self.lock());
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
