//! The cost of visits, measured as they execute. The holder of the engine's lock uses it to decide when to
//! release the lock, and tests use it to show that no command becomes more expensive as the engine grows.
//!
//! A unit is about the time to examine the next of many adjacent objects, some 25 ns.

use std::cell::Cell;

/// Examine the next of several adjacent objects.
pub(crate) const STEP: u64 = 1;

/// Find an object by ID.
pub(crate) const LOOKED_UP: u64 = 8;

/// Show a row.
pub(crate) const ROW: u64 = 16;

/// Name a queue in a row.
pub(crate) const NAME: u64 = 2;

/// Change a job, or an ability, in every index.
pub(crate) const CHANGE: u64 = 64;

/// Test a job, and every `TEST_BYTES` bytes of it.
pub(crate) const TEST: u64 = 40;
pub(crate) const TEST_BYTES: u64 = 16;

/// The base cost of any command.
pub(crate) const COMMAND: u64 = 40;

/// The limit of the search cost per row of a page, so that a filter with few matches does not examine every
/// job.
pub(crate) const WORK_PER_ROW: u64 = 64;

/// Queues that may be named for each client of a page.
pub(crate) const NAMES_PER_ROW: usize = 16;

/// The cost of all commands so far, including queries.
#[derive(Debug, Default)]
pub(crate) struct Work(Cell<u64>);

impl Work {
    pub(crate) const fn spent(&self) -> u64 {
        self.0.get()
    }

    pub(crate) fn spend(&self, work: u64) {
        self.0.set(self.0.get().wrapping_add(work));
    }
}
