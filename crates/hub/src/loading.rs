//! The thread that moves bodies out of memory and back: it owns the file of bodies ([`BodyFile`]).
//!
//! ```text
//!   the engine's lock                            this thread
//!   a visit: who waits for which body ─────────► read · give bodies to jobs and to mail · ring
//!            bodies that are needed soon ──────► read · give them to jobs
//!            places that are free ─────────────► free them, once the commit behind them is on the disk
//!            memory is short ──────────────────► ask the engine for bodies · write them · report their places
//! ```
//!
//! It does what came first first, so a place is freed after all who asked for it have been served. A commit that needs
//! a body reads it itself, before it is written ([`Loading::reader`]).

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::HashMap;
use windlass_engine::{JobId, Stored};
use windlass_store::{BodyFile, BodyReader};

use crate::hub::Hub;
use crate::mailbox::Mailbox;

/// Bytes that are moved out of memory at once.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes that are read before the bodies are given out.
const READ_BYTES: u64 = 8 << 20;
/// How long a body that cannot be read is tried again, before its client is told.
const TRIED_FOR: Duration = Duration::from_secs(2);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause after memory could not be relieved, at first and at most.
const STUCK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Places that are freed before more bodies leave memory.
const FREED_MAX: usize = 1_024;

/// Somebody waits for a body, or will soon.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) job: JobId,
    pub(crate) from: Stored,
    /// Whose mail, or whose command, waits for it.
    pub(crate) who: Option<Arc<Mailbox>>,
}

/// What the thread has to do. Shared with the hub.
#[derive(Debug, Default)]
pub struct Loading {
    todo: Mutex<Todo>,
    thread: OnceLock<Thread>,
    reader: OnceLock<BodyReader>,
    /// Bodies cannot leave memory now: the disk is full, or none is left that could.
    is_stuck: AtomicBool,
    figures: LoadFigures,
}

#[derive(Debug, Default)]
struct Todo {
    loads: Vec<Load>,
    /// Places that are free once this commit is on the disk.
    freed: VecDeque<(u64, Vec<Stored>)>,
    /// Those who have jobs for which memory has no room now.
    for_room: Vec<Arc<Mailbox>>,
    is_short: bool,
}

impl Todo {
    /// Whether somebody waits, or the file grows for nothing.
    fn comes_first(&self) -> bool {
        !self.loads.is_empty() || self.freed.len() > FREED_MAX
    }
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
    pub(crate) fn reader(&self) -> Option<&BodyReader> {
        self.reader.get()
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

    /// Rings a mailbox when there is room for its job.
    pub(crate) fn ring_for_room(&self, mailbox: &Arc<Mailbox>) {
        self.add(|todo| {
            todo.is_short = true;
            todo.for_room.push(Arc::clone(mailbox));
        });
    }

    fn add(&self, add: impl FnOnce(&mut Todo)) {
        add(&mut self.lock());
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle on the thread.
#[derive(Debug)]
pub struct Loader {
    thread: Thread,
    stop: Arc<AtomicBool>,
}

impl Loader {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// The thread cannot start.
    pub fn start(hub: Arc<Hub>, file: BodyFile) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let _ = hub.loading.reader.set(file.reader());
        let work = Work { hub: Arc::clone(&hub), file, again: Vec::new(), stuck: None, stop: Arc::clone(&stop) };
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| work.run())).is_err() {
                // Clients would wait for their jobs for ever. The log lacks nothing that was acknowledged.
                tracing::error!(
                    "the thread that loads bodies panicked: exiting, so that the daemon restarts from its journal"
                );
                std::process::exit(1);
            }
        };
        let thread = thread::Builder::new().name("bodies".into()).spawn(run)?;
        let thread = thread.thread().clone();
        let _ = hub.loading.thread.set(thread.clone());
        thread.unpark();
        Ok(Self { thread, stop })
    }
}

impl Drop for Loader {
    /// Ends the thread. Nobody may wait for a body any more.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

struct Work {
    hub: Arc<Hub>,
    file: BodyFile,
    /// Bodies that could not be read, and since when.
    again: Vec<(Load, Instant)>,
    /// Memory could not be relieved: until when it is not tried again, and the next such pause.
    stuck: Option<(Instant, Duration)>,
    stop: Arc<AtomicBool>,
}

impl Work {
    fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let Todo { loads, for_room, is_short, freed } = std::mem::take(&mut *self.hub.loading.lock());
            let is_short = match self.stuck {
                Some((until, _)) => Instant::now() >= until,
                None => is_short,
            };
            let is_idle = loads.is_empty() && !is_short;
            self.load(loads);
            self.free(freed);
            if is_short {
                self.make_room();
            }
            for_room.iter().for_each(|mailbox| mailbox.ring());
            self.hub.loading.figures.disk_bytes.store(self.file.disk_bytes(), Ordering::Relaxed);
            if is_idle {
                self.rest();
            }
        }
    }

    /// Waits until there is something to do.
    fn rest(&self) {
        let is_pending = !self.again.is_empty() || !self.hub.loading.lock().freed.is_empty();
        let stuck = self.stuck.map(|(until, _)| until.saturating_duration_since(Instant::now()));
        match is_pending.then_some(PAUSE).into_iter().chain(stuck).min() {
            Some(pause) => thread::park_timeout(pause),
            None => thread::park(),
        }
    }

    // ---- back into memory -------------------------------------------------------------------------------------------

    fn load(&mut self, new: Vec<Load>) {
        let now = Instant::now();
        let mut all = std::mem::take(&mut self.again);
        all.extend(new.into_iter().map(|load| (load, now)));
        // Neighbours are read one after the other; those that a client waits for come first.
        all.sort_by_key(|(load, _)| (load.who.is_none(), load.from.at));
        let mut all = all.into_iter().peekable();
        while all.peek().is_some() {
            let (mut part, mut bytes) = (Vec::new(), 0);
            let is_waited_for = |(load, _): &(Load, Instant)| load.who.is_some();
            let first = all.peek().is_some_and(is_waited_for);
            while bytes < READ_BYTES
                && let Some(next) = all.next_if(|next| is_waited_for(next) == first)
            {
                bytes += u64::from(next.0.from.len);
                part.push(next);
            }
            self.load_part(part);
        }
    }

    fn load_part(&mut self, part: Vec<(Load, Instant)>) {
        let (begun, figures) = (Instant::now(), &self.hub.loading.figures);
        let mut bodies: HashMap<(JobId, Stored), Bytes> = HashMap::default();
        let (mut served, mut failed) = (Vec::new(), Vec::new());
        for (load, since) in part {
            let key = (load.job, load.from);
            let body = match bodies.get(&key) {
                Some(_) => Ok(()),
                None => self.file.reader().read(load.from).map(|body| drop(bodies.insert(key, body))),
            };
            match body {
                Ok(()) => served.extend(load.who),
                Err(error) => failed.push((load, since, error)),
            }
        }
        let us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        figures.load_us.fetch_add(us, Ordering::Relaxed);
        figures.loads.fetch_add(bodies.len() as u64, Ordering::Relaxed);
        figures.waited.fetch_add(served.len() as u64, Ordering::Relaxed);
        self.hub.set_loaded(&bodies);
        served.sort_by_key(|mailbox| mailbox.client());
        served.dedup_by_key(|mailbox| mailbox.client());
        served.iter().for_each(|mailbox| mailbox.supply(|job, from| bodies.get(&(job, from)).cloned()));
        failed.into_iter().for_each(|(load, since, error)| self.failed(load, since, &error));
    }

    /// A body cannot be read. Nobody else waits for it: a job that is not needed yet is tried again when it is.
    fn failed(&mut self, load: Load, since: Instant, error: &io::Error) {
        let Some(mailbox) = &load.who else { return };
        if since.elapsed() < TRIED_FOR && !self.hub.stopping() {
            self.again.push((load, since));
            return;
        }
        self.hub.loading.figures.failed.fetch_add(1, Ordering::Relaxed);
        let job = load.job.0;
        let reason = "body cannot be read";
        crate::warn_limited!(reason, %error, job, "a job's body cannot be read back into memory: the job keeps its place");
        self.hub.cannot_load(mailbox, load.job);
    }

    // ---- out of memory ----------------------------------------------------------------------------------------------

    fn free(&mut self, freed: VecDeque<(u64, Vec<Stored>)>) {
        let durable = self.hub.durable();
        let (now, later): (Vec<_>, Vec<_>) = freed.into_iter().partition(|(commit, _)| *commit <= durable);
        now.into_iter().flat_map(|(_, places)| places).for_each(|stored| self.file.free(stored));
        let mut todo = self.hub.loading.lock();
        later.into_iter().rev().for_each(|one| todo.freed.push_front(one));
    }

    /// Moves bodies out until there is room, or none is left that can go. Jobs that are needed meanwhile come first.
    fn make_room(&mut self) {
        let mut in_vain = 0;
        while self.hub.is_short_of_memory() && !self.stop.load(Ordering::Acquire) {
            if self.hub.loading.lock().comes_first() {
                return self.hub.loading.add(|todo| todo.is_short = true);
            }
            let (bodies, looks) = self.hub.cool(STEP_BYTES);
            in_vain = if bodies.is_empty() { in_vain + 1 } else { 0 };
            if in_vain > looks {
                return self.is_stuck("no body is left that could leave it");
            }
            let (places, written) = self.file.write_all(bodies.iter().map(|(_, body)| &body[..]));
            let kept = self.hub.set_stored(&bodies, &places);
            kept.into_iter().for_each(|stored| self.file.free(stored));
            if let Err(error) = written {
                return self.is_stuck(&error.to_string());
            }
        }
        self.stuck = None;
        self.hub.loading.is_stuck.store(false, Ordering::Release);
    }

    /// Memory cannot be relieved for a while: what does not fit is refused.
    fn is_stuck(&mut self, why: &str) {
        let (_, pause) = self.stuck.unwrap_or((Instant::now(), STUCK.0));
        self.stuck = Some((Instant::now() + pause, (pause * 2).min(STUCK.1)));
        let reason = "memory cannot be relieved";
        crate::warn_limited!(
            reason,
            why,
            "memory for jobs is three quarters full (limits.memory), and bodies cannot leave it now"
        );
        self.hub.loading.is_stuck.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut self.hub.loading.lock().for_room);
        waiting.iter().for_each(|mailbox| mailbox.ring());
    }
}
