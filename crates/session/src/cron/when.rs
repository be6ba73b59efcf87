//! When a job of the configuration recurs: a cron expression with or without seconds, in a time zone or in UTC, or a
//! fixed interval.
//!
//! The rules are those of the Go library `robfig/cron`. `CRON_TZ=Europe/Berlin` (or `TZ=`) can precede an expression,
//! seconds can precede the five fields, `?` equals `*`, and `@every 1h30m` is a duration in Go's notation, in whole
//! seconds and at least one. Two rules differ on purpose: without a zone times are UTC instead of the machine's local
//! time; and when clocks change, no run is left out or repeated ([`windlass_engine::Zone`]).

use windlass_engine::{Cron, Recurrence, Zone};

use super::{CronError, SECOND, Week, compile, fields, parse, shown, wrong_number};

/// When a job recurs. `timezone` comes from outside the expression, which may name a zone itself.
///
/// ```
/// let when = windlass_session::cron::when("CRON_TZ=Europe/Berlin 30 8 * * mon-fri", None)?;
/// assert!(matches!(when, windlass_engine::Recurrence::Zoned(_, zone) if zone.name() == "Europe/Berlin"));
/// # Ok::<(), windlass_session::cron::CronError>(())
/// ```
///
/// # Errors
///
/// The text is invalid, or the time zone is unknown. Whether the expression ever matches a day is a question for the
/// engine.
pub fn when(text: &str, timezone: Option<&str>) -> Result<Recurrence, CronError> {
    let text = text.trim();
    let named = text
        .strip_prefix("CRON_TZ=")
        .or_else(|| text.strip_prefix("TZ="));
    let (own, text) = match named {
        Some(rest) => {
            let (zone, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            (Some(zone_of(zone)?), text.trim())
        }
        None => (None, text),
    };
    let beside = timezone.map(zone_of).transpose()?;
    if let (Some(one), Some(other)) = (own, beside)
        && one != other
    {
        return Err(CronError(format!(
            "two time zones, {} and {}",
            one.name(),
            other.name()
        )));
    }
    if let Some(span) = every(text) {
        let wrong = || {
            CronError(format!(
                "`{}` is not a duration such as 1h30m",
                shown(span.as_bytes())
            ))
        };
        let interval_ms = span_ms(span).ok_or_else(wrong)?;
        return Ok(Recurrence::Every { interval_ms });
    }
    let cron = expression(text.as_bytes())?;
    Ok(match own.or(beside).filter(|zone| !zone.is_utc()) {
        Some(zone) => Recurrence::Zoned(cron, zone),
        None => Recurrence::Cron(cron),
    })
}

fn zone_of(name: &str) -> Result<Zone, CronError> {
    let name = name.trim();
    Zone::named(name).ok_or_else(|| {
        let text = shown(name.as_bytes());
        CronError(format!(
            "unknown time zone `{text}`; expected a name such as Europe/Berlin"
        ))
    })
}

fn expression(text: &[u8]) -> Result<Cron, CronError> {
    if text.starts_with(b"@") {
        return parse(text);
    }
    let mut fields = fields(text);
    fields
        .iter_mut()
        .filter(|field| **field == b"?")
        .for_each(|field| *field = b"*");
    match *fields.as_slice() {
        [minute, hour, day, month, weekday] => {
            compile([minute, hour, day, month, weekday], Week::FromSunday)
        }
        [second, minute, hour, day, month, weekday] => {
            let seconds = SECOND.read(second)?.bits;
            let cron = compile([minute, hour, day, month, weekday], Week::FromSunday)?;
            Ok(Cron { seconds, ..cron })
        }
        _ => {
            let CronError(text) = wrong_number(&fields);
            Err(CronError(format!(
                "{text}, and seconds may stand before them"
            )))
        }
    }
}

/// The text after `@every`.
fn every(text: &str) -> Option<&str> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    word.eq_ignore_ascii_case("@every").then(|| rest.trim())
}

/// A positive duration in Go's notation (`1h30m`, `1.5h`), rounded down to whole seconds; in milliseconds.
fn span_ms(text: &str) -> Option<u64> {
    const MAX_NS: f64 = 9.0e18;
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let mut total_ns = 0.0;
    while !rest.is_empty() {
        let unit_at = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
        let (number, after) = rest.split_at(unit_at);
        let unit_end = after
            .find(|char: char| char.is_ascii_digit() || char == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        total_ns += number.parse::<f64>().ok()? * nanoseconds(unit)?;
        rest = after;
    }
    if total_ns > MAX_NS {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is neither negative nor too large"
    )]
    let seconds = (total_ns / 1e9 + 1e-9) as u64;
    Some(seconds.max(1) * 1_000)
}

fn nanoseconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3_600e9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(text: &str, timezone: Option<&str>) -> String {
        match when(text, timezone) {
            Ok(Recurrence::Cron(cron)) => cron.to_string(),
            Ok(Recurrence::Zoned(cron, zone)) => format!("{cron} in {}", zone.name()),
            Ok(Recurrence::Every { interval_ms }) => format!("every {interval_ms} ms"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn valid_texts_are_read() {
        let table = [
            ("0 9 * * *", None, "0 9 * * *"),
            (
                "CRON_TZ=Europe/Berlin 0 9 * * *",
                None,
                "0 9 * * * in Europe/Berlin",
            ),
            (
                "  TZ=america/new_york\t0 9 * * *",
                None,
                "0 9 * * * in America/New_York",
            ),
            (
                "0 9 * * *",
                Some("Asia/Kolkata"),
                "0 9 * * * in Asia/Kolkata",
            ),
            (
                "TZ=Asia/Kolkata 0 9 * * *",
                Some("asia/kolkata"),
                "0 9 * * * in Asia/Kolkata",
            ),
            ("CRON_TZ=UTC 0 9 * * *", None, "0 9 * * *"),
            ("0 9 * * *", Some("Etc/UTC"), "0 9 * * *"),
            (
                "CRON_TZ=Europe/Berlin @daily",
                None,
                "0 0 * * * in Europe/Berlin",
            ),
            ("30 0 9 * * *", None, "30 0 9 * * *"),
            ("0 0 9 * * *", None, "0 9 * * *"),
            ("*/20 * * * * mon", None, "0,20,40 * * * * 1"),
            ("0 0 9 ? * mon", None, "0 9 * * 1"),
            ("0 9 1 * ?", None, "0 9 1 * *"),
            ("@Midnight", None, "0 0 * * *"),
            ("@every 1h30m", None, "every 5400000 ms"),
            ("@every 1.5h", None, "every 5400000 ms"),
            ("@EVERY  90s ", None, "every 90000 ms"),
            ("@every 1m0.9s", None, "every 60000 ms"),
            ("@every 5ms", None, "every 1000 ms"),
            ("@every 1500000us", None, "every 1000 ms"),
            ("@every 3000000000ns", None, "every 3000 ms"),
            ("@every 2500000h", None, "every 9000000000000 ms"),
            (
                "TZ=Europe/Berlin @every 1m",
                Some("Europe/Berlin"),
                "every 60000 ms",
            ),
        ];
        for (text, timezone, expected) in table {
            assert_eq!(described(text, timezone), expected, "{text} {timezone:?}");
        }
    }

    #[test]
    fn invalid_texts_are_refused() {
        let fields = "minute, hour, day of month, month and day of week are needed, and seconds may stand before them";
        let table = [
            ("", None, format!("0 fields, but {fields}")),
            ("TZ=Europe/Berlin", None, format!("0 fields, but {fields}")),
            ("1 2 3 4 5 6 7", None, format!("7 fields, but {fields}")),
            (
                "60 * * * * *",
                None,
                "second: 60 is not between 0 and 59".to_owned(),
            ),
            (
                "0 61 * * * *",
                None,
                "minute: 61 is not between 0 and 59".to_owned(),
            ),
            (
                "TZ=Middle/Earth * * * * *",
                None,
                "unknown time zone `Middle/Earth`; expected a name such as Europe/Berlin"
                    .to_owned(),
            ),
            (
                "* * * * *",
                Some("Local"),
                "unknown time zone `Local`; expected a name such as Europe/Berlin".to_owned(),
            ),
            (
                "TZ=Asia/Tokyo * * * * *",
                Some("Asia/Seoul"),
                "two time zones, Asia/Tokyo and Asia/Seoul".to_owned(),
            ),
            (
                "@every",
                None,
                "`` is not a duration such as 1h30m".to_owned(),
            ),
            (
                "@every 5",
                None,
                "`5` is not a duration such as 1h30m".to_owned(),
            ),
            (
                "@every -5s",
                None,
                "`-5s` is not a duration such as 1h30m".to_owned(),
            ),
            (
                "@every 1d",
                None,
                "`1d` is not a duration such as 1h30m".to_owned(),
            ),
            (
                "@every 1..5s",
                None,
                "`1..5s` is not a duration such as 1h30m".to_owned(),
            ),
            (
                "@every 2500001h",
                None,
                "`2500001h` is not a duration such as 1h30m".to_owned(),
            ),
            (
                "@fortnightly",
                None,
                "`@fortnightly` is not @yearly, @monthly, @weekly, @daily or @hourly".to_owned(),
            ),
        ];
        for (text, timezone, expected) in table {
            assert_eq!(described(text, timezone), expected, "{text} {timezone:?}");
        }
    }
}
