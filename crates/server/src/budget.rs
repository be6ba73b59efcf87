//! What all connections together may hold of messages half read and words half sent.
//!
//! Each connection has limits of its own; ten thousand that all go to theirs would still be more than a machine has.
//! Small buffers are not counted one by one: a connection reports when it holds much, and no longer when it does not.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this a connection's buffers are not worth counting: its share is in `connections_max`.
pub(crate) const SMALL_BYTES: usize = 64 * 1024;

/// The bytes of all connections that hold much.
#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    bytes_max: usize,
}

/// What one connection has reported.
#[derive(Debug, Default)]
pub(crate) struct Share(usize);

impl Budget {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { held: AtomicUsize::new(0), bytes_max }
    }

    /// Takes down what a connection holds now. Says no if it holds more than before and that is more than there is.
    pub(crate) fn report(&self, share: &mut Share, bytes: usize) -> bool {
        let now = if bytes < SMALL_BYTES { 0 } else { bytes };
        let before = std::mem::replace(&mut share.0, now);
        if now <= before {
            if now < before {
                self.held.fetch_sub(before - now, Ordering::AcqRel);
            }
            return true;
        }
        let more = now - before;
        self.held.fetch_add(more, Ordering::AcqRel) + more <= self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let budget = Budget::new(1_000_000);
        let (mut one, mut other) = (Share::default(), Share::default());
        assert!(budget.report(&mut one, 60_000), "small, not counted");
        assert!(budget.report(&mut one, 900_000));
        assert!(!budget.report(&mut other, 200_000), "more than there is");
        assert!(budget.report(&mut other, 0));
        assert!(budget.report(&mut other, 90_000));
        assert!(budget.report(&mut one, 0) && budget.report(&mut other, 1_000_000));
    }
}
