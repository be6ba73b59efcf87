//! Compares cron expressions with the slow calendar: the next match, and whether there is one at all.

use windlass_engine::{Cron, Timestamp, Zone};
use windlass_testkit::calendar::{next_after, next_in_zone};
use windlass_testkit::rng::Rng;

/// Longer than between any two matches of a date: a 29 February on one weekday, across the year 2100, which has none.
const YEARS: u64 = 41;

/// A field with all, few, one or none of its bits.
fn field(rng: &mut Rng, all: u64) -> u64 {
    let one = |rng: &mut Rng| loop {
        let bit = 1 << rng.below(64);
        if bit & all != 0 {
            return bit;
        }
    };
    match rng.below(40) {
        0 => 0,
        1..12 => all,
        12..24 => one(rng),
        24..30 => one(rng) | one(rng),
        30..36 => rng.throw() & rng.throw() & all,
        _ => rng.throw() & all,
    }
}

fn any_cron(rng: &mut Rng) -> Cron {
    let narrow = |n: u64| u32::try_from(n).unwrap_or_default();
    // Weekdays mostly as plain ones; else the first to fifth and the last of each separately.
    let plain = (0..7).filter(|_| rng.chance(30)).map(Cron::weekday).sum();
    let weekdays = rng.one_of([Cron::ALWAYS.weekdays, plain, plain]);
    // Sometimes the last day as well.
    let days = u64::from(Cron::ALWAYS.days) | u64::from(rng.chance(20));
    Cron {
        seconds: rng.one_of([1, 1, 1 << 59, 0b111 << 28, Cron::ALWAYS.minutes]),
        minutes: field(rng, Cron::ALWAYS.minutes),
        hours: narrow(field(rng, Cron::ALWAYS.hours.into())),
        days: narrow(field(rng, days)),
        months: u16::try_from(field(rng, Cron::ALWAYS.months.into())).unwrap_or_default(),
        weekdays: if rng.chance(15) {
            field(rng, (1 << 42) - 1)
        } else {
            weekdays
        },
        either_day: rng.chance(50),
    }
}

/// From 1970 to 2150, mostly in the middle of a minute.
fn any_time(rng: &mut Rng) -> Timestamp {
    let ms = rng.below(180 * 366 * 86_400_000);
    Timestamp(rng.one_of([ms, ms / 60_000 * 60_000, ms / 86_400_000 * 86_400_000]))
}

#[test]
fn the_next_match_equals_the_slow_calendars() {
    let mut rng = Rng::new(1);
    let (mut never, mut far) = (0, 0);
    for n in 0..2_500 {
        let (cron, time) = (any_cron(&mut rng), any_time(&mut rng));
        let slow = next_after(&cron, time, YEARS);
        assert_eq!(
            cron.next_after(time),
            slow.unwrap_or(Timestamp::NEVER),
            "{n}: {cron} ({cron:?}) after {time:?}"
        );
        assert_eq!(
            cron.can_match(),
            slow.is_some(),
            "{n}: {cron} ({cron:?}) after {time:?}"
        );
        never += u32::from(slow.is_none());
        far += u32::from(slow.is_some_and(|at| at.ms_since(time) > 400 * 86_400_000));
    }
    assert!(
        never > 60 && far > 10,
        "{never} never, {far} not within a year: the test covers too little"
    );
}

#[test]
fn a_rare_day_is_found_over_decades() {
    let mut rng = Rng::new(2);
    for weekday in 0..7 {
        let leap = Cron {
            days: 1 << 29,
            months: 1 << 2,
            weekdays: Cron::weekday(weekday),
            ..Cron::ALWAYS
        };
        for _ in 0..20 {
            let time = any_time(&mut rng);
            assert_eq!(
                Some(leap.next_after(time)),
                next_after(&leap, time, YEARS),
                "{leap} after {time:?}"
            );
        }
    }
}

#[test]
fn one_minute_after_another() {
    let mut rng = Rng::new(3);
    for _ in 0..100 {
        let (cron, mut time) = (any_cron(&mut rng), any_time(&mut rng));
        for _ in 0..20 {
            let next = cron.next_after(time);
            if next == Timestamp::NEVER {
                break;
            }
            assert_eq!(
                Some(next),
                next_after(&cron, time, YEARS),
                "{cron} after {time:?}"
            );
            time = next;
        }
    }
}

/// Zones of every kind: an hour more in summer, half an hour, none, changes at midnight, three quarters of an hour.
const ZONES: [&str; 7] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Cairo",
    "Pacific/Chatham",
    "America/Santiago",
];

/// Frequent enough to match within the year, sometimes only at a few hours.
fn frequent_cron(rng: &mut Rng) -> Cron {
    let hours = Cron::ALWAYS.hours & u32::try_from(rng.below(1 << 24)).unwrap_or_default();
    let (minute, hour) = (1 << rng.below(60), 1 << rng.below(5));
    Cron {
        seconds: rng.one_of([1, 1, 1 << 59 | 1 << 7]),
        minutes: rng.one_of([1, 1 << 30, minute, Cron::ALWAYS.minutes]),
        hours: rng.one_of([Cron::ALWAYS.hours, hours | 2, hour, hour]),
        weekdays: rng.one_of([
            Cron::ALWAYS.weekdays,
            Cron::ALWAYS.weekdays,
            Cron::weekday(0),
        ]),
        ..Cron::ALWAYS
    }
}

#[test]
fn the_next_match_in_a_zone_equals_the_slow_calendars() {
    let mut rng = Rng::new(3);
    for n in 0..500 {
        let (cron, zone) = (
            frequent_cron(&mut rng),
            Zone::named(rng.one_of(ZONES)).unwrap(),
        );
        // Mostly in the nights of clock changes: those before Sundays in the spring and autumn of 2026.
        let sunday = rng.one_of([
            20_519, 20_540, 20_547, 20_568, 20_701, 20_729, 20_750, 20_757,
        ]);
        let night =
            (sunday * 86_400 + rng.below(40 * 3_600)) * 1_000 - 12 * 3_600_000 + rng.below(2) * 500;
        let time = Timestamp(if rng.chance(80) {
            night
        } else {
            1_750_000_000_000 + rng.below(86_400_000 * 1_000)
        });
        let slow = next_in_zone(&cron, zone, time).unwrap_or(Timestamp::NEVER);
        assert_eq!(
            zone.next_after(&cron, time),
            slow,
            "{n}: {cron} in {zone:?} after {time:?}"
        );
    }
}

#[test]
fn the_calendar_repeats_after_400_years_and_ends_with_time() {
    const CYCLE_MS: u64 = 146_097 * 86_400_000;
    let mut rng = Rng::new(4);
    for _ in 0..200 {
        let (cron, time) = (any_cron(&mut rng), any_time(&mut rng));
        let later = |at: Timestamp| at.after_ms(1_000 * CYCLE_MS);
        assert_eq!(
            next_after(&cron, later(time), YEARS),
            next_after(&cron, time, YEARS).map(later),
            "{cron}, {time:?}"
        );
        assert_eq!(next_after(&cron, Timestamp::NEVER, YEARS), None);
    }
    assert_eq!(
        next_in_zone(
            &Cron::ALWAYS,
            Zone::named("Europe/Berlin").unwrap(),
            Timestamp::NEVER
        ),
        None
    );
}
