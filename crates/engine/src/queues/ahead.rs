//! What of a queue is loaded ahead: the next jobs, whose bodies are in memory or on their way there (`residency` decides).

use super::ready::SortKey;

/// The window of a queue that is handed out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    /// Its end. It moves on only, so that no body is loaded ahead twice, whatever happens to the window.
    pub(crate) upto: Option<SortKey>,
    /// Jobs in it, about.
    pub(crate) jobs: u32,
    /// Bytes of their bodies, about.
    pub(crate) bytes: u64,
    /// The round in which the queue was handed out last.
    pub(crate) round: u64,
}

impl Ahead {
    /// Whether a job at this place is in it.
    pub(crate) fn has(&self, at: SortKey) -> bool {
        self.jobs > 0 && self.upto.is_some_and(|upto| at <= upto)
    }

    /// A job leaves it that is handed out. Returns how many bytes less are in it.
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
