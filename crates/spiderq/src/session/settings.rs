//! What an operator can configure about spiderq, and what the connections of a listener count together.
//! [`crate::config`] makes the settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use windlass_zmtp::Role;

use crate::wire::{Counts, Dialect};

/// The settings that all connections of a listener share. Each listener has a `cycle` queue of its own.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The queue's name. The queue is created when a connection first needs it. If a `work` queue has this name,
    /// requests are refused.
    pub queue: Bytes,
    /// The dialect. `None`: each client's requests show it. In [`Dialect::V1_3`] a client that shows that it speaks 1.4
    /// gets the ten counters of 1.4 from then on.
    pub dialect: Option<Dialect>,
    /// Whether clients may stop the daemon. Otherwise `Terminate` is answered as an unknown request.
    pub terminate: bool,
    /// An entry returns to its old position when the connection that borrowed it ends. Such leases do not outlast the
    /// daemon. Otherwise leases end only by time, and another connection may repay the entry.
    pub release_on_disconnect: bool,
    /// Longest key or value of a bare request, in bytes. A longer one ends the connection. Over ZMTP the limits of
    /// `zmtp` apply instead.
    pub frame_bytes_max: usize,
    /// Blocking `Lend`s of one connection that may wait at the same time. One more ends the connection.
    pub lends_max: usize,
    /// For peers that send a ZMTP greeting.
    pub zmtp: Arc<windlass_zmtp::Settings>,
    /// Counters that the listener's connections share.
    pub counters: Arc<Counters>,
}

/// Requests answered since the listener started, for `Stats`. Errors are not counted. Also holds the dialect seen last,
/// for clients that send `Stats` before their requests have shown a dialect.
#[derive(Debug, Default)]
pub struct Counters {
    counts: [AtomicU64; 10],
    saw_1_3_last: AtomicBool,
}

/// The counters, in the order of 1.4.
#[derive(Debug, Clone, Copy)]
pub(super) enum Counted {
    Ping,
    Count,
    Add,
    Update,
    Lookup,
    Remove,
    Lend,
    Repay,
    Heartbeat,
    Stats,
}

impl Settings {
    /// The default settings for a listener with this queue.
    #[must_use]
    pub fn new(queue: Bytes) -> Self {
        Self {
            queue,
            dialect: None,
            terminate: false,
            release_on_disconnect: false,
            frame_bytes_max: 64 << 20,
            lends_max: 10_000,
            zmtp: Arc::new(windlass_zmtp::Settings::new(Role::Router)),
            counters: Arc::default(),
        }
    }
}

impl Counters {
    pub(super) fn count(&self, what: Counted) {
        if let Some(counter) = self.counts.get(what as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn saw(&self, dialect: Dialect) {
        self.saw_1_3_last.store(dialect == Dialect::V1_3, Ordering::Relaxed);
    }

    /// The dialect seen last. Until one is seen it is 1.4, which every public client speaks.
    pub(super) fn seen_last(&self) -> Dialect {
        if self.saw_1_3_last.load(Ordering::Relaxed) { Dialect::V1_3 } else { Dialect::V1_4 }
    }

    pub(super) fn counts(&self) -> Counts {
        let [ping, count, add, update, lookup, remove, lend, repay, heartbeat, stats] =
            self.counts.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        Counts { ping, count, add, update, lookup, remove, lend, repay, heartbeat, stats }
    }
}
