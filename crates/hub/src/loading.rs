//! The thread that moves bodies out of memory and back: it owns the file of bodies ([`BodyFile`]).
//!
//! ```text
//!   the engine's lock                        this thread
//!   a visit: mail that waits for bodies ──► read · give bodies to jobs and to mail · ring
//!            bodies that are needed soon ──► read · give them to jobs
//!            places that are free ─────────► free them, once the commit behind them is on the disk
//!            memory is short ──────────────► ask the engine for bodies · write them · report their places
//! ```
//!
//! Requests are served in their order, so a place is freed after all requests for it. A commit that needs
//! a body reads it itself, before it is written (`crate::loads::Loading::reader`).

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::{HashMap, HashSet};
use windlass_engine::{JobId, Stored};
use windlass_store::BodyFile;

use crate::hub::Hub;
use crate::loads::{Cool, Load, Todo};
use crate::shared::Flag;

/// Bytes moved out of memory per step.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes read before the bodies are delivered.
const READ_BYTES: u64 = 8 << 20;
/// Bodies delivered together.
const READ_BODIES: usize = 1_024;
/// How long an unreadable body is retried before its job is skipped, which is less than HTTP
/// clients wait.
const TRIED_FOR: Duration = Duration::from_secs(1);
/// Maximum number of bodies remembered as unreadable.
const GIVEN_UP_MAX: usize = 1 << 16;
/// Pause between retries, and after a failed write.
const PAUSE: Duration = Duration::from_millis(100);

/// The handle of the thread.
#[derive(Debug)]
pub struct Loader {
    thread: Thread,
    stop: Arc<Flag>,
}

impl Loader {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(hub: Arc<Hub>, file: BodyFile) -> io::Result<Self> {
        let stop = Arc::<Flag>::default();
        let _ = hub.loading.reader.set(file.reader());
        let work = Work {
            hub: Arc::clone(&hub),
            file,
            again: Vec::new(),
            given_up: HashSet::default(),
            stuck_until: None,
            stop: Arc::clone(&stop),
        };
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| work.run())).is_err() {
                // Clients would wait for their jobs forever. The log contains everything that was
                // acknowledged.
                tracing::error!("body loader panicked: exiting to restart from the journal");
                crate::last_words::exit();
            }
        };
        let thread = thread::Builder::new()
            .name("bodies".into())
            .spawn(run)?
            .thread()
            .clone();
        let _ = hub.loading.thread.set(thread.clone());
        thread.unpark();
        Ok(Self { thread, stop })
    }
}

impl Drop for Loader {
    /// Stops the thread. No client may wait for a body then.
    fn drop(&mut self) {
        self.stop.set(true);
        self.thread.unpark();
    }
}

struct Work {
    hub: Arc<Hub>,
    file: BodyFile,
    /// Bodies that could not be read, and since when.
    again: Vec<(Load, Instant)>,
    /// Bodies that were unreadable for that long: the next client that needs one gets its reply
    /// after one try.
    given_up: HashSet<(JobId, Stored)>,
    /// When it checks again whether bodies can be moved.
    stuck_until: Option<Instant>,
    stop: Arc<Flag>,
}

impl Work {
    fn run(mut self) {
        while !self.stop.get() {
            if self.step() {
                continue;
            }
            if self.again.is_empty()
                && self.stuck_until.is_none()
                && self.hub.loading.lock().freed.is_empty()
            {
                thread::park();
            } else {
                thread::park_timeout(PAUSE);
            }
        }
    }

    /// Does the pending work. Returns whether any of it could lead to more.
    fn step(&mut self) -> bool {
        let Todo {
            loads,
            is_short,
            freed,
        } = std::mem::take(&mut *self.hub.loading.lock());
        let is_busy = !loads.is_empty() || is_short;
        self.load(loads);
        self.free(freed);
        if self
            .stuck_until
            .is_some_and(|until| until <= Instant::now())
        {
            self.stuck_until = None;
            self.hub.loading.is_stuck.set(false);
        }
        if is_short && self.stuck_until.is_none() {
            self.make_room();
        }
        self.hub
            .loading
            .figures
            .disk_bytes
            .store(self.file.disk_bytes(), Ordering::Relaxed);
        is_busy
    }

    // ---- back into memory
    // -------------------------------------------------------------------------------

    fn load(&mut self, new: Vec<Load>) {
        let mut all = std::mem::take(&mut self.again);
        self.sort_in(new, &mut all);
        while let Some((first, _)) = all.last() {
            let is_ahead = first.who.is_none();
            // Bodies that no client waits for are loaded only while there is memory.
            let most = if is_ahead {
                self.hub.memory_left().min(READ_BYTES)
            } else {
                READ_BYTES
            };
            if most == 0 {
                return;
            }
            let mut part = Vec::new();
            let mut bytes = 0;
            while bytes < most
                && part.len() < READ_BODIES
                && let Some(next) = all.pop_if(|(load, _)| load.who.is_none() == is_ahead)
            {
                bytes += u64::from(next.0.from.len);
                part.push(next);
            }
            self.load_part(part);
            let new = std::mem::take(&mut self.hub.loading.lock().loads);
            self.sort_in(new, &mut all);
        }
    }

    /// Sorts neighbours together; those that a client waits for are at the end, where reading
    /// starts.
    fn sort_in(&self, new: Vec<Load>, all: &mut Vec<(Load, Instant)>) {
        if !new.is_empty() || !all.is_empty() {
            let now = Instant::now();
            all.extend(new.into_iter().map(|load| (load, now)));
            all.sort_by_key(|(load, _)| Reverse((load.who.is_none(), load.from.at)));
        }
    }

    fn load_part(&mut self, part: Vec<(Load, Instant)>) {
        let begun = Instant::now();
        let figures = &self.hub.loading.figures;
        let mut bodies: HashMap<(JobId, Stored), Bytes> = HashMap::default();
        let mut served = Vec::new();
        let mut failed = Vec::new();
        let mut room = self.hub.memory_left();
        let mut for_mail = HashSet::default();
        for (load, since) in part {
            let key = (load.job, load.from);
            match room.checked_sub(load.from.len.into()) {
                None if load.is_for_mail => drop(for_mail.insert(key)),
                left => room = left.unwrap_or_default(),
            }
            if let Entry::Vacant(place) = bodies.entry(key) {
                match self.file.reader().read(load.from) {
                    Ok(body) => drop(place.insert(body)),
                    Err(error) => {
                        failed.push((load, since, error));
                        continue;
                    }
                }
            }
            served.extend(load.who);
        }
        let us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        figures.load_us.fetch_add(us, Ordering::Relaxed);
        figures
            .loads
            .fetch_add(bodies.len() as u64, Ordering::Relaxed);
        figures
            .waited
            .fetch_add(served.len() as u64, Ordering::Relaxed);
        if !self.given_up.is_empty() {
            self.given_up.retain(|key| !bodies.contains_key(key));
        }
        self.hub
            .set_loaded(bodies.iter().filter(|(key, _)| !for_mail.contains(*key)));
        served.sort_by_key(|mailbox| mailbox.client());
        served.dedup_by_key(|mailbox| mailbox.client());
        for mailbox in served {
            mailbox.supply(|job, from| bodies.get(&(job, from)).cloned());
        }
        for (load, since, error) in failed {
            self.failed(load, since, &error);
        }
    }

    /// Handles an unreadable body, which is retried for a while; if no client waits for it, when
    /// one does.
    fn failed(&mut self, load: Load, since: Instant, error: &io::Error) {
        let Some(mailbox) = &load.who else { return };
        let key = (load.job, load.from);
        if since.elapsed() < TRIED_FOR && !self.given_up.contains(&key) && !self.hub.stopping() {
            self.again.push((load, since));
            return;
        }
        if self.given_up.len() >= GIVEN_UP_MAX {
            self.given_up.clear();
        }
        self.given_up.insert(key);
        self.hub
            .loading
            .figures
            .failed
            .fetch_add(1, Ordering::Relaxed);
        crate::warn_limited!("body cannot be read", %error, job = load.job.0, "cannot read the body of a job back into memory");
        self.hub.cannot_load(mailbox, load.job, load.from);
    }

    // ---- out of memory
    // ----------------------------------------------------------------------------------

    fn free(&mut self, freed: VecDeque<(u64, Vec<Stored>)>) {
        let durable = self.hub.durable();
        let (now, later): (Vec<_>, Vec<_>) = freed
            .into_iter()
            .partition(|(commit, _)| *commit <= durable);
        for stored in now.into_iter().flat_map(|(_, places)| places) {
            self.file.free(stored);
        }
        let mut todo = self.hub.loading.lock();
        for one in later.into_iter().rev() {
            todo.freed.push_front(one);
        }
    }

    /// Moves bodies out until there is enough memory, or none can be moved. Waiting clients are
    /// woken as soon as their jobs fit, because the disk may be slow. Bodies needed meanwhile are
    /// loaded first, unless memory is full.
    fn make_room(&mut self) {
        let begun = Instant::now();
        let mut in_vain = 0;
        while self.hub.is_short_of_memory() && !self.stop.get() {
            if !self.hub.loading.lock().loads.is_empty() && !self.hub.is_out_of_memory() {
                return self.hub.loading.make_room();
            }
            let Cool {
                bodies,
                has_packed,
                looks,
            } = self.hub.cool(STEP_BYTES);
            let (places, written) = self
                .file
                .write_all(bodies.iter().map(|(_, body)| &body[..]));
            let unused = self.hub.set_stored(&bodies, &places);
            in_vain = if has_packed || places.len() > unused.len() {
                0
            } else {
                in_vain + 1
            };
            for stored in unused {
                self.file.free(stored);
            }
            self.hub.ring_with_room();
            if let Err(error) = written {
                warn_of_shortage(&error.to_string());
                self.is_stuck(begun);
                break;
            }
            if in_vain > looks {
                if self.hub.has_too_many_jobs() {
                    warn_of_shortage("no body is left that could leave it");
                }
                self.is_stuck(begun);
                break;
            }
        }
        self.hub.ring_with_room();
    }

    /// Records that memory cannot be freed now: a job that does not fit is refused until the next
    /// check. The thread has worked on this since `begun`, and spends most of its time otherwise.
    fn is_stuck(&mut self, begun: Instant) {
        self.hub.loading.is_stuck.set(true);
        self.stuck_until = Some(Instant::now() + PAUSE.max(begun.elapsed() * 8));
    }
}

fn warn_of_shortage(why: &str) {
    crate::warn_limited!(
        "memory cannot be relieved",
        why,
        "memory is nearly full (limits.memory) and no bodies can be moved to disk: new jobs may be rejected"
    );
}

#[cfg(test)]
mod tests;
