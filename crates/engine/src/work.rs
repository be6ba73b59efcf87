//! What visits cost: counted as they go, so that whoever holds the engine's lock knows when others should have a turn, and a
//! test that no command does more the more there is.
//!
//! A unit is about as long as a look at the next of many things that lie side by side, some 25 ns.

use crate::engine::Engine;

/// To look at the next of things that lie side by side.
pub(crate) const STEP: u64 = 1;

/// To find a thing by its number.
pub(crate) const LOOKED_UP: u64 = 8;

/// To show a thing.
pub(crate) const ROW: u64 = 16;

/// To name a queue in a row.
pub(crate) const NAME: u64 = 2;

/// To change a job, or an ability, in every index.
pub(crate) const CHANGE: u64 = 64;

/// To ask a test about a job, and about each so many bytes of it.
pub(crate) const TEST: u64 = 40;
pub(crate) const TEST_BYTES: u64 = 16;

/// Any command, whatever else it does.
const COMMAND: u64 = 40;

/// What may be spent on looking for each row that may be shown: a filter that matches little must not look at everything.
pub(crate) const WORK_PER_ROW: u64 = 64;

/// Queues that may be named for each client that may be shown.
pub(crate) const NAMES_PER_ROW: usize = 16;

impl Engine {
    /// What all commands have cost since the engine was made, in units of about 25 ns: an estimate, for whoever must not keep
    /// others waiting.
    #[must_use]
    pub const fn work(&self) -> u64 {
        self.work.get()
    }

    pub(crate) fn spend(&self, work: u64) {
        self.work.set(self.work.get().wrapping_add(work));
    }

    pub(crate) fn spend_command(&self) {
        self.spend(COMMAND);
    }
}
