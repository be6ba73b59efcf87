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

/// The kind of a request. `Stats` counts the first ten, in the order of 1.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Ping,
    Count,
    Add,
    Update,
    Lookup,
    Remove,
    /// A blocking `Lend`.
    Lend,
    Repay,
    Heartbeat,
    /// `Stats`, answered with the counters of 1.3.
    Stats,
    /// `Stats`, answered with the counters of 1.4.
    StatsNew,
    /// A non-blocking `Lend`.
    Poll,
    Flush,
}

impl Question for Ask {
    const WEIGHT_MAX: usize = 512;

    /// Blocking lends wait for an entry. `lends_max` bounds them.
    fn weight(&self) -> usize {
        usize::from(self.what != What::Lend)
    }
}
