//! Compiles cron expressions for the engine: five fields, or one word like `@daily`.
//!
//! The code is here and not in the engine because protocols define how an expression is written; and not in one
//! protocol's crate because three protocols share it.
//!
//! A field is `*` or a list of values, ranges (`1-5`) and steps (`*/15`, `10-40/5`, `5/15`). Months and days of the
//! week have English names of three letters. `L` is the last day of the month, `fri#2` its second Friday, `Lfri` its
//! last Friday. If both day fields restrict the day, a day that fits either of them matches; `*` is no restriction,
//! `*/2` is one.
//!
//! Python's croniter differs in details: [`croniter`]. A Go library allows more: [`when`].

pub mod croniter;
mod when;

use std::ops::RangeInclusive;

use windlass_engine::Cron;

pub use when::when;

/// How days of the week are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Week {
    /// 0 to 7, where 0 and 7 are Sunday: every crontab.
    FromSunday,
    /// 0 to 6, where 0 is Monday.
    FromMonday,
}

/// Why an expression is invalid, for its author.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CronError(String);

/// Compiles five fields between blanks, or a word like `@daily`.
///
/// ```
/// let cron = windlass_session::cron::parse(b"*/15 8-17 * * mon-fri")?;
/// assert_eq!(cron.to_string(), "0,15,30,45 8,9,10,11,12,13,14,15,16,17 * * 1,2,3,4,5");
/// # Ok::<(), windlass_session::cron::CronError>(())
/// ```
///
/// # Errors
///
/// The text is invalid. Whether the expression ever matches a day is a question for the engine: see
/// [`Cron::can_match`].
pub fn parse(text: &[u8]) -> Result<Cron, CronError> {
    let text = text.trim_ascii();
    if text.starts_with(b"@") {
        return of_word(text);
    }
    let fields = fields(text);
    match fields.as_slice().try_into() {
        Ok(fields) => compile(fields, Week::FromSunday),
        Err(_) => Err(wrong_number(&fields)),
    }
}

/// Compiles minute, hour, day of month, month and day of week; an empty field is `*`.
///
/// # Errors
///
/// The first invalid field.
pub fn compile(
    [minute, hour, day, month, weekday]: [&[u8]; 5],
    week: Week,
) -> Result<Cron, CronError> {
    let (minute, hour, month) = (MINUTE.read(minute)?, HOUR.read(hour)?, MONTH.read(month)?);
    let (days, weekdays) = (DAY.read(day)?, Weekdays(week).read(weekday)?);
    let low = |bits: u64| u32::try_from(bits).unwrap_or_default();
    Ok(Cron {
        seconds: Cron::ALWAYS.seconds,
        minutes: minute.bits,
        hours: low(hour.bits),
        days: low(days.bits),
        months: u16::try_from(month.bits).unwrap_or_default(),
        weekdays: weekdays.bits,
        either_day: !days.is_open && !weekdays.is_open,
    })
}

fn fields(text: &[u8]) -> Vec<&[u8]> {
    text.split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .collect()
}

fn wrong_number(fields: &[&[u8]]) -> CronError {
    let found = fields.len();
    CronError(format!(
        "{found} fields, but minute, hour, day of month, month and day of week are needed"
    ))
}

fn of_word(word: &[u8]) -> Result<Cron, CronError> {
    let text: &[u8] = match word.to_ascii_lowercase().as_slice() {
        b"@yearly" | b"@annually" => b"0 0 1 1 *",
        b"@monthly" => b"0 0 1 * *",
        b"@weekly" => b"0 0 * * 0",
        b"@daily" | b"@midnight" => b"0 0 * * *",
        b"@hourly" => b"0 * * * *",
        _ => {
            let text = format!(
                "`{}` is not @yearly, @monthly, @weekly, @daily or @hourly",
                shown(word)
            );
            return Err(CronError(text));
        }
    };
    parse(text)
}

/// A kind of field.
struct Field {
    name: &'static str,
    low: u16,
    high: u16,
    /// Names of the values from `named_from` on.
    names: &'static [&'static str],
    named_from: u16,
}

const SECOND: Field = Field {
    name: "second",
    ..MINUTE
};
const MINUTE: Field = Field {
    name: "minute",
    low: 0,
    high: 59,
    names: &[],
    named_from: 0,
};
const HOUR: Field = Field {
    name: "hour",
    low: 0,
    high: 23,
    names: &[],
    named_from: 0,
};
/// `L` counts as 0, which no other day uses.
const DAY: Field = Field {
    name: "day of month",
    low: 1,
    high: 31,
    names: &["l"],
    named_from: 0,
};
const MONTH: Field = Field {
    name: "month",
    low: 1,
    high: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
    named_from: 1,
};
const WEEKDAY_FROM_SUNDAY: Field = Field {
    name: "day of week",
    low: 0,
    high: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    named_from: 0,
};
const WEEKDAY_FROM_MONDAY: Field = Field {
    high: 6,
    names: &["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
    ..WEEKDAY_FROM_SUNDAY
};

/// The values of a field, or of an item of its list.
#[derive(Clone, Copy, Default)]
struct Read {
    bits: u64,
    /// The field restricts nothing: it contains a `*`.
    is_open: bool,
}

/// The union of a list's items. An empty field is open.
fn read_list(
    field: &[u8],
    item: impl Fn(&[u8]) -> Result<Read, CronError>,
) -> Result<Read, CronError> {
    let field = if field.is_empty() { b"*" } else { field };
    field
        .split(|byte| *byte == b',')
        .try_fold(Read::default(), |all, text| {
            let one = item(text)?;
            Ok(Read {
                bits: all.bits | one.bits,
                is_open: all.is_open || one.is_open,
            })
        })
}

impl Field {
    fn read(&self, text: &[u8]) -> Result<Read, CronError> {
        read_list(text, |item| {
            let (range, step, is_open) = self.item(item)?;
            let bits = range.step_by(step).map(|value| 1 << value).sum();
            Ok(Read { bits, is_open })
        })
    }

    /// A value, a range or `*`, with an optional step.
    fn item(&self, text: &[u8]) -> Result<(RangeInclusive<u16>, usize, bool), CronError> {
        let (range, step) = match split_at(text, b'/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (text, None),
        };
        let values = match (range, split_at(range, b'-')) {
            (b"*", _) => self.low..=self.high,
            (_, Some((from, to))) => self.range(from, to, range)?,
            (_, None) => {
                let value = self.value(range)?;
                // The last day of the month has no later days to step through.
                let steps = step.is_some() && value >= self.low;
                value..=if steps { self.high } else { value }
            }
        };
        let step = step.unwrap_or(1);
        Ok((values, step, range == b"*" && step == 1))
    }

    fn range(&self, from: &[u8], to: &[u8], text: &[u8]) -> Result<RangeInclusive<u16>, CronError> {
        let (from, to) = (self.value(from)?, self.value(to)?);
        // Saturday to Sunday, where Sunday is both the first and the last day.
        let to = if to == 0 && from > 0 && self.high == 7 {
            7
        } else {
            to
        };
        if from > to || from < self.low {
            return Err(self.backwards(text));
        }
        Ok(from..=to)
    }

    fn value(&self, text: &[u8]) -> Result<u16, CronError> {
        let named = self
            .names
            .iter()
            .position(|name| name.as_bytes().eq_ignore_ascii_case(text));
        if let Some(index) = named.and_then(|index| u16::try_from(index).ok()) {
            return Ok(self.named_from + index);
        }
        let value = self.number(text)?;
        self.within(value, self.low..=self.high)
    }

    fn step(&self, text: &[u8]) -> Result<usize, CronError> {
        match self.number(text)? {
            0 => Err(CronError(format!("{}: a step of 0", self.name))),
            step => Ok(step.into()),
        }
    }

    fn number(&self, text: &[u8]) -> Result<u16, CronError> {
        let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(text)
            .ok()
            .filter(|_| digits)
            .and_then(|text| text.parse().ok());
        number.ok_or_else(|| {
            CronError(format!(
                "{}: `{}` is not understood",
                self.name,
                shown(text)
            ))
        })
    }

    fn within(&self, value: u16, range: RangeInclusive<u16>) -> Result<u16, CronError> {
        if range.contains(&value) {
            return Ok(value);
        }
        let (low, high) = range.into_inner();
        Err(CronError(format!(
            "{}: {value} is not between {low} and {high}",
            self.name
        )))
    }

    fn backwards(&self, range: &[u8]) -> CronError {
        CronError(format!("{}: `{}` runs backwards", self.name, shown(range)))
    }
}

/// The field of the week, whose values become bits of [`Cron::weekdays`].
struct Weekdays(Week);

impl Weekdays {
    fn read(&self, text: &[u8]) -> Result<Read, CronError> {
        let field = match self.0 {
            Week::FromSunday => WEEKDAY_FROM_SUNDAY,
            Week::FromMonday => WEEKDAY_FROM_MONDAY,
        };
        read_list(text, |item| {
            if let Some(bits) = self.nth(&field, item)? {
                return Ok(Read {
                    bits,
                    is_open: false,
                });
            }
            let (days, step, is_open) = field.item(item)?;
            let bits = days
                .step_by(step)
                .fold(0, |bits, day| bits | Cron::weekday(self.sunday_first(day)));
            Ok(Read { bits, is_open })
        })
    }

    /// `fri#2`, `Lfri`: a weekday that comes once a month.
    fn nth(&self, field: &Field, item: &[u8]) -> Result<Option<u64>, CronError> {
        const LAST: u16 = 5;
        let (day, nth) = match (split_at(item, b'#'), item) {
            (Some((day, nth)), _) => (day, field.within(field.number(nth)?, 1..=5)? - 1),
            (None, [b'L' | b'l', day @ ..]) => (day, LAST),
            (None, _) => return Ok(None),
        };
        let day = self.sunday_first(field.value(day)?);
        Ok(Some(1 << (7 * nth + u16::from(day))))
    }

    fn sunday_first(&self, day: u16) -> u8 {
        let day = match self.0 {
            Week::FromSunday => day,
            Week::FromMonday => day + 1,
        };
        u8::try_from(day % 7).unwrap_or_default()
    }
}

fn split_at(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = text.iter().position(|byte| *byte == at)?;
    Some((text.get(..index)?, text.get(index + 1..)?))
}

/// Shortens a text for an error message.
fn shown(text: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 32;
    text.get(..SHOWN_BYTES_MAX)
        .unwrap_or(text)
        .escape_ascii()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_expressions_compile() {
        let table = [
            ("* * * * *", "* * * * *"),
            ("  5\t4 3 2 1 ", "5 4 3 2 1"),
            ("05 004 3 2 1", "5 4 3 2 1"),
            ("59 23 31 12 6", "59 23 31 12 6"),
            ("0-3,7,9-10 * * * *", "0,1,2,3,7,9,10 * * * *"),
            ("5-5,1-3,2-4 * * * *", "1,2,3,4,5 * * * *"),
            ("*/20 */12 * */5 *", "0,20,40 0,12 * 1,6,11 *"),
            ("10-40/15 22/1 * * *", "10,25,40 22,23 * * *"),
            ("0/59 0/90 * * *", "0,59 0 * * *"),
            ("0 0 * jan,FEB-Apr,12 *", "0 0 * 1,2,3,4,12 *"),
            ("0 0 * * sun", "0 0 * * 0"),
            ("0 0 * * 7", "0 0 * * 0"),
            ("0 0 * * 5-7", "0 0 * * 0,5,6"),
            ("0 0 * * Sat-Sun", "0 0 * * 0,6"),
            ("0 0 * * sun-tue", "0 0 * * 0,1,2"),
            ("0 0 * * sun-sun", "0 0 * * 0"),
            ("0 0 * * 0-7/3", "0 0 * * 0,3,6"),
            ("0 0 * * 1-7", "0 0 * * *"),
            ("0 0 13 * 5", "0 0 13 * 5"),
            ("0 0 13 * *", "0 0 13 * *"),
            (
                "0 0 */2 * 1",
                "0 0 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * 1",
            ),
            ("0 0 */1 * 1", "0 0 * * 1"),
            ("0 0 1/1 * 1", "0 0 1-31 * 1"),
            ("0 0 13 * 1/1", "0 0 13 * 0-6"),
            ("0 0 L * *", "0 0 L * *"),
            ("0 0 1,l * *", "0 0 1,L * *"),
            ("0 0 * * fri#2,1#5", "0 0 * * 5#2,1#5"),
            ("0 0 * * Lfri,l0", "0 0 * * L0,L5"),
            ("@hourly", "0 * * * *"),
            ("@Daily", "0 0 * * *"),
            ("@midnight", "0 0 * * *"),
            ("@weekly", "0 0 * * 0"),
            ("@monthly", "0 0 1 * *"),
            ("@yearly ", "0 0 1 1 *"),
            ("@annually", "0 0 1 1 *"),
        ];
        for (text, compiled) in table {
            let cron = parse(text.as_bytes());
            assert_eq!(
                cron.clone().map(|cron| cron.to_string()).as_deref(),
                Ok(compiled),
                "{text}"
            );
            assert_eq!(parse(compiled.as_bytes()), cron, "{text}: {compiled}");
        }
    }

    #[test]
    fn either_day_matches_if_both_fields_restrict_it() {
        let table = [
            ("0 0 * * *", false),
            ("0 0 13 * *", false),
            ("0 0 * * 5", false),
            ("0 0 13 * 5", true),
            ("0 0 L * 5", true),
            ("0 0 */2 * 5", true),
            ("0 0 1-31 * 5", true),
            ("0 0 */1 * 5", false),
            ("0 0 13,* * 5", false),
            ("0 0 13 * *,5", false),
        ];
        for (text, either) in table {
            assert_eq!(
                parse(text.as_bytes()).map(|cron| cron.either_day),
                Ok(either),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_expressions_are_refused() {
        let table = [
            (
                "",
                "0 fields, but minute, hour, day of month, month and day of week are needed",
            ),
            (
                "* * * *",
                "4 fields, but minute, hour, day of month, month and day of week are needed",
            ),
            (
                "0 * * * * *",
                "6 fields, but minute, hour, day of month, month and day of week are needed",
            ),
            (
                "@reboot",
                "`@reboot` is not @yearly, @monthly, @weekly, @daily or @hourly",
            ),
            ("60 * * * *", "minute: 60 is not between 0 and 59"),
            ("* 24 * * *", "hour: 24 is not between 0 and 23"),
            ("* * 0 * *", "day of month: 0 is not between 1 and 31"),
            ("* * * 13 *", "month: 13 is not between 1 and 12"),
            ("* * * * 8", "day of week: 8 is not between 0 and 7"),
            (
                "99999999999999999999 * * * *",
                "minute: `99999999999999999999` is not understood",
            ),
            ("-1 * * * *", "minute: `` is not understood"),
            ("+1 * * * *", "minute: `+1` is not understood"),
            ("1, * * * *", "minute: `` is not understood"),
            ("** * * * *", "minute: `**` is not understood"),
            ("*/0 * * * *", "minute: a step of 0"),
            ("*/ * * * *", "minute: `` is not understood"),
            ("1/2/3 * * * *", "minute: `2/3` is not understood"),
            ("30-10 * * * *", "minute: `30-10` runs backwards"),
            ("* * L-5 * *", "day of month: `L-5` runs backwards"),
            ("* * 5-L * *", "day of month: `5-L` runs backwards"),
            ("* * * dec-jan *", "month: `dec-jan` runs backwards"),
            ("* * * * fri-mon", "day of week: `fri-mon` runs backwards"),
            ("* * * mon *", "month: `mon` is not understood"),
            ("* * * january *", "month: `january` is not understood"),
            ("* * * * fri#6", "day of week: 6 is not between 1 and 5"),
            ("* * * * fri#0", "day of week: 0 is not between 1 and 5"),
            ("* * * * #1", "day of week: `` is not understood"),
            ("* * * * L", "day of week: `` is not understood"),
            ("\x01 * * * *", "minute: `\\x01` is not understood"),
        ];
        for (text, error) in table {
            assert_eq!(
                parse(text.as_bytes()).map_err(|error| error.to_string()),
                Err(error.into()),
                "{text}"
            );
        }
        let long = [b'x'; 1_000];
        assert_eq!(
            parse(&[&long[..], b" * * * *"].concat()).map_err(|error| error.to_string().len()),
            Err(60)
        );
    }

    #[test]
    fn the_week_from_monday() {
        let compiled = |weekday: &str| {
            compile([b"0", b"", b"", b"", weekday.as_bytes()], Week::FromMonday)
                .map(|cron| cron.to_string())
        };
        let table = [
            ("", "*"),
            ("*", "*"),
            ("0", "1"),
            ("6", "0"),
            ("4-6", "0,5,6"),
            ("sun", "0"),
            ("mon-fri", "1,2,3,4,5"),
        ];
        for (weekday, days) in table {
            assert_eq!(
                compiled(weekday),
                Ok(format!("0 * * * {days}")),
                "{weekday}"
            );
        }
        assert_eq!(
            compiled("7").map_err(|error| error.to_string()),
            Err("day of week: 7 is not between 0 and 6".into())
        );
    }
}
