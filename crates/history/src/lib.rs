//! The history: a row for each job that has ended, in one SQLite file a day, or in a database. See README.
//!
//! Reading order: `row` and `hours` (what a row has) · `file_id` (which files there are) · `shelf` (where they are: the
//! interface of a folder and of a database) · `sqlite`, `folder`, `day_file`, `position` (the folder) · `keeper` (the
//! thread that writes behind the log) · `question`, `cursor` and `ask` (reading).
//!
//! Not here: which ends have a row, and what is in it ([`windlass_engine::Ended`]); the tables in PostgreSQL
//! (`windlass-postgres`).

// What every shelf must answer is said with public names alone, because tests of other shelves read the same file.
#[cfg(test)]
extern crate self as windlass_history;

mod ask;
#[cfg(test)]
mod cases;
mod cursor;
mod day_file;
mod file_id;
mod folder;
mod hours;
mod keeper;
mod position;
mod question;
mod row;
pub mod shelf;
mod sqlite;

pub use ask::{Answer, Book};
pub use cursor::Cursor;
pub use file_id::{DAY_MS, FileId, HOUR_MS, RowId};
pub use hours::{HOUR_COLUMNS, HourRow, durations_text};
pub use keeper::{Figures, Keeper, Limits, Watch};
pub use question::{Ends, Hours, Question};
pub use row::{Attempt, COLUMNS, Row, VALUES, values};
pub use sqlite::Folder;

/// Why the history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A folder or a file.
    #[error("{place}: {why}")]
    Io {
        /// Its path.
        place: String,
        /// The system's error.
        #[source]
        why: std::io::Error,
    },
    /// The database in a file.
    #[error("{place}: {why}")]
    File {
        /// Its path.
        place: String,
        /// SQLite's error.
        #[source]
        why: rusqlite::Error,
    },
    /// There is no room for more.
    #[error("{0}")]
    Full(&'static str),
    /// The log of the store.
    #[error("reading the log: {0}")]
    Log(#[source] windlass_store::Error),
    /// A database on another machine.
    #[error(transparent)]
    Database(#[from] windlass_store::Error),
}

impl Error {
    /// Whether another daemon has the store now.
    pub fn is_deposed(&self) -> bool {
        matches!(self, Self::Database(why) if why.is_deposed())
    }
}
