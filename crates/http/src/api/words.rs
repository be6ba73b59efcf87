//! The times of a schedule in words.

use std::iter;
use std::ops::RangeInclusive;

use windlass_config::Period;
use windlass_engine::{Cron, Recurrence};

const DAYS: &str = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday";
const MONTHS: &str =
    "January February March April May June July August September October November December";

/// More times of a day than these are shown as minutes and hours.
const TIMES_MAX: usize = 6;

/// The times of a schedule: `every day at 03:00 UTC`.
pub(super) fn words(when: &Recurrence) -> String {
    match when {
        Recurrence::Every { interval_ms } => format!("every {}", Period::from_ms(*interval_ms)),
        Recurrence::Cron(cron) => calendar(cron, "UTC"),
        Recurrence::Zoned(cron, zone) => calendar(cron, zone.name()),
    }
}

fn calendar(cron: &Cron, zone: &str) -> String {
    let (Some(days), Cron { seconds: 1, .. }) = (days(cron), cron) else {
        return format!("{} {zone}", line(cron));
    };
    let [minutes, hours] =
        [(cron.minutes, 59), (cron.hours.into(), 23)].map(|(bits, last)| set(bits, 0..=last));
    let months = set(cron.months.into(), 1..=12);
    let in_months =
        (months.len() < 12).then(|| format!(" in {}", listed(&months, |it| name(MONTHS, it - 1))));
    let in_months = in_months.unwrap_or_default();
    if hours.len() < 24 && minutes.len() * hours.len() <= TIMES_MAX {
        let at = hours.iter().flat_map(|hour| {
            minutes
                .iter()
                .map(move |minute| format!("{hour:02}:{minute:02}"))
        });
        let days = if days.is_empty() {
            "every day"
        } else {
            days.as_str()
        };
        return format!("{days} at {} {zone}{in_months}", joined(at.collect()));
    }
    let on = if days.is_empty() {
        days
    } else {
        format!(" {days}")
    };
    let is_everywhere_the_same = hours.len() == 24 && on.is_empty() && in_months.is_empty();
    let zone = if is_everywhere_the_same {
        String::new()
    } else {
        format!(", {zone}")
    };
    interval(&minutes, &hours) + &on + &in_months + &zone
}

/// Times that are too many for a list.
fn interval(minutes: &[u32], hours: &[u32]) -> String {
    let every = |step: u32, unit| {
        if step == 1 {
            format!("every {unit}")
        } else {
            format!("every {step} {unit}s")
        }
    };
    let numbers = |title: &str, numbers: &[u32]| {
        let many = if numbers.len() == 1 { "" } else { "s" };
        format!("{title}{many} {}", listed(numbers, |it| it.to_string()))
    };
    let minute = match (step(minutes, 60), step(hours, 24), minutes) {
        (_, Some(step), [0]) => return every(step, "hour"),
        (_, Some(step), [_]) => {
            return format!("{} at {}", every(step, "hour"), numbers("minute", minutes));
        }
        (Some(step), ..) => every(step, "minute"),
        (None, ..) => format!("every hour at {}", numbers("minute", minutes)),
    };
    if hours.len() == 24 {
        minute
    } else {
        format!("{minute} in the {}", numbers("hour", hours))
    }
}

/// The days; empty: all. `None`: a rule that is not clearer in words, as the second Friday of a month.
fn days(cron: &Cron) -> Option<String> {
    let week: Vec<u32> = (0..7).filter(|day| cron.weekdays >> day & 1 == 1).collect();
    let plain: u64 = week
        .iter()
        .map(|day| Cron::weekday(u8::try_from(*day).unwrap_or_default()))
        .sum();
    let dates = set(cron.days.into(), 1..=31);
    let last = (cron.days & 1 == 1).then(|| "the last day of the month".to_owned());
    let date = match dates.as_slice() {
        [] => None,
        [day] => Some(format!("day {day} of the month")),
        days => Some(format!(
            "days {} of the month",
            listed(days, |it| it.to_string())
        )),
    };
    match (dates.len() == 31, week.len() == 7, cron.either_day) {
        _ if plain != cron.weekdays => None,
        (true, true, _) | (true, _, true) | (_, true, true) => Some(String::new()),
        (true, false, false) => Some(format!("on {}", listed(&week, |it| name(DAYS, it)))),
        (false, true, false) => Some(format!(
            "on {}",
            joined(date.into_iter().chain(last).collect())
        )),
        (false, false, _) => None,
    }
}

fn set(bits: u64, range: RangeInclusive<u32>) -> Vec<u32> {
    range.filter(|at| bits >> at & 1 == 1).collect()
}

/// The step of numbers from 0 on that divide `whole` into equal parts.
fn step(numbers: &[u32], whole: u32) -> Option<u32> {
    let count = u32::try_from(numbers.len())
        .ok()
        .filter(|count| *count > 1 && whole.is_multiple_of(*count))?;
    let step = whole / count;
    numbers
        .iter()
        .zip((0..).step_by(step as usize))
        .all(|(one, other)| *one == other)
        .then_some(step)
}

/// `1, 5 and 9`; three and more in a row as `1 to 3`.
fn listed(numbers: &[u32], name: impl Fn(u32) -> String) -> String {
    joined(parts(numbers, " to ", name))
}

/// Numbers by name; a run of three or more is written as the first and the last number.
fn parts(numbers: &[u32], to: &str, name: impl Fn(u32) -> String) -> Vec<String> {
    let rows = numbers.chunk_by(|one, next| one + 1 == *next);
    let part = |row: &[u32]| match row {
        [first, _, .., last] => vec![format!("{}{to}{}", name(*first), name(*last))],
        few => few.iter().map(|number| name(*number)).collect(),
    };
    rows.flat_map(part).collect()
}

/// A crontab's line with steps and ranges in place of long lists: `*/5 9-17 * * *`.
pub(super) fn line(cron: &Cron) -> String {
    let text = cron.to_string();
    let wholes = [60, 60, 24]
        .into_iter()
        .skip(usize::from(cron.seconds == 1))
        .map(Some)
        .chain(iter::repeat(None));
    let short = |(field, whole): (&str, Option<u32>)| {
        let numbers: Result<Vec<u32>, _> = field.split(',').map(str::parse).collect();
        let Ok(numbers) = numbers else {
            return field.to_owned();
        };
        let step = whole.and_then(|whole| step(&numbers, whole));
        step.map_or_else(
            || parts(&numbers, "-", |it| it.to_string()).join(","),
            |step| format!("*/{step}"),
        )
    };
    text.split(' ')
        .zip(wholes)
        .map(short)
        .collect::<Vec<_>>()
        .join(" ")
}

fn joined(mut parts: Vec<String>) -> String {
    let last = parts.pop().unwrap_or_default();
    if parts.is_empty() {
        last
    } else {
        format!("{} and {last}", parts.join(", "))
    }
}

fn name(names: &str, at: u32) -> String {
    names
        .split(' ')
        .nth(at as usize)
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_words() {
        let at = |minute: u32, hour: u32| Cron {
            minutes: 1 << minute,
            hours: 1 << hour,
            ..Cron::ALWAYS
        };
        let every = |step: usize| {
            (0..60)
                .step_by(step)
                .fold(0, |bits, minute| bits | 1 << minute)
        };
        let weekdays = |days: &[u8]| days.iter().fold(0, |bits, day| bits | Cron::weekday(*day));
        let office = (9..18).fold(0, |bits, hour| bits | 1 << hour);
        let (first, workdays) = (
            Cron {
                days: 1 << 1,
                ..at(0, 0)
            },
            weekdays(&[1, 2, 3, 4, 5]),
        );
        let table = [
            (Cron::ALWAYS, "every minute"),
            (
                Cron {
                    minutes: every(5),
                    ..Cron::ALWAYS
                },
                "every 5 minutes",
            ),
            (
                Cron {
                    minutes: 1,
                    ..Cron::ALWAYS
                },
                "every hour",
            ),
            (
                Cron {
                    minutes: 1 << 17,
                    ..Cron::ALWAYS
                },
                "every hour at minute 17",
            ),
            (
                Cron {
                    minutes: 1 << 5 | 1 << 17,
                    ..Cron::ALWAYS
                },
                "every hour at minutes 5 and 17",
            ),
            (
                Cron {
                    minutes: 1,
                    hours: 0b1001_0010_0100_1001_0010_0100_1001 & 0xff_ffff,
                    ..Cron::ALWAYS
                },
                "every 3 hours, UTC",
            ),
            (at(0, 3), "every day at 03:00 UTC"),
            (
                Cron {
                    hours: 1 << 3 | 1 << 15,
                    ..at(30, 0)
                },
                "every day at 03:30 and 15:30 UTC",
            ),
            (
                Cron {
                    weekdays: workdays,
                    ..at(30, 9)
                },
                "on Monday to Friday at 09:30 UTC",
            ),
            (
                Cron {
                    weekdays: weekdays(&[0, 6]),
                    ..at(0, 8)
                },
                "on Sunday and Saturday at 08:00 UTC",
            ),
            (
                Cron {
                    weekdays: 1 << (7 + 5),
                    ..at(0, 8)
                },
                "0 8 * * 5#2 UTC",
            ),
            (first, "on day 1 of the month at 00:00 UTC"),
            (
                Cron { days: 1, ..first },
                "on the last day of the month at 00:00 UTC",
            ),
            (
                Cron {
                    months: 1 << 1 | 1 << 7,
                    ..first
                },
                "on day 1 of the month at 00:00 UTC in January and July",
            ),
            (
                Cron {
                    days: 1 << 13,
                    weekdays: weekdays(&[5]),
                    ..at(0, 0)
                },
                "0 0 13 * 5 (both days) UTC",
            ),
            (
                Cron {
                    either_day: true,
                    weekdays: weekdays(&[5]),
                    ..at(0, 1)
                },
                "every day at 01:00 UTC",
            ),
            (
                Cron {
                    minutes: every(10),
                    hours: office,
                    ..Cron::ALWAYS
                },
                "every 10 minutes in the hours 9 to 17, UTC",
            ),
            (
                Cron {
                    minutes: every(1),
                    weekdays: workdays,
                    ..Cron::ALWAYS
                },
                "every minute on Monday to Friday, UTC",
            ),
            (
                Cron {
                    seconds: every(15),
                    ..Cron::ALWAYS
                },
                "*/15 * * * * * UTC",
            ),
        ];
        for (cron, expected) in table {
            assert_eq!(words(&Recurrence::Cron(cron)), expected, "{cron}");
        }
        let lines = [
            (
                Cron {
                    minutes: every(5),
                    ..Cron::ALWAYS
                },
                "*/5 * * * *",
            ),
            (
                Cron {
                    minutes: 1 << 3 | 1 << 4 | 1 << 9,
                    hours: office,
                    ..Cron::ALWAYS
                },
                "3,4,9 9-17 * * *",
            ),
            (
                Cron {
                    weekdays: workdays,
                    ..at(30, 9)
                },
                "30 9 * * 1-5",
            ),
            (
                Cron {
                    weekdays: 1 << (7 + 5),
                    ..at(0, 8)
                },
                "0 8 * * 5#2",
            ),
            (
                Cron {
                    seconds: every(15),
                    ..Cron::ALWAYS
                },
                "*/15 * * * * *",
            ),
        ];
        for (cron, expected) in lines {
            assert_eq!(line(&cron), expected);
        }
        assert_eq!(
            words(&Recurrence::Every {
                interval_ms: 90_000
            }),
            "every 1m30s"
        );
    }
}
