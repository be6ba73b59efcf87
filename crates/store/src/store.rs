//! The two parts of a store, and the errors.
//!
//! A [`Log`] stores commits, with a single write each, and is read back in order. A [`Table`] is an ordered
//! map of bytes with the live records. Only checkpoints write to it, and no client waits for it. Code that
//! uses these traits is independent of files.
//!
//! Not here: the contents of a commit (`journal`, `record`) and of a table's value (`page`), and reading both
//! back (`recover`).

use std::fmt::{self, Display};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::commit::Commit;

/// Position of a record in a log. Positions increase with time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position(pub u64);

/// Position of a record in a log, and the length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The start of the record.
    pub place: Position,
    /// The bytes.
    pub len: usize,
}

/// A commit that is read back.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The number.
    pub seq: u64,
    /// The start of the records.
    pub place: Position,
    /// The records, each preceded by the length: [`crate::log::records`] splits them.
    pub records: &'a [u8],
}

/// Stores commits. Used by a single thread, one commit at a time.
pub trait Log: Send {
    /// Appends a commit and returns once it will survive a power cut.
    ///
    /// # Errors
    ///
    /// After an error the commit may be written in full, in part or not at all. The log accepts no commits
    /// until [`Log::reopen`] succeeds. Then write the same commit again.
    fn append(&mut self, commit: &Commit) -> Result<(), Error>;

    /// Makes a failed log usable again.
    ///
    /// # Errors
    ///
    /// The reason why the log still cannot be used.
    fn reopen(&mut self) -> Result<(), Error>;

    /// Marks a clean shutdown: anything missing at the end of the log is then damage.
    ///
    /// # Errors
    ///
    /// The mark cannot be made durable.
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

    /// The last commit with at least `bytes` bytes of entries after it; 0 if there is no such
    /// commit.
    fn behind_bytes(&self, bytes: u64) -> u64;

    /// Passes on the durable commits after `after`, in order, until `each` breaks.
    ///
    /// # Errors
    ///
    /// A commit cannot be read, or the checksum is wrong.
    fn read(
        &self,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error>;

    /// [`LogTail::read`] for a thread beside checkpoints: does not change the meaning of spans.
    ///
    /// # Errors
    ///
    /// See [`LogTail::read`].
    fn skim(
        &self,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.read(after, each)
    }

    /// Appends these records to `into`, one after the other. Ascending places need few reads.
    ///
    /// # Errors
    ///
    /// A record cannot be read.
    fn fetch(&self, spans: &[Span], into: &mut Vec<u8>) -> Result<(), Error>;

    /// Frees the space of commits up to `upto`, which will not be read again.
    ///
    /// # Errors
    ///
    /// The space cannot be freed.
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

    /// Allocates disk space for `bytes` bytes of entries, and retains it until the next call, so that other
    /// programs cannot use it.
    ///
    /// # Errors
    ///
    /// The disk has less space. All of it is allocated.
    fn reserve(&self, bytes: u64) -> Result<(), Error> {
        let _ = bytes;
        Ok(())
    }

    /// Checks that all files are where a start finds them, and writes missing ones again.
    ///
    /// # Errors
    ///
    /// A file is missing. No commit is accepted until it is restored.
    fn look(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Allocates space for further entries if the disk has it.
    ///
    /// # Errors
    ///
    /// The disk has too little space.
    fn make_room(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Creates and opens the tables of data directories. Each store has a folder for the table.
pub trait Tables: fmt::Debug + Send + Sync {
    /// Creates a durable table with a single value, in a folder without a table.
    ///
    /// # Errors
    ///
    /// The table cannot be created.
    fn create(&self, folder: &Path, key: &[u8], value: &[u8]) -> Result<(), Error>;

    /// The table in a folder; `None`: the folder has no table. Modifies nothing.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    fn open(&self, folder: &Path) -> Result<Option<Box<dyn Table>>, Error>;
}

/// An ordered map of bytes. Used by a single thread.
pub trait Table: Send {
    /// Where it is, for messages.
    fn place(&self) -> String {
        "table".to_owned()
    }

    /// Removes files that a previous process left in the table's folder.
    ///
    /// # Errors
    ///
    /// The removal fails.
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

    /// Returns true if the table is always at a complete point, whatever happens to the process and the
    /// machine. The log before that point is then never needed again.
    fn is_atomic(&self) -> bool {
        false
    }

    /// Starts building an empty table. Values are then read from and written to the new table.
    ///
    /// # Errors
    ///
    /// The table cannot be created.
    fn begin_anew(&mut self) -> Result<(), Error>;

    /// Replaces the old table with the new one, durably, and deletes the old one.
    ///
    /// # Errors
    ///
    /// The replacement fails. The old table stays in place.
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
    /// The value cannot be written.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error>;

    /// Removes a value. The removal is durable after the next [`Table::sync`].
    ///
    /// # Errors
    ///
    /// The value cannot be removed.
    fn remove(&mut self, key: &[u8]) -> Result<(), Error>;

    /// Makes all writes so far durable.
    ///
    /// # Errors
    ///
    /// The sync fails.
    fn sync(&mut self) -> Result<(), Error>;

    /// Bytes on disk.
    fn disk_bytes(&self) -> u64;
}

/// Receives a key, its value, and the value's offset in [`Scan::file`] if it is stored there in one piece.
/// Returns whether to continue.
pub type ShowPair<'a> = dyn FnMut(&[u8], &[u8], Option<u64>) -> ControlFlow<()> + 'a;

/// A candidate that is valid only if it turns out to be complete; otherwise 0 is next. Not all
/// scans have it.
pub const UNVERIFIED: usize = usize::MAX;

/// The contents of a table when the scan was made.
pub trait Scan: Send {
    /// Passes on every key and value, in order of keys, until `each` breaks. After a power cut it can be
    /// uncertain how many of the last writes survived. There are then several candidates: 0 has everything
    /// that can be read, the rest have less. [`UNVERIFIED`] takes less time. Returns `true` if this candidate
    /// exists.
    ///
    /// # Errors
    ///
    /// Something cannot be read at all. Damaged values are omitted.
    fn each(&self, candidate: usize, each: &mut ShowPair<'_>) -> Result<bool, Error>;

    /// A file that has values as they are. It stays as it is as long as the table is not [writable](Table::is_writable).
    fn file(&self) -> Option<PathBuf> {
        None
    }

    /// Passes on every key and value that can still be read, including outdated ones, in the order of
    /// writing, until `each` breaks.
    ///
    /// # Errors
    ///
    /// Nothing can be read.
    fn each_readable(&self, each: &mut ShowPair<'_>) -> Result<(), Error> {
        self.each(0, each).map(drop)
    }
}

/// The right of this process to a store that revokes the right unless it is renewed.
pub trait Tenure: fmt::Debug + Send + Sync {
    /// Returns true if this process may deliver jobs and acknowledge changes now. Reads a clock that
    /// continues while the machine sleeps.
    fn holds(&self) -> bool;

    /// Returns once [`Tenure::holds`], or after `most`.
    fn wait(&self, most: Duration);

    /// Why the right was revoked for good; `None`: it is valid, or may still be renewed.
    fn lost(&self) -> Option<Error>;

    /// The number of the right, which starts at 1 and increases with each grant.
    fn epoch(&self) -> u64;

    /// How long the right is valid without a renewal.
    fn length(&self) -> Duration;

    /// The clock of the place that grants the right, in milliseconds ahead of the time since the machine's
    /// boot, including sleep: the wall clock of all processes that may get the right. `None`: it has no
    /// clock.
    fn wall_ahead_ms(&self) -> Option<i64> {
        None
    }

    /// The edges that previous holders of the right have recorded ([`Tenure::record`]), by number, when this
    /// process got the right. `None`: unknown.
    fn edges_before(&self) -> Option<Vec<u32>> {
        None
    }

    /// Records these edges with the right, for the next holder. Returns immediately. The record is durable
    /// once [`Tenure::recorded`] has reached the returned number.
    fn record(&self, edges: Vec<u32>) -> u64 {
        let _ = edges;
        0
    }

    /// The number of the newest record that is there.
    fn recorded(&self) -> u64 {
        0
    }

    /// Announces that this process will soon give up the store. Waits a bounded time until another process
    /// has preloaded the store; returns early if there is no such process.
    fn hand_over(&self) {}
}

/// An error of a store that requires the operator. No change is acknowledged until it is resolved.
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
    /// Another process has the store open.
    #[error("{place} is in use by another process{holder}")]
    InUse {
        /// Where the store is.
        place: String,
        /// That process, if it recorded the ID.
        holder: String,
    },
    /// Another process has taken over the store. Retrying is useless.
    #[error("{place} was taken over by {holder}")]
    Deposed {
        /// Where the store is.
        place: String,
        /// That process, as recorded by itself.
        holder: String,
    },
    /// A store exists where a new one should be created.
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
        /// The required change.
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
