//! The two parts of a store, and what can go wrong with them.
//!
//! A [`Log`] takes commits, one write each, and is read back in order. A [`Table`] is an ordered map of bytes that holds
//! what lives; only checkpoints write to it, and nobody waits for it. Nothing above these traits knows files.
//!
//! Not here: what is in a commit (`journal`, `record`), in a value of the table (`page`), and how both are read again
//! (`recover`).

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::commit::Commit;

/// Where a record stands in a log. Later records have higher places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place(pub u64);

/// A commit that is read back.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its number.
    pub seq: u64,
    /// Where its records begin.
    pub place: Place,
    /// Its records, each behind its length: [`crate::log::records`] takes them apart.
    pub records: &'a [u8],
}

/// Takes commits. One thread uses it, one commit at a time.
pub trait Log: Send {
    /// Appends a commit and returns once it will survive a power cut.
    ///
    /// # Errors
    ///
    /// Nothing is known of the commit then: all, part or none of it may be there. The log takes nothing more until
    /// [`Log::reopen`] succeeds; then the same commit is to be written again.
    fn append(&mut self, commit: &Commit) -> Result<(), Error>;

    /// Makes a log that failed usable again, or says that it still is not.
    ///
    /// # Errors
    ///
    /// What stands in the way still.
    fn reopen(&mut self) -> Result<(), Error>;

    /// Marks that the daemon stops in order: whatever is missing at the end of the log from now on was lost.
    ///
    /// # Errors
    ///
    /// If that cannot be made durable.
    fn close(&mut self) -> Result<(), Error>;

    /// What has been appended, for whoever reads it back while commits go on.
    fn tail(&self) -> Arc<dyn LogTail>;
}

/// What a log holds, read back while it is being written.
pub trait LogTail: Send + Sync {
    /// The newest commit that is durable.
    fn newest(&self) -> u64;

    /// Bytes of the entries behind this commit.
    fn bytes_behind(&self, seq: u64) -> u64;

    /// The last commit with at least so many bytes of entries behind it; 0 if there is none.
    fn behind_bytes(&self, bytes: u64) -> u64;

    /// Shows the durable commits behind `after`, in order, until told to stop.
    ///
    /// # Errors
    ///
    /// If one cannot be read, or is not as it was written.
    fn read(&self, after: u64, each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>) -> Result<(), Error>;

    /// Appends `len` bytes that stand at `place` to `into`. Places that go up are fetched with few reads.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn fetch(&self, place: Place, len: usize, into: &mut Vec<u8>) -> Result<(), Error>;

    /// Nothing up to this commit will be read again: its room may be used anew.
    ///
    /// # Errors
    ///
    /// If the room cannot be freed.
    fn forget(&self, upto: u64) -> Result<(), Error>;

    /// Bytes it takes up.
    fn disk_bytes(&self) -> u64;

    /// Bytes that can be appended without asking the disk for more.
    fn room_bytes(&self) -> u64;

    /// Bytes that the disk could give besides.
    fn free_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Takes from the disk what is missing to so many bytes of room, and keeps them until told otherwise: nobody else can
    /// fill them then.
    ///
    /// # Errors
    ///
    /// If the disk has not that much. What it has is taken.
    fn reserve(&self, bytes: u64) -> Result<(), Error> {
        let _ = bytes;
        Ok(())
    }

    /// Sees to it that there is room, if the disk has it.
    ///
    /// # Errors
    ///
    /// If the disk has not.
    fn make_room(&self) -> Result<(), Error>;
}

/// An ordered map of bytes. One thread uses it.
pub trait Table: Send {
    /// What it holds, as it can be read now.
    ///
    /// # Errors
    ///
    /// If it cannot be opened for reading.
    fn scan(&self) -> Result<Box<dyn Scan>, Error>;

    /// Whether single values can be read and written. If not, it has to be built anew first.
    fn is_writable(&self) -> bool;

    /// Begins an empty table. From now on values are read from and written to that.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    fn begin_anew(&mut self) -> Result<(), Error>;

    /// The new table takes the place of the old one, durably, and the old one is gone.
    ///
    /// # Errors
    ///
    /// If it cannot: the old one stays in its place.
    fn end_anew(&mut self) -> Result<(), Error>;

    /// Gives up the new table, if one was begun, and whatever keeps the old one from being used after an error.
    fn abandon(&mut self);

    /// A value.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Sets a value. It is durable after the next [`Table::sync`]; before that it may or may not survive.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error>;

    /// Removes a value, as durably as one is set.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    fn remove(&mut self, key: &[u8]) -> Result<(), Error>;

    /// Makes durable what was set and removed.
    ///
    /// # Errors
    ///
    /// If it cannot.
    fn sync(&mut self) -> Result<(), Error>;

    /// Bytes it takes up.
    fn disk_bytes(&self) -> u64;
}

/// Is shown a key and its value, and says whether to go on.
pub type ShowPair<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// What a table held when the scan was made.
pub trait Scan {
    /// Shows every key and value, in order of keys, until told to stop. After a power cut it may not be certain how much of
    /// what was written last is there: then there are several candidates, 0 with all that can be read, the others with
    /// less. Returns whether there is such a candidate.
    ///
    /// # Errors
    ///
    /// If something cannot be read at all. What is merely damaged is left out.
    fn each(&self, candidate: usize, each: &mut ShowPair<'_>) -> Result<bool, Error>;
}

/// What is wrong with a store. The operator acts on it; until then nothing is acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk, or the file system, does not do what it is asked to.
    #[error("{doing} {path}: {why}", path = path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        #[source]
        why: io::Error,
    },
    /// Another process has the data directory.
    #[error("{path} is in use by another process{holder}", path = path.display())]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// Who, if it left word.
        holder: String,
    },
    /// What is on the disk is not what was written there.
    #[error("{path} is damaged: {what}", path = path.display())]
    Damaged {
        /// The data directory.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The store failed before and has not been reopened.
    #[error("the store has failed and is not open")]
    Closed,
    /// A fault that a test asked for.
    #[error("a fault was asked for")]
    Asked,
}
