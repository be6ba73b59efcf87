//! One file of the history: its tables, and writing to it.
//!
//! ```text
//! about   what the file is, which store it is of, and the last commit whose rows are all in it
//! ended   a row for each end, in the order of the commits
//! hours   what ended in each hour, by queue and kind: numbers and durations
//! ```
//!
//! Other tools may open a file while the daemon writes it. They need not know this page: names and texts are text, times are
//! milliseconds since 1970, what is not known is NULL.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rusqlite::types::{ToSqlOutput, Value as Owned, ValueRef};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, ToSql, params};

use crate::Error;
use crate::file_id::FileId;
use crate::folder::{io, parts, path};
use crate::hours::{HOUR_COLUMNS, HourRow, durations_text};
use crate::row::{COLUMNS, VALUES, values};
use crate::shelf::{Columns, Committed, Value, number};

/// In one transaction: a reader finds a file with all of its tables, or a new one.
const TABLES: &str = "
BEGIN;
CREATE TABLE IF NOT EXISTS about (version INTEGER NOT NULL, store TEXT NOT NULL, commit_number INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS ended (
  n INTEGER PRIMARY KEY, job INTEGER NOT NULL, ending TEXT NOT NULL, ended_at INTEGER NOT NULL, queue TEXT NOT NULL,
  protocol TEXT NOT NULL, name TEXT, unique_id TEXT, kind TEXT, key TEXT, pushed_at INTEGER, due_at INTEGER,
  ready_at INTEGER, started_at INTEGER, producer TEXT, worker TEXT, worker_address TEXT, worker_protocol TEXT,
  deliveries INTEGER NOT NULL, failures INTEGER NOT NULL, submits INTEGER NOT NULL, batch INTEGER, schedule INTEGER,
  again_of INTEGER,
  error TEXT, message TEXT, backtrace TEXT, attempts TEXT, progress_done INTEGER, progress_of INTEGER,
  body TEXT, body_bytes INTEGER, result TEXT, result_bytes INTEGER, output TEXT, output_bytes INTEGER,
  namespace TEXT);
CREATE INDEX IF NOT EXISTS ended_queue ON ended (queue);
CREATE INDEX IF NOT EXISTS ended_job ON ended (job);
CREATE INDEX IF NOT EXISTS ended_name ON ended (name) WHERE name IS NOT NULL;
CREATE INDEX IF NOT EXISTS ended_unique ON ended (unique_id) WHERE unique_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS hours (
  hour INTEGER NOT NULL, queue TEXT NOT NULL, kind TEXT NOT NULL, done INTEGER NOT NULL, failed INTEGER NOT NULL,
  other INTEGER NOT NULL, waited TEXT NOT NULL, ran TEXT NOT NULL, namespace TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (hour, queue, kind)) WITHOUT ROWID;
COMMIT;
";

/// Files of earlier daemons have no column for the namespace, and nothing in them was in one with a name.
const ADD_NAMESPACE: &str = "
BEGIN;
ALTER TABLE ended ADD COLUMN namespace TEXT;
ALTER TABLE hours ADD COLUMN namespace TEXT NOT NULL DEFAULT '';
COMMIT;
";

/// The version of the tables. A file of another one is not written to.
const VERSION: i64 = 1;

/// Memory of SQLite for the pages of one file, in KiB.
const CACHE_KIB: i64 = 8_192;

/// How long a writer waits for a tool that reads the file.
const BUSY_MS: u64 = 2_000;

/// A file that is written to. One thread has it.
pub(crate) struct DayFile {
    db: Connection,
    /// The last commit whose rows are all in the file.
    commit: u64,
    place: String,
    /// SQLite's log beside it.
    wal: PathBuf,
}

impl DayFile {
    /// Opens the file of a day, or creates it. Of another store than `store` its rows stay, and the numbers of its commits say
    /// nothing.
    pub(crate) fn open(folder: &Path, id: FileId, store: u64) -> Result<Self, Error> {
        let path = path(folder, id);
        let place = path.display().to_string();
        let opened = Connection::open(&path).and_then(|db| Self::prepare(db, store));
        let (db, commit) = opened.map_err(|why| Error::File {
            place: place.clone(),
            why,
        })?;
        // The name must be on the disk before a position that counts on it.
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|why| io(folder, why))?;
        let [_, wal, _] = parts(folder, id);
        Ok(Self {
            db,
            commit,
            place,
            wal,
        })
    }

    fn prepare(db: Connection, store: u64) -> rusqlite::Result<(Connection, u64)> {
        db.busy_timeout(std::time::Duration::from_millis(BUSY_MS))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "NORMAL")?;
        db.pragma_update(None, "cache_size", -CACHE_KIB)?;
        db.set_prepared_statement_cache_capacity(8);
        db.execute_batch(TABLES)?;
        let store = format!("{store:016x}");
        let about = db
            .query_row(
                "SELECT store, commit_number, version FROM about",
                [],
                |row| {
                    let version = row.get(2)?;
                    if version == VERSION {
                        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
                    } else {
                        Err(rusqlite::Error::IntegralValueOutOfRange(2, version))
                    }
                },
            )
            .optional()?;
        let commit = match about {
            Some((known, commit)) if known == store => commit,
            Some(_) => {
                db.execute("UPDATE about SET store = ?1, commit_number = 0", [&store])?;
                0
            }
            None => {
                db.execute(
                    "INSERT INTO about VALUES (?1, ?2, 0)",
                    params![VERSION, store],
                )?;
                0
            }
        };
        if !has_namespaces(&db)? {
            db.execute_batch(ADD_NAMESPACE)?;
        }
        Ok((db, u64::try_from(commit).unwrap_or_default()))
    }

    /// Appends these rows in one transaction. The file has all rows of its day up to commit `upto` afterwards. Rows that it
    /// has already are left out.
    pub(crate) fn write(&mut self, rows: &[Committed], upto: u64) -> Result<u64, Error> {
        let written = self.transaction(rows, upto)?;
        self.commit = self.commit.max(upto);
        Ok(written)
    }

    fn transaction(&mut self, rows: &[Committed], upto: u64) -> Result<u64, Error> {
        let place = &self.place;
        let failed = |why| failed(place, why);
        let commit = self.commit;
        let new = || {
            rows.iter()
                .filter(|row| row.commit > commit)
                .map(|it| &it.row)
        };
        let transaction = self.db.transaction().map_err(failed)?;
        let insert = || {
            let marks = ["?"; VALUES].join(", ");
            let insert = format!("INSERT INTO ended ({COLUMNS}) VALUES (NULL, {marks})");
            let mut insert = transaction.prepare_cached(&insert)?;
            let mut written = 0;
            for row in new() {
                insert.execute(rusqlite::params_from_iter(values(row)))?;
                written += 1;
            }
            Ok(written)
        };
        let written = insert().map_err(failed)?;
        for hour in HourRow::of(new()) {
            add_hour(&transaction, hour, place)?;
        }
        let commit = || {
            transaction
                .prepare_cached("UPDATE about SET commit_number = max(commit_number, ?1)")?
                .execute([number(upto)])
        };
        commit().map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(written)
    }

    /// Makes everything in the file durable. Until then a power cut may take the last transactions back.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        // SQLite syncs its log before it moves anything into the file, so all that is missing is in the log. A transaction
        // would sync the log only if it changed a page, and a page needs room on the disk.
        match File::open(&self.wal).and_then(|wal| wal.sync_all()) {
            // Somebody has removed it together with the file.
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
            synced => synced.map_err(|why| io(&self.wal, why)),
        }
    }
}

fn failed(place: &str, why: rusqlite::Error) -> Error {
    Error::File {
        place: place.to_owned(),
        why,
    }
}

/// Adds what ended in an hour to what is in the file.
fn add_hour(db: &Connection, mut hour: HourRow, place: &str) -> Result<(), Error> {
    let failed = |why| failed(place, why);
    let found =
        format!("SELECT {HOUR_COLUMNS} FROM hours WHERE hour = ?1 AND queue = ?2 AND kind = ?3");
    {
        let mut found = db.prepare_cached(&found).map_err(failed)?;
        let queue = ToSqlOutput::Borrowed(text(&hour.queue));
        let kind = ToSqlOutput::Borrowed(text(&hour.kind));
        let mut found = found
            .query(params![number(hour.hour_ms), queue, kind])
            .map_err(failed)?;
        let before = found.next().map_err(failed)?;
        let before = before.map(|row| HourRow::read(&SqliteRow { row, place }));
        if let Some(before) = before.transpose()? {
            hour.add(&before);
        }
    }
    let put =
        format!("INSERT OR REPLACE INTO hours ({HOUR_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
    let sums = params![
        number(hour.hour_ms),
        ToSqlOutput::Borrowed(text(&hour.queue)),
        ToSqlOutput::Borrowed(text(&hour.kind)),
        number(hour.done),
        number(hour.failed),
        number(hour.other),
        durations_text(&hour.waited),
        durations_text(&hour.ran),
        ToSqlOutput::Borrowed(text(&hour.namespace)),
    ];
    let put = db
        .prepare_cached(&put)
        .and_then(|mut put| put.execute(sums));
    put.map(drop).map_err(failed)
}

/// Bytes that are text are text for every tool that opens the file.
pub(crate) fn text(bytes: &[u8]) -> ValueRef<'_> {
    if std::str::from_utf8(bytes).is_ok() {
        ValueRef::Text(bytes)
    } else {
        ValueRef::Blob(bytes)
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Null => Ok(ToSqlOutput::Owned(Owned::Null)),
            Self::Number(number) => Ok(ToSqlOutput::Owned(Owned::Integer(*number))),
            Self::Text(bytes) => Ok(ToSqlOutput::Borrowed(text(bytes))),
        }
    }
}

/// A row of a file, which is here.
pub(crate) struct SqliteRow<'a> {
    pub(crate) row: &'a rusqlite::Row<'a>,
    pub(crate) place: &'a str,
}

impl SqliteRow<'_> {
    fn value(&self, column: &str) -> Result<ValueRef<'_>, Error> {
        self.row
            .get_ref(column)
            .map_err(|why| failed(self.place, why))
    }
}

impl Columns for SqliteRow<'_> {
    fn number(&self, column: &str) -> Result<Option<i64>, Error> {
        Ok(match self.value(column)? {
            ValueRef::Integer(number) => Some(number),
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => None,
        })
    }

    fn bytes(&self, column: &str) -> Result<Option<Bytes>, Error> {
        Ok(match self.value(column)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(Bytes::copy_from_slice(bytes)),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
        })
    }
}

/// Opens a file to read it, beside the daemon that writes it. `None`: the daemon has just begun it, or died before it had
/// tables, so it has no rows.
pub(crate) fn open_to_read(folder: &Path, id: FileId) -> rusqlite::Result<Option<Connection>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path(folder, id), flags)?;
    db.busy_timeout(std::time::Duration::from_millis(BUSY_MS))?;
    db.pragma_update(None, "query_only", true)?;
    let tables: i64 = db.pragma_query_value(None, "schema_version", |row| row.get(0))?;
    Ok((tables > 0).then_some(db))
}

/// Whether the tables of a file have a column for the namespace. Both got it in one transaction.
pub(crate) fn has_namespaces(db: &Connection) -> rusqlite::Result<bool> {
    let look = "SELECT 1 FROM pragma_table_info('ended') WHERE name = 'namespace'";
    db.prepare(look)?.exists([])
}

/// Adds the column to the tables of a file that lack it. Rows are not touched.
pub(crate) fn add_namespaces(folder: &Path, id: FileId) -> rusqlite::Result<()> {
    // Most files have it, and are only looked at.
    let Some(db) = open_to_read(folder, id)? else {
        return Ok(());
    };
    let version: Option<i64> = db
        .query_row("SELECT version FROM about", [], |row| row.get(0))
        .optional()?;
    if version != Some(VERSION) || has_namespaces(&db)? {
        return Ok(());
    }
    drop(db);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path(folder, id), flags)?;
    db.busy_timeout(std::time::Duration::from_millis(BUSY_MS))?;
    db.execute_batch(ADD_NAMESPACE)
}

/// Whether an error means that the file itself cannot be used, so that another one must take its place.
pub(crate) fn is_damage(error: &Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SchemaChanged};
    matches!(error, Error::File { why, .. } if matches!(
        why.sqlite_error_code(),
        Some(DatabaseCorrupt | NotADatabase | SchemaChanged)
    ) || matches!(why, rusqlite::Error::SqlInputError { .. } | rusqlite::Error::IntegralValueOutOfRange(..)))
}
