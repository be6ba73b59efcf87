//! When a cron expression is due, in UTC. The search skips days, hours and minutes that do not match; it
//! never steps minute by minute.
//!
//! Not here: parsing of expressions (a session's task), time zones (`zone`), and pushing the jobs that are
//! due (`schedules`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::date::{ERA_YEARS, date, day_number, month_days};
use crate::ids::Timestamp;

const SECOND_MS: u64 = 1_000;
const MINUTE_SECONDS: u64 = 60;
const HOUR_MINUTES: u64 = 60;
const DAY_MINUTES: u64 = 1_440;

/// 1 January 1970 was a Thursday.
const EPOCH_WEEKDAY: u64 = 4;

/// A compiled cron expression: the seconds of the calendar that match.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Cron {
    /// Bits 0 to 59. Usually only bit 0, the start of each minute.
    pub seconds: u64,
    /// Bits 0 to 59.
    pub minutes: u64,
    /// Bits 0 to 23.
    pub hours: u32,
    /// Bits 1 to 31. Bit 0 is the last day of the month.
    pub days: u32,
    /// Bits 1 to 12.
    pub months: u16,
    /// Bit `7 * n + day`, where 0 is Sunday: n from 0 to 4 is the first to the fifth such day of a month, 5
    /// the last such day.
    pub weekdays: u64,
    /// A day matches if it is in `days` or in `weekdays`. Otherwise it must be in both.
    pub either_day: bool,
}

impl Cron {
    /// The beginning of every minute.
    pub const ALWAYS: Self = Self {
        seconds: 1,
        minutes: (1 << 60) - 1,
        hours: (1 << 24) - 1,
        days: !1,
        months: 0b1_1111_1111_1110,
        weekdays: (1 << 35) - 1,
        either_day: false,
    };

    /// The bits of [`Cron::weekdays`] for every such day of a month. 0 and 7 are both Sunday.
    pub const fn weekday(day: u8) -> u64 {
        const SUNDAYS: u64 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;
        SUNDAYS << (day % 7)
    }

    /// Returns true if any time matches. For example, 31 February never does.
    pub fn can_match(&self) -> bool {
        // In some year, a month of any length begins on each day of the week.
        let fits = |month: u64, days: u64| {
            (0..7).any(|first| self.days_among(days, first) != 0 && self.has(month))
        };
        let lengths = |month: u64| {
            if month == 2 {
                [28, 29]
            } else {
                [month_days(1970, month); 2]
            }
        };
        self.second_from(0).is_some()
            && self.minute_from(0).is_some()
            && (1..=12).any(|month| lengths(month).into_iter().any(|days| fits(month, days)))
    }

    /// Returns true if it matches every hour: then it is an interval of minutes, not a time of the
    /// day.
    pub(crate) const fn is_hourly(&self) -> bool {
        self.hours & Self::ALWAYS.hours == Self::ALWAYS.hours
    }

    /// The start of the first matching second after `time`; [`Timestamp::NEVER`] if no time matches.
    pub fn next_after(&self, time: Timestamp) -> Timestamp {
        self.find_after(time).unwrap_or(Timestamp::NEVER)
    }

    fn find_after(&self, time: Timestamp) -> Option<Timestamp> {
        let second = time.0 / SECOND_MS + 1;
        let (minute, second) = (second / MINUTE_SECONDS, second % MINUTE_SECONDS);
        let (minute, second) = match (self.first_minute_from(minute)?, self.second_from(second)) {
            (found, Some(second)) if found == minute => (found, second),
            (found, Some(_)) => (found, self.second_from(0)?),
            (_, None) => (self.first_minute_from(minute + 1)?, self.second_from(0)?),
        };
        minute
            .checked_mul(MINUTE_SECONDS)?
            .checked_add(second)?
            .checked_mul(SECOND_MS)
            .map(Timestamp)
    }

    /// The first matching minute from this one on, counted from 1970.
    fn first_minute_from(&self, minute: u64) -> Option<u64> {
        let (today, minute) = (minute / DAY_MINUTES, minute % DAY_MINUTES);
        let (mut year, mut month, day) = date(today);
        let days = if self.has(month) {
            self.days_of(year, month)
        } else {
            0
        };
        let mut days = days >> day << day;
        if days >> day & 1 == 1 {
            if let Some(minute) = self.minute_from(minute) {
                return moment(today, minute);
            }
            days &= !(1 << day);
        }
        let minute = self.minute_from(0)?;
        // The calendar repeats every 400 years, so a match must be within them.
        let end = year + ERA_YEARS;
        while days == 0 && year <= end {
            (year, month) = self.month_after(year, month)?;
            days = self.days_of(year, month);
        }
        (days != 0)
            .then(|| {
                moment(
                    day_number(year, month, days.trailing_zeros().into()),
                    minute,
                )
            })
            .flatten()
    }

    fn has(&self, month: u64) -> bool {
        self.months >> month & 1 == 1
    }

    fn month_after(&self, year: u64, month: u64) -> Option<(u64, u64)> {
        let months = self.months & Self::ALWAYS.months;
        let later = months >> month >> 1 << month << 1;
        match (later, months) {
            (0, 0) => None,
            (0, _) => Some((year + 1, months.trailing_zeros().into())),
            (_, _) => Some((year, later.trailing_zeros().into())),
        }
    }

    /// The matching days of a month, as bits 1 to 31.
    fn days_of(&self, year: u64, month: u64) -> u32 {
        self.days_among(month_days(year, month), weekday(day_number(year, month, 1)))
    }

    /// The same for a month of `many` days that starts on this day of the week.
    fn days_among(&self, many: u64, first: u64) -> u32 {
        let last = 1 << many;
        let all = last | (last - 2);
        let days = (self.days | if self.days & 1 == 1 { last } else { 0 }) & all;
        let is_weekday = |day: &u64| {
            let (nth, weekday) = ((day - 1) / 7, (first + day - 1) % 7);
            self.weekdays >> (7 * nth + weekday) & 1 == 1
                || (day + 7 > many && self.weekdays >> (35 + weekday) & 1 == 1)
        };
        let weekdays = (1..=many)
            .filter(is_weekday)
            .fold(0, |bits: u32, day| bits | 1 << day);
        if self.either_day {
            days | weekdays
        } else {
            days & weekdays
        }
    }

    /// The first matching second of the minute, from this one on.
    fn second_from(&self, second: u64) -> Option<u64> {
        let rest = (self.seconds & ((1 << MINUTE_SECONDS) - 1)) >> second << second;
        (rest != 0).then(|| rest.trailing_zeros().into())
    }

    /// The first matching minute of the day, from this one on.
    fn minute_from(&self, minute: u64) -> Option<u64> {
        let (hour, minute) = (minute / HOUR_MINUTES, minute % HOUR_MINUTES);
        let (hours, minutes) = (
            self.hours & Self::ALWAYS.hours,
            self.minutes & Self::ALWAYS.minutes,
        );
        if minutes == 0 {
            return None;
        }
        let rest = minutes >> minute << minute;
        if hours >> hour & 1 == 1 && rest != 0 {
            return Some(hour * HOUR_MINUTES + u64::from(rest.trailing_zeros()));
        }
        let later = hours >> hour >> 1 << hour << 1;
        let first = u64::from(minutes.trailing_zeros());
        (later != 0).then(|| u64::from(later.trailing_zeros()) * HOUR_MINUTES + first)
    }
}

/// Five fields, as in a crontab. Six, with the seconds first, if seconds other than 0 match. If a day must
/// match only one of the two day fields, a field with every day is written as a range, because in a crontab
/// `*` means that only the other field decides. A rule on days that a crontab cannot express is appended in
/// words.
impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seconds != Self::ALWAYS.seconds {
            put_field(f, self.seconds, 0..=59, |f, n| write!(f, "{n}"))?;
            f.write_str(" ")?;
        }
        put_field(f, self.minutes, 0..=59, |f, n| write!(f, "{n}"))?;
        f.write_str(" ")?;
        put_field(f, self.hours.into(), 0..=23, |f, n| write!(f, "{n}"))?;
        f.write_str(" ")?;
        let every_day = self.days & Self::ALWAYS.days == Self::ALWAYS.days;
        if self.either_day && every_day {
            f.write_str("1-31")?;
        } else {
            let last = u64::from(self.days & 1) << 32;
            let put = |f: &mut fmt::Formatter<'_>, n| {
                if n == 32 {
                    f.write_str("L")
                } else {
                    write!(f, "{n}")
                }
            };
            put_field(f, u64::from(self.days) | last, 1..=32, put)?;
        }
        f.write_str(" ")?;
        put_field(f, self.months.into(), 1..=12, |f, n| write!(f, "{n}"))?;
        f.write_str(" ")?;
        let plain = (0..7).filter(|day| self.weekdays & Self::weekday(*day) == Self::weekday(*day));
        let plain: u64 = plain.map(Self::weekday).sum();
        let every_weekday = plain == Self::ALWAYS.weekdays;
        if self.either_day && every_weekday {
            f.write_str("0-6")?;
        } else {
            let single = (self.weekdays & !plain) << 7;
            put_field(f, single | plain & 0x7f, 0..=48, |f, n| {
                match (n % 7, n / 7) {
                    (day, 0) => write!(f, "{day}"),
                    (day, 6) => write!(f, "L{day}"),
                    (day, nth) => write!(f, "{day}#{nth}"),
                }
            })?;
        }
        if self.either_day || every_day || every_weekday {
            Ok(())
        } else {
            f.write_str(" (both days)")
        }
    }
}

fn put_field(
    f: &mut fmt::Formatter<'_>,
    bits: u64,
    range: std::ops::RangeInclusive<u32>,
    put: impl Fn(&mut fmt::Formatter<'_>, u32) -> fmt::Result,
) -> fmt::Result {
    // Values beyond the plain ones (`L`, the second Friday) are ignored for "all".
    let plain = match *range.end() {
        32 => 1..=31,
        48 => 0..=6,
        _ => range.clone(),
    };
    let is_set = |n: u32| bits >> n & 1 == 1;
    if plain.clone().all(is_set) {
        return f.write_str("*");
    }
    let mut between = "";
    for n in range.filter(|n| is_set(*n)) {
        f.write_str(between)?;
        put(f, n)?;
        between = ",";
    }
    if between.is_empty() {
        f.write_str("-")
    } else {
        Ok(())
    }
}

/// A minute of a day, as minutes since 1970.
fn moment(day: u64, minute: u64) -> Option<u64> {
    day.checked_mul(DAY_MINUTES)?.checked_add(minute)
}

const fn weekday(day: u64) -> u64 {
    (day + EPOCH_WEEKDAY) % 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_match_of_each_kind_of_expression() {
        let day = |year, month, day| day_number(year, month, day) * DAY_MINUTES * 60_000;
        let at = |(y, mo, d): (u64, u64, u64), (h, mi): (u64, u64)| {
            Timestamp(day(y, mo, d) + (h * 60 + mi) * 60_000)
        };
        let daily = Cron {
            minutes: 1 << 30,
            hours: 1 << 4,
            ..Cron::ALWAYS
        };
        let leap = Cron {
            days: 1 << 29,
            months: 1 << 2,
            ..daily
        };
        let mondays = Cron::weekday(1);
        let table = [
            (
                "every minute",
                Cron::ALWAYS,
                at((2024, 2, 28), (23, 59)),
                at((2024, 2, 29), (0, 0)),
            ),
            (
                "today",
                daily,
                at((2023, 12, 31), (4, 29)),
                at((2023, 12, 31), (4, 30)),
            ),
            (
                "not now",
                daily,
                at((2023, 12, 31), (4, 30)),
                at((2024, 1, 1), (4, 30)),
            ),
            (
                "29 February, over 2100",
                leap,
                at((2096, 2, 29), (4, 30)),
                at((2104, 2, 29), (4, 30)),
            ),
            (
                "… on a Monday",
                Cron {
                    weekdays: mondays,
                    ..leap
                },
                at((2072, 2, 29), (5, 0)),
                at((2112, 2, 29), (4, 30)),
            ),
            (
                "… or one",
                Cron {
                    weekdays: mondays,
                    either_day: true,
                    ..leap
                },
                at((2023, 2, 27), (5, 0)),
                at((2024, 2, 5), (4, 30)),
            ),
            (
                "the last day",
                Cron { days: 1, ..daily },
                at((2023, 2, 1), (0, 0)),
                at((2023, 2, 28), (4, 30)),
            ),
            (
                "the second Friday",
                Cron {
                    weekdays: 1 << (7 + 5),
                    ..daily
                },
                at((2023, 9, 9), (0, 0)),
                at((2023, 10, 13), (4, 30)),
            ),
            (
                "the last Sunday",
                Cron {
                    weekdays: 1 << 35,
                    ..daily
                },
                at((2023, 9, 25), (0, 0)),
                at((2023, 10, 29), (4, 30)),
            ),
            (
                "this minute",
                Cron {
                    seconds: 1 << 30,
                    ..Cron::ALWAYS
                },
                at((2023, 2, 1), (0, 0)),
                Timestamp(at((2023, 2, 1), (0, 0)).0 + 30_000),
            ),
            (
                "not this second",
                Cron {
                    seconds: 1 | 1 << 30,
                    ..Cron::ALWAYS
                },
                Timestamp(at((2023, 2, 1), (0, 0)).0 + 30_000),
                at((2023, 2, 1), (0, 1)),
            ),
            (
                "a second of another day",
                Cron {
                    seconds: 1 << 59,
                    ..daily
                },
                at((2023, 2, 1), (4, 31)),
                Timestamp(at((2023, 2, 2), (4, 30)).0 + 59_000),
            ),
            (
                "beyond all time",
                daily,
                Timestamp(u64::MAX - 1),
                Timestamp::NEVER,
            ),
        ];
        for (name, cron, from, next) in table {
            assert_eq!(cron.next_after(from), next, "{name}: {cron}");
        }
    }

    #[test]
    fn impossible_dates_never_match() {
        let table = [
            (
                Cron {
                    days: 1 << 31,
                    months: 1 << 2,
                    ..Cron::ALWAYS
                },
                false,
            ),
            (
                Cron {
                    days: 1 << 31,
                    months: 1 << 2 | 1 << 4 | 1 << 11,
                    ..Cron::ALWAYS
                },
                false,
            ),
            (
                Cron {
                    days: 1 << 30,
                    months: 1 << 2,
                    weekdays: 1,
                    either_day: true,
                    ..Cron::ALWAYS
                },
                true,
            ),
            (
                Cron {
                    days: 1 << 29,
                    months: 1 << 2,
                    weekdays: Cron::weekday(0),
                    ..Cron::ALWAYS
                },
                true,
            ),
            (
                Cron {
                    days: 1 << 22,
                    weekdays: 1 << 14,
                    ..Cron::ALWAYS
                },
                false,
            ),
            (
                Cron {
                    days: 1 << 21,
                    weekdays: 1 << 14,
                    ..Cron::ALWAYS
                },
                true,
            ),
            (
                Cron {
                    minutes: 1 << 60,
                    ..Cron::ALWAYS
                },
                false,
            ),
            (
                Cron {
                    seconds: 1 << 60,
                    ..Cron::ALWAYS
                },
                false,
            ),
            (
                Cron {
                    hours: 1 << 24,
                    ..Cron::ALWAYS
                },
                false,
            ),
            (
                Cron {
                    months: 1 | 1 << 13,
                    ..Cron::ALWAYS
                },
                false,
            ),
            (
                Cron {
                    days: 0,
                    ..Cron::ALWAYS
                },
                false,
            ),
            (
                Cron {
                    days: 0,
                    either_day: true,
                    ..Cron::ALWAYS
                },
                true,
            ),
        ];
        for (cron, comes) in table {
            assert_eq!(cron.can_match(), comes, "{cron}");
            assert_eq!(
                cron.next_after(Timestamp(0)) < Timestamp::NEVER,
                comes,
                "{cron}"
            );
        }
    }

    #[test]
    fn expressions_print_as_in_a_crontab() {
        let daily = Cron {
            minutes: 1 | 1 << 30,
            hours: 1 << 4,
            ..Cron::ALWAYS
        };
        let days = Cron {
            days: 1 | 1 << 15,
            weekdays: Cron::weekday(5) | 1 << 7,
            either_day: true,
            ..daily
        };
        let table = [
            (Cron::ALWAYS, "* * * * *"),
            (daily, "0,30 4 * * *"),
            (days, "0,30 4 15,L * 5,0#2"),
            (
                Cron {
                    either_day: false,
                    ..days
                },
                "0,30 4 15,L * 5,0#2 (both days)",
            ),
            (
                Cron {
                    either_day: true,
                    ..daily
                },
                "0,30 4 1-31 * 0-6",
            ),
            (
                Cron {
                    weekdays: Cron::ALWAYS.weekdays,
                    ..days
                },
                "0,30 4 15,L * 0-6",
            ),
            (
                Cron {
                    seconds: 1 | 1 << 59,
                    ..daily
                },
                "0,59 0,30 4 * * *",
            ),
            (
                Cron {
                    months: 0,
                    weekdays: 1 << 40,
                    ..daily
                },
                "0,30 4 * - L5",
            ),
        ];
        for (cron, text) in table {
            assert_eq!(cron.to_string(), text);
        }
    }
}
