//! Figures of each kind over the last minutes, hour and day: readings of the engine's counters are stored for
//! a while, and the difference between two readings is reported. In memory only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use windlass_engine::{FiguresRow, JobReader as _, KindRow, Protocol, QueueFigures, Timestamp};

use crate::app::App;

/// The limit of kinds with separate rows; those with the most jobs are used. At the limit, a day takes about
/// 15 MiB.
const KINDS_MAX: usize = 1_000;

const MINUTE_MS: u64 = 60_000;

/// Over how long figures are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Span {
    /// The last five minutes.
    #[default]
    Minutes,
    /// The last hour.
    Hour,
    /// The last 24 hours.
    Day,
    /// Since the daemon with the jobs has started.
    Start,
}

/// The retention and the interval of readings, in minutes. The period that is reported is longer than the
/// span by up to a fifth.
const KEPT: [(Span, u64, u64); 3] = [
    (Span::Minutes, 5, 1),
    (Span::Hour, 60, 10),
    (Span::Day, 1_440, 120),
];

/// A kind of job: the protocol of the producers, the namespace, and the function that the jobs call; empty if the
/// bodies do not show it. `None`: the sum of all kinds beyond the limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Of(Protocol, Bytes, Bytes),
    Others,
}

/// The counters of all kinds at one time.
#[derive(Clone, Debug, Default)]
struct Reading {
    at: Timestamp,
    kinds: BTreeMap<Kind, Arc<QueueFigures>>,
    /// True if it contains each kind with any jobs, so that a missing kind had no jobs.
    has_all: bool,
}

/// The last reading, and previous ones.
#[derive(Debug, Default)]
pub(crate) struct ByKind(Mutex<Readings>);

#[derive(Debug, Default)]
struct Readings {
    last: Reading,
    earlier: [VecDeque<Reading>; KEPT.len()],
}

impl ByKind {
    /// Adds a reading of the engine's counters, of all namespaces.
    pub(crate) fn add(&self, app: &App, queues: &[FiguresRow], kinds: Vec<KindRow>) {
        let is_by_queue = |protocol| app.daemon.bridge.is_by_queue(protocol);
        let named = kinds.into_iter().map(|row| {
            let kind = row.protocol.map_or(Kind::Others, |protocol| {
                Kind::Of(protocol, row.namespace, row.name)
            });
            (kind, row.figures)
        });
        let all = named.chain(queues.iter().flat_map(|row| by_queue(row, is_by_queue)));
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(app.now().wall, all);
    }

    /// The figures of each kind over approximately this span, and the start of the period, if
    /// known.
    pub(crate) fn over(&self, span: Span) -> (Option<Timestamp>, Vec<(Kind, QueueFigures)>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .over(span)
    }
}

/// The kinds that are named by a queue. Durations are known only for the queue, so they are omitted if jobs
/// of several protocols were pushed to it.
fn by_queue(
    row: &FiguresRow,
    is_by_queue: impl Fn(Protocol) -> bool,
) -> impl Iterator<Item = (Kind, QueueFigures)> {
    let FiguresRow {
        name,
        figures,
        namespace,
    } = row;
    let taken = figures.totals.iter().filter(|(_, totals)| totals.taken > 0);
    let (waited, ran) = if taken.clone().count() == 1 {
        (figures.waited, figures.ran)
    } else {
        Default::default()
    };
    taken
        .filter(move |(protocol, _)| is_by_queue(*protocol))
        .map(move |(protocol, totals)| {
            (
                Kind::Of(*protocol, namespace.clone(), name.clone()),
                QueueFigures {
                    totals: vec![(*protocol, *totals)],
                    waited,
                    ran,
                },
            )
        })
}

impl Readings {
    fn add(&mut self, at: Timestamp, all: impl Iterator<Item = (Kind, QueueFigures)>) {
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(_, figures)| std::cmp::Reverse(figures.total().taken));
        let mut others = QueueFigures::default();
        for (_, figures) in all.drain(all.len().min(KINDS_MAX)..) {
            others.add(&figures);
        }
        if let Some(at) = all.iter().position(|(kind, _)| *kind == Kind::Others) {
            others.add(&all.swap_remove(at).1);
        }
        let has_all = others.totals.is_empty();
        if !has_all {
            all.push((Kind::Others, others));
        }
        let before = std::mem::take(&mut self.last);
        let shared = |(kind, figures): (Kind, QueueFigures)| {
            let same = before
                .kinds
                .get(&kind)
                .filter(|before| ***before == figures)
                .cloned();
            (kind, same.unwrap_or_else(|| Arc::new(figures)))
        };
        self.last = Reading {
            at,
            kinds: all.into_iter().map(shared).collect(),
            has_all,
        };
        for ((_, span, every), kept) in KEPT.into_iter().zip(&mut self.earlier) {
            // If the clock was set back, later readings are dropped.
            kept.retain(|reading| reading.at <= at);
            if kept
                .back()
                .is_none_or(|last| at.ms_since(last.at) >= every * MINUTE_MS)
            {
                kept.push_back(self.last.clone());
            }
            // The oldest one is as old as the span, or older by less than one step.
            while kept
                .get(1)
                .is_some_and(|second| at.ms_since(second.at) >= span * MINUTE_MS)
            {
                kept.pop_front();
            }
        }
    }

    fn over(&self, span: Span) -> (Option<Timestamp>, Vec<(Kind, QueueFigures)>) {
        let kept = KEPT
            .into_iter()
            .zip(&self.earlier)
            .find(|((kept, ..), _)| *kept == span)
            .map(|(_, kept)| kept);
        let Some((first, later)) = kept.and_then(|kept| Some((kept.front()?, kept))) else {
            let all = self
                .last
                .kinds
                .iter()
                .map(|(kind, figures)| (kind.clone(), (**figures).clone()))
                .collect();
            return (None, all);
        };
        let since = |kind: &Kind, now: &Arc<QueueFigures>| {
            let before = later
                .iter()
                .find_map(|reading| match reading.kinds.get(kind) {
                    Some(figures) => Some(Some(figures)),
                    None => reading.has_all.then_some(None),
                });
            match before {
                // The counters restart from 0 with the engine, and with a queue that was removed and created
                // again.
                Some(Some(before)) if before.total().taken <= now.total().taken => {
                    now.since(before)
                }
                Some(_) => (**now).clone(),
                // It has just become one of the kinds with the most jobs, so the increase is unknown.
                None => QueueFigures::default(),
            }
        };
        let all = self
            .last
            .kinds
            .iter()
            .map(|(kind, now)| (kind.clone(), since(kind, now)));
        (
            Some(first.at),
            all.filter(|(_, figures)| figures.total().values().iter().any(|count| *count > 0))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Histogram, Totals};

    use super::*;

    const GEARMAN: Protocol = Protocol::GEARMAN;
    const FAKTORY: Protocol = Protocol::FAKTORY;

    fn figures(protocol: Protocol, taken: u64) -> QueueFigures {
        let totals = vec![(
            protocol,
            Totals {
                taken,
                succeeded: taken,
                ..Totals::default()
            },
        )];
        QueueFigures {
            totals,
            ..QueueFigures::default()
        }
    }

    fn kind(name: &str) -> Kind {
        Kind::Of(
            FAKTORY,
            Bytes::new(),
            Bytes::copy_from_slice(name.as_bytes()),
        )
    }

    /// The result for a span: the minute of the start, and the deliveries of each kind.
    fn told(readings: &Readings, span: Span) -> (Option<u64>, Vec<(Kind, u64)>) {
        let (since, all) = readings.over(span);
        let all = all
            .into_iter()
            .map(|(kind, figures)| (kind, figures.total().taken))
            .collect();
        (since.map(|at| at.0 / MINUTE_MS), all)
    }

    #[test]
    fn a_span_has_what_was_new_in_it() {
        let mut readings = Readings::default();
        // Each minute has ten more jobs of one kind. Another kind starts after two hours, and stops after ten
        // minutes.
        let others = |minute: u64| minute.clamp(120, 130) - 120;
        for minute in 0..=180 {
            let all = [("a", 10 * minute), ("b", others(minute))];
            let all = all.into_iter().filter(|(_, taken)| *taken > 0);
            readings.add(
                Timestamp(minute * MINUTE_MS),
                all.map(|(name, taken)| (kind(name), figures(FAKTORY, taken))),
            );
        }
        assert_eq!(
            told(&readings, Span::Minutes),
            (Some(175), vec![(kind("a"), 50)])
        );
        assert_eq!(
            told(&readings, Span::Hour),
            (Some(120), vec![(kind("a"), 600), (kind("b"), 10)])
        );
        assert_eq!(
            told(&readings, Span::Day),
            (Some(0), vec![(kind("a"), 1_800), (kind("b"), 10)])
        );
        assert_eq!(
            told(&readings, Span::Start),
            (None, vec![(kind("a"), 1_800), (kind("b"), 10)])
        );
        let kept: Vec<usize> = readings.earlier.iter().map(VecDeque::len).collect();
        assert_eq!(kept, [6, 7, 2], "what is kept has a bound");
        // A restarted engine counts from zero.
        readings.add(
            Timestamp(181 * MINUTE_MS),
            [(kind("a"), figures(FAKTORY, 7))].into_iter(),
        );
        assert_eq!(told(&readings, Span::Hour).1, [(kind("a"), 7)]);
    }

    #[test]
    fn kinds_beyond_the_bound_are_told_together_and_of_a_new_one_no_more_than_is_known() {
        let mut readings = Readings::default();
        let many = |first: u64| {
            (0..1_100).map(move |n| {
                (
                    kind(&format!("{n:04}")),
                    figures(FAKTORY, first + 2_000 - n),
                )
            })
        };
        readings.add(Timestamp(0), many(0));
        readings.add(
            Timestamp(MINUTE_MS),
            many(1).map(|(of, it)| match of == kind("1099") {
                true => (of, figures(FAKTORY, 9_000)),
                false => (of, it),
            }),
        );
        let (_, all) = told(&readings, Span::Minutes);
        let of = |name: &str| {
            all.iter()
                .find(|(it, _)| *it == kind(name))
                .map(|(_, taken)| *taken)
        };
        assert_eq!(
            (all.len(), of("0000"), of("1099"), of("1050")),
            (1_000, Some(1), None, None)
        );
        let (_, all) = told(&readings, Span::Start);
        let others: u64 = (999..1_099).map(|n| 2_001 - n).sum();
        assert_eq!(
            (all.len(), all.last()),
            (1_001, Some(&(Kind::Others, others)))
        );
    }

    #[test]
    fn a_queue_is_a_kind_where_bodies_are_bytes_and_has_times_if_its_jobs_are_alike() {
        let is_by_queue = |protocol| protocol == GEARMAN;
        let mut waited = Histogram::default();
        waited.counts[3] = 5;
        let of = |totals: &[(Protocol, u64)]| {
            let totals = totals
                .iter()
                .flat_map(|(protocol, taken)| figures(*protocol, *taken).totals)
                .collect();
            let figures = QueueFigures {
                totals,
                waited,
                ..QueueFigures::default()
            };
            let row = FiguresRow {
                namespace: bytes::Bytes::new(),
                name: "q".into(),
                figures,
            };
            by_queue(&row, is_by_queue)
                .map(|(kind, it)| (kind, it.total().taken, it.waited.count()))
                .collect::<Vec<_>>()
        };
        let q = Kind::Of(GEARMAN, Bytes::new(), "q".into());
        assert_eq!(of(&[(GEARMAN, 5), (FAKTORY, 0)]), [(q.clone(), 5, 5)]);
        assert_eq!(of(&[(GEARMAN, 5), (FAKTORY, 1)]), [(q, 5, 0)]);
        assert_eq!(of(&[(FAKTORY, 5)]), []);
    }
}
