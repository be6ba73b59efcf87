//! The history of ended jobs in the database: the tables `ended` and `hours`, with a partition for each day and each time
//! for which rows are kept, and `history_at`, the position of the thread that writes them.
//!
//! Rows, hours and position are written in one transaction under the lease. So a row is written once, whatever is
//! interrupted: rows of commits up to the position are left out.
//!
//! Writing, reading and the store have connections of their own.

mod reader;
mod tables;
mod text;
mod writer;

use windlass_history::Error;
use windlass_history::shelf::{Owner, Reader, Shelf, Writer};

use self::reader::DatabaseReader;
use self::writer::DatabaseWriter;
use crate::database::Database;

impl Shelf for Database {
    fn reader(&self) -> Result<Box<dyn Reader>, Error> {
        Ok(Box::new(DatabaseReader::open(&self.target()?)?))
    }

    fn writer(&self, owner: Owner) -> Result<Box<dyn Writer>, Error> {
        Ok(Box::new(DatabaseWriter::new(self.target()?, owner)))
    }

    /// The position is known once a connection to the database has been made, behind the opening of the store.
    fn keep_from(&self) -> u64 {
        0
    }
}
