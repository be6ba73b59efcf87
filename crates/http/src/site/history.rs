//! The last hour every five seconds, and the last day every minute: what the overview draws. In memory only.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use windlass_engine::{FiguresRow, Histogram, JobStateKind, Protocol, Stats, Timestamp, Totals};

use crate::metrics::merged_histogram;

/// How often the figures are read.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// This many readings make one point of the day.
const PER_MINUTE: usize = 12;

/// Protocols.
pub(super) const PROTOCOLS: usize = Protocol::ALL.len();

/// The shares of jobs whose durations are shown, per thousand.
const SHARES: [u64; 3] = [500, 950, 990];

const HOUR_POINTS: usize = 720;
const DAY_POINTS: usize = 1_440;

/// What happened between two readings, and how things stood at the second one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    /// Jobs pushed, a second.
    pub(super) pushed: f64,
    /// Jobs done, a second, in the order of [`Protocol::ALL`].
    pub(super) done: [f64; PROTOCOLS],
    /// Jobs failed, a second.
    pub(super) failed: f64,
    /// Jobs that wait to be taken.
    pub(super) ready: f64,
    /// Jobs that workers have.
    pub(super) leased: f64,
    /// Seconds that a half, 95 % and 99 % of the jobs waited at most.
    pub(super) waited: [f64; 3],
    /// The same of how long they ran.
    pub(super) ran: [f64; 3],
}

/// Points of the last hour and the last day.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Points>);

#[derive(Debug, Default)]
struct Points {
    hour: VecDeque<Point>,
    day: VecDeque<Point>,
    /// Points since the last one of the day.
    minute: Vec<Point>,
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
        let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        push(&mut points.hour, point, HOUR_POINTS);
        points.minute.push(point);
        if points.minute.len() >= PER_MINUTE {
            let minute = Point::mean(&std::mem::take(&mut points.minute));
            push(&mut points.day, minute, DAY_POINTS);
        }
    }

    /// The points of the last hour and of the last day.
    pub(super) fn points(&self) -> [Vec<Point>; 2] {
        let points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        [&points.hour, &points.day].map(|points| points.iter().copied().collect())
    }
}

fn push(points: &mut VecDeque<Point>, point: Point, most: usize) {
    points.truncate(most.saturating_sub(1));
    points.push_front(point);
}

impl Reading {
    /// The figures of the whole daemon and of all queues at a moment of the wall clock.
    pub(super) fn of(at: Timestamp, stats: &Stats, figures: &[FiguresRow]) -> Self {
        let count = |kind: JobStateKind| stats.places.get(kind as usize).copied().unwrap_or_default();
        let (ready, leased) = (count(JobStateKind::Ready), count(JobStateKind::Leased));
        let of = |protocol| stats.protocols.iter().find(|row| row.protocol == protocol);
        let done = Protocol::ALL.map(|row| of(row.id).map_or(0, |row| row.totals.succeeded));
        let mut reading = Self { at, totals: stats.totals, done, ready, leased, ..Self::default() };
        for FiguresRow { figures, .. } in figures {
            reading.waited = merged_histogram(&reading.waited, &figures.waited, u64::saturating_add);
            reading.ran = merged_histogram(&reading.ran, &figures.ran, u64::saturating_add);
        }
        reading
    }

    /// The point between two readings.
    pub(super) fn since(&self, before: &Self) -> Point {
        let seconds = Duration::from_millis(self.at.ms_since(before.at)).max(Duration::from_millis(1)).as_secs_f64();
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
    fn mean(points: &[Self]) -> Self {
        let count = real(points.len().max(1) as u64);
        let mean = |part: fn(&Self) -> f64| points.iter().map(part).sum::<f64>() / count;
        let most = |part: &dyn Fn(&Self) -> f64| points.iter().map(part).fold(0.0, f64::max);
        Self {
            pushed: mean(|it| it.pushed),
            done: std::array::from_fn(|at| points.iter().map(|it| part(&it.done, at)).sum::<f64>() / count),
            failed: mean(|it| it.failed),
            ready: mean(|it| it.ready),
            leased: mean(|it| it.leased),
            waited: std::array::from_fn(|at| most(&|it| part(&it.waited, at))),
            ran: std::array::from_fn(|at| most(&|it| part(&it.ran, at))),
        }
    }
}

/// How long the given shares of the jobs since then took at most, in seconds.
fn durations(now: &Histogram, before: &Histogram) -> [f64; 3] {
    let new = merged_histogram(now, before, u64::saturating_sub);
    SHARES.map(|share| Duration::from_millis(new.quantile_ms(share)).as_secs_f64())
}

/// A value of a small array.
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
    use super::*;

    #[test]
    fn rates_are_per_second_and_latencies_of_new_jobs() {
        let mut before = Reading { at: Timestamp(10_000), ready: 3, ..Reading::default() };
        before.waited.counts[13] = 1_000;
        before.waited.max_ms = 8_000;
        let mut now = Reading { at: Timestamp(12_000), ready: 5, leased: 1, ..before };
        (now.totals.pushed, now.done[1]) = (20, 4);
        now.waited.counts[0] = 94;
        now.waited.counts[2] = 5;
        now.waited.counts[4] = 1;
        let point = now.since(&before);
        assert_eq!((point.pushed, point.failed, point.ready, point.leased), (10.0, 0.0, 5.0, 1.0));
        assert_eq!((point.done[0], point.done[1]), (0.0, 2.0));
        assert_eq!((point.waited, point.ran), ([0.0, 0.002, 0.004], [0.0; 3]));
        assert_eq!(before.since(&now).pushed, 0.0, "a clock and counters that went back");
    }

    #[test]
    fn a_minute_is_twelve_points_and_the_rings_are_bounded() {
        let history = History::default();
        for at in 0..20_000 {
            history.add(Point { pushed: 12.0, waited: [real(at); 3], ..Point::default() });
        }
        let [hour, day] = history.points();
        assert_eq!((hour.len(), day.len()), (HOUR_POINTS, DAY_POINTS));
        assert_eq!(hour[0].waited[1], 19_999.0, "the newest is first");
        assert_eq!((day[0].pushed, day[0].waited[1]), (12.0, 19_991.0));
    }
}
