//! What all connections of a listener of spiderq share: the section of the configuration, and the counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use windlass_session::ByNamespace;
use windlass_zmtp::Role;

use super::ask::What;
use crate::config::Spiderq;
use crate::wire::{Counts, Dialect};

/// The settings that all connections of a listener share. Each listener has a `cycle` queue of its own.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[spiderq]`, with the values of one cycle queue.
    pub section: Spiderq,
    /// Its queue, which is created when a connection first needs it. If a `work` queue has this name, requests are
    /// refused.
    pub queue: Bytes,
    /// For peers that send a ZMTP greeting.
    pub zmtp: Arc<windlass_zmtp::Settings>,
    /// Counters that the listener's connections share.
    pub counters: Arc<Counters>,
    /// The settings of namespaces with a name; `None` in these themselves.
    pub(crate) others: Option<Arc<Others>>,
}

/// The settings of the same listener in each namespace with a name.
#[derive(Debug)]
pub(crate) struct Others {
    /// They outlast a reload.
    counters: Arc<ByNamespace<Counters>>,
    made: ByNamespace<Settings>,
}

impl Others {
    pub(crate) fn new(counters: Arc<ByNamespace<Counters>>) -> Self {
        Self {
            counters,
            made: ByNamespace::default(),
        }
    }
}

/// Requests answered since the listener started, for `Stats`. Errors are not counted. Also holds the dialect seen last,
/// for clients that send `Stats` before their requests have shown a dialect.
#[derive(Debug, Default)]
pub struct Counters {
    counts: [AtomicU64; 10],
    saw_1_3_last: AtomicBool,
}

impl Settings {
    /// The settings of a listener with this section, without security.
    pub fn new(section: Spiderq) -> Self {
        let (queue, zmtp) = (
            section.queue.clone().into(),
            windlass_zmtp::Settings::new(Role::Router),
        );
        Self {
            section,
            queue,
            zmtp: Arc::new(zmtp),
            counters: Arc::default(),
            others: None,
        }
    }

    /// The settings in a namespace; `None`: in that without a name.
    pub(crate) fn within(self: &Arc<Self>, namespace: Option<&str>) -> Arc<Self> {
        let Some((name, others)) = namespace.zip(self.others.as_ref()) else {
            return Arc::clone(self);
        };
        others.made.get_or(name, || Self {
            zmtp: Arc::new(self.zmtp.at(name)),
            counters: others.counters.get_or(name, Counters::default),
            others: None,
            ..Self::clone(self)
        })
    }

    /// Longest key or value of a bare request, in bytes. A longer one ends the connection.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.section.zmtp.message_bytes_max.bytes()
    }
}

impl Counters {
    pub(super) fn count(&self, what: What) {
        let what = if what == What::Poll { What::Lend } else { what };
        let what = if what == What::StatsNew {
            What::Stats
        } else {
            what
        };
        if let Some(counter) = self.counts.get(what as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn saw(&self, dialect: Dialect) {
        self.saw_1_3_last
            .store(dialect == Dialect::V1_3, Ordering::Relaxed);
    }

    /// The dialect seen last. Until one is seen it is 1.4, which every public client speaks.
    pub(super) fn seen_last(&self) -> Dialect {
        if self.saw_1_3_last.load(Ordering::Relaxed) {
            Dialect::V1_3
        } else {
            Dialect::V1_4
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
            .each_ref()
            .map(|counter| counter.load(Ordering::Relaxed))
    }
}
