//! Moments in requests and responses: RFC 3339, in UTC, to the millisecond.

use std::fmt;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use windlass_engine::Timestamp;
pub(crate) use windlass_engine::date::moment_text;

/// Reads a moment by the wall clock, rounded up to a millisecond. `None` before 1970.
pub(crate) fn parse_moment(text: &str) -> Option<Timestamp> {
    // jiff's timestamp is not used because it ends two days before the end of the year 9999.
    let pieces = Pieces::parse(text).ok()?;
    let (date, time, offset) = (pieces.date(), pieces.time()?, pieces.to_numeric_offset()?);
    let there =
        DateTime::from_parts(date, time).duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    let ns = there.as_nanos() - i128::from(offset.seconds()) * 1_000_000_000;
    u64::try_from(u128::try_from(ns).ok()?.div_ceil(1_000_000))
        .ok()
        .map(Timestamp)
}

/// A duration for people, with up to two units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Duration);

impl Age {
    pub(crate) fn of_seconds(seconds: f64) -> Self {
        Self(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, ms) = (self.0.as_secs(), self.0.as_millis());
        match s {
            0 => write!(f, "{ms} ms"),
            1..60 => write!(f, "{s} s"),
            60..3_600 => write!(f, "{} min {} s", s / 60, s % 60),
            3_600..86_400 => write!(f, "{} h {} min", s / 3_600, s % 3_600 / 60),
            _ => write!(f, "{} d {} h", s / 86_400, s % 86_400 / 3_600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_and_written() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        ];
        for (ms, text) in table {
            assert_eq!(moment_text(Timestamp(ms)).as_deref(), Some(text));
            assert_eq!(parse_moment(text), Some(Timestamp(ms)));
        }
        assert_eq!(
            parse_moment("2023-11-14T23:13:20.1230001+01:00"),
            Some(Timestamp(1_700_000_000_124))
        );
        // The last year that RFC 3339 can write.
        for (text, ms) in [
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
            ("9999-12-31T23:59:59.999-01:00", 253_402_304_399_999),
            ("2023-11-14T22:13:20Z[UTC]", 1_700_000_000_000),
        ] {
            assert_eq!(parse_moment(text), Some(Timestamp(ms)), "{text}");
        }
        for text in [
            "",
            "1700000000",
            "2023-11-14",
            "1969-12-31T23:59:59Z",
            "2023-11-14T22:13:20",
            "9999-12-31T23:59:60.5.5Z",
        ] {
            assert_eq!(parse_moment(text), None, "{text}");
        }
    }

    #[test]
    fn ages_have_two_units() {
        let table = [
            (0.25, "250 ms"),
            (59.9, "59 s"),
            (61.0, "1 min 1 s"),
            (7_300.0, "2 h 1 min"),
            (90_000.0, "1 d 1 h"),
        ];
        for (seconds, expected) in table {
            assert_eq!(Age::of_seconds(seconds).to_string(), expected);
        }
    }
}
