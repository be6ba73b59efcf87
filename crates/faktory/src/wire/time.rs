//! Times in RFC 3339, to the nanosecond, and error texts of deployed servers for invalid ones.

use std::ops::RangeInclusive;

use windlass_engine::date::{ERA_DAYS, ERA_YEARS, date, day_number, month_days};

use super::go::quote;

/// The layout that the error texts name.
const LAYOUT: &str = "2006-01-02T15:04:05.999999999Z07:00";

/// Periods of the calendar after which every year that can be written comes after 1970.
const ERAS: u64 = 5;
const ERAS_SECONDS: i64 = (ERAS * ERA_DAYS * 86_400).cast_signed();

/// Milliseconds since the epoch. Rounded up, so that nothing happens before its time. Times before the epoch are 0.
///
/// # Errors
///
/// Wrong form, or not in the calendar: the text is for the client.
pub fn parse_time(text: &str) -> Result<u64, String> {
    let mut parser = Parser { text, rest: text };
    let year = parser.number(4, "2006")?;
    parser.literal("-")?;
    let month = parser.within(1..=12, "01", "month")?;
    parser.literal("-")?;
    let day = parser.number(2, "02")?;
    parser.literal("T")?;
    let hour = parser.within(0..=23, "15", "hour")?;
    parser.literal(":")?;
    let minute = parser.within(0..=59, "04", "minute")?;
    parser.literal(":")?;
    let second = parser.within(0..=59, "05", "second")?;
    let nanos = parser.fraction();
    let offset_s = parser.zone()?;
    if !parser.rest.is_empty() {
        return Err(format!(
            "parsing time {}: extra text: {}",
            quote(text),
            quote(parser.rest)
        ));
    }
    if day < 1 || day > month_days(year, month) {
        return Err(parser.range("day"));
    }
    let days = day_number(year + ERAS * ERA_YEARS, month, day);
    let seconds = (days * 86_400 + hour * 3_600 + minute * 60 + second).cast_signed()
        - ERAS_SECONDS
        - offset_s;
    let ms = seconds * 1_000 + (nanos + 999_999) / 1_000_000;
    Ok(u64::try_from(ms).unwrap_or(0))
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Parser<'_> {
    fn form(&self, element: &'static str) -> String {
        let (text, rest) = (quote(self.text), quote(self.rest));
        format!("parsing time {text} as \"{LAYOUT}\": cannot parse {rest} as \"{element}\"")
    }

    fn range(&self, element: &'static str) -> String {
        format!("parsing time {}: {element} out of range", quote(self.text))
    }

    /// Two digits, of a number in this range.
    fn within(
        &mut self,
        range: RangeInclusive<u64>,
        form: &'static str,
        element: &'static str,
    ) -> Result<u64, String> {
        let number = self.number(2, form)?;
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(self.range(element))
        }
    }

    fn number(&mut self, digits: usize, element: &'static str) -> Result<u64, String> {
        let number = self
            .rest
            .get(..digits)
            .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let number = number.ok_or_else(|| self.form(element))?;
        self.rest = self.rest.get(digits..).unwrap_or_default();
        Ok(number.parse().unwrap_or(0))
    }

    fn literal(&mut self, element: &'static str) -> Result<(), String> {
        self.rest = self
            .rest
            .strip_prefix(element)
            .ok_or_else(|| self.form(element))?;
        Ok(())
    }

    /// Nanoseconds; further digits are ignored.
    fn fraction(&mut self) -> i64 {
        let Some(after) = self.rest.strip_prefix(['.', ',']) else {
            return 0;
        };
        let count = after.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return 0;
        }
        let digits = after.get(..count.min(9)).unwrap_or_default();
        self.rest = after.get(count..).unwrap_or_default();
        format!("{digits:0<9}").parse().unwrap_or(0)
    }

    /// Seconds east of Greenwich.
    fn zone(&mut self) -> Result<i64, String> {
        const ELEMENT: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ..] = bytes else {
            return Err(self.form(ELEMENT));
        };
        if ![h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit()) {
            return Err(self.form(ELEMENT));
        }
        let pair = |a: &u8, b: &u8| i64::from(a - b'0') * 10 + i64::from(b - b'0');
        let (hours, minutes) = (pair(h1, h2), pair(m1, m2));
        if hours > 24 {
            return Err(self.range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.range("time zone offset minute"));
        }
        self.rest = self.rest.get(6..).unwrap_or_default();
        let seconds = hours * 3_600 + minutes * 60;
        Ok(if *sign == b'-' { -seconds } else { seconds })
    }
}

/// A time in UTC, its fraction without trailing zeros.
pub fn time_text(ms: u64) -> String {
    written(ms / 1_000, ms % 1_000, 3)
}

/// A time in UTC to the nanosecond, its fraction without trailing zeros.
pub fn time_text_ns(ns: u64) -> String {
    written(ns / 1_000_000_000, ns % 1_000_000_000, 9)
}

/// A time from seconds and a fraction of this many digits.
fn written(s: u64, fraction: u64, digits: usize) -> String {
    let (days, s) = (s / 86_400, s % 86_400);
    let (year, month, day) = date(days);
    let mut text = format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        s / 3_600,
        s / 60 % 60,
        s % 60
    );
    if fraction > 0 {
        text.push('.');
        text.push_str(format!("{fraction:0digits$}").trim_end_matches('0'));
    }
    text.push('Z');
    text
}

/// The time of day in UTC, to the second.
pub(crate) fn clock_text(ms: u64) -> String {
    let s = ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", s / 3_600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        let table = [
            ("1970-01-01T00:00:00Z", 0),
            ("2020-01-01T00:00:00Z", 1_577_836_800_000),
            ("2020-01-01T00:00:00.5+02:00", 1_577_829_600_500),
            ("2020-02-29T23:59:59.999999999Z", 1_583_020_800_000),
            ("2026-11-21T04:59:11.123456789Z", 1_795_237_151_124),
            ("2026-11-21T04:59:11.471345+00:00", 1_795_237_151_472),
            ("1969-12-31T23:59:59-01:00", 3_599_000),
            ("1960-01-01T00:00:00Z", 0),
            ("0000-01-01T00:00:00Z", 0),
        ];
        for (text, ms) in table {
            assert_eq!(parse_time(text), Ok(ms), "{text}");
        }
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (1_583_020_800_000, "2020-03-01T00:00:00Z"),
            (1_582_934_400_120, "2020-02-29T00:00:00.12Z"),
            (1_795_237_151_001, "2026-11-21T04:59:11.001Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ];
        for (ms, text) in table {
            assert_eq!(time_text(ms), text);
            assert_eq!(parse_time(text), Ok(ms), "{text}");
        }
        assert_eq!(
            time_text_ns(1_795_237_151_123_456_780),
            "2026-11-21T04:59:11.12345678Z"
        );
        // Every day of a few centuries.
        for day in 0..300_000_u64 {
            assert_eq!(
                parse_time(&time_text(day * 86_400_000)),
                Ok(day * 86_400_000)
            );
        }
        assert_eq!(clock_text(1_795_237_151_001), "04:59:11 UTC");
    }

    #[test]
    fn invalid_times_have_the_error_texts_of_go() {
        let form = |rest: &str, element: &str| {
            format!(
                " as \"2006-01-02T15:04:05.999999999Z07:00\": cannot parse \"{rest}\" as \"{element}\""
            )
        };
        let table = [
            ("garbage", form("garbage", "2006")),
            ("2020-01-01", form("", "T")),
            ("2020-01-01 00:00:00Z", form(" 00:00:00Z", "T")),
            ("2020-01-01T00:00:00", form("", "Z07:00")),
            ("2020-01-01T00:00:00+1", form("+1", "Z07:00")),
            ("2020-1-01T00:00:00Z", form("1-01T00:00:00Z", "01")),
            ("2020-13-01T00:00:00Z", ": month out of range".to_owned()),
            ("2019-02-29T00:00:00Z", ": day out of range".to_owned()),
            ("2020-01-01T24:00:00Z", ": hour out of range".to_owned()),
            ("2020-01-01T00:00:00Zx", ": extra text: \"x\"".to_owned()),
        ];
        for (text, error) in table {
            assert_eq!(
                parse_time(text).unwrap_err().to_string(),
                format!("parsing time \"{text}\"{error}")
            );
        }
    }
}
