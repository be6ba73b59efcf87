//! Reading the store early: while a lease runs out that its holder does not renew, or while its holder offers the store.
//!
//! The daemon that takes the lease then has most of a large store in memory, and reads only the newest commits. The
//! data counts only if the table is still at the same point when the lease is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use windlass_store::{Error, Found, OpenError, Overflow, Scan, ShowPair, point_key};

use crate::address::Target;
use crate::link::Link;
use crate::table::PostgresScan;
use crate::tail::Tail;

/// A store that is being read. Dropping it stops the reading.
#[derive(Debug)]
pub(crate) struct EarlyRead {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Found, OpenError>>>,
}

/// The table, until the reading is to stop.
struct Stoppable {
    table: PostgresScan,
    stop: Arc<AtomicBool>,
}

impl EarlyRead {
    /// Begins to read, on a thread of its own.
    pub(crate) fn begin(target: &Target, overflow: Option<&Overflow>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let scan = Stoppable { table: PostgresScan::new(target), stop: Arc::clone(&stop) };
        let (target, overflow) = (target.clone(), overflow.cloned());
        let read = move || {
            let mut found = Found::of_table(&scan, overflow.as_ref())?;
            found.follow(&*Tail::open(&target, None, &Link::open(&target)?, u64::MAX)?)?;
            Ok(found)
        };
        let thread = thread::Builder::new().name("early-read".into()).spawn(read);
        Self { stop, thread: thread.inspect_err(|why| tracing::debug!(%why, "no early reading")).ok() }
    }

    /// Whether all is read, or nothing more will be.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the reading. The caller has the lease. `None`: the store must be read again.
    pub(crate) fn finish(mut self, link: &Link) -> Result<Option<Found>, Error> {
        let Some(Ok(Ok(found))) = self.thread.take().map(JoinHandle::join) else { return Ok(None) };
        let look = format!("SELECT value FROM {} WHERE key = $1", link.pages());
        let rows = link.query("reading the table in", &look, &[&point_key()])?;
        Ok(rows.first().is_some_and(|row| found.is_of(row.get(0))).then_some(found))
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
            if stopped { std::ops::ControlFlow::Break(()) } else { each(key, value, at) }
        });
        if stopped { Err(Error::Closed) } else { read }
    }
}
