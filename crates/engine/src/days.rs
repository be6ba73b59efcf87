//! Counters by day (UTC). The totals are recorded when a day starts. The counts of a day are the difference
//! to the start of the next one, so that counting has no extra cost.
//!
//! A day starts at the first visit with a new date on the wall clock. If the clock is set back, the previous
//! date starts again: a date may appear twice, and a recorded start is never removed.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::ids::Timestamp;
use crate::query::Totals;

/// This many starts of days are stored: half a year, and some dates that a clock starts twice.
pub const DAYS_KEPT: u64 = 256;

const DAY_MS: u64 = 86_400_000;

/// The totals at the start of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DayBegin {
    /// Sequence number of the started days. The journal forgets the day that is [`DAYS_KEPT`]
    /// older.
    pub number: u64,
    /// The day, counted from 1 January 1970.
    pub day: u64,
    /// The totals at the start of the day.
    pub totals: Totals,
}

/// The owner of the days.
#[derive(Debug)]
pub(crate) struct Days {
    /// By number. The first day of 1970 represents the time before the first recorded day.
    begun: VecDeque<DayBegin>,
}

impl Days {
    pub(crate) fn new() -> Self {
        Self {
            begun: VecDeque::from([DayBegin::default()]),
        }
    }

    /// Starts a day if the date of this moment (wall clock) differs from the last one.
    pub(crate) fn reach(&mut self, wall: Timestamp, totals: &Totals, changes: &mut Vec<Change>) {
        let (day, (last, number)) = (
            wall.0 / DAY_MS,
            self.begun
                .back()
                .map_or((0, 0), |last| (last.day, last.number)),
        );
        if day != last {
            let number = number + 1;
            self.recall(DayBegin {
                number,
                day,
                totals: *totals,
            });
            changes.push(Change::DayBegan(number));
        }
    }

    /// Restores a day from the journal, which is not present yet.
    pub(crate) fn recall(&mut self, begin: DayBegin) {
        let at = self
            .begun
            .partition_point(|other| other.number < begin.number);
        self.begun.insert(at, begin);
        let last = self.begun.back().map_or(0, |last| last.number);
        while self
            .begun
            .front()
            .is_some_and(|first| first.number + DAYS_KEPT <= last)
        {
            self.begun.pop_front();
        }
    }

    /// The starts of days to journal, by number.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = &DayBegin> {
        self.begun.iter().filter(|begin| begin.number > 0)
    }

    /// The counts of each day, given the totals now.
    pub(crate) fn counts(&self, totals: &Totals) -> BTreeMap<u64, Totals> {
        let ends = self
            .begun
            .iter()
            .skip(1)
            .map(|next| &next.totals)
            .chain([totals]);
        let mut counts = BTreeMap::<u64, Totals>::new();
        for (begin, end) in self.begun.iter().zip(ends) {
            let sum = counts.entry(begin.day).or_default();
            *sum = sum.merged(
                &end.merged(&begin.totals, u64::saturating_sub),
                u64::saturating_add,
            );
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(pushed: u64) -> Totals {
        Totals {
            pushed,
            ..Totals::default()
        }
    }

    #[test]
    fn each_day_has_what_was_counted_on_it() {
        let (mut days, mut changes) = (Days::new(), Vec::new());
        let mut reach = |days: &mut Days, hour: u64, total| {
            days.reach(Timestamp(hour * 3_600_000), &pushed(total), &mut changes);
            std::mem::take(&mut changes)
        };
        assert_eq!(reach(&mut days, 23, 0), []);
        assert_eq!(reach(&mut days, 240, 4), [Change::DayBegan(1)]);
        assert_eq!(reach(&mut days, 263, 5), [], "the same day");
        assert_eq!(reach(&mut days, 264, 7), [Change::DayBegan(2)]);
        assert_eq!(
            reach(&mut days, 263, 8),
            [Change::DayBegan(3)],
            "the clock was set back"
        );
        assert_eq!(
            reach(&mut days, 312, 10),
            [Change::DayBegan(4)],
            "a day without visits has no beginning"
        );
        let counts = days
            .counts(&pushed(15))
            .into_iter()
            .map(|(day, totals)| (day, totals.pushed));
        assert_eq!(
            counts.collect::<Vec<_>>(),
            [(0, 4), (10, 3 + 2), (11, 1), (13, 5)]
        );
        let mut again = Days::new();
        days.recorded()
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .for_each(|begin| again.recall(*begin));
        assert_eq!(again.begun, days.begun);
    }

    #[test]
    fn so_many_are_kept() {
        let (mut days, mut changes) = (Days::new(), Vec::new());
        (0..1_000).for_each(|day| days.reach(Timestamp(day * DAY_MS), &pushed(day), &mut changes));
        let counts = days.counts(&pushed(1_000));
        assert_eq!(
            (counts.len() as u64, counts.keys().next(), changes.len()),
            (DAYS_KEPT, Some(&744), 999)
        );
        assert!(counts.values().all(|totals| *totals == pushed(1)));
        assert_eq!(days.recorded().map(|begin| begin.number).min(), Some(744));
    }
}
