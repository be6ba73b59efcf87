//! The threads that serve connections. Each keeps its connections, because waking another thread to
//! share work would cost more than the work itself if messages are small. Only deep turns are
//! shared (`sharing`).
//!
//! A thread works in turns (`turn`). Other threads reach it through its `waker`. The reasons are in
//! `docs/decisions/turns.md`.

mod alarm;
mod arrival;
#[cfg(test)]
mod commits;
mod load;
mod member;
#[cfg(test)]
mod moves;
mod polling;
mod pulse;
mod sharing;
mod tenants;
#[cfg(test)]
pub(crate) mod tests;
mod timers;
mod turn;
mod waker;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use self::arrival::Place;
pub(crate) use self::arrival::{Arrival, Debt, Label};
pub use self::pulse::Pulse;
use self::sharing::{Partner, Role};
use self::turn::Serving;
use self::waker::ThreadWaker;
use crate::connection::Shared;
use crate::polling::Polling;
use windlass_hub::Commits;

/// Time slice of a serving thread on a busy machine. Short, because the thread and its peers mostly
/// wait for each other.
const SLICE: Duration = Duration::from_micros(100);

/// The serving threads. Dropping this stops them and closes their connections.
///
/// The thread that starts them only accepts connections, keeps time and supervises commits, so it
/// must never wait for the disk.
#[derive(Debug)]
pub struct Threads(Vec<(Arc<ThreadWaker>, JoinHandle<()>)>);

/// The serving threads, as destinations of new connections.
#[derive(Debug)]
pub struct ThreadSlots {
    /// Helpers come last and get no new connections.
    threads: Vec<ServingThread>,
    mains: usize,
    commits: Arc<OnceLock<Arc<Commits>>>,
    pulse: Arc<Pulse>,
}

/// One thread, and the number of its connections.
#[derive(Debug)]
struct ServingThread {
    waker: Arc<ThreadWaker>,
    taken: Arc<AtomicUsize>,
}

impl ServingThread {
    fn partner(&self, role: Role, is_helper_full: &Arc<AtomicBool>) -> Partner {
        let (waker, taken) = (Arc::clone(&self.waker), Arc::clone(&self.taken));
        Partner {
            waker,
            taken,
            role,
            is_helper_full: Arc::clone(is_helper_full),
        }
    }
}

impl Threads {
    /// Starts this many threads and helpers, at most one helper per thread.
    pub fn start(
        wanted: usize,
        helpers: usize,
        shared: &Shared,
        polling: Polling,
    ) -> io::Result<(Self, ThreadSlots)> {
        let commits = Arc::<OnceLock<_>>::default();
        let new = |_| Serving::new(shared.clone(), polling, Arc::clone(&commits));
        let mut all: Vec<Serving> = (0..wanted + helpers).map(new).collect::<Result<_, _>>()?;
        let of = |serving: &Serving| ServingThread {
            waker: Arc::clone(serving.waker()),
            taken: Arc::default(),
        };
        let slots: Vec<_> = all.iter().map(of).collect();
        let (mains, others) = all.split_at_mut(wanted);
        for ((main, helper), (main_slot, helper_slot)) in mains
            .iter_mut()
            .zip(others)
            .zip(slots.iter().zip(slots.iter().skip(wanted)))
        {
            let is_helper_full = Arc::default();
            main.share_with(helper_slot.partner(Role::Helper, &is_helper_full));
            helper.share_with(main_slot.partner(Role::Helped, &is_helper_full));
        }
        let start = |(number, serving): (usize, Serving)| {
            let waker = Arc::clone(serving.waker());
            let serve = move || {
                shorten_slices();
                serving.run();
            };
            let thread = thread::Builder::new()
                .name(format!("serve-{number}"))
                .spawn(serve)?;
            Ok((waker, thread))
        };
        let threads = all
            .into_iter()
            .enumerate()
            .map(start)
            .collect::<io::Result<_>>()?;
        let pulse = Arc::new(Pulse::new(
            slots.iter().map(|slot| Arc::clone(&slot.waker)).collect(),
        ));
        Ok((
            Self(threads),
            ThreadSlots {
                threads: slots,
                mains: wanted,
                commits,
                pulse,
            },
        ))
    }
}

/// Lets the calling thread run soon after it wakes up.
pub fn shorten_slices() {
    if let Err(error) = windlass_sched::shorten_slices(SLICE) {
        tracing::debug!(%error, "cannot shorten the time slices of a serving thread");
    }
}

impl ThreadSlots {
    /// The number of connections of each thread.
    pub fn connections(&self) -> Vec<usize> {
        self.threads
            .iter()
            .map(|thread| thread.taken.load(Ordering::Relaxed))
            .collect()
    }

    /// Whether the threads are responsive.
    pub const fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// Makes these threads commit at the end of their turns.
    pub fn commit_in_turns(&self, commits: &Arc<Commits>) {
        if self.commits.set(Arc::clone(commits)).is_ok() {
            commits.leave_to_turns();
        }
    }

    /// Passes a connection to the thread with the fewest.
    pub(crate) fn serve(&self, arrival: Arrival) {
        let fewest = self
            .threads
            .iter()
            .take(self.mains)
            .min_by_key(|thread| thread.taken.load(Ordering::Relaxed));
        if let Some(ServingThread { waker, taken }) = fewest {
            waker.arrive(arrival, Place::take(taken));
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.iter().for_each(|(waker, _)| waker.stop());
        for (_, thread) in self.0.drain(..) {
            // A thread that panicked has nothing left to stop.
            let _ = thread.join();
        }
    }
}
