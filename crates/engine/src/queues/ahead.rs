//! The part of a queue that is loaded in advance: the next jobs, with bodies in memory or being
//! loaded (`residency` decides).

use super::ready::SortKey;

/// The window of a queue with deliveries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    /// The end of the window. It only advances, so that no body is loaded in advance twice.
    pub(crate) upto: Option<SortKey>,
    /// The approximate number of jobs in it.
    pub(crate) jobs: u32,
    /// The approximate bytes of the bodies.
    pub(crate) bytes: u64,
    /// The last round in which jobs of the queue were delivered.
    pub(crate) round: u64,
}

impl Ahead {
    /// Returns true if a job at this position is in it.
    pub(crate) fn has(&self, at: SortKey) -> bool {
        self.jobs > 0 && self.upto.is_some_and(|upto| at <= upto)
    }

    /// Removes a job that is being delivered. Returns by how many bytes the window has shrunk.
    pub(crate) fn take(&mut self, at: SortKey, bytes: u64) -> u64 {
        let before = self.bytes;
        if self.upto.is_none_or(|upto| at > upto) {
            self.upto = Some(at);
            self.jobs = 0;
            self.bytes = 0;
        } else {
            self.jobs = self.jobs.saturating_sub(1);
            self.bytes = if self.jobs == 0 {
                0
            } else {
                self.bytes.saturating_sub(bytes)
            };
        }
        before - self.bytes
    }
}
