//! How far the history has read the log of a store: a line in a file beside the days. It is behind what the days have, never
//! ahead of it; each day leaves out what it has.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::Error;
use crate::folder::io;

const FILE: &str = "position";

/// A position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The store's number.
    pub(crate) store: u64,
    /// Its last commit whose rows are all in the days.
    pub(crate) commit: u64,
}

/// The position, if one is known.
pub(crate) fn read(folder: &Path) -> Option<Position> {
    let text = fs::read_to_string(folder.join(FILE)).ok()?;
    let numbers = text.trim_end().strip_prefix("store ")?;
    let (store, commit) = numbers.split_once(" commit ")?;
    Some(Position {
        store: u64::from_str_radix(store, 16).ok()?,
        commit: commit.parse().ok()?,
    })
}

/// Writes it durably: the file has either this line or the one before.
pub(crate) fn write(folder: &Path, store: u64, commit: u64) -> Result<(), Error> {
    let (path, new) = (folder.join(FILE), folder.join("position.new"));
    let write = || {
        let mut file = fs::File::create(&new)?;
        writeln!(file, "store {store:016x} commit {commit}")?;
        file.sync_data()?;
        fs::rename(&new, &path)?;
        fs::File::open(folder)?.sync_all()
    };
    write().map_err(|why| io(&path, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written_and_anything_else_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), None);
        write(folder.path(), 0xabc, 4711).unwrap();
        let written = Position {
            store: 0xabc,
            commit: 4711,
        };
        assert_eq!(read(folder.path()), Some(written));
        for wrong in ["", "store x commit 1", "store 1 commit", "4711"] {
            fs::write(folder.path().join(FILE), wrong).unwrap();
            assert_eq!(read(folder.path()), None, "{wrong}");
        }
    }
}
