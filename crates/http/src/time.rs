//! Moments in answers and requests: RFC 3339, in UTC, to the millisecond.

use jiff::Timestamp as Moment;
use windlass_engine::Timestamp;

/// The text of a moment by the wall clock; `None` for a moment that never comes.
pub(crate) fn moment_text(at: Timestamp) -> Option<String> {
    let ms = i64::try_from(at.0).ok()?;
    Moment::from_millisecond(ms).ok().map(|moment| format!("{moment:.3}"))
}

/// Reads a moment by the wall clock, rounded up to a millisecond. `None` before 1970.
pub(crate) fn parse_moment(text: &str) -> Option<Timestamp> {
    let moment: Moment = text.parse().ok()?;
    let ns = u128::try_from(moment.as_nanosecond()).ok()?;
    u64::try_from(ns.div_ceil(1_000_000)).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_and_written() {
        let table = [(0, "1970-01-01T00:00:00.000Z"), (1_700_000_000_123, "2023-11-14T22:13:20.123Z")];
        for (ms, text) in table {
            assert_eq!(moment_text(Timestamp(ms)).as_deref(), Some(text));
            assert_eq!(parse_moment(text), Some(Timestamp(ms)));
        }
        assert_eq!(parse_moment("2023-11-14T23:13:20.1230001+01:00"), Some(Timestamp(1_700_000_000_124)));
        assert_eq!(moment_text(Timestamp::NEVER), None);
        for text in ["", "1700000000", "2023-11-14", "1969-12-31T23:59:59Z", "2023-11-14T22:13:20"] {
            assert_eq!(parse_moment(text), None, "{text}");
        }
    }
}
