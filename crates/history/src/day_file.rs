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

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use windlass_engine::{Ended, Ending, Histogram};

use crate::Error;
use crate::folder::{FileId, HOUR_MS, io, parts};
use crate::row::{COLUMNS, VALUES, number, text, values};

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
  body TEXT, body_bytes INTEGER, result TEXT, result_bytes INTEGER, output TEXT, output_bytes INTEGER);
CREATE INDEX IF NOT EXISTS ended_queue ON ended (queue);
CREATE INDEX IF NOT EXISTS ended_job ON ended (job);
CREATE INDEX IF NOT EXISTS ended_name ON ended (name) WHERE name IS NOT NULL;
CREATE INDEX IF NOT EXISTS ended_unique ON ended (unique_id) WHERE unique_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS hours (
  hour INTEGER NOT NULL, queue TEXT NOT NULL, kind TEXT NOT NULL, done INTEGER NOT NULL, failed INTEGER NOT NULL,
  other INTEGER NOT NULL, waited TEXT NOT NULL, ran TEXT NOT NULL, PRIMARY KEY (hour, queue, kind)) WITHOUT ROWID;
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
        let path = id.path(folder);
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
        Ok((db, u64::try_from(commit).unwrap_or_default()))
    }

    /// Appends these rows, each with the number of its commit, in one transaction. The file has all rows of its day up to
    /// commit `upto` afterwards. Rows that it has already are left out.
    pub(crate) fn write<'a>(
        &mut self,
        rows: impl Iterator<Item = (u64, &'a Ended)>,
        upto: u64,
    ) -> Result<u64, Error> {
        let commit = self.commit;
        let written = self.transaction(rows.filter(|(seq, _)| *seq > commit), upto);
        let written = written.map_err(|why| self.failed(why))?;
        self.commit = self.commit.max(upto);
        Ok(written)
    }

    fn transaction<'a>(
        &mut self,
        rows: impl Iterator<Item = (u64, &'a Ended)>,
        upto: u64,
    ) -> rusqlite::Result<u64> {
        let transaction = self.db.transaction()?;
        let (mut hours, mut written) = (BTreeMap::<HourKey, Hour>::new(), 0);
        {
            let marks = ["?"; VALUES].join(", ");
            let insert = format!("INSERT INTO ended ({COLUMNS}) VALUES (NULL, {marks})");
            let mut insert = transaction.prepare_cached(&insert)?;
            for (_, row) in rows {
                insert.execute(rusqlite::params_from_iter(values(row)))?;
                hours.entry(HourKey::of(row)).or_default().count(row);
                written += 1;
            }
        }
        for (key, hour) in hours {
            hour.add_to(&transaction, &key)?;
        }
        transaction
            .prepare_cached("UPDATE about SET commit_number = max(commit_number, ?1)")?
            .execute([number(upto)])?;
        transaction.commit()?;
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

    fn failed(&self, why: rusqlite::Error) -> Error {
        Error::File {
            place: self.place.clone(),
            why,
        }
    }
}

/// Opens a file to read it, beside the daemon that writes it. `None`: the daemon has just begun it, or died before it had
/// tables, so it has no rows.
pub(crate) fn open_to_read(folder: &Path, id: FileId) -> rusqlite::Result<Option<Connection>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(id.path(folder), flags)?;
    db.busy_timeout(std::time::Duration::from_millis(BUSY_MS))?;
    db.pragma_update(None, "query_only", true)?;
    let tables: i64 = db.pragma_query_value(None, "schema_version", |row| row.get(0))?;
    Ok((tables > 0).then_some(db))
}

/// Whether an error means that the file itself cannot be used, so that another one must take its place.
pub(crate) fn is_damage(error: &Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SchemaChanged};
    matches!(error, Error::File { why, .. } if matches!(
        why.sqlite_error_code(),
        Some(DatabaseCorrupt | NotADatabase | SchemaChanged)
    ) || matches!(why, rusqlite::Error::SqlInputError { .. } | rusqlite::Error::IntegralValueOutOfRange(..)))
}

/// A row of `hours`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct HourKey {
    hour: u64,
    queue: Bytes,
    kind: Bytes,
}

#[derive(Default)]
struct Hour {
    done: u64,
    failed: u64,
    other: u64,
    waited: Histogram,
    ran: Histogram,
}

impl HourKey {
    fn of(row: &Ended) -> Self {
        Self {
            hour: row.ended_at.0 / HOUR_MS * HOUR_MS,
            queue: row.queue.clone(),
            kind: row.kind.clone(),
        }
    }
}

impl Hour {
    fn count(&mut self, row: &Ended) {
        match row.ending {
            Ending::Done => self.done += 1,
            Ending::Failed | Ending::Dead => self.failed += 1,
            Ending::Cancelled | Ending::Expired | Ending::Deleted | Ending::Replaced => {
                self.other += 1;
            }
        }
        if let Some(started) = row.started_at {
            self.waited
                .observe(started.0.saturating_sub(row.ready_at.0));
            self.ran.observe(row.ended_at.0.saturating_sub(started.0));
        }
    }

    fn add_to(self, db: &Connection, key: &HourKey) -> rusqlite::Result<()> {
        let at = || -> [Value; 3] { [number(key.hour), text(&key.queue), text(&key.kind)] };
        let found = db
            .prepare_cached(
                "SELECT waited, ran FROM hours WHERE hour = ?1 AND queue = ?2 AND kind = ?3",
            )?
            .query_row(at(), |row| {
                Ok([row.get::<_, String>(0)?, row.get::<_, String>(1)?])
            })
            .optional()?;
        let [waited, ran] =
            found.map_or_else(Default::default, |found| found.map(|it| durations(&it)));
        let sum = |one: &Histogram, two: &Histogram| written(&one.merged(two, u64::saturating_add));
        let [hour, queue, kind] = at();
        db.prepare_cached(
            "INSERT INTO hours VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET \
             done = done + ?4, failed = failed + ?5, other = other + ?6, waited = ?7, ran = ?8",
        )?
        .execute(params![
            hour,
            queue,
            kind,
            number(self.done),
            number(self.failed),
            number(self.other),
            sum(&self.waited, &waited),
            sum(&self.ran, &ran),
        ])
        .map(drop)
    }
}

/// Durations as JSON: how many there were of each bound ([`Histogram::BOUNDS_MS`]; the last has none), without the zeros at
/// the end, their sum and the longest, in milliseconds.
#[derive(Default, Deserialize, Serialize)]
struct Durations {
    counts: Vec<u64>,
    sum_ms: u64,
    max_ms: u64,
}

fn written(all: &Histogram) -> String {
    let last = all.counts.iter().rposition(|count| *count > 0);
    let counts = all.counts.iter().take(last.map_or(0, |last| last + 1));
    let durations = Durations {
        counts: counts.copied().collect(),
        sum_ms: all.sum_ms,
        max_ms: all.max_ms,
    };
    serde_json::to_string(&durations).unwrap_or_default()
}

/// The inverse of [`written`]. What cannot be read is nothing.
pub(crate) fn durations(json: &str) -> Histogram {
    let read: Durations = serde_json::from_str(json).unwrap_or_default();
    let mut all = Histogram {
        sum_ms: read.sum_ms,
        max_ms: read.max_ms,
        ..Histogram::default()
    };
    for (count, read) in all.counts.iter_mut().zip(read.counts) {
        *count = read;
    }
    all
}
