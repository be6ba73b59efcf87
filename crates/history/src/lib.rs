//! The history: a row for each job that has ended, in one SQLite file a day. See README.
//!
//! Reading order: `row` (what a row has) · `folder` (which files there are) · `day_file` (one of them: tables, writing) ·
//! `keeper` (the thread that writes them behind the log) · `question` and `ask` (reading them).
//!
//! Not here: which ends have a row, and what is in it ([`windlass_engine::Ended`]).

mod ask;
mod day_file;
mod folder;
mod keeper;
mod position;
mod question;
mod row;

pub use ask::{Answer, Book, Cursor};
pub use folder::{DAY_MS, HOUR_MS, RowId};
pub use keeper::{Figures, Keeper, Limits, Watch};
pub use position::resume_from;
pub use question::{Ends, HourRow, Hours, Question};
pub use row::{Attempt, Row};

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
    /// The log of the store.
    #[error("reading the log: {0}")]
    Log(#[from] windlass_store::Error),
}
