//! The bell of a mailbox, and the place of the mailbox's owner, which moves from thread to thread.

use super::bell::Bell;
use super::sync::{Arc, ArcSwap};

/// A ring reaches the place where the owner was last. Mail whose ring goes to the old place of an owner that moves came
/// before the move, and the owner looks for mail **after** each move.
#[derive(Debug)]
pub(crate) struct Owner<P> {
    bell: Bell,
    place: ArcSwap<P>,
}

impl<P> Owner<P> {
    pub(crate) fn new(place: P) -> Self {
        Self {
            bell: Bell::new(),
            place: ArcSwap::new(Arc::new(place)),
        }
    }

    /// Rings. `notify` gets the owner's place, if the owner's thread must be notified.
    pub(crate) fn ring(&self, notify: impl FnOnce(&P)) {
        if self.bell.ring() {
            notify(&self.place.load());
        }
    }

    /// The owner is at another place from now on, and looks at its mail next.
    pub(crate) fn move_to(&self, place: P) {
        self.place.store(Arc::new(place));
    }

    pub(crate) const fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Whether this is so of the owner's place.
    pub(crate) fn is_at(&self, is_so: impl FnOnce(&P) -> bool) -> bool {
        is_so(&self.place.load())
    }
}
