//! The figures of all queues. Queues beyond the limit are summed up.
//!
//! A queue retains the series for as long as it exists, and a queue without separate series never gets them.
//! Otherwise counters would jump between `_other` and the queue.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use windlass_engine::{
    FiguresRow, JobStateKind, KindRow, NamespaceRow, PolicyRow, Protocol, QueueFigures, QueueRow,
    Timestamp,
};

/// The name for the sum of all queues beyond the limit.
const OTHER: &[u8] = b"_other";

/// A queue in a namespace, which is empty for the namespace without a name.
pub(crate) type QueueName = (Bytes, Bytes);

/// A kind of job: the protocol of the producers, the namespace, and what the jobs call.
pub(crate) type KindName = (Option<Protocol>, Bytes, Bytes);

fn queue_name(row: &QueueRow) -> QueueName {
    (row.namespace.clone(), row.name.clone())
}

/// The queues with separate series, from one scrape to the next.
#[derive(Debug, Default)]
pub(crate) struct Series {
    queues_max: usize,
    own: HashSet<QueueName>,
    other: HashSet<QueueName>,
    /// The counters of removed queues that were part of `_other`.
    gone: QueueFigures,
    /// The counters of `_other` at the last scrape.
    last: QueueFigures,
}

/// The figures of a queue, or of all queues in `_other`.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueSeries {
    pub(crate) states: [u64; JobStateKind::ALL.len()],
    pub(crate) oldest_ready_at: Option<Timestamp>,
    pub(crate) paused: u64,
    pub(crate) workers: u64,
    pub(crate) slots_held: u64,
    pub(crate) figures: QueueFigures,
    /// The policy; `None` for `_other`.
    pub(crate) policy: Option<Box<PolicyRow>>,
}

fn other() -> QueueName {
    (Bytes::new(), Bytes::from_static(OTHER))
}

impl Series {
    /// The namespaces with separate series: those that were created first.
    pub(crate) fn of_namespaces(&self, rows: Vec<NamespaceRow>) -> Vec<NamespaceRow> {
        let named = rows.into_iter().filter(|row| !row.name.is_empty());
        named.take(self.queues_max).collect()
    }

    pub(crate) fn new(queues_max: usize) -> Self {
        Self {
            queues_max,
            ..Self::default()
        }
    }

    /// All series by name, from a single reading of all queues.
    pub(crate) fn of(
        &mut self,
        rows: &[QueueRow],
        figures: Vec<FiguresRow>,
    ) -> BTreeMap<QueueName, QueueSeries> {
        self.keep(rows);
        let mut series: BTreeMap<QueueName, QueueSeries> = BTreeMap::new();
        for row in rows {
            let name = queue_name(row);
            let it = series.entry(self.name(&name)).or_default();
            it.add_row(row);
            it.policy = row.policy.clone().filter(|_| self.own.contains(&name));
        }
        for row in figures {
            // The queue may have been created or removed between the two readings.
            if let Some(series) = series.get_mut(&self.name(&(row.namespace, row.name))) {
                series.figures.add(&row.figures);
            }
        }
        self.keep_other_from_falling(&mut series);
        series
    }

    /// The figures of as many kinds as there may be queues with series, and the sum of the rest. A kind
    /// retains the series for as long as the engine counts it separately.
    pub(crate) fn of_kinds(&self, rows: Vec<KindRow>) -> BTreeMap<KindName, QueueFigures> {
        let mut kinds: BTreeMap<_, QueueFigures> = BTreeMap::new();
        for (at, row) in rows.into_iter().enumerate() {
            let name = if at < self.queues_max {
                (row.protocol, row.namespace, row.name)
            } else {
                KindName::default()
            };
            kinds.entry(name).or_default().add(&row.figures);
        }
        kinds
    }

    /// Removes the series of removed queues, and gives series to new ones while the limit allows.
    fn keep(&mut self, rows: &[QueueRow]) {
        let names: HashSet<QueueName> = rows.iter().map(queue_name).collect();
        self.own.retain(|name| names.contains(name));
        self.other.retain(|name| names.contains(name));
        for row in rows.iter().filter(|row| &row.name[..] != OTHER) {
            let name = queue_name(row);
            if self.own.contains(&name) || self.other.contains(&name) {
                continue;
            }
            let set = if self.own.len() < self.queues_max {
                &mut self.own
            } else {
                &mut self.other
            };
            set.insert(name);
        }
    }

    fn name(&self, queue: &QueueName) -> QueueName {
        if self.own.contains(queue) {
            queue.clone()
        } else {
            other()
        }
    }

    /// The counters of a removed queue are gone, but the sum of a counter must not decrease.
    fn keep_other_from_falling(&mut self, series: &mut BTreeMap<QueueName, QueueSeries>) {
        let Some(other) = series.get_mut(&other()) else {
            return;
        };
        let now = other.figures.clone();
        self.gone.add(&self.last.since(&now));
        other.figures.add(&self.gone);
        self.last = now;
    }
}

impl QueueSeries {
    fn add_row(&mut self, row: &QueueRow) {
        for (sum, jobs) in self.states.iter_mut().zip(row.places) {
            *sum += u64::from(jobs);
        }
        self.oldest_ready_at = match (self.oldest_ready_at, row.oldest_ready_at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.paused += u64::from(row.is_paused());
        self.workers += u64::from(row.served_by());
        self.slots_held += u64::from(row.slots_held);
    }
}

/// A count as a gauge's value: exact below 2^53.
pub(super) fn count(value: u64) -> f64 {
    let (high, low) = (
        u32::try_from(value >> 32).unwrap_or(u32::MAX),
        u32::try_from(value & 0xffff_ffff).unwrap_or(0),
    );
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Priority, Protocols, QueueKind, QueueRules, Totals};

    use super::*;

    fn row(name: &'static str, ready: u32) -> QueueRow {
        QueueRow {
            namespace: bytes::Bytes::new(),
            name: name.into(),
            kind: QueueKind::Work,
            paused: Protocols::NONE,
            paused_at: None,
            jobs_max: [None; Priority::COUNT],
            jobs_max_of: None,
            throttle: None,
            rules: QueueRules::default(),
            bridged: false,
            slots_held: 0,
            ready: [0; Priority::COUNT],
            places: [ready, 0, 0, 0, 0, 0, 0],
            workers: 1,
            oldest_ready_at: Some(Timestamp(u64::from(ready))),
            waiting: None,
            policy: None,
        }
    }

    fn figures(name: &'static str, pushed: u64) -> FiguresRow {
        let totals = vec![(
            Protocol::GEARMAN,
            Totals {
                pushed,
                ..Totals::default()
            },
        )];
        FiguresRow {
            namespace: bytes::Bytes::new(),
            name: name.into(),
            figures: QueueFigures {
                totals,
                ..QueueFigures::default()
            },
        }
    }

    /// Name, ready jobs, pushed jobs.
    fn shown(series: &mut Series, queues: &[(&'static str, u32, u64)]) -> Vec<(String, u64, u64)> {
        let rows: Vec<QueueRow> = queues
            .iter()
            .map(|(name, ready, _)| row(name, *ready))
            .collect();
        let figures = queues
            .iter()
            .map(|(name, _, pushed)| figures(name, *pushed))
            .collect();
        let pushed = |it: &QueueSeries| {
            it.figures
                .totals
                .iter()
                .map(|(_, totals)| totals.pushed)
                .sum()
        };
        let all = series.of(&rows, figures);
        all.iter()
            .map(|((_, name), it)| {
                (
                    String::from_utf8_lossy(name).into_owned(),
                    it.states[0],
                    pushed(it),
                )
            })
            .collect()
    }

    fn line(name: &str, ready: u64, pushed: u64) -> (String, u64, u64) {
        (name.to_owned(), ready, pushed)
    }

    #[test]
    fn queues_beyond_the_bound_are_one_whose_counters_never_fall() {
        let mut series = Series::new(2);
        let all = [("a", 1, 10), ("b", 2, 20), ("c", 3, 30), ("d", 4, 40)];
        assert_eq!(
            shown(&mut series, &all),
            [line("_other", 7, 70), line("a", 1, 10), line("b", 2, 20)]
        );
        // There is space for a series, but a queue that was in `_other` stays there.
        let later = [("b", 2, 20), ("c", 3, 31), ("d", 4, 40)];
        assert_eq!(
            shown(&mut series, &later),
            [line("_other", 7, 71), line("b", 2, 20)]
        );
        // A new queue gets the series. Another queue of `_other` was removed with the counters.
        let later = [("b", 2, 20), ("d", 4, 41), ("e", 5, 50)];
        assert_eq!(
            shown(&mut series, &later),
            [line("_other", 4, 71), line("b", 2, 20), line("e", 5, 50)]
        );
        let later = [("b", 2, 20), ("d", 4, 45), ("e", 5, 50)];
        assert_eq!(
            shown(&mut series, &later),
            [line("_other", 4, 75), line("b", 2, 20), line("e", 5, 50)]
        );
    }

    #[test]
    fn queues_of_the_same_name_have_series_of_their_own() {
        let mut series = Series::new(2);
        let rows = ["", "shop"].map(|namespace| QueueRow {
            namespace: namespace.into(),
            ..row("q", 1)
        });
        let all = series.of(&rows, Vec::new());
        let names: Vec<_> = all.keys().cloned().collect();
        assert_eq!(
            names,
            [("".into(), "q".into()), ("shop".into(), "q".into())]
        );
    }

    #[test]
    fn kinds_beyond_the_bound_are_one() {
        let row = |protocol: Option<Protocol>, name: &'static str, taken: u64| {
            let totals = vec![(
                Protocol::FAKTORY,
                Totals {
                    taken,
                    ..Totals::default()
                },
            )];
            KindRow {
                namespace: bytes::Bytes::new(),
                protocol,
                name: name.into(),
                figures: QueueFigures {
                    totals,
                    ..QueueFigures::default()
                },
            }
        };
        let faktory = Some(Protocol::FAKTORY);
        let rows = vec![
            row(faktory, "a", 1),
            row(faktory, "b", 2),
            row(faktory, "c", 4),
            row(None, "", 8),
        ];
        let kinds = Series::new(2).of_kinds(rows);
        let shown: Vec<_> = kinds
            .iter()
            .map(|((of, _, name), it)| (*of, &name[..], it.total().taken))
            .collect();
        assert_eq!(
            shown,
            [(None, &b""[..], 12), (faktory, b"a", 1), (faktory, b"b", 2)]
        );
    }

    #[test]
    fn a_queue_that_is_called_other_is_one_of_the_others() {
        let mut series = Series::new(2);
        assert_eq!(
            shown(&mut series, &[("_other", 1, 10)]),
            [line("_other", 1, 10)]
        );
    }
}
