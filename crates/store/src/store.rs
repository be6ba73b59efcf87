//! The two parts of a store, and their errors.
//!
//! A [`Log`] takes commits, one write each, and is read back in order. A [`Table`] is an ordered map of bytes that
//! holds the live records. Only checkpoints write to it, and no client waits for it. Code above these traits is
//! independent of files.
//!
//! Not here: the contents of a commit (`journal`, `record`) and of a table's value (`page`), and reading both back
//! (`recover`).

use std::fmt::{self, Display};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::commit::Commit;

/// Position of a record in a log. Later records have higher positions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position(pub u64);

/// Position of a record in a log, and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where it begins.
    pub place: Position,
    /// The bytes.
    pub len: usize,
}

/// A commit that is read back.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The number.
    pub seq: u64,
    /// Where its records begin.
    pub place: Position,
    /// The records, each preceded by its length: [`crate::log::records`] splits them.
    pub records: &'a [u8],
}

/// Takes commits. One thread uses it, one commit at a time.
pub trait Log: Send {
    /// Appends a commit and returns once it will survive a power cut.
    ///
    /// # Errors
    ///
    /// After an error the commit may be written in full, in part or not at all. The log accepts no commits until
    /// [`Log::reopen`] succeeds. Then write the same commit again.
    fn append(&mut self, commit: &Commit) -> Result<(), Error>;

    /// Makes a failed log usable again.
    ///
    /// # Errors
    ///
    /// The reason why the log still cannot be used.
    fn reopen(&mut self) -> Result<(), Error>;

    /// Marks a clean shutdown: anything missing at the end of the log from now on was lost.
    ///
    /// # Errors
    ///
    /// If the mark cannot be made durable.
    fn close(&mut self) -> Result<(), Error>;

    /// The commits appended, for reading while new commits are written.
    fn tail(&self) -> Arc<dyn LogTail>;
}

/// Reads a log while it is being written.
pub trait LogTail: Send + Sync {
    /// The newest durable commit.
    fn newest(&self) -> u64;

    /// Bytes of the entries after commit `seq`.
    fn bytes_behind(&self, seq: u64) -> u64;

    /// The last commit with at least `bytes` bytes of entries after it; 0 if there is none.
    fn behind_bytes(&self, bytes: u64) -> u64;

    /// Shows the durable commits after `after`, in order, until `each` breaks.
    ///
    /// # Errors
    ///
    /// If a commit cannot be read, or its checksum is wrong.
    fn read(
        &self,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error>;

    /// Appends these records to `into`, one after the other. Ascending places take few reads.
    ///
    /// # Errors
    ///
    /// If a record cannot be read.
    fn fetch(&self, spans: &[Span], into: &mut Vec<u8>) -> Result<(), Error>;

    /// Frees the space of commits up to `upto`: they will not be read again.
    ///
    /// # Errors
    ///
    /// If the space cannot be freed.
    fn forget(&self, upto: u64) -> Result<(), Error>;

    /// Bytes on disk.
    fn disk_bytes(&self) -> u64;

    /// Bytes that can be appended without allocating disk space.
    fn room_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Free bytes on the disk.
    fn free_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Allocates disk space until `bytes` bytes of entries fit, and keeps it until the next call, so that other
    /// programs cannot fill it.
    ///
    /// # Errors
    ///
    /// If the disk has less. All that it has is allocated.
    fn reserve(&self, bytes: u64) -> Result<(), Error> {
        let _ = bytes;
        Ok(())
    }

    /// Looks whether all files are where a start finds them, and writes missing ones again.
    ///
    /// # Errors
    ///
    /// A file is missing. No commit is taken until it is back.
    fn look(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Allocates space for further entries if the disk has it.
    ///
    /// # Errors
    ///
    /// If the disk has too little space.
    fn make_room(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Makes and finds the tables of data directories. Each store has a folder for its table.
pub trait Tables: fmt::Debug + Send + Sync {
    /// Creates a durable table with one value, in a folder without a table.
    ///
    /// # Errors
    ///
    /// If the table cannot be created.
    fn create(&self, folder: &Path, key: &[u8], value: &[u8]) -> Result<(), Error>;

    /// The table in a folder; `None`: there is none. Changes nothing.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    fn open(&self, folder: &Path) -> Result<Option<Box<dyn Table>>, Error>;
}

/// An ordered map of bytes. One thread uses it.
pub trait Table: Send {
    /// Where it is, for messages.
    fn place(&self) -> String {
        "table".to_owned()
    }

    /// Removes what an earlier process left beside the table.
    ///
    /// # Errors
    ///
    /// If that fails.
    fn tidy(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The present contents, for reading.
    ///
    /// # Errors
    ///
    /// If the table cannot be opened for reading.
    fn scan(&self) -> Result<Box<dyn Scan>, Error>;

    /// Returns true if single values can be read and written. If not, the table must be rebuilt
    /// first.
    fn is_writable(&self) -> bool;

    /// Returns true if the table is at one whole point at any time, whatever happens to the process and the
    /// machine. Then the log before that point is never needed again.
    fn is_atomic(&self) -> bool {
        false
    }

    /// Begins an empty table. From now on values are read from and written to the new table.
    ///
    /// # Errors
    ///
    /// If the table cannot be created.
    fn begin_anew(&mut self) -> Result<(), Error>;

    /// Replaces the old table with the new one, durably, and deletes the old one.
    ///
    /// # Errors
    ///
    /// If that fails. The old table stays in place.
    fn end_anew(&mut self) -> Result<(), Error>;

    /// Abandons a new table that was begun, and any error state that blocks the old one.
    fn abandon(&mut self);

    /// Returns a value.
    ///
    /// # Errors
    ///
    /// If the value cannot be read.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Sets a value. It is durable after the next [`Table::sync`]. Before that, a power cut may lose it.
    ///
    /// # Errors
    ///
    /// If the value cannot be written.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error>;

    /// Removes a value. The removal is durable after the next [`Table::sync`].
    ///
    /// # Errors
    ///
    /// If the value cannot be removed.
    fn remove(&mut self, key: &[u8]) -> Result<(), Error>;

    /// Makes all changes so far durable.
    ///
    /// # Errors
    ///
    /// If the sync fails.
    fn sync(&mut self) -> Result<(), Error>;

    /// Bytes on disk.
    fn disk_bytes(&self) -> u64;
}

/// Receives a key, its value, and where this is in [`Scan::file`] if it is there in one piece. Returns whether to continue.
pub type ShowPair<'a> = dyn FnMut(&[u8], &[u8], Option<u64>) -> ControlFlow<()> + 'a;

/// A candidate that counts only if it turns out to be whole: 0 is next. Not all scans have it.
pub const UNVERIFIED: usize = usize::MAX;

/// The contents of a table when the scan was made.
pub trait Scan: Send {
    /// Shows every key and value, in order of keys, until `each` breaks. After a power cut it can be uncertain how many
    /// of the last writes survived. Then there are several candidates: 0 has everything that can be read, the others
    /// have less. [`UNVERIFIED`] takes less time. Returns whether this candidate exists.
    ///
    /// # Errors
    ///
    /// If something cannot be read at all. Damaged values are left out.
    fn each(&self, candidate: usize, each: &mut ShowPair<'_>) -> Result<bool, Error>;

    /// A file that has values as they are. It stays as it is as long as the table is not [writable](Table::is_writable).
    fn file(&self) -> Option<PathBuf> {
        None
    }

    /// Shows every key and value that can still be read, outdated ones included, in the order of writing, until `each`
    /// breaks.
    ///
    /// # Errors
    ///
    /// If nothing can be read.
    fn each_readable(&self, each: &mut ShowPair<'_>) -> Result<(), Error> {
        self.each(0, each).map(drop)
    }
}

/// The right of this process to a store, where that right ends unless it is renewed.
pub trait Tenure: fmt::Debug + Send + Sync {
    /// Returns true if this process may hand out jobs and acknowledge changes now. Reads a clock that counts
    /// while the machine sleeps.
    fn holds(&self) -> bool;

    /// Returns once [`Tenure::holds`], or after `most`.
    fn wait(&self, most: Duration);

    /// Why the right has ended for good; `None`: it holds, or may still be renewed.
    fn lost(&self) -> Option<Error>;

    /// Its number: each later one is larger. The first is 1.
    fn epoch(&self) -> u64;

    /// For how long it holds unless it is renewed.
    fn length(&self) -> Duration;

    /// The clock of the place that gives the right, in milliseconds ahead of the time since the machine's boot, sleep
    /// included: the wall clock of all processes that may have the right. `None`: it has none.
    fn wall_ahead_ms(&self) -> Option<i64> {
        None
    }

    /// The edges that processes with the right before have recorded ([`Tenure::record`]), by their numbers, when this one
    /// got the right. `None`: it is unknown which they were.
    fn edges_before(&self) -> Option<Vec<u32>> {
        None
    }

    /// Has these edges recorded beside the right, for the process that has the right next. Returns without waiting: the
    /// record is there once [`Tenure::recorded`] is at least the number that this returns.
    fn record(&self, edges: Vec<u32>) -> u64 {
        let _ = edges;
        0
    }

    /// The number of the newest record that is there.
    fn recorded(&self) -> u64 {
        0
    }

    /// This process will give the store back soon. Waits a bounded time until another process has read what it can read
    /// before that; returns soon if there is none.
    fn hand_over(&self) {}
}

/// An error of a store. It requires the operator; until then nothing is acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part of the store cannot be read or written.
    #[error("{doing} {place}: {why}")]
    Io {
        /// The attempted operation.
        doing: &'static str,
        /// The part: the path of a file, or the address of a database.
        place: String,
        /// The system's error.
        #[source]
        why: io::Error,
    },
    /// Another process holds the store.
    #[error("{place} is in use by another process{holder}")]
    InUse {
        /// Where the store is.
        place: String,
        /// That process, if it recorded its id.
        holder: String,
    },
    /// Another process has taken the store over. Nothing that this process tries again will succeed.
    #[error("{place} was taken over by {holder}")]
    Deposed {
        /// Where the store is.
        place: String,
        /// That process, as it has named itself.
        holder: String,
    },
    /// A store is in the way of a new one.
    #[error("{place} has a store already")]
    NotEmpty {
        /// Where it is.
        place: String,
    },
    /// The store is not for this process, even if it is free.
    #[error("{place}: {why}")]
    Refused {
        /// Where it is.
        place: String,
        /// What must change.
        why: String,
    },
    /// The data differs from what was written.
    #[error("{place} is damaged: {what}")]
    Damaged {
        /// The damaged part.
        place: String,
        /// The damage.
        what: String,
    },
    /// The store has failed and has not been reopened.
    #[error("the store has failed and is not open")]
    Closed,
    /// A fault that a test requested.
    #[error("a fault was injected")]
    Asked,
}

impl Error {
    /// Returns true if another process has taken the store over.
    pub const fn is_deposed(&self) -> bool {
        matches!(self, Self::Deposed { .. })
    }

    /// Damage of a part of a store.
    #[must_use]
    pub fn damaged(place: impl Display, what: impl Into<String>) -> Self {
        Self::Damaged {
            place: place.to_string(),
            what: what.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryLog;

    #[test]
    fn a_process_is_deposed_once_another_has_taken_the_store_over() {
        let place = || "a store".to_owned();
        assert!(
            Error::Deposed {
                place: place(),
                holder: "another".to_owned()
            }
            .is_deposed()
        );
        let others = [
            Error::InUse {
                place: place(),
                holder: String::new(),
            },
            Error::Closed,
        ];
        assert!(!others.iter().any(Error::is_deposed));
    }

    #[test]
    fn a_log_without_a_disk_is_never_full() {
        assert_eq!(MemoryLog::new().tail().free_bytes(), u64::MAX);
    }
}
