//! What a command to the engine was for.

use windlass_session::Question;
use windlass_zmtp::Envelope;

/// A request that the engine has not answered yet.
#[derive(Debug)]
pub struct Ask {
    pub(super) what: What,
    /// For the reply.
    pub(super) envelope: Envelope,
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Count,
    Add,
    Update,
    /// A blocking `Lend`.
    Lend,
    /// A non-blocking `Lend`.
    Poll,
    Repay,
    Heartbeat,
    /// `Stats`, answered with the counters of 1.3.
    Stats,
    /// `Stats`, answered with the counters of 1.4.
    StatsNew,
    Lookup,
    Flush,
    Remove,
}

impl Question for Ask {
    const WEIGHT_MAX: usize = 512;

    /// Blocking lends wait for an entry. `lends_max` bounds them.
    fn weight(&self) -> usize {
        usize::from(self.what != What::Lend)
    }
}
