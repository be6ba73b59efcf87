//! The thread that makes checkpoints: what lives of the log goes to the table, and the log may forget. Nobody waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windlass_store::Checkpointer;

/// How often it looks whether there is something to do.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it waits after a failure: the first time, and at most.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// With less left on the disk the log is to forget soon, so that new jobs can be taken: how long things must be quiet then,
/// and how long a failure is waited after.
const PRESSED_BYTES: u64 = 64 << 20;
const PRESSED_QUIET: Duration = Duration::from_secs(1);
const PRESSED_RETRY: Duration = Duration::from_secs(5);

/// The handle on the thread.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Checkpoints {
    /// Starts it. When nothing was committed for `quiet`, a checkpoint is made of all there is.
    pub(crate) fn start(checkpointer: Checkpointer, quiet: Duration, log_max: u64) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let work = Work { checkpointer, quiet, log_max, stop: Arc::clone(&stop) };
        let thread = thread::Builder::new().name("checkpoint".into()).spawn(move || work.run())?;
        Ok(Self { thread, stop })
    }

    /// Ends it, after the checkpoint that is being made.
    pub(crate) fn finish(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the thread that makes checkpoints has died: the log was not shortened any more");
        }
    }
}

struct Work {
    checkpointer: Checkpointer,
    quiet: Duration,
    log_max: u64,
    stop: Arc<AtomicBool>,
}

impl Work {
    fn run(mut self) {
        // Nobody waits for this thread: it takes no short slices after those that started it.
        if let Err(error) = windlass_sched::shorten_slices(Duration::ZERO) {
            tracing::debug!(%error, "the checkpoint thread has the slices of the thread that started it");
        }
        let (mut newest, mut since) = (self.checkpointer.tail().newest(), Instant::now());
        let mut retry = RETRY;
        while !self.stop.load(Ordering::Acquire) {
            thread::park_timeout(LOOK_EVERY);
            let tail = self.checkpointer.tail();
            if tail.newest() != newest {
                (newest, since) = (tail.newest(), Instant::now());
            }
            // A disk without room is the committing thread's business.
            let _ = tail.make_room();
            let pressed = tail.free_bytes() < PRESSED_BYTES;
            let (quiet, retry_max) =
                if pressed { (self.quiet.min(PRESSED_QUIET), PRESSED_RETRY) } else { (self.quiet, RETRY_MAX) };
            // What the log keeps only for safety's sake would be in the way of new jobs, without which it would be kept.
            let frees = pressed && self.checkpointer.holds_back();
            let is_quiet = since.elapsed() >= quiet && (frees || self.checkpointer.is_worth_while());
            if !is_quiet && !self.checkpointer.is_due() {
                continue;
            }
            match self.make(is_quiet) {
                true => retry = RETRY,
                false => {
                    self.rest(retry.min(retry_max));
                    retry = (retry * 2).min(retry_max);
                }
            }
        }
    }

    /// Makes a checkpoint, if there is something for it to take. Says whether it came to its end.
    fn make(&mut self, all: bool) -> bool {
        let started = Instant::now();
        let made = self.checkpointer.run(all);
        let figures = self.checkpointer.figures();
        let log_bytes = self.checkpointer.tail().disk_bytes();
        let figure = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        match made {
            Ok(false) => {}
            Ok(true) => {
                let (commit, records) = (figure(&figures.point), figure(&figures.records));
                let (table_bytes, ms) = (figure(&figures.table_bytes), started.elapsed().as_millis());
                tracing::debug!(commit, records, table_bytes, log_bytes, ms, "checkpoint");
            }
            Err(error) => {
                tracing::warn!(%error, log_bytes, "no checkpoint could be made: the log grows until one can");
                return false;
            }
        }
        if log_bytes > self.log_max {
            tracing::warn!(log_bytes, "checkpoints do not keep up: the log grows");
        }
        true
    }

    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.stop.load(Ordering::Acquire) && Instant::now() < end {
            thread::park_timeout(end.saturating_duration_since(Instant::now()));
        }
    }
}
