//! The threads that serve connections. Each has a runtime of its own and keeps its connections: no thread wakes another to share
//! its work. With small messages that would cost more than the work. Measured in `../README.md`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::commit::Commits;
use crate::ringer::Ringer;

/// How long a serving thread may run before others do, on a busy machine: it mostly waits for its peers, and they for it.
const SLICE: Duration = Duration::from_micros(100);

/// The serving threads. Dropping this ends them, and all connections that are still open.
///
/// The thread that starts them is not one of them: it accepts connections, keeps time and watches over commits, so it must never
/// wait for the disk.
#[derive(Debug)]
pub(crate) struct Threads {
    serving: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

/// The serving threads, for new connections.
#[derive(Debug)]
pub(crate) struct ThreadSlots(Vec<ServingThread>);

/// One thread, and how many connections it has.
#[derive(Debug)]
struct ServingThread {
    runtime: Handle,
    ringer: Arc<Ringer>,
    taken: Arc<AtomicUsize>,
}

/// A connection's place on a thread. Frees it when dropped.
#[derive(Debug)]
pub(crate) struct ThreadSlot {
    pub(crate) runtime: Handle,
    /// Rings the thread's mailboxes.
    pub(crate) ringer: Arc<Ringer>,
    taken: Arc<AtomicUsize>,
}

impl Threads {
    /// Starts this many threads.
    pub(crate) fn start(wanted: usize) -> io::Result<(Self, ThreadSlots)> {
        let stop = CancellationToken::new();
        let mut threads = Vec::new();
        let mut serving = Vec::new();
        for number in 0..wanted {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            threads.push(ServingThread::on(runtime.handle().clone()));
            let stop = stop.clone();
            let serve = move || {
                shorten_slices();
                runtime.block_on(stop.cancelled());
            };
            serving.push(thread::Builder::new().name(format!("serve-{number}")).spawn(serve)?);
        }
        Ok((Self { serving, stop }, ThreadSlots(threads)))
    }
}

/// Lets the calling thread run soon after it wakes. Threads that it starts inherit this, unless they set another slice.
fn shorten_slices() {
    if let Err(error) = windlass_sched::shorten_slices(SLICE) {
        tracing::debug!(%error, "cannot shorten the time slices of a serving thread");
    }
}

impl ThreadSlots {
    /// How many connections each thread has.
    pub(crate) fn connections(&self) -> Vec<usize> {
        self.0.iter().map(|threads| threads.taken.load(Ordering::Relaxed)).collect()
    }

    /// From now on these threads commit at the end of their turns.
    pub(crate) fn commit_in_turns(&self, commits: &Arc<Commits>) {
        for threads in &self.0 {
            threads.runtime.spawn(Arc::clone(commits).serve(Arc::clone(&threads.ringer)));
        }
    }

    /// A place on the thread with the fewest connections.
    pub(crate) fn slot(&self) -> Option<ThreadSlot> {
        let threads = self.0.iter().min_by_key(|threads| threads.taken.load(Ordering::Relaxed))?;
        threads.taken.fetch_add(1, Ordering::Relaxed);
        let (runtime, ringer, taken) =
            (threads.runtime.clone(), Arc::clone(&threads.ringer), Arc::clone(&threads.taken));
        Some(ThreadSlot { runtime, ringer, taken })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.serving.drain(..) {
            // A thread that panicked has nothing left to end.
            let _ = thread.join();
        }
    }
}

impl ServingThread {
    fn on(runtime: Handle) -> Self {
        let ringer = Ringer::start(&runtime);
        Self { runtime, ringer, taken: Arc::default() }
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_spread_over_the_threads() {
        let (_threads, thread_slots) = Threads::start(3).unwrap();
        let mut held: Vec<ThreadSlot> = (0..6).filter_map(|_| thread_slots.slot()).collect();
        let taken = || thread_slots.connections();
        assert_eq!(taken(), [2, 2, 2]);
        held.drain(1..2);
        assert_eq!(taken(), [2, 1, 2]);
        let _seat = thread_slots.slot();
        assert_eq!(taken(), [2, 2, 2]);
        let name = held[1].runtime.spawn(async { thread::current().name().map(str::to_owned) }).await.unwrap();
        assert_eq!(name.as_deref(), Some("serve-2"));
    }
}
