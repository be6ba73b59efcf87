//! Promised times as clients see them: by physical time, less the pauses of the daemon.

use std::collections::BTreeMap;
use std::fmt::Debug;

use windlass_engine::Timestamp;

/// Promises of one kind, such as all leases.
#[derive(Debug)]
pub(super) struct Promises<Key>(BTreeMap<Key, Promised>);

/// How long one was promised.
#[derive(Debug)]
struct Promised {
    /// By the engine's clock.
    until: Timestamp,
    /// By physical time, in milliseconds.
    until_ms: u64,
}

impl<Key> Default for Promises<Key> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<Key: Ord + Copy + Debug> Promises<Key> {
    /// Records the promises that are in force now, given both clocks. A promise whose time has changed is a new one.
    pub(super) fn record(
        &mut self,
        in_force: BTreeMap<Key, Timestamp>,
        now: Timestamp,
        passed_ms: u64,
    ) {
        self.0
            .retain(|key, promised| in_force.get(key) == Some(&promised.until));
        for (key, until) in in_force {
            let until_ms = passed_ms.saturating_add(until.ms_since(now));
            self.0.entry(key).or_insert(Promised { until, until_ms });
        }
    }

    /// Checks that those no longer in force have had their full time.
    pub(super) fn judge(
        &self,
        in_force: &BTreeMap<Key, Timestamp>,
        passed_ms: u64,
        excused: impl Fn(&Key) -> bool,
    ) {
        for (key, promised) in self
            .0
            .iter()
            .filter(|(key, _)| !in_force.contains_key(key) && !excused(key))
        {
            assert!(
                promised.until_ms <= passed_ms,
                "{key:?} ended at {passed_ms}, before the promised time: {promised:?}"
            );
        }
    }

    /// Moves the ends of all promises.
    pub(super) fn shift(&mut self, by_ms: i64) {
        self.0.values_mut().for_each(|promised| {
            promised.until_ms = promised.until_ms.saturating_add_signed(by_ms)
        });
    }

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
