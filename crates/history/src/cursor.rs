//! Where a question goes on, as text that clients give back.

use std::fmt;
use std::str::FromStr;

use crate::file_id::{FileId, RowId};

/// Where a question goes on: a day, and for its files the numbers below which rows are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    places: Vec<RowId>,
}

impl Cursor {
    /// The files of a day. One that is done, or cannot be read, has the number 1 and is not asked again.
    pub(crate) const fn at(places: Vec<RowId>) -> Self {
        Self { places }
    }

    /// Whether nothing is left of a day.
    pub(crate) fn is_past(&self, day: u32) -> bool {
        self.places
            .first()
            .is_some_and(|first| day > first.file.day)
    }

    pub(crate) fn before(&self, file: FileId) -> Option<i64> {
        self.places
            .iter()
            .find(|place| place.file == file)
            .map(|place| place.n)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.places.iter().map(RowId::to_string).collect();
        f.write_str(&places.join("_"))
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let places: Result<Vec<RowId>, ()> = text.split('_').map(str::parse).collect();
        let places = places?;
        let is_one_day = places.windows(2).all(|two| match two {
            [one, other] => one.file.day == other.file.day,
            _ => false,
        });
        if is_one_day {
            Ok(Self { places })
        } else {
            Err(())
        }
    }
}
