//! Cron expressions as Python's croniter 1.0.5 reads them.
//!
//! croniter differs from a crontab in the days. A field that lists all its values restricts nothing, like `*`. As soon
//! as one weekday names its week of the month (`fri#2`), plain weekdays and days of the month are ignored; `1-5#2` is
//! five such weekdays. `@daily` and `Lfri`, which croniter refuses, are accepted here.

use std::ops::RangeInclusive;

use windlass_engine::Cron;

use super::{
    CronError, DAY, Field, HOUR, MINUTE, MONTH, SECOND, WEEKDAY_FROM_SUNDAY, fields, of_word,
    split_at, wrong_number,
};

/// Without `L`, which is read separately.
const PLAIN_DAY: Field = Field { names: &[], ..DAY };

/// Compiles an expression of five fields, of six if the last field (seconds) is 0, or a word like `@daily`.
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
    match fields(text).as_slice() {
        &[minute, hour, day, month, weekday] => compile([minute, hour, day, month, weekday]),
        &[minute, hour, day, month, weekday, second] => match read(&SECOND, second)? {
            1 => compile([minute, hour, day, month, weekday]),
            _ => {
                let text = "a job runs at the beginning of a minute: a sixth field, seconds, can only be 0";
                Err(CronError(text.to_owned()))
            }
        },
        fields => Err(wrong_number(fields)),
    }
}

fn compile([minute, hour, day, month, weekday]: [&[u8]; 5]) -> Result<Cron, CronError> {
    let low = |bits: u64| u32::try_from(bits).unwrap_or_default();
    let (minutes, hours, months) = (
        read(&MINUTE, minute)?,
        read(&HOUR, hour)?,
        read(&MONTH, month)?,
    );
    let (days, (weekdays, nth_bits)) = (read_days(day)?, read_weekdays(weekday)?);
    let (are_nth, both) = (nth_bits != 0, !days.is_open(31) && !weekdays.is_open(7));
    let every_week = || {
        (0..7)
            .filter(|day| weekdays.bits(0..=6) >> day & 1 == 1)
            .map(Cron::weekday)
            .sum()
    };
    Ok(Cron {
        seconds: Cron::ALWAYS.seconds,
        minutes,
        hours: low(hours),
        days: if both && are_nth {
            Cron::ALWAYS.days
        } else {
            low(days.bits(1..=31))
        },
        months: u16::try_from(months).unwrap_or_default(),
        weekdays: if are_nth { nth_bits } else { every_week() },
        either_day: both && !are_nth,
    })
}

/// Any field but the two of days.
fn read(field: &Field, text: &[u8]) -> Result<u64, CronError> {
    let mut list = List::default();
    for item in text.split(|byte| *byte == b',') {
        list.add(Item::read(field, item)?);
    }
    Ok(list.bits(field.low..=field.high))
}

/// Days of the month, as bits of [`Cron::days`].
fn read_days(text: &[u8]) -> Result<List, CronError> {
    const LAST: Item = Item::Values(1);
    let mut list = List::default();
    for item in text.split(|byte| *byte == b',') {
        list.add(if item.eq_ignore_ascii_case(b"l") {
            LAST
        } else {
            Item::read(&PLAIN_DAY, item)?
        });
    }
    Ok(list)
}

/// Days of the week, with 0 for Sunday; and weekdays that come once a month, as bits of [`Cron::weekdays`].
fn read_weekdays(text: &[u8]) -> Result<(List, u64), CronError> {
    const FIELD: &Field = &WEEKDAY_FROM_SUNDAY;
    const LAST: u16 = 5;
    let (mut list, mut nth_bits) = (List::default(), 0);
    for item in text.split(|byte| *byte == b',') {
        let (days, nth) = match (split_at(item, b'#'), item) {
            (Some((days, b"")), _) => (days, None),
            (Some((days, nth)), _) => (days, Some(FIELD.within(FIELD.number(nth)?, 1..=5)? - 1)),
            (None, [b'L' | b'l', day @ ..]) => (day, Some(LAST)),
            (None, _) => (item, None),
        };
        let (days, bits) = match Item::read(FIELD, days)? {
            Item::Star => (Item::Star, 0x7f),
            Item::Values(values) => {
                let values = (values | values >> 7) & 0x7f;
                (Item::Values(values), values)
            }
        };
        list.add(days);
        nth_bits |= nth.map_or(0, |nth| bits << (7 * nth));
    }
    Ok((list, nth_bits))
}

/// An item of a list.
enum Item {
    Star,
    Values(u64),
}

impl Item {
    /// A `*`, a value or a range, with an optional step.
    fn read(field: &Field, text: &[u8]) -> Result<Self, CronError> {
        let (range, step) = match split_at(text, b'/') {
            Some((range, step)) => (range, Some(step)),
            None => (text, None),
        };
        let (values, step) = match (range, split_at(range, b'-'), step) {
            (b"*", _, None) => return Ok(Self::Star),
            (b"*", _, Some(step)) => (field.low..=field.high, steps(field, step)?),
            (_, Some((from, to)), None | Some(b"")) => (span(field, from, to, range)?, 1),
            (_, Some((from, to)), Some(step)) => {
                (span(field, from, to, range)?, steps(field, step)?)
            }
            (_, None, Some(step)) => (value(field, range)?..=field.high, steps(field, step)?),
            (_, None, None) => {
                let value = value(field, range)?;
                (value..=value, 1)
            }
        };
        Ok(Self::Values(bits(
            values.map(|value| value.max(field.low)).step_by(step),
        )))
    }
}

/// The sum of a list's items.
#[derive(Default)]
struct List {
    star: bool,
    values: u64,
}

impl List {
    fn add(&mut self, item: Item) {
        match item {
            Item::Star => self.star = true,
            Item::Values(values) => self.values |= values,
        }
    }

    /// Whether the field restricts nothing. croniter compares the number of entries, a `*` counting as one, with the
    /// number of the field's values. Otherwise a `*` means all values only if it is alone or beside `L` (bit 0); among
    /// other entries it adds nothing.
    fn is_open(&self, all: u32) -> bool {
        let is_alone = self.values == 0 || (all == 31 && self.values == 1);
        self.star && is_alone || self.values.count_ones() + u32::from(self.star) == all
    }

    fn bits(&self, all: RangeInclusive<u16>) -> u64 {
        if self.is_open(all.clone().map(|_| 1).sum()) {
            bits(all)
        } else {
            self.values
        }
    }
}

fn bits(values: impl Iterator<Item = u16>) -> u64 {
    values.fold(0, |bits, value| bits | 1 << value)
}

/// A range. One that ends on Sunday ends with the week; one that ends on `L` ends with the longest month.
fn span(
    field: &Field,
    from: &[u8],
    to: &[u8],
    range: &[u8],
) -> Result<RangeInclusive<u16>, CronError> {
    let is_last = field.name == DAY.name && to.eq_ignore_ascii_case(b"l");
    let (from, to) = (
        value(field, from)?,
        if is_last {
            field.high
        } else {
            value(field, to)?
        },
    );
    let to = if to == 0 && from > 0 && field.high == 7 {
        7
    } else {
        to
    };
    if from > to {
        Err(field.backwards(range))
    } else {
        Ok(from..=to)
    }
}

/// A value. 0 is accepted too, and means 1 where the field has no 0.
fn value(field: &Field, text: &[u8]) -> Result<u16, CronError> {
    match field.number(text) {
        Ok(0) => Ok(0),
        _ => field.value(text),
    }
}

/// A step of any size.
fn steps(field: &Field, text: &[u8]) -> Result<usize, CronError> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if is_number && field.number(text).is_err() {
        Ok(usize::MAX)
    } else {
        field.step(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_mean_the_same_as_in_a_crontab() {
        let table = [
            ("* * * * *", "* * * * *"),
            ("  5\t4 3 2 1 ", "5 4 3 2 1"),
            ("0-3,7,9-10 * * * *", "0,1,2,3,7,9,10 * * * *"),
            ("*/20 */12 * */5 *", "0,20,40 0,12 * 1,6,11 *"),
            ("10-40/15 22/1 * * *", "10,25,40 22,23 * * *"),
            ("0 0 * jan,FEB-Apr,12 *", "0 0 * 1,2,3,4,12 *"),
            ("0 0 * * 7,Tue", "0 0 * * 0,2"),
            ("0 0 * * Sat-Sun", "0 0 * * 0,6"),
            ("0 0 * * 5-0", "0 0 * * 0,5,6"),
            ("0 0 l * *", "0 0 L * *"),
            ("0 0 * * fri#2,1#5", "0 0 * * 5#2,1#5"),
            ("0 0 * * Lfri", "0 0 * * L5"),
            ("@Daily", "0 0 * * *"),
        ];
        for (text, compiled) in table {
            assert_eq!(
                parse(text.as_bytes())
                    .map(|cron| cron.to_string())
                    .as_deref(),
                Ok(compiled),
                "{text}"
            );
        }
    }

    #[test]
    fn expressions_that_differ_from_a_crontab() {
        let table = [
            ("every value is none", "0 0 1-31 * 5", "0 0 * * 5"),
            (
                "… and so is a list of them",
                "0 0 1-15,16-31 * 5",
                "0 0 * * 5",
            ),
            ("… of weekdays", "0 0 13 * 0-6", "0 0 13 * *"),
            (
                "… and so are thirty and the last",
                "0 0 2-31,L * 5",
                "0 0 * * 5",
            ),
            ("only a * is all", "0 0 *,l * 5", "0 0 * * 5"),
            (
                "a * among others is nothing",
                "0,* 0 5,* 1,* 5",
                "0 0 5 1 5",
            ),
            (
                "… unless it makes up the number",
                "1-59,* 0 * * *",
                "* 0 * * *",
            ),
            ("0 is 1", "0 0 0 0 *", "0 0 1 1 *"),
            (
                "… after the steps",
                "0 0 0/10 0-12/4 *",
                "0 0 1,10,20,30 1,4,8,12 *",
            ),
            (
                "to the last is to the 31st",
                "0 0 29-L * *",
                "0 0 29,30,31 * *",
            ),
            (
                "nothing behind a range's stroke",
                "0-2/ * * * *",
                "0,1,2 * * * *",
            ),
            ("nothing behind a #", "0 0 * * fri#", "0 0 * * 5"),
            (
                "large steps",
                "*/100 */99999999999999999999 * * *",
                "0 0 * * *",
            ),
            (
                "ranges of nth weekdays",
                "0 0 * * 1-5/2#2",
                "0 0 * * 1#2,3#2,5#2",
            ),
            (
                "* of nth weekdays",
                "0 0 * * *#1",
                "0 0 * * 0#1,1#1,2#1,3#1,4#1,5#1,6#1",
            ),
            ("Sunday at both ends", "0 0 13 * 0-7/7", "0 0 13 * 0"),
            ("Sunday is one day", "0 0 * * 6-7#1", "0 0 * * 0#1,6#1"),
            (
                "nth weekdays go before others",
                "0 0 * * mon,fri#2",
                "0 0 * * 5#2",
            ),
            ("… and before days", "0 0 13 * fri#2", "0 0 * * 5#2"),
            (
                "… unless it is every weekday",
                "0 0 13 * 0-6#2",
                "0 0 13 * 0#2,1#2,2#2,3#2,4#2,5#2,6#2 (both days)",
            ),
            ("seconds", "5 4 * * * 0", "5 4 * * *"),
        ];
        for (name, text, compiled) in table {
            assert_eq!(
                parse(text.as_bytes())
                    .map(|cron| cron.to_string())
                    .as_deref(),
                Ok(compiled),
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn invalid_expressions_are_refused() {
        let table = [
            (
                "* * * *",
                "4 fields, but minute, hour, day of month, month and day of week are needed",
            ),
            (
                "* * * * * 5",
                "a job runs at the beginning of a minute: a sixth field, seconds, can only be 0",
            ),
            (
                "* * * * * *",
                "a job runs at the beginning of a minute: a sixth field, seconds, can only be 0",
            ),
            ("* * * * * x", "second: `x` is not understood"),
            ("60 * * * *", "minute: 60 is not between 0 and 59"),
            ("* * 32 * *", "day of month: 32 is not between 1 and 31"),
            ("* * l-5 * *", "day of month: `l` is not understood"),
            ("* * ? * *", "day of month: `?` is not understood"),
            ("1,,2 * * * *", "minute: `` is not understood"),
            ("*/ * * * *", "minute: `` is not understood"),
            ("5/ * * * *", "minute: `` is not understood"),
            ("*/0 * * * *", "minute: a step of 0"),
            ("*-5 * * * *", "minute: `*` is not understood"),
            ("50-10 * * * *", "minute: `50-10` runs backwards"),
            ("* * * dec-jan *", "month: `dec-jan` runs backwards"),
            ("* * * * fri-mon", "day of week: `fri-mon` runs backwards"),
            ("* * * * fri#6", "day of week: 6 is not between 1 and 5"),
            ("* * * * 5l", "day of week: `5l` is not understood"),
        ];
        for (text, error) in table {
            assert_eq!(
                parse(text.as_bytes()).map_err(|error| error.to_string()),
                Err(error.into()),
                "{text}"
            );
        }
    }
}
