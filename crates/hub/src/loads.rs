//! The work and figures of the thread that moves bodies ([`crate::loading`]), shared with the hub.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::Thread;

use bytes::Bytes;
use windlass_engine::{JobId, Stored};
use windlass_store::BodyReader;

use crate::mailbox::Mailbox;
use crate::shared::{Flag, lock};

/// A body that a client waits for, or soon will.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) job: JobId,
    pub(crate) from: Stored,
    /// The mailbox whose mail or command waits for it.
    pub(crate) who: Option<Arc<Mailbox>>,
    /// Whether only mail needs it. The job keeps it if there is memory.
    pub(crate) is_for_mail: bool,
}

/// The thread's pending work.
#[derive(Debug, Default)]
pub struct Loading {
    todo: Mutex<Todo>,
    pub(crate) thread: OnceLock<Thread>,
    pub(crate) reader: OnceLock<BodyReader>,
    /// Whether bodies cannot be moved to disk now, because it is full or none can be moved.
    pub(crate) is_stuck: Flag,
    /// Figures for metrics.
    pub figures: LoadFigures,
}

#[derive(Debug, Default)]
pub(crate) struct Todo {
    pub(crate) loads: Vec<Load>,
    /// Places to free once this commit is on disk.
    pub(crate) freed: VecDeque<(u64, Vec<Stored>)>,
    pub(crate) is_short: bool,
}

/// Bodies that can be moved to disk.
pub(crate) struct Cool {
    pub(crate) bodies: Vec<(JobId, Bytes)>,
    /// Whether packing has already reduced the size of jobs.
    pub(crate) has_packed: bool,
    /// How many such searches complete a round and cover all jobs twice more.
    pub(crate) looks: usize,
}

/// Figures for metrics.
#[derive(Debug, Default)]
pub struct LoadFigures {
    /// Bodies read.
    pub loads: AtomicU64,
    /// Bodies that a client waited for.
    pub waited: AtomicU64,
    /// Time spent reading, in microseconds.
    pub load_us: AtomicU64,
    /// Bodies that could not be read.
    pub failed: AtomicU64,
    /// Size of the file on disk, in bytes.
    pub disk_bytes: AtomicU64,
}

impl Loading {
    /// The reader of bodies, if any can be stored.
    pub(crate) fn reader(&self) -> io::Result<&BodyReader> {
        self.reader
            .get()
            .ok_or_else(|| io::Error::other("no scratch file"))
    }

    /// Whether bodies can be moved to disk.
    pub(crate) fn makes_room(&self) -> bool {
        self.thread.get().is_some() && !self.is_stuck.get()
    }

    /// Requests these bodies.
    pub(crate) fn load(&self, loads: Vec<Load>) {
        if !loads.is_empty() {
            self.add(|todo| todo.loads.extend(loads));
        }
    }

    /// Frees these places once this commit is on disk.
    pub(crate) fn free(&self, commit: u64, places: Vec<Stored>) {
        if !places.is_empty() {
            self.add(|todo| todo.freed.push_back((commit, places)));
        }
    }

    /// Requests that memory is freed.
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
        lock(&self.todo)
    }
}
