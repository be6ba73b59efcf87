//! The bell of one mailbox.
//!
//! | state | `ring` | `attend` | `look` |
//! | --- | --- | --- | --- |
//! | quiet | rung, and the thread must be notified | attended | quiet |
//! | rung | rung | attended, **and returns that it was rung** | quiet, and returns that it was rung |
//! | attended | attended and rung | attended | quiet |
//! | attended and rung | the same | attended, and returns that it was rung | quiet, and returns that it was rung |
//!
//! No step forgets a ring without returning it, so the owner learns of each ring: the seat that a ring leaves with the
//! thread only brings the owner's next turn forward.

use super::sync::{AtomicU8, Ordering};

const RUNG: u8 = 1;
/// The owner will look in its turn, so its thread need not be notified.
const ATTENDED: u8 = 2;

/// Whether a mailbox's owner has been rung, and whether it will look by itself.
#[derive(Debug)]
pub struct Bell(AtomicU8);

impl Bell {
    /// A bell that nobody has rung.
    pub fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Rings. Returns whether the owner's thread must be notified.
    #[must_use]
    pub fn ring(&self) -> bool {
        self.0.fetch_or(RUNG, Ordering::AcqRel) == 0
    }

    /// The owner's turn begins, and it will [`look`](Self::look) before the turn ends. Returns whether it was rung.
    #[must_use]
    pub fn attend(&self) -> bool {
        self.0.swap(ATTENDED, Ordering::AcqRel) & RUNG != 0
    }

    /// The owner reads its mail next: the thread must be notified of all mail that it does not find. Returns whether it
    /// was rung.
    #[must_use]
    pub fn look(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) & RUNG != 0
    }
}
