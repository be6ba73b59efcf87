//! Where rows are kept: in a folder of SQLite files, or in a database. Both have the same tables, `ended` and `hours`, in
//! parts that are called files here: one for each day and each time for which rows are kept.
//!
//! What a question means, how rows are merged, and when they are written and deleted is the same for both. A shelf only
//! runs statements, in its dialect of SQL.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use bytes::Bytes;
use windlass_engine::Ended;

use crate::Error;
use crate::file_id::FileId;

/// A place for the history.
pub trait Shelf: fmt::Debug + Send + Sync {
    /// Opens it to answer one question.
    ///
    /// # Errors
    ///
    /// It cannot be reached.
    fn reader(&self) -> Result<Box<dyn Reader>, Error>;

    /// Opens it to write the rows of a store.
    ///
    /// # Errors
    ///
    /// Its address is wrong. One that cannot be reached or made for now is no error.
    fn writer(&self, owner: Owner) -> Result<Box<dyn Writer>, Error>;

    /// The last commit of any store after which the log must be there when the store is opened. All of it, if that cannot
    /// be known before.
    fn keep_from(&self) -> u64;
}

/// The store and the daemon of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The number of the store. Commits of another one are not the same.
    pub store: u64,
    /// The number of the daemon's right to the store, if another daemon may take that over.
    pub epoch: Option<u64>,
}

/// Reads a shelf, beside the thread that writes it.
pub trait Reader {
    /// The dialect of conditions.
    fn dialect(&self) -> Dialect;

    /// All files, the newest day first.
    ///
    /// # Errors
    ///
    /// They cannot be listed.
    fn files(&mut self) -> Result<Vec<FileId>, Error>;

    /// Shows the rows of a file until `each` breaks. A file that is there no more has none.
    ///
    /// # Errors
    ///
    /// [`Error::File`]: the file cannot be read, and others may be. Otherwise none can be read. Or an error of `each`.
    fn select(
        &mut self,
        file: FileId,
        select: &Select<'_>,
        each: &mut ShowRow<'_>,
    ) -> Result<(), Error>;
}

/// Receives a row.
pub type ShowRow<'a> = dyn FnMut(&dyn Columns) -> Result<ControlFlow<()>, Error> + 'a;

/// A statement for one file.
#[derive(Debug)]
pub struct Select<'a> {
    /// The columns, with commas.
    pub columns: &'static str,
    /// `ended` or `hours`.
    pub table: &'static str,
    /// Conditions on rows.
    pub conditions: &'a Conditions,
    /// Further conditions, order and limit.
    pub rest: String,
}

impl Select<'_> {
    /// The statement, from this table, of rows for which `first` holds.
    pub fn sql(&self, table: &str, first: &str) -> String {
        format!(
            "SELECT {} FROM {table} WHERE {first}{}{}",
            self.columns, self.conditions.sql, self.rest
        )
    }
}

/// Differences between dialects of SQL.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// `LIKE`, whatever the case of ASCII letters.
    pub like: &'static str,
    /// Compares a column with the value of a mark. Uses the index of the column, if there is one.
    pub equals: fn(column: &str, mark: &str) -> String,
    /// The name of a queue in a row of `hours`, whose column `queue` has the namespace in front of it.
    pub own_queue: &'static str,
}

/// Conditions with their values, for which `$1` and so on stand.
#[derive(Debug, Default)]
pub struct Conditions {
    /// The conditions, ` AND ` before each.
    pub sql: String,
    /// The values.
    pub values: Vec<Bytes>,
    /// Whether an index leads to these rows and to no others, so that a file is asked once and not piece by piece.
    pub(crate) is_indexed: bool,
}

impl Conditions {
    /// Adds a condition.
    pub(crate) fn and(&mut self, sql: &str) {
        self.sql.push_str(" AND ");
        self.sql.push_str(sql);
    }

    /// Adds a value. Returns the mark that stands for it.
    pub(crate) fn mark(&mut self, value: Bytes) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }
}

/// A row as it is read.
pub trait Columns {
    /// A number; `None`: NULL.
    ///
    /// # Errors
    ///
    /// The row has no such column, or no number there.
    fn number(&self, column: &str) -> Result<Option<i64>, Error>;

    /// Text, or bytes that are no text; `None`: NULL.
    ///
    /// # Errors
    ///
    /// The row has no such column, or something else there.
    fn bytes(&self, column: &str) -> Result<Option<Bytes>, Error>;
}

/// Writes a shelf. One thread of one daemon does.
pub trait Writer: Send {
    /// The last commit of the store whose rows are complete; 0 for an unknown store. Asked for first, until it is known.
    ///
    /// # Errors
    ///
    /// It cannot be read now.
    fn position(&mut self) -> Result<u64, Error>;

    /// Appends rows, so that the shelf has all rows of commits up to `upto`. Skips those that it already has. Returns the
    /// number of new rows.
    ///
    /// # Errors
    ///
    /// Some may be written, and some not.
    fn write(&mut self, rows: &Rows, upto: u64) -> Result<u64, Error>;

    /// Syncs the rows, then stores this commit as the position.
    ///
    /// # Errors
    ///
    /// It may be durable, or not.
    fn sync(&mut self, upto: u64) -> Result<(), Error>;

    /// All files with their sizes, the newest day first.
    ///
    /// # Errors
    ///
    /// They cannot be listed.
    fn files(&mut self) -> Result<Vec<Held>, Error>;

    /// Deletes a file.
    ///
    /// # Errors
    ///
    /// It is still there, as a whole or in part.
    fn delete(&mut self, file: FileId) -> Result<(), Error>;

    /// Free bytes of the disk, which the store shares; `None`: unknown.
    fn free_bytes(&self) -> Option<u64>;
}

/// Rows by their files, in the order of their commits.
pub type Rows = BTreeMap<FileId, Vec<Committed>>;

/// A row in a commit.
#[derive(Debug)]
pub struct Committed {
    /// The commit's number.
    pub commit: u64,
    /// The row.
    pub row: Ended,
}

/// A file with its size.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Which one.
    pub file: FileId,
    /// Bytes on disk.
    pub bytes: u64,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Not known.
    Null,
    /// A number.
    Number(i64),
    /// Text, or bytes that are no text.
    Text(Cow<'a, [u8]>),
}

/// Numbers of jobs and times are far below the largest that a database has.
pub(crate) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
