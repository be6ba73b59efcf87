//! Byte sizes and durations: `64MiB`, `10s`, `1h30m`.
//!
//! Both are whole numbers with units. A duration always needs a unit, because some daemons read a bare `10` as seconds,
//! others as milliseconds or minutes. A bare size is bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes. Written `64MiB`, `8KiB`, or as a bare number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, derive_more::Into)]
pub struct ByteSize(pub u64);

/// A duration in whole milliseconds. Written `100ms`, `10s`, `1h30m`, `180d`; `0` needs no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    ms: u64,
}

/// Why a text is not a size or a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QuantityError(String);

/// The rules of sizes or of durations.
struct Scale {
    /// Units with their values, largest first.
    units: &'static [(&'static str, u64)],
    /// The unit of a bare number, if one is allowed.
    bare: Option<u64>,
    expected: &'static str,
    max: u64,
    most: &'static str,
}

const SIZES: Scale = Scale {
    units: &[
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("B", 1),
    ],
    bare: Some(1),
    expected: "a number of B, KiB, MiB, GiB or TiB, as in \"64MiB\"",
    max: 1 << 60,
    most: "1048576TiB",
};

/// The longest duration is far beyond any use, and short enough to add to any clock.
const PERIODS: Scale = Scale {
    units: &[
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ],
    bare: None,
    expected: "a number of ms, s, m, h or d, as in \"10s\" or \"1h30m\"",
    max: 36_500 * 86_400_000,
    most: "36500d",
};

impl Scale {
    fn parse(&self, text: &str) -> Result<u64, QuantityError> {
        let mut total = 0_u64;
        let mut rest = text.trim();
        loop {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            let (number, after) = rest.split_at(digits);
            if number.is_empty() {
                let expected = self.expected;
                return Err(QuantityError(format!(
                    "`{rest}` does not start with a whole number, expected {expected}"
                )));
            }
            let end = after
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(after.len());
            let (unit, next) = after.split_at(end);
            let worth = self.worth(number, unit.trim(), text)?;
            let sum = number
                .parse()
                .ok()
                .and_then(|n: u64| total.checked_add(n.checked_mul(worth)?));
            total = self.bounded(sum, text)?;
            if next.is_empty() {
                return Ok(total);
            }
            rest = next;
        }
    }

    fn worth(&self, number: &str, unit: &str, text: &str) -> Result<u64, QuantityError> {
        let known = self
            .units
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, worth)| *worth);
        let nothing = number.bytes().all(|digit| digit == b'0');
        match known {
            Some(worth) => Ok(worth),
            None if unit.is_empty() => match self.bare {
                Some(worth) => Ok(worth),
                None if nothing => Ok(0),
                None => Err(QuantityError(format!(
                    "`{text}` has no unit, expected {}",
                    self.expected
                ))),
            },
            None => Err(QuantityError(format!(
                "unknown unit `{unit}` in `{text}`, expected {}",
                self.expected
            ))),
        }
    }

    fn bounded(&self, value: Option<u64>, text: &str) -> Result<u64, QuantityError> {
        let fits = value.filter(|value| *value <= self.max);
        fits.ok_or_else(|| QuantityError(format!("`{text}` is more than {}", self.most)))
    }
}

impl ByteSize {
    /// In bytes; `usize::MAX` where the size exceeds it.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Period {
    /// From milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self { ms }
    }

    /// From seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self { ms: secs * 1_000 }
    }

    /// From days of 24 hours.
    pub const fn from_days(days: u64) -> Self {
        Self::from_secs(days * 86_400)
    }

    /// In milliseconds.
    pub const fn as_ms(self) -> u64 {
        self.ms
    }

    /// Whether the duration is 0, which some keys define as "never".
    pub const fn is_zero(self) -> bool {
        self.ms == 0
    }
}

impl From<ByteSize> for usize {
    fn from(size: ByteSize) -> Self {
        size.bytes()
    }
}

impl From<Period> for Duration {
    fn from(period: Period) -> Self {
        Self::from_millis(period.ms)
    }
}

impl FromStr for ByteSize {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        SIZES.parse(text).map(Self)
    }
}

impl FromStr for Period {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        PERIODS.parse(text).map(Self::from_ms)
    }
}

impl fmt::Display for ByteSize {
    /// Writes the size in the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = SIZES
            .units
            .iter()
            .find(|(_, worth)| self.0 > 0 && self.0.is_multiple_of(*worth));
        let (unit, worth) = whole.copied().unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / worth)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ms == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.ms;
        for (unit, worth) in PERIODS.units {
            if rest >= *worth {
                write!(f, "{}{unit}", rest / worth)?;
                rest %= worth;
            }
        }
        Ok(())
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScaleVisitor(&SIZES)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(ScaleVisitor(&PERIODS))
            .map(Self::from_ms)
    }
}

/// Accepts strings, and numbers as if they were strings.
struct ScaleVisitor(&'static Scale);

impl Visitor<'_> for ScaleVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        self.0.parse(text).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u64, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes() {
        let table: [(&str, Result<u64, &str>); 14] = [
            ("0", Ok(0)),
            ("4096", Ok(4096)),
            ("7B", Ok(7)),
            ("8KiB", Ok(8 << 10)),
            ("64MiB", Ok(64 << 20)),
            (" 64 MiB ", Ok(64 << 20)),
            ("2GiB", Ok(2 << 30)),
            ("1TiB", Ok(1 << 40)),
            ("", Err("`` does not start with a whole number")),
            ("MiB", Err("`MiB` does not start with a whole number")),
            ("-1", Err("`-1` does not start with a whole number")),
            (
                "64MB",
                Err("unknown unit `MB` in `64MB`, expected a number of B, KiB"),
            ),
            ("1.5GiB", Err("unknown unit `.` in `1.5GiB`")),
            (
                "99999999999999999999",
                Err("`99999999999999999999` is more than 1048576TiB"),
            ),
        ];
        for (text, expected) in table {
            let parsed: Result<ByteSize, _> = text.parse();
            match expected {
                Ok(bytes) => assert_eq!(parsed, Ok(ByteSize(bytes)), "{text}"),
                Err(start) => assert!(parsed.unwrap_err().to_string().starts_with(start), "{text}"),
            }
        }
    }

    #[test]
    fn spans() {
        let table: [(&str, Result<u64, &str>); 15] = [
            ("0", Ok(0)),
            ("0s", Ok(0)),
            ("100ms", Ok(100)),
            ("10s", Ok(10_000)),
            ("5m", Ok(300_000)),
            ("1h30m", Ok(5_400_000)),
            ("1h 30m", Ok(5_400_000)),
            ("180d", Ok(15_552_000_000)),
            ("36500d", Ok(3_153_600_000_000)),
            (
                "10",
                Err("`10` has no unit, expected a number of ms, s, m, h or d"),
            ),
            ("1h30", Err("`1h30` has no unit")),
            ("10sec", Err("unknown unit `sec` in `10sec`")),
            ("10S", Err("unknown unit `S` in `10S`")),
            ("soon", Err("`soon` does not start with a whole number")),
            ("36501d", Err("`36501d` is more than 36500d")),
        ];
        for (text, expected) in table {
            let parsed: Result<Period, _> = text.parse();
            match expected {
                Ok(ms) => assert_eq!(parsed, Ok(Period::from_ms(ms)), "{text}"),
                Err(start) => assert!(parsed.unwrap_err().to_string().starts_with(start), "{text}"),
            }
        }
    }

    #[test]
    fn sizes_and_spans_are_written_in_the_largest_units() {
        let sizes = [
            (0, "0B"),
            (1000, "1000B"),
            (8192, "8KiB"),
            (3 << 29, "1536MiB"),
            (1 << 30, "1GiB"),
        ];
        for (bytes, text) in sizes {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
        let spans = [
            (0, "0s"),
            (100, "100ms"),
            (90_000, "1m30s"),
            (86_400_000, "1d"),
            (86_400_001, "1d1ms"),
        ];
        for (ms, text) in spans {
            assert_eq!(Period::from_ms(ms).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn written_quantities_read_back_the_same(bytes in 0..=SIZES.max, ms in 0..=PERIODS.max) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
            prop_assert_eq!(Period::from_ms(ms).to_string().parse(), Ok(Period::from_ms(ms)));
        }

        #[test]
        fn noise_is_an_error_or_within_bounds(text in "[ 0-9a-zA-Z.µ-]{0,30}") {
            prop_assert!(text.parse::<ByteSize>().is_ok_and(|size| size.0 <= SIZES.max) || text.parse::<ByteSize>().is_err());
            prop_assert!(text.parse::<Period>().is_ok_and(|span| span.ms <= PERIODS.max) || text.parse::<Period>().is_err());
        }
    }
}
