//! The data for the plots of the overview: the last hour every five seconds, and the last day every minute.
//! Also for the queues with the most traffic, for a shorter time. In memory only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use windlass_engine::{FiguresRow, Histogram, JobStateKind, Protocol, Stats, Timestamp, Totals};

/// The interval at which the figures are read.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// Readings per point of the day.
const PER_MINUTE: usize = 12;

/// Protocols.
pub(super) const PROTOCOLS: usize = Protocol::ALL.len();

/// The quantiles of durations that are shown, per thousand.
const SHARES: [u64; 3] = [500, 950, 990];

/// Points of an hour, and of a day.
const ALL: Room = Room {
    fine: 720,
    coarse: 1_440,
};
/// Points of five minutes, and of two hours.
const OF_QUEUE: Room = Room {
    fine: 60,
    coarse: 120,
};

/// Queues that have a history: 22 KiB each.
pub(super) const QUEUES_MAX: usize = 100;
/// The weight of a queue's traffic at the next reading. After six minutes it is reduced to a half.
const FADES: f64 = 0.99;

/// Events between two readings, and the state at the second one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    /// Jobs pushed, a second.
    pub(super) pushed: f64,
    /// Jobs done per second, in the order of [`Protocol::ALL`].
    pub(super) done: [f64; PROTOCOLS],
    /// Jobs failed, a second.
    pub(super) failed: f64,
    /// Jobs that wait to be taken.
    pub(super) ready: f64,
    /// Jobs that workers have.
    pub(super) leased: f64,
    /// The median, the 95 % and the 99 % quantile of the waits, in seconds; NaN if there were no jobs.
    pub(super) waited: [f64; 3],
    /// The same for execution times.
    pub(super) ran: [f64; 3],
}

/// Points of all jobs, and of some queues.
#[derive(Debug, Default)]
pub(crate) struct History {
    all: Mutex<Points>,
    queues: Mutex<Queues>,
}

/// The newest points, every five seconds and every minute.
#[derive(Debug, Default)]
struct Points {
    fine: VecDeque<Point>,
    coarse: VecDeque<Point>,
    /// Points since the last coarse one.
    minute: Vec<Point>,
}

/// The number of stored points.
#[derive(Clone, Copy, Debug)]
struct Room {
    fine: usize,
    coarse: usize,
}

/// A queue: the namespace and the name.
pub(super) type QueueName = (Bytes, Bytes);

/// The ready and the leased jobs of some queues.
pub(super) type Backlog = HashMap<QueueName, (u64, u64)>;

fn queue_name(row: &FiguresRow) -> QueueName {
    (row.namespace.clone(), row.name.clone())
}

/// The queues with the most traffic.
#[derive(Debug, Default)]
struct Queues {
    /// The counters of all queues at the last reading.
    counted: Option<HashMap<QueueName, u64>>,
    kept: HashMap<QueueName, Kept>,
}

#[derive(Debug)]
struct Kept {
    last: Reading,
    points: Points,
    traffic: f64,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    at: Timestamp,
    totals: Totals,
    done: [u64; PROTOCOLS],
    waited: Histogram,
    ran: Histogram,
    ready: u64,
    leased: u64,
}

impl History {
    pub(super) fn add(&self, point: Point) {
        self.all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(point, ALL);
    }

    /// The points of the last hour and of the last day.
    pub(super) fn points(&self) -> [Vec<Point>; 2] {
        self.all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .shown()
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the figures of all queues at a moment of the wall clock, and the backlog of queues with a
    /// history.
    pub(super) fn add_queues(&self, at: Timestamp, rows: &[FiguresRow], backlog: &Backlog) {
        self.queues().add(at, rows, backlog);
    }

    /// The queues with a history.
    pub(super) fn names(&self) -> Vec<QueueName> {
        self.queues().kept.keys().cloned().collect()
    }

    /// The points of a queue, of the last five minutes and of the last two hours.
    pub(super) fn of_queue(&self, namespace: &Bytes, queue: &Bytes) -> Option<[Vec<Point>; 2]> {
        self.queues()
            .kept
            .get(&(namespace.clone(), queue.clone()))
            .map(|kept| kept.points.shown())
    }

    /// Jobs of a queue that were pushed, done and failed per second, within the last minute.
    pub(crate) fn rates(&self, namespace: &Bytes, queue: &Bytes) -> Option<[f64; 3]> {
        let queues = self.queues();
        let newest: Vec<Point> = queues
            .kept
            .get(&(namespace.clone(), queue.clone()))?
            .points
            .fine
            .iter()
            .take(PER_MINUTE)
            .copied()
            .collect();
        let mean = Point::mean(&newest);
        (!newest.is_empty()).then(|| [mean.pushed, mean.all_done(), mean.failed])
    }
}

impl Points {
    fn add(&mut self, point: Point, room: Room) {
        let push = |points: &mut VecDeque<Point>, point, most: usize| {
            points.truncate(most.saturating_sub(1));
            points.push_front(point);
        };
        push(&mut self.fine, point, room.fine);
        self.minute.push(point);
        if self.minute.len() >= PER_MINUTE {
            push(
                &mut self.coarse,
                Point::mean(&std::mem::take(&mut self.minute)),
                room.coarse,
            );
        }
    }

    fn shown(&self) -> [Vec<Point>; 2] {
        [&self.fine, &self.coarse].map(|points| points.iter().copied().collect())
    }
}

impl Queues {
    fn add(&mut self, at: Timestamp, rows: &[FiguresRow], backlog: &Backlog) {
        let (before, mut counted_now) = (self.counted.take(), HashMap::with_capacity(rows.len()));
        let reading = |row| Reading::of_queue(at, row, backlog);
        let mut others = Vec::new();
        for row in rows {
            let counts = row
                .figures
                .totals
                .iter()
                .map(|(_, it)| it.pushed + it.succeeded + it.failed);
            let count: u64 = counts.sum();
            // At the first reading the increase is unknown.
            let counted = before.as_ref().map_or(count, |before| {
                before.get(&queue_name(row)).copied().unwrap_or_default()
            });
            let new = real(count.saturating_sub(counted));
            counted_now.insert(queue_name(row), count);
            if let Some(kept) = self.kept.get_mut(&queue_name(row)) {
                let now = reading(row);
                kept.points.add(now.since(&kept.last), OF_QUEUE);
                (kept.last, kept.traffic) = (now, kept.traffic.mul_add(FADES, new));
            } else if new > 0.0 {
                others.push((new, row));
            }
        }
        self.kept.retain(|name, _| counted_now.contains_key(name));
        self.counted = Some(counted_now);
        others.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        for (traffic, row) in others {
            if self.kept.len() >= QUEUES_MAX {
                let least = self
                    .kept
                    .iter()
                    .min_by(|(_, one), (_, other)| one.traffic.total_cmp(&other.traffic));
                let Some(least) = least
                    .filter(|(_, kept)| kept.traffic < traffic)
                    .map(|(name, _)| name.clone())
                else {
                    break;
                };
                self.kept.remove(&least);
            }
            self.kept.insert(
                queue_name(row),
                Kept {
                    last: reading(row),
                    points: Points::default(),
                    traffic,
                },
            );
        }
    }
}

impl Reading {
    /// The figures of the daemon and of all queues at a moment of the wall clock.
    pub(super) fn of(at: Timestamp, stats: &Stats, figures: &[FiguresRow]) -> Self {
        let count =
            |kind: JobStateKind| stats.places.get(kind as usize).copied().unwrap_or_default();
        let (ready, leased) = (count(JobStateKind::Ready), count(JobStateKind::Leased));
        let of = |protocol| stats.protocols.iter().find(|row| row.protocol == protocol);
        let done = Protocol::ALL.map(|row| of(row.id).map_or(0, |row| row.totals.succeeded));
        let mut reading = Self {
            at,
            totals: stats.totals,
            done,
            ready,
            leased,
            ..Self::default()
        };
        for FiguresRow { figures, .. } in figures {
            reading.waited = reading.waited.merged(&figures.waited, u64::saturating_add);
            reading.ran = reading.ran.merged(&figures.ran, u64::saturating_add);
        }
        reading
    }

    /// The figures of a queue.
    fn of_queue(at: Timestamp, row: &FiguresRow, backlog: &Backlog) -> Self {
        let (ready, leased) = backlog.get(&queue_name(row)).copied().unwrap_or_default();
        let (waited, ran) = (row.figures.waited, row.figures.ran);
        let mut reading = Self {
            at,
            waited,
            ran,
            ready,
            leased,
            ..Self::default()
        };
        for (protocol, totals) in &row.figures.totals {
            reading.totals = reading.totals.merged(totals, u64::saturating_add);
            let at = Protocol::ALL
                .iter()
                .position(|row| row.id == *protocol)
                .unwrap_or(PROTOCOLS);
            reading
                .done
                .get_mut(at)
                .into_iter()
                .for_each(|done| *done += totals.succeeded);
        }
        reading
    }

    /// The point between two readings.
    pub(super) fn since(&self, before: &Self) -> Point {
        let seconds = Duration::from_millis(self.at.ms_since(before.at))
            .max(Duration::from_millis(1))
            .as_secs_f64();
        let rate = |now: u64, before: u64| real(now.saturating_sub(before)) / seconds;
        Point {
            pushed: rate(self.totals.pushed, before.totals.pushed),
            done: std::array::from_fn(|at| rate(part(&self.done, at), part(&before.done, at))),
            failed: rate(self.totals.failed, before.totals.failed),
            ready: real(self.ready),
            leased: real(self.leased),
            waited: durations(&self.waited, &before.waited),
            ran: durations(&self.ran, &before.ran),
        }
    }
}

impl Point {
    /// Jobs of all protocols done per second.
    pub(super) fn all_done(&self) -> f64 {
        self.done.iter().sum()
    }

    /// Combines adjacent points, so that there are no more than this many.
    pub(super) fn thinned(points: &[Self], most: usize) -> Vec<Self> {
        points
            .chunks(points.len().div_ceil(most).max(1))
            .map(Self::mean)
            .collect()
    }

    fn mean(points: &[Self]) -> Self {
        let count = real(points.len().max(1) as u64);
        let mean = |part: fn(&Self) -> f64| points.iter().map(part).sum::<f64>() / count;
        let most = |part: &dyn Fn(&Self) -> f64| points.iter().map(part).fold(f64::NAN, f64::max);
        Self {
            pushed: mean(|it| it.pushed),
            done: std::array::from_fn(|at| {
                points.iter().map(|it| part(&it.done, at)).sum::<f64>() / count
            }),
            failed: mean(|it| it.failed),
            ready: mean(|it| it.ready),
            leased: mean(|it| it.leased),
            waited: std::array::from_fn(|at| most(&|it| part(&it.waited, at))),
            ran: std::array::from_fn(|at| most(&|it| part(&it.ran, at))),
        }
    }
}

/// Quantiles of the durations of jobs since then, in seconds; NaN without jobs.
fn durations(now: &Histogram, before: &Histogram) -> [f64; 3] {
    let new = now.merged(before, u64::saturating_sub);
    if new.counts.iter().all(|count| *count == 0) {
        return [f64::NAN; 3];
    }
    SHARES.map(|share| Duration::from_millis(new.quantile_ms(share)).as_secs_f64())
}

/// An element of a small array; the default if there is none.
pub(super) fn part<T: Copy + Default>(values: &[T], at: usize) -> T {
    values.get(at).copied().unwrap_or_default()
}

/// A count as a figure to draw, exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "a plot shows fewer digits")]
pub(super) const fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use windlass_engine::QueueFigures;

    use super::*;

    #[test]
    fn rates_are_per_second_and_latencies_of_new_jobs() {
        let mut before = Reading {
            at: Timestamp(10_000),
            ready: 3,
            ..Reading::default()
        };
        before.waited.counts[13] = 1_000;
        before.waited.max_ms = 8_000;
        let mut now = Reading {
            at: Timestamp(12_000),
            ready: 5,
            leased: 1,
            ..before
        };
        (now.totals.pushed, now.done[1]) = (20, 4);
        now.waited.counts[0] = 94;
        now.waited.counts[2] = 5;
        now.waited.counts[4] = 1;
        let point = now.since(&before);
        assert_eq!(
            (point.pushed, point.failed, point.ready, point.leased),
            (10.0, 0.0, 5.0, 1.0)
        );
        assert_eq!((point.done[0], point.done[1]), (0.0, 2.0));
        assert_eq!(point.waited, [0.0, 0.002, 0.004]);
        assert!(
            point.ran.iter().all(|it| it.is_nan()),
            "no job ran: {point:?}"
        );
        let idle = Reading {
            at: Timestamp(14_000),
            ..now
        }
        .since(&now);
        let mean = Point::thinned(&[idle, point], 1);
        assert_eq!(
            (mean[0].waited, mean[0].ran[0].is_nan()),
            (point.waited, true),
            "a point without jobs does not count"
        );
        assert_eq!(
            before.since(&now).pushed,
            0.0,
            "a clock and counters that went back"
        );
    }

    #[test]
    fn a_minute_is_twelve_points_and_the_rings_are_bounded() {
        let history = History::default();
        for at in 0..20_000 {
            history.add(Point {
                pushed: 12.0,
                waited: [real(at); 3],
                ..Point::default()
            });
        }
        let [hour, day] = history.points();
        assert_eq!((hour.len(), day.len()), (ALL.fine, ALL.coarse));
        let thin = Point::thinned(&day, 300);
        assert_eq!(
            (thin.len(), thin[0].pushed, thin[0].waited[1]),
            (288, 12.0, 19_991.0)
        );
        assert_eq!(Point::thinned(&hour[..7], 300), hour[..7]);
        assert_eq!(hour[0].waited[1], 19_999.0, "the newest is first");
        assert_eq!((day[0].pushed, day[0].waited[1]), (12.0, 19_991.0));
    }
    #[test]
    fn the_busiest_queues_have_a_history() {
        let named = |name: &'static str| (Bytes::new(), Bytes::from(name));
        let row = |queue: usize, pushed| {
            let totals = Totals {
                pushed,
                succeeded: pushed / 2,
                ..Totals::default()
            };
            let figures = QueueFigures {
                totals: vec![(Protocol::GEARMAN, totals)],
                ..QueueFigures::default()
            };
            FiguresRow {
                namespace: bytes::Bytes::new(),
                name: format!("q{queue}").into(),
                figures,
            }
        };
        let first = History::default();
        for rows in [&[][..], &[row(1, 5)]] {
            first.add_queues(Timestamp(0), rows, &Backlog::new());
        }
        assert_eq!(
            first.names(),
            [named("q1")],
            "the first queue of a new daemon"
        );
        let history = History::default();
        let read = |second: u64, rows: &[FiguresRow]| {
            let backlog = [(named("q7"), (3, 1))].into_iter().collect();
            history.add_queues(Timestamp(second * 1_000), rows, &backlog);
        };
        let pushed = |queue: usize, times: u64| 1_000 + times * queue as u64;
        let rows = |times| {
            (0..300)
                .map(|queue| row(queue, pushed(queue, times)))
                .collect::<Vec<_>>()
        };
        read(0, &rows(0));
        assert!(history.names().is_empty(), "nothing is new");
        for times in 1..=3 {
            read(times * 10, &rows(times));
        }
        assert_eq!(history.names().len(), QUEUES_MAX);
        assert_eq!(
            history.rates(&Bytes::new(), &"q299".into()),
            Some([29.9, 14.95, 0.0])
        );
        assert!(
            history.rates(&Bytes::new(), &"q199".into()).is_none()
                && history.rates(&Bytes::new(), &"q200".into()).is_some()
        );
        // A queue that becomes busy replaces another one.
        for (second, pushed) in [(40, 5_000), (50, 5_010)] {
            let mut rows = rows(3);
            rows[7] = row(7, pushed);
            read(second, &rows);
        }
        assert_eq!(
            (
                history.names().len(),
                history.rates(&Bytes::new(), &"q200".into())
            ),
            (QUEUES_MAX, None)
        );
        let [points, _] = history.of_queue(&Bytes::new(), &"q7".into()).unwrap();
        assert_eq!(
            (points[0].pushed, points[0].ready, points[0].leased),
            (1.0, 3.0, 1.0)
        );
        read(60, &rows(3)[..10]);
        assert_eq!(history.names(), [named("q7")], "queues that are gone");
    }
}
