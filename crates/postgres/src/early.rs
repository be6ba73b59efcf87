//! Reading the store early: while a lease runs out that its holder does not renew, or while its holder offers the store.
//!
//! The daemon that takes the lease then has most of a large store in memory, and reads only the newest commits. The
//! data counts only if the table is still at the same point when the lease is taken.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use windlass_store::{Error, Found, OpenError, Overflow, Scan, ShowPair, point_key};

use crate::address::Target;
use crate::link::Link;
use crate::table::PostgresScan;
use crate::tail::Tail;

/// A store that is being read. Dropping it stops the reading.
#[derive(Debug)]
pub(crate) struct EarlyRead {
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<Result<Found, OpenError>>>,
}

/// The table, until the reading is to stop.
struct Stoppable {
    table: PostgresScan,
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
}

/// How far the reading is.
#[derive(Debug, Default)]
struct Progress {
    /// Pages of the table.
    pages: AtomicU64,
    /// Since when it reads the log.
    log: OnceLock<Instant>,
}

impl Progress {
    /// It changes while the reading goes on. The log is bounded, and so is the time that it counts for.
    fn read(&self) -> i64 {
        const LOG_MAX_S: u64 = 120;
        let log_s = self
            .log
            .get()
            .map_or(0, |begun| begun.elapsed().as_secs().min(LOG_MAX_S));
        i64::try_from(self.pages.load(Ordering::Relaxed) / STEP_PAGES + log_s).unwrap_or(i64::MAX)
    }
}

/// The progress is reported in steps of this number of pages.
const STEP_PAGES: u64 = 1 << 10;

impl EarlyRead {
    /// Begins to read, on a thread of its own.
    pub(crate) fn begin(target: &Target, overflow: Option<&Overflow>) -> Self {
        let (stop, progress) = (Arc::<AtomicBool>::default(), Arc::<Progress>::default());
        let table = PostgresScan::new(target);
        let scan = Stoppable {
            table,
            stop: Arc::clone(&stop),
            progress: Arc::clone(&progress),
        };
        let (target, overflow) = (target.clone(), overflow.cloned());
        let read = move || {
            let mut found = Found::of_table(&scan, overflow.as_ref())?;
            scan.progress.log.get_or_init(Instant::now);
            found.follow(&*Tail::open(
                &target,
                None,
                &Link::open(&target)?,
                u64::MAX,
            )?)?;
            Ok(found)
        };
        let thread = thread::Builder::new().name("early-read".into()).spawn(read);
        Self {
            stop,
            progress,
            thread: thread
                .inspect_err(|why| tracing::debug!(%why, "no early reading"))
                .ok(),
        }
    }

    /// Whether all is read, or nothing more will be.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// How far the reading is: a number that grows.
    pub(crate) fn progress(&self) -> i64 {
        self.progress.read()
    }

    /// Waits for the end of the reading. The caller has the lease. `None`: the store must be read again.
    pub(crate) fn finish(mut self, link: &Link) -> Result<Option<Found>, Error> {
        let Some(Ok(Ok(found))) = self.thread.take().map(JoinHandle::join) else {
            return Ok(None);
        };
        let look = format!("SELECT value FROM {} WHERE key = $1", link.pages());
        let rows = link.query("reading the table in", &look, &[&point_key()])?;
        Ok(rows
            .first()
            .is_some_and(|row| found.is_of(row.get(0)))
            .then_some(found))
    }
}

impl Drop for EarlyRead {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

impl Scan for Stoppable {
    fn each(&self, candidate: usize, each: &mut ShowPair<'_>) -> Result<bool, Error> {
        let mut stopped = false;
        let read = self.table.each(candidate, &mut |key, value, at| {
            stopped = self.stop.load(Ordering::Acquire);
            self.progress.pages.fetch_add(1, Ordering::Relaxed);
            if stopped {
                std::ops::ControlFlow::Break(())
            } else {
                each(key, value, at)
            }
        });
        if stopped { Err(Error::Closed) } else { read }
    }
}
