//! The calendar the obvious slow way, one day after another: what [`Cron`] must answer. It shares no code with it.

use windlass_engine::{Cron, Timestamp};

const DAY_MINUTES: u64 = 1_440;
const MINUTE_MS: u64 = 60_000;

/// A day, and what it is called.
#[derive(Clone, Copy, Debug)]
struct Day {
    /// Days since 1 January 1970.
    number: u64,
    year: u64,
    /// From 1.
    month: u32,
    /// From 1.
    day: u32,
    /// 0 is Sunday.
    weekday: u32,
}

impl Day {
    const FIRST: Self = Self { number: 0, year: 1970, month: 1, day: 1, weekday: 4 };

    const fn month_days(self) -> u32 {
        let leap = self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        match self.month {
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => 31,
        }
    }

    const fn tomorrow(self) -> Self {
        let (mut year, mut month, mut day) = (self.year, self.month, self.day + 1);
        if day > self.month_days() {
            (month, day) = (month + 1, 1);
        }
        if month > 12 {
            (year, month) = (year + 1, 1);
        }
        Self { number: self.number + 1, year, month, day, weekday: (self.weekday + 1) % 7 }
    }

    fn fits(self, cron: &Cron) -> bool {
        let last = self.day == self.month_days();
        let by_day = cron.days >> self.day & 1 == 1 || (last && cron.days & 1 == 1);
        let earlier = (1..self.day).filter(|day| (self.day - day).is_multiple_of(7)).count();
        let later = (self.day + 1..=self.month_days()).filter(|day| (day - self.day).is_multiple_of(7)).count();
        let is_nth = |nth: usize| cron.weekdays >> (7 * nth) >> self.weekday & 1 == 1;
        let by_weekday = is_nth(earlier) || (later == 0 && is_nth(5));
        let fits = if cron.either_day { by_day || by_weekday } else { by_day && by_weekday };
        fits && cron.months >> self.month & 1 == 1
    }
}

/// The first moment later than `time` that begins a minute that matches, if there is one within so many years.
#[must_use]
pub fn next_after(cron: &Cron, time: Timestamp, years: u64) -> Option<Timestamp> {
    let mut day = Day::FIRST;
    while day.number < time.0 / MINUTE_MS / DAY_MINUTES {
        day = day.tomorrow();
    }
    let end = day.year + years;
    while day.year <= end {
        if day.fits(cron) {
            let minutes = (0..DAY_MINUTES).filter(|minute| {
                let (hour, minute) = (minute / 60, minute % 60);
                cron.hours >> hour & 1 == 1 && cron.minutes >> minute & 1 == 1
            });
            let moments = minutes.map(|minute| Timestamp((day.number * DAY_MINUTES + minute) * MINUTE_MS));
            if let Some(at) = moments.into_iter().find(|at| *at > time) {
                return Some(at);
            }
        }
        day = day.tomorrow();
    }
    None
}
