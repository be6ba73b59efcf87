//! The right of this daemon to act on its store. A store in files is locked, so the right lasts
//! until the daemon exits. A store in a database is held under a lease, which another daemon gets
//! when it runs out.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use windlass_engine::Reading;
use windlass_store::{Error as StoreError, Tenure};

use super::Hub;
use crate::clock;

/// No wall clock of the lease was read yet.
const UNREAD: i64 = i64::MIN;

/// The lease, if the store is held under one. Without it, each question below is answered at once.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) tenure: Option<Arc<dyn Tenure>>,
    /// The wall clock of the lease as last read.
    wall_ahead_ms: AtomicI64,
}

impl Lease {
    pub(super) const fn new(tenure: Option<Arc<dyn Tenure>>) -> Self {
        Self {
            tenure,
            wall_ahead_ms: AtomicI64::new(UNREAD),
        }
    }
}

impl Hub {
    /// Whether this daemon holds the store under a lease.
    pub const fn has_tenure(&self) -> bool {
        self.lease.tenure.is_some()
    }

    /// The epoch of this daemon's lease; 0 without a lease.
    pub fn epoch(&self) -> u64 {
        self.lease
            .tenure
            .as_ref()
            .map_or(0, |tenure| tenure.epoch())
    }

    /// Whether this daemon holds the store now. If so, the thread's wall clock is set to that of
    /// the store's host as of the last renewal: the machine may have been suspended before, and
    /// jobs that are not due must not be released until the next tick corrects the clock.
    pub fn may_act(&self) -> bool {
        let Some(tenure) = &self.lease.tenure else {
            return true;
        };
        let holds = tenure.holds();
        if holds
            && let Some(ahead_ms) = tenure.wall_ahead_ms()
            && self.lease.wall_ahead_ms.load(Ordering::Acquire) != ahead_ms
        {
            self.lease.wall_ahead_ms.store(ahead_ms, Ordering::Release);
            clock::keep_wall(ahead_ms);
        }
        holds
    }

    /// The time of a visit whose thread read the clocks before it checked whether it [may
    /// act](Self::may_act).
    pub(super) fn time_of_visit(&self, read_before: &Reading) -> Reading {
        if self.has_tenure() {
            clock::read()
        } else {
            *read_before
        }
    }

    /// Why this daemon no longer holds the store.
    pub fn deposed(&self) -> Option<StoreError> {
        self.lease.tenure.as_ref()?.lost()
    }

    /// Blocks a thread that is about to visit, or to read mail, while the lease is uncertain.
    /// Returns `false` if another daemon has the store, in which case this hub decides and sends
    /// nothing.
    #[must_use]
    pub fn assure(&self) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(100);
        let Some(tenure) = &self.lease.tenure else {
            return true;
        };
        while !self.may_act() {
            if tenure.lost().is_some() {
                return false;
            }
            tenure.wait(LOOK_EVERY);
        }
        true
    }
}
