//! Progress of an import: a small file `imports/DIGEST` in the data directory, replaced after every batch.
//!
//! ```text
//! windlass-import 1 jsonl
//! done 5000
//! left 17-17
//! left 20-35
//! first 12
//! ranks 4611686018427387904
//! ```
//!
//! Positions below `done` were imported, except those listed as `left`. Jobs with numbers below `first` existed before
//! the import. `ranks`, if the source has an order of jobs, is the sort key here that corresponds to the source's
//! smallest.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use windlass_config::Failure;

const FOLDER: &str = "imports";
const VERSION: &str = "windlass-import 1";

/// The origin of jobs: its kind, and a digest of its content. Two sources with the same jobs are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The kind, without blanks.
    pub kind: &'static str,
    /// SHA-256 of its jobs, in lower-case hex.
    pub digest: String,
}

/// The finished positions of one source.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    kind: &'static str,
    done: u64,
    left: BTreeSet<u64>,
    pub(super) first: Option<u64>,
    pub(super) ranks: Option<u64>,
}

impl Record {
    /// Reads the record of a source; with `again`, starts an empty one.
    pub(super) fn open(data_dir: &Path, source: &Source, again: bool) -> io::Result<Self> {
        fs::create_dir_all(data_dir.join(FOLDER))?;
        let mut record = Self::new(data_dir, source);
        match fs::read_to_string(&record.path) {
            Ok(text) if !again => record.read(&text)?,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(record)
    }

    /// Reads the record of a source, if there is a readable one.
    pub(super) fn find(data_dir: &Path, source: &Source) -> Option<Self> {
        let mut record = Self::new(data_dir, source);
        let text = fs::read_to_string(&record.path).ok()?;
        record.read(&text).ok().map(|()| record)
    }

    fn new(data_dir: &Path, source: &Source) -> Self {
        let path = data_dir.join(FOLDER).join(&source.digest);
        Self {
            path,
            kind: source.kind,
            done: 0,
            left: BTreeSet::new(),
            first: None,
            ranks: None,
        }
    }

    fn read(&mut self, text: &str) -> io::Result<()> {
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("windlass-import", _)) => line.starts_with(VERSION).then_some(()),
                Some(("done", number)) => number.parse().ok().map(|done| self.done = done),
                Some(("first", number)) => {
                    number.parse().ok().map(|first| self.first = Some(first))
                }
                Some(("ranks", number)) => {
                    number.parse().ok().map(|ranks| self.ranks = Some(ranks))
                }
                Some(("left", range)) => places(range).map(|places| self.left.extend(places)),
                _ => None,
            }
            .ok_or_else(|| {
                io::Error::other(format!(
                    "{}: `{line}` is not understood",
                    self.path.display()
                ))
            })?;
        }
        Ok(())
    }

    pub(super) fn wants(&self, place: u64) -> bool {
        place >= self.done || self.left.contains(&place)
    }

    pub(super) fn took(&mut self, place: u64) {
        self.done = self.done.max(place + 1);
        self.left.remove(&place);
    }

    pub(super) fn left(&mut self, place: u64) {
        self.done = self.done.max(place + 1);
        self.left.insert(place);
    }

    /// Replaces the file. It is on the disk when this returns.
    pub(super) fn save(&self) -> io::Result<()> {
        let mut text = format!("{VERSION} {}\ndone {}\n", self.kind, self.done);
        for (first, last) in ranges(&self.left) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "left {first}-{last}");
        }
        for (word, number) in [("first", self.first), ("ranks", self.ranks)] {
            if let Some(number) = number {
                let _ = writeln!(text, "{word} {number}");
            }
        }
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

fn places(range: &str) -> Option<std::ops::RangeInclusive<u64>> {
    let (first, last) = range.split_once('-')?;
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// Groups adjacent positions.
fn ranges(places: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for place in places {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *place => *last = *place,
            _ => ranges.push((*place, *place)),
        }
    }
    ranges
}

pub(super) fn cannot_write(data_dir: &Path, why: impl std::fmt::Display) -> Failure {
    let data_dir = data_dir.display();
    Failure::Runtime(format!(
        "cannot write to {data_dir}: {why}; repeat the command to continue where it stopped"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source {
            kind: "test",
            digest: "00ff".to_owned(),
        };
        let mut record = Record::open(dir.path(), &source, false).unwrap();
        [0, 1, 2, 9]
            .into_iter()
            .for_each(|place| record.took(place));
        [3, 4, 5, 7]
            .into_iter()
            .for_each(|place| record.left(place));
        record.took(4);
        record.left(11);
        record.save().unwrap();
        let path = dir.path().join("imports/00ff");
        let text = "windlass-import 1 test\ndone 12\nleft 3-3\nleft 5-5\nleft 7-7\nleft 11-11\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let again = Record::open(dir.path(), &source, false).unwrap();
        assert_eq!((again.done, &again.left), (12, &record.left));
        assert_eq!(Record::open(dir.path(), &source, true).unwrap().done, 0);
        fs::write(&path, "windlass-import 2 test\n").unwrap();
        let said = Record::open(dir.path(), &source, false)
            .unwrap_err()
            .to_string();
        assert!(
            said.ends_with("`windlass-import 2 test` is not understood"),
            "{said}"
        );
        fs::remove_file(&path).unwrap();
        assert_eq!(Record::open(dir.path(), &source, false).unwrap().done, 0);
        fs::create_dir(&path).unwrap();
        assert!(
            Record::open(dir.path(), &source, false).is_err(),
            "it is there, but cannot be read"
        );
    }

    #[test]
    fn adjacent_places_are_a_range() {
        assert_eq!(ranges(&[0, 1, 2, 4, 6, 7].into()), [(0, 2), (4, 4), (6, 7)]);
        assert_eq!(ranges(&[].into()), []);
    }
}
