//! Which files there are: one for each day (UTC) and each time for which rows are kept, named `2026-11-28.7d`. So a file can
//! be deleted as a whole when its time is over. A file is one of SQLite, or a partition of the tables of a database.

use std::fmt;
use std::str::FromStr;

use windlass_engine::date::{date, day_number, month_days};

/// Milliseconds of an hour.
pub const HOUR_MS: u64 = 3_600_000;

/// Milliseconds of a day.
pub const DAY_MS: u64 = 86_400_000;

/// Which file a row is in. The newest day is the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// Days since 1970-01-01, UTC.
    pub(crate) day: u32,
    /// For how many days its rows are kept.
    pub(crate) keep_days: u32,
}

/// The place of a row: its file and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowId {
    pub(crate) file: FileId,
    pub(crate) n: i64,
}

impl FileId {
    /// The file of a row that ended then.
    pub fn of(ended_ms: u64, keep_ms: u64) -> Self {
        let days = |ms: u64| u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX);
        Self {
            day: days(ended_ms),
            keep_days: days(keep_ms.saturating_add(DAY_MS - 1)).max(1),
        }
    }

    /// When its last row has been kept for long enough.
    pub(crate) const fn over_ms(self) -> u64 {
        (self.day as u64 + 1 + self.keep_days as u64).saturating_mul(DAY_MS)
    }

    /// When its day begins.
    pub(crate) const fn begin_ms(self) -> u64 {
        (self.day as u64).saturating_mul(DAY_MS)
    }

    /// Whether its day ends after a time.
    pub(crate) const fn ends_after(self, ms: u64) -> bool {
        (self.day as u64 + 1) * DAY_MS > ms
    }

    /// Whether a part of its day is from `from_ms` on and before `until_ms`.
    pub(crate) const fn is_within(self, from_ms: u64, until_ms: u64) -> bool {
        self.begin_ms() < until_ms && self.ends_after(from_ms)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.day.into());
        write!(f, "{year:04}-{month:02}-{day:02}.{}d", self.keep_days)
    }
}

impl FromStr for FileId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (day, keep) = text.split_once('.').ok_or(())?;
        let mut parts = day.splitn(3, '-').map(str::parse::<u64>);
        let mut part = || parts.next().and_then(Result::ok).ok_or(());
        let (year, month, day) = (part()?, part()?, part()?);
        let exists = (1970..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=month_days(year, month)).contains(&day);
        let days = exists.then(|| day_number(year, month, day)).ok_or(())?;
        let keep_days = keep.strip_suffix('d').ok_or(())?.parse().map_err(drop)?;
        let id = Self {
            day: u32::try_from(days).map_err(drop)?,
            keep_days,
        };
        // There is one spelling.
        if id.to_string() == text {
            Ok(id)
        } else {
            Err(())
        }
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.file, self.n)
    }
}

impl FromStr for RowId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (file, n) = text.rsplit_once('.').ok_or(())?;
        Ok(Self {
            file: file.parse()?,
            n: n.parse().ok().filter(|n| *n > 0).ok_or(())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_its_day_and_by_how_long_it_is_kept() {
        // 2026-11-28, in the afternoon.
        let ended = 20_785 * DAY_MS + 15 * 3_600_000;
        let table = [
            (7 * DAY_MS, "2026-11-28.7d"),
            (7 * DAY_MS + 1, "2026-11-28.8d"),
            (1, "2026-11-28.1d"),
        ];
        for (keep_ms, name) in table {
            let id = FileId::of(ended, keep_ms);
            assert_eq!(id.to_string(), name);
            assert_eq!(name.parse(), Ok(id));
            let row = RowId { file: id, n: 12 };
            assert_eq!(row.to_string().parse(), Ok(row));
        }
        for wrong in [
            "2026-11-28",
            "2026-11-28.d",
            "2026-02-30.7d",
            "2026-1-28.7d",
            "x.7d",
            "",
        ] {
            assert_eq!(wrong.parse::<FileId>(), Err(()), "{wrong}");
        }
        for wrong in [
            "2026-11-28.7d",
            "2026-11-28.7d.",
            "2026-11-28.7d.0",
            "2026-11-28.7d.x",
        ] {
            assert_eq!(wrong.parse::<RowId>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn the_last_row_of_a_day_is_kept_for_its_whole_time() {
        let id = FileId::of(DAY_MS - 1, 2 * DAY_MS);
        assert_eq!(id.over_ms(), 3 * DAY_MS);
        assert!(id.ends_after(DAY_MS - 1) && !id.ends_after(DAY_MS));
        assert!(id.is_within(0, 1) && !id.is_within(0, 0) && !id.is_within(DAY_MS, u64::MAX));
    }
}
