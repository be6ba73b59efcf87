//! Statistics of the bodies in memory and of the stored bodies, and the places in the store that
//! have been freed.

use super::payload::Payload;
use super::stored::Stored;

/// A job without the body uses this much less of the fixed bytes in
/// [`Job::weight_bytes`](super::Job::weight_bytes).
pub(super) const SAVED_BYTES: u64 = 90;

/// Bodies in memory and stored bodies.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    here_bytes: u64,
    /// Jobs with stored bodies, and the bytes of these bodies.
    jobs: u64,
    bytes: u64,
    /// Places of bodies that no job needs.
    freed: Vec<Stored>,
}

impl Bodies {
    #[inline]
    pub(super) fn add(&mut self, payload: &Payload) {
        if let Some(bytes) = payload.bytes_here() {
            self.here_bytes += bytes as u64;
        } else if let Some(new) = payload.stored() {
            self.add_stored(new);
        }
    }

    #[inline(never)]
    fn add_stored(&mut self, new: Stored) {
        self.jobs += 1;
        self.bytes += u64::from(new.len);
    }

    /// Subtracts the payload of a removed job.
    #[inline]
    pub(super) fn remove(&mut self, payload: &Payload) {
        match payload.bytes_here() {
            Some(bytes) => self.here_bytes -= bytes as u64,
            None => self.take(payload.stored(), payload.body_len()),
        }
    }

    /// A job's payload was replaced.
    pub(super) fn replace(
        &mut self,
        before: Option<Stored>,
        before_bytes: usize,
        payload: &Payload,
    ) {
        if before.is_none() || before != payload.stored() {
            self.take(before, before_bytes);
            self.add(payload);
        }
    }

    fn take(&mut self, stored: Option<Stored>, bytes: usize) {
        match stored {
            None => self.here_bytes -= bytes as u64,
            Some(gone) => {
                self.jobs -= 1;
                self.bytes -= u64::from(gone.len);
                self.freed.push(gone);
            }
        }
    }

    pub(super) const fn here_bytes(&self) -> u64 {
        self.here_bytes
    }

    /// Jobs with stored bodies, and the bytes of these bodies.
    pub(super) const fn stored(&self) -> (u64, u64) {
        (self.jobs, self.bytes)
    }

    /// Bytes saved by bodies outside memory.
    pub(super) const fn saved_bytes(&self) -> u64 {
        self.bytes + SAVED_BYTES * self.jobs
    }

    pub(super) fn take_freed(&mut self) -> Vec<Stored> {
        std::mem::take(&mut self.freed)
    }
}
