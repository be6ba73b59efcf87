//! A hub whose store belongs to the daemon only for a time.

use std::sync::Arc;
use std::time::Duration;

use windlass_store::{Error as StoreError, Tenure};

use super::Hub;
use crate::clock;

impl Hub {
    /// Serves only as long as the store belongs to this daemon.
    pub fn under(self, tenure: Option<Arc<dyn Tenure>>) -> Self {
        Self { tenure, ..self }
    }

    /// Whether the store belongs to this daemon only for a time.
    pub const fn has_tenure(&self) -> bool {
        self.tenure.is_some()
    }

    /// The number of this daemon's right to the store; 0 where it does not end.
    pub fn epoch(&self) -> u64 {
        self.tenure.as_ref().map_or(0, |tenure| tenure.epoch())
    }

    /// Clients of another daemon's hub, which this one succeeds, have the length of the lease to come back, from now
    /// on. Then jobs are handed out.
    pub fn begin_grace(&self) {
        let Some(tenure) = self.tenure.as_ref() else { return };
        let length = u64::try_from(tenure.length().as_millis()).unwrap_or(u64::MAX);
        self.lock().engine.end_grace_at(clock::now().after_ms(length));
        self.deadline_moved.notify_one();
    }

    /// Lets another daemon prepare to succeed this one. Waits for it.
    pub fn hand_over(&self) {
        if let Some(tenure) = &self.tenure {
            tenure.hand_over();
        }
    }

    /// Whether the store belongs to this daemon now.
    pub fn may_act(&self) -> bool {
        self.tenure.as_ref().is_none_or(|tenure| tenure.holds())
    }

    /// Why the store belongs to this daemon no more.
    pub fn deposed(&self) -> Option<StoreError> {
        self.tenure.as_ref()?.lost()
    }

    /// Returns once the store belongs to this daemon: a thread that is about to visit, or to read mail, waits here
    /// while that is uncertain. `false`: another daemon has the store, and this hub decides and sends nothing more.
    #[must_use]
    pub fn assure(&self) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(100);
        let Some(tenure) = &self.tenure else { return true };
        while !tenure.holds() {
            if tenure.lost().is_some() {
                return false;
            }
            tenure.wait(LOOK_EVERY);
        }
        true
    }
}
