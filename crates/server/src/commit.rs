//! The thread that commits: cuts what is pending, writes it, and says so. While it writes, the next commit gathers.
//!
//! When the store fails, nothing more is acknowledged; the same commit is tried again until the store takes it. Nothing
//! that was acknowledged is forgotten meanwhile, because nothing is ever taken out of the engine for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windlass_store::{Commit, Store};

use crate::clock;
use crate::hub::Hub;

/// How the committer goes about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Gather for this long before each commit; `None` = commit as soon as there is anything.
    pub(crate) interval: Option<Duration>,
    /// How long after a failure the store is tried again.
    pub(crate) retry: Duration,
    /// A commit that takes longer counts as a store that does not answer.
    pub(crate) timeout: Duration,
    /// A store that does not answer for this long ends the daemon: a supervisor's restart beats a silent hang.
    pub(crate) abort: Duration,
}

/// The handle on the committing thread.
#[derive(Debug)]
pub(crate) struct Committer {
    thread: JoinHandle<bool>,
    shared: Arc<Shared>,
    hub: Arc<Hub>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// When the write in progress began, in milliseconds since the epoch; 0 = none is.
    writing_since: AtomicU64,
}

struct Work {
    hub: Arc<Hub>,
    store: Box<dyn Store>,
    pace: Pace,
    shared: Arc<Shared>,
}

impl Committer {
    pub(crate) fn start(hub: Arc<Hub>, store: Box<dyn Store>, pace: Pace) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let work = Work { hub: Arc::clone(&hub), store, pace, shared: Arc::clone(&shared) };
        let thread = thread::Builder::new().name("commit".into()).spawn(move || work.run())?;
        hub.set_committer(thread.thread().clone());
        Ok(Self { thread, shared, hub })
    }

    /// Watches over the thread: to be called every second or so. Says what to die of, if it has come to that.
    pub(crate) fn watch(&self, pace: Pace) -> Option<&'static str> {
        if self.thread.is_finished() && !self.shared.stop.load(Ordering::Acquire) {
            return Some("the committing thread has died");
        }
        let since = self.shared.writing_since.load(Ordering::Acquire);
        if since == 0 {
            return None;
        }
        let writing = Duration::from_millis(clock::now().0.saturating_sub(since));
        if writing > pace.abort {
            return Some("a commit has not come back from the store for longer than store.commit_abort");
        }
        if writing > pace.timeout && !self.hub.failed() {
            tracing::error!(
                seconds = writing.as_secs(),
                "a commit has not come back from the store: nothing is acknowledged until it does"
            );
            self.hub.set_failed(true);
        }
        None
    }

    /// Commits what is left, numbers settled, and ends. Says whether everything is on the disk.
    pub(crate) fn finish(self) -> bool {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or(false)
    }
}

impl Work {
    fn run(mut self) -> bool {
        while !self.stopping() {
            if !self.commit_once() {
                self.rest();
            }
            if let Some(interval) = self.pace.interval {
                self.sleep(interval);
            }
        }
        self.hub.with_journal(|engine, journal| {
            engine.settle_head();
            journal.stop_in_order();
        });
        while let Some(commit) = self.hub.cut() {
            if !self.write(&commit) {
                return false;
            }
        }
        true
    }

    /// Commits what is pending. Says whether there was anything.
    fn commit_once(&mut self) -> bool {
        match self.hub.cut() {
            Some(commit) => self.write(&commit),
            None => false,
        }
    }

    /// Nothing to do: waits until there is. Whoever makes the journal non-empty after this thread has called itself
    /// idle unparks it, so nothing is missed between looking and parking.
    fn rest(&mut self) {
        if self.pace.interval.is_some() {
            return;
        }
        self.hub.committer_is_idle();
        // The journal may have housework that is done a bit at a time.
        let more = self.commit_once() || self.hub.with_journal(|_, journal| journal.wants_cut());
        if !more && !self.stopping() {
            thread::park();
        }
    }

    /// Writes a commit, however often it takes. Says no only if the daemon is to stop and the store does not answer.
    fn write(&mut self, commit: &Commit) -> bool {
        let mut tries = 0_u64;
        loop {
            self.shared.writing_since.store(clock::now().0, Ordering::Release);
            let outcome = if tries == 0 {
                self.store.commit(commit)
            } else {
                self.store.reopen().and_then(|()| self.store.commit(commit))
            };
            self.shared.writing_since.store(0, Ordering::Release);
            match outcome {
                Ok(()) => break,
                Err(error) => {
                    if tries == 0 {
                        tracing::error!(%error, "the store failed: nothing is acknowledged until it answers");
                        self.hub.set_failed(true);
                    }
                    tries += 1;
                }
            }
            if self.stopping() && tries > 3 {
                tracing::error!("stopping with a commit the store did not take");
                return false;
            }
            self.sleep(self.pace.retry);
        }
        self.hub.committed(commit.seq());
        if self.hub.failed() {
            tracing::warn!(tries, "the store answers again");
            self.hub.set_failed(false);
        }
        true
    }

    fn stopping(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Sleeps, but not past a stop.
    fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.stopping() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }
}
