//! Where commits are kept: the trait every store fulfils, and what can go wrong.
//!
//! Not here: what is in a commit (`journal`, `record`), and how it is read again (`recover`).

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::commit::Commit;

/// Keeps commits. One thread uses it, one commit at a time.
pub trait Store: Send {
    /// Writes a commit ([`Commit::batches`], one after the other) and returns once all of it will survive a power cut.
    ///
    /// Doing it twice does no more than doing it once.
    ///
    /// # Errors
    ///
    /// Nothing is known of the commit then: all, part or none of it may be there. The store takes nothing more until
    /// [`Store::reopen`] succeeds; then the same commit is to be written again.
    fn commit(&mut self, commit: &Commit) -> Result<(), Error>;

    /// Makes a store that failed usable again, or says that it still is not.
    ///
    /// # Errors
    ///
    /// What stands in the way still.
    fn reopen(&mut self) -> Result<(), Error>;

    /// Shows every value with its key, in order of keys, until told to stop.
    ///
    /// # Errors
    ///
    /// If something cannot be read.
    fn scan(&self, each: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) -> Result<(), Error>;

    /// Bytes it takes up, as far as it can tell.
    fn disk_bytes(&self) -> u64;
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
