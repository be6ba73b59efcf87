//! Days and dates of the Gregorian calendar, in UTC.
//!
//! Not here: zones (`zone`), and when an expression matches (`calendar`).

use crate::ids::Timestamp;

/// Days from 1 March of the year 0 to 1 January 1970. If years start in March, leap days are the last of the
/// year.
const EPOCH_DAY: u64 = 719_468;
/// The calendar repeats itself, weekdays included, every 400 years.
pub const ERA_YEARS: u64 = 400;
/// Days in [`ERA_YEARS`].
pub const ERA_DAYS: u64 = 146_097;

/// The last moment that RFC 3339 can write: the year has four digits.
const LAST_MS: u64 = 253_402_300_799_999;

const DAY_MS: u64 = 86_400_000;

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Days in a month (from 1).
pub const fn month_days(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days before a month in a year that starts in March (month 0). The lengths 31, 30, 31, 30, 31
/// repeat.
const fn days_before(month: u64) -> u64 {
    (153 * month + 2) / 5
}

/// Year, month (from 1) and day (from 1) of a day counted from 1 January 1970.
pub const fn date(day: u64) -> (u64, u64, u64) {
    let day = day + EPOCH_DAY;
    let (era, day) = (day / ERA_DAYS, day % ERA_DAYS);
    // Without the leap days before it (the last day of the era included), a division gives a day's year.
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - days_before(month) + 1;
    let year = era * ERA_YEARS + year;
    if month < 10 {
        (year, month + 3, day)
    } else {
        (year + 1, month - 9, day)
    }
}

/// The inverse of [`date`], from 1970 on.
pub const fn day_number(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, year) = (year / ERA_YEARS, year % ERA_YEARS);
    era * ERA_DAYS + 365 * year + year / 4 - year / 100 + days_before(month) + day - 1 - EPOCH_DAY
}

/// A moment of the wall clock in RFC 3339, in UTC, to the millisecond; `None` for [`Timestamp::NEVER`]. Times
/// after the year 9999 are written as the end of that year.
pub fn moment_text(at: Timestamp) -> Option<String> {
    if at == Timestamp::NEVER {
        return None;
    }
    let ms = at.0.min(LAST_MS);
    let ((year, month, day), ms) = (date(ms / DAY_MS), ms % DAY_MS);
    let (s, ms) = (ms / 1_000, ms % 1_000);
    let (hours, minutes, seconds) = (s / 3_600, s / 60 % 60, s % 60);
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written() {
        let table = [
            (0, Some("1970-01-01T00:00:00.000Z")),
            (1_700_000_000_123, Some("2023-11-14T22:13:20.123Z")),
            (LAST_MS, Some("9999-12-31T23:59:59.999Z")),
            (LAST_MS + 1, Some("9999-12-31T23:59:59.999Z")),
            (u64::MAX - 1, Some("9999-12-31T23:59:59.999Z")),
            (u64::MAX, None),
        ];
        for (ms, text) in table {
            assert_eq!(moment_text(Timestamp(ms)).as_deref(), text, "{ms}");
        }
    }

    #[test]
    fn days_and_dates_are_each_others_inverse() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for number in 0..300_000 {
            assert_eq!(
                (date(number), day_number(year, month, day)),
                ((year, month, day), number)
            );
            day += 1;
            if day > month_days(year, month) {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
        // The last day that milliseconds can express.
        let last = u64::MAX / 86_400_000;
        let (year, month, day) = date(last);
        assert_eq!((year, day_number(year, month, day)), (584_556_019, last));
    }
}
