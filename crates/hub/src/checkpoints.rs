//! The checkpoint thread, which moves live records from the log to the table so that the log can be
//! shortened. No other thread waits for it except an export, which begins with a checkpoint.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use windlass_store::Checkpointer;

use self::pace::{Pace, Scope, Seen};
use crate::shared::Flag;

mod pace;

/// How often the thread checks for work.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often it checks that the files of the log still exist.
const FILES_EVERY: Duration = Duration::from_secs(1);

/// A request of another thread to the checkpoint thread, for example an export.
pub(crate) type Request = Box<dyn FnOnce(&mut Checkpointer) + Send>;

/// Sends requests to the checkpoint thread.
#[derive(Clone, Debug)]
pub struct Requests {
    requests: mpsc::Sender<Request>,
    /// The checkpoint thread, which may be sleeping.
    thread: Thread,
}

impl Requests {
    /// For tests: requests are kept and never served.
    #[cfg(any(test, feature = "testing"))]
    pub fn to_no_thread() -> Self {
        let (requests, kept) = mpsc::channel();
        std::mem::forget(kept);
        Self {
            requests,
            thread: thread::current(),
        }
    }

    /// Makes the checkpoint thread do this. Returns `false` if the thread has exited.
    pub fn send(&self, request: impl FnOnce(&mut Checkpointer) + Send + 'static) -> bool {
        let is_sent = self.requests.send(Box::new(request)).is_ok();
        self.thread.unpark();
        is_sent
    }
}

/// The handle of the thread.
#[derive(Debug)]
pub struct Checkpoints {
    thread: JoinHandle<()>,
    stop: Arc<Flag>,
    held: Arc<Flag>,
}

impl Checkpoints {
    /// Starts the thread. After `quiet` without commits, it makes a checkpoint of everything. It
    /// also serves requests.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(checkpointer: Checkpointer, quiet: Duration) -> std::io::Result<(Self, Requests)> {
        let stop = Arc::<Flag>::default();
        let held = Arc::<Flag>::default();
        let (requests, requested) = mpsc::channel();
        let work = Work {
            checkpointer,
            quiet,
            requested,
            stop: Arc::clone(&stop),
            held: Arc::clone(&held),
            is_lost: false,
        };
        let thread = thread::Builder::new()
            .name("checkpoint".into())
            .spawn(move || work.run())?;
        let requests = Requests {
            requests,
            thread: thread.thread().clone(),
        };
        Ok((Self { thread, stop, held }, requests))
    }

    /// Stops beginning checkpoints, because another daemon reads the table, which must not change.
    /// The store rejects the end of a checkpoint in progress.
    pub fn hold(&self) {
        self.held.set(true);
    }

    /// Stops the thread after any checkpoint in progress.
    pub fn finish(self) {
        self.abandon();
        if self.thread.join().is_err() {
            tracing::error!("checkpoint thread panicked: the log grows until a restart");
        }
    }

    /// Stops the thread without waiting: a checkpoint in progress completes, or ends with the
    /// process. The store must be held under a lease, which a checkpoint cannot outlive.
    pub fn abandon(&self) {
        self.stop.set(true);
        self.thread.thread().unpark();
    }
}

struct Work {
    checkpointer: Checkpointer,
    quiet: Duration,
    requested: mpsc::Receiver<Request>,
    stop: Arc<Flag>,
    held: Arc<Flag>,
    /// Whether a file of the log is missing.
    is_lost: bool,
}

impl Work {
    fn run(mut self) {
        // No client waits for this thread, so it must not inherit short time slices from its
        // parent.
        if let Err(error) = windlass_sched::shorten_slices(Duration::ZERO) {
            tracing::debug!(%error, "cannot reset the time slices of the checkpoint thread");
        }
        let mut pace = Pace::new(
            self.quiet,
            self.checkpointer.tail().newest(),
            Instant::now(),
        );
        let mut looked = Instant::now();
        while !self.stop.get() {
            thread::park_timeout(LOOK_EVERY);
            while let Ok(request) = self.requested.try_recv() {
                request(&mut self.checkpointer);
            }
            // The committing thread handles a full disk.
            let _ = self.checkpointer.tail().make_room();
            if looked.elapsed() >= FILES_EVERY {
                looked = Instant::now();
                self.look_for_files();
            }
            if self.held.get() {
                continue;
            }
            let seen = self.look();
            let is_worth_while = || self.checkpointer.is_worth_while();
            let Some(scope) = pace.due(Instant::now(), &seen, is_worth_while) else {
                continue;
            };
            if self.make(scope) {
                pace.succeeded();
            } else {
                rest(pace.failed(&seen), &self.stop);
            }
        }
    }

    /// An error is logged once, until all files exist again.
    fn look_for_files(&mut self) {
        match self.checkpointer.tail().look() {
            Ok(()) if std::mem::take(&mut self.is_lost) => {
                tracing::info!("all log files are present again")
            }
            Ok(()) => {}
            Err(error) => {
                if !std::mem::replace(&mut self.is_lost, true) {
                    tracing::error!(%error, "log files are missing: acknowledgements are withheld until they are back");
                }
            }
        }
    }

    fn look(&self) -> Seen {
        let tail = self.checkpointer.tail();
        Seen {
            newest: tail.newest(),
            free_bytes: tail.free_bytes(),
            holds_back: self.checkpointer.holds_back(),
            is_due: self.checkpointer.is_due(),
        }
    }

    /// Makes a checkpoint if there is anything to take. Returns `false` if it failed.
    fn make(&mut self, scope: Scope) -> bool {
        let started = Instant::now();
        let made = self.checkpointer.run(scope == Scope::Everything);
        let figures = self.checkpointer.figures();
        let log_bytes = self.checkpointer.tail().disk_bytes();
        let figure = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        match made {
            Ok(false) => {}
            Ok(true) => {
                tracing::debug!(
                    commit = figure(&figures.point),
                    records = figure(&figures.records),
                    table_bytes = figure(&figures.table_bytes),
                    log_bytes,
                    ms = started.elapsed().as_millis(),
                    "checkpoint"
                );
            }
            Err(error) if self.stop.get() || self.held.get() => {
                tracing::debug!(%error, "checkpoint abandoned");
                return false;
            }
            Err(error) => {
                tracing::warn!(%error, log_bytes, "checkpoint failed: the log grows until one succeeds");
                return false;
            }
        }
        true
    }
}

/// Waits, unless the thread must stop.
fn rest(time: Duration, stop: &Flag) {
    let end = Instant::now() + time;
    while !stop.get() && Instant::now() < end {
        thread::park_timeout(end.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{
        ClientId, Context, Engine, JobCommand, Limits, NewJob, Protocol, Tag, Timestamp,
    };
    use windlass_store::{Journal, Log as _, StoreLimits};
    use windlass_testkit::store::{MemoryLog, MemoryTable};

    use super::*;
    use crate::hub::{Durability, Hub};
    use crate::testing::captured;

    /// The checkpointer of a store with one commit, which is only in the log.
    fn checkpointer(table: &MemoryTable) -> Checkpointer {
        let (mut engine, mut journal) = (Engine::new(Limits::default(), 7), Journal::new());
        let mut context = Context::new(Timestamp(1_000), 7);
        // A checkpoint of fewer bytes than the table has is not worth while.
        let job = NewJob::new(Protocol::GEARMAN, "q".into(), vec![7; 500].into());
        let push = JobCommand::Push(Box::new(job));
        engine.apply(ClientId(1), Tag(1), push, &mut context);
        journal.append(&engine, &context.changes);
        let hub = Hub::new(engine, journal, Durability::Durable, 7);
        let mut log = MemoryLog::new();
        log.append(&hub.cut().unwrap().commit).unwrap();
        let limits = StoreLimits::default();
        windlass_store::open_parts(&log, Box::new(table.clone()), &limits, Limits::default(), 7)
            .unwrap()
            .0
    }

    #[test]
    fn a_store_without_new_commits_gets_a_checkpoint() {
        let checkpointer = checkpointer(&MemoryTable::new());
        let figures = checkpointer.figures();
        let quiet = Duration::from_millis(50);
        let (checkpoints, _) = Checkpoints::start(checkpointer, quiet).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while figures.point.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < end, "no checkpoint");
            thread::yield_now();
        }
        checkpoints.finish();
    }

    #[test]
    fn a_checkpoint_that_fails_is_a_warning_unless_the_daemon_stops_or_hands_over() {
        for (stops, holds, warnings) in [(false, false, 1), (true, false, 0), (false, true, 0)] {
            let table = MemoryTable::new();
            let checkpointer = checkpointer(&table);
            let (_, requested) = mpsc::channel();
            let stop = Arc::new(Flag::new(stops));
            let held = Arc::new(Flag::new(holds));
            let mut work = Work {
                checkpointer,
                quiet: Duration::ZERO,
                requested,
                stop,
                held,
                is_lost: false,
            };
            table.fail(0);
            let logged = captured(|| assert!(!work.make(Scope::Everything)));
            assert_eq!(
                logged.matches("checkpoint failed").count(),
                warnings,
                "{logged}"
            );
        }
    }

    #[test]
    fn a_pause_lasts_unless_the_daemon_stops() {
        let (pause, begun) = (Duration::from_millis(20), Instant::now());
        rest(pause, &Flag::new(false));
        assert!(begun.elapsed() >= pause);
        let hour = Duration::from_secs(3_600);
        rest(hour, &Flag::new(true));
        assert!(begun.elapsed() < hour);
    }
}
