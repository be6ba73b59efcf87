//! The wake flag of a mailbox, and the location of its owner, which moves between threads.

use super::sync::{Arc, ArcSwap};
use super::wake_flag::WakeFlag;

/// A wake-up goes to the last known location of the owner. Mail whose wake-up goes to the old
/// location of a moving owner was added before the move, and the owner checks for mail **after**
/// each move.
#[derive(Debug)]
pub(crate) struct Owner<P> {
    flag: WakeFlag,
    place: ArcSwap<P>,
}

impl<P> Owner<P> {
    pub(crate) fn new(place: P) -> Self {
        Self {
            flag: WakeFlag::new(),
            place: ArcSwap::new(Arc::new(place)),
        }
    }

    /// Sets the flag. `notify` is called with the owner's location if its thread must be notified.
    pub(crate) fn ring(&self, notify: impl FnOnce(&P)) {
        if self.flag.ring() {
            notify(&self.place.load());
        }
    }

    /// Moves the owner, which must check its mail next.
    pub(crate) fn move_to(&self, place: P) {
        self.place.store(Arc::new(place));
    }

    pub(crate) const fn wake_flag(&self) -> &WakeFlag {
        &self.flag
    }

    /// Whether this holds for the owner's location.
    pub(crate) fn is_at(&self, is_so: impl FnOnce(&P) -> bool) -> bool {
        is_so(&self.place.load())
    }
}
