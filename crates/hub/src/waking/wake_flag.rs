//! Whether the owner of a mailbox was woken, and will check the mailbox.
//!
//! | state | `ring` | `attend` | `look` |
//! | --- | --- | --- | --- |
//! | clear | rung, and the thread must be notified | attended | clear |
//! | rung | rung | attended, **and returns that it was rung** | clear, and returns that it was rung |
//! | attended | attended and rung | attended | clear |
//! | attended and rung | the same | attended, and returns that it was rung | clear, and returns that it was rung |
//!
//! No step clears a ring without returning it, so the owner learns of every ring, and the slot that a ring queues at the
//! thread only brings the owner's next turn forward.

use super::sync::{AtomicU8, Ordering};

const RUNG: u8 = 1;
/// The owner will check the mailbox in its turn, so its thread need not be notified.
const ATTENDED: u8 = 2;

/// Whether a mailbox's owner was woken, and whether it will check the mailbox by itself.
#[derive(Debug)]
pub struct WakeFlag(AtomicU8);

impl WakeFlag {
    /// A clear flag.
    pub fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Wakes the owner. Returns whether its thread must be notified.
    #[must_use]
    pub fn ring(&self) -> bool {
        self.0.fetch_or(RUNG, Ordering::AcqRel) == 0
    }

    /// Called when the owner's turn begins, in which it will [`look`](Self::look). Returns whether it was woken.
    #[must_use]
    pub fn attend(&self) -> bool {
        self.0.swap(ATTENDED, Ordering::AcqRel) & RUNG != 0
    }

    /// Called before the owner reads its mail: the thread is notified of all later mail. Returns whether the owner was
    /// woken.
    #[must_use]
    pub fn look(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) & RUNG != 0
    }
}
