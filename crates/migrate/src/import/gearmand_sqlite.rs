//! gearmand's SQLite queue: one row for each background job that is not finished.
//!
//! ```text
//! gearman_queue(unique_key TEXT, function_name TEXT, priority INTEGER, data BLOB, when_to_run INTEGER)
//! ```
//!
//! Names, ids and data are bytes, whatever type SQLite reports. Priority is 0 high, 1 normal, 2 low. `when_to_run` is
//! in seconds since 1970, 0 for at once. Empty data is NULL. An id of 64 bytes has a NUL in place of its last byte.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::intake::{Importer, Line, Outcome, Source};
use bytes::Bytes;
use clap::Args;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use windlass_config::Failure;
use windlass_engine::{NamespaceLimits, NewJob};
use windlass_gearman::session::Settings as Gearman;
use windlass_gearman::wire::{Priority, Submission, UNIQUE_BYTES_MAX};

use super::options::{Configure, Options, configured};
use super::report::{Nouns, Report, lasting};
use windlass_operate::Settings;

const HELP: &str = include_str!("../help/gearmand_sqlite.txt").trim_ascii_end();

/// Import the background jobs in gearmand's SQLite queue.
#[derive(Debug, Args)]
#[command(after_help = HELP, mut_arg("again", |it| it.help("Import rows again that an earlier import took")))]
pub struct GearmandSqlite {
    /// The file given to gearmand's --libsqlite3-db.
    #[arg(value_name = "FILE")]
    queue: PathBuf,
    /// The table given to gearmand's --libsqlite3-table.
    #[arg(long, value_name = "NAME", default_value = "gearman_queue")]
    table: String,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    settings: Settings,
}

impl GearmandSqlite {
    pub(super) fn run(&self, configure: Configure<'_>) -> Result<(), Failure> {
        let config = configured(configure, &self.settings)?;
        let queue = Queue::open(&self.queue, &self.table)?;
        if !self.options.dry_run {
            wait_for(&self.queue, Duration::ZERO)?;
        }
        let gearman = config.gearman.settings(&config.daemon(&config.gearman)?)?;
        let importer = self
            .options
            .begin(&config, NamespaceLimits::default(), || {
                Ok(queue.source()?.0)
            })?;
        let mut report = Report::to_stdout(&NOUNS, self.options.dry_run);
        let Counts {
            functions,
            later,
            nameless,
        } = take_all(&queue, &gearman, importer, &mut report)?;
        let (taken, verb) = (report.taken, report.taken_word);
        let functions = functions.iter();
        let functions = functions
            .map(|(name, count)| format!("{count} {verb}: function \"{}\"\n", name.escape_ascii()));
        report.write(
            functions,
            &format!("{taken} {verb} ({later} to run later, {nameless} without a unique id)"),
        )?;
        report.outcome()
    }
}

pub(super) const NOUNS: Nouns = Nouns::new(
    "row",
    "queued already, with the same function and unique id",
    "rows",
);
/// Of the jobs that an import took.
#[derive(Debug, Default)]
pub(super) struct Counts {
    functions: BTreeMap<Bytes, u64>,
    pub(super) later: u64,
    nameless: u64,
}

/// Imports every row of a queue, and reports why a row is left.
pub(super) fn take_all(
    queue: &Queue,
    gearman: &Gearman,
    mut importer: Importer,
    report: &mut Report,
) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    queue.each(&mut |row| {
        let (number, function, unique) = (row.number, row.function.clone(), row.unique.clone());
        let job = row.job(gearman);
        let is_later = job.as_ref().is_ok_and(|job| job.not_before.is_some());
        let about = format!(
            "function \"{}\", unique id \"{}\": ",
            function.escape_ascii(),
            unique.escape_ascii()
        );
        let taken = report.take(
            &mut importer,
            job.map(Line::from),
            &format_args!("row {number}"),
            &about,
        )?;
        if taken == Some(Outcome::Taken) {
            *counts.functions.entry(function).or_default() += 1;
            counts.later += u64::from(is_later);
            counts.nameless += u64::from(unique.is_empty());
        }
        Ok(())
    })?;
    importer.finish()?;
    Ok(counts)
}

/// A row as gearmand wrote it.
#[derive(Debug)]
pub(super) struct Row {
    /// SQLite's own number of the row.
    number: i64,
    function: Bytes,
    unique: Bytes,
    /// `None` if it is not a number.
    priority: Option<i64>,
    data: Bytes,
    when_to_run: i64,
}

impl Row {
    fn job(self, gearman: &Gearman) -> Result<NewJob, String> {
        let priority = match self.priority {
            Some(0) => Priority::High,
            Some(1) => Priority::Normal,
            Some(2) => Priority::Low,
            Some(other) => return Err(format!("invalid priority {other}: 0, 1 or 2 expected")),
            None => return Err("the priority is not a number: 0, 1 or 2 expected".to_owned()),
        };
        let submission = Submission {
            function: self.function,
            unique: self.unique,
            workload: self.data,
        };
        // A time before 1970 has passed, and 0 means at once.
        let run_at_s = u64::try_from(self.when_to_run).unwrap_or_default();
        gearman.adopt(submission, priority, run_at_s)
    }

    /// Hashes the whole row, so that two different rows never look alike.
    fn digest(&self, into: &mut Sha256) {
        for bytes in [&self.function, &self.unique, &self.data] {
            into.update((bytes.len() as u64).to_be_bytes());
            into.update(bytes);
        }
        let priority = self.priority.unwrap_or(i64::MIN);
        [self.number, priority, self.when_to_run]
            .iter()
            .for_each(|number| into.update(number.to_be_bytes()));
    }
}

/// The table, open for reading.
pub(super) struct Queue {
    file: PathBuf,
    connection: Connection,
    select: String,
    // Last field: dropped after the connection to the database in it is closed.
    _copy: Option<TempDir>,
}

impl Queue {
    fn open(file: &Path, table: &str) -> Result<Self, Failure> {
        let none = || {
            Failure::unusable(
                file,
                format_args!(
                    "there is no table {} in it; --table names another",
                    quoted(table)
                ),
            )
        };
        Self::find(file, table)?.ok_or_else(none)
    }

    /// `None` if there is no such table.
    pub(super) fn find(file: &Path, table: &str) -> Result<Option<Self>, Failure> {
        let refuse = |why: &dyn std::fmt::Display| Failure::unusable(file, why);
        // SQLite would create a missing file, or report only that it cannot open it.
        let about = fs::File::open(file)
            .and_then(|file| file.metadata())
            .map_err(|why| refuse(&why))?;
        if about.is_dir() {
            return Err(refuse(&"this is a directory"));
        }
        let (connection, copy) = match connect(file, OpenFlags::SQLITE_OPEN_READ_ONLY) {
            Ok(connection) => (connection, None),
            Err(why) if needs_mending(&why) => {
                let copy =
                    copy(file).map_err(|why| refuse(&format_args!("cannot be copied: {why}")))?;
                let connection =
                    connect(&copy.path().join(COPY), OpenFlags::SQLITE_OPEN_READ_WRITE);
                (connection.map_err(|why| refuse(&why))?, Some(copy))
            }
            Err(why) => return Err(refuse(&why)),
        };
        let table = quoted(table);
        let columns = columns(&connection, &table).map_err(|why| refuse(&why))?;
        if columns.is_empty() {
            return Ok(None);
        }
        let missing = ["unique_key", "function_name", "priority", "data"]
            .iter()
            .find(|name| !has(&columns, name));
        if let Some(missing) = missing {
            return Err(refuse(&format_args!(
                "{table} is not a queue of gearmand: it has no column {missing}"
            )));
        }
        // gearmand before 0.33 had no times.
        let when = if has(&columns, "when_to_run") {
            "when_to_run"
        } else {
            "0"
        };
        let select = format!(
            "SELECT rowid, function_name, unique_key, priority, data, {when} FROM {table} ORDER BY rowid"
        );
        Ok(Some(Self {
            file: file.to_owned(),
            connection,
            select,
            _copy: copy,
        }))
    }

    /// Visits every row, in the order in which gearmand took the jobs.
    pub(super) fn each(
        &self,
        each: &mut dyn FnMut(Row) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let refuse = |why: rusqlite::Error| Failure::unusable(&self.file, why);
        let mut statement = self.connection.prepare(&self.select).map_err(refuse)?;
        let mut rows = statement.query([]).map_err(refuse)?;
        while let Some(row) = rows.next().map_err(refuse)? {
            each(read(row).map_err(refuse)?)?;
        }
        Ok(())
    }

    /// An identifier computed from the contents, and the number of rows.
    pub(super) fn source(&self) -> Result<(Source, u64), Failure> {
        let (mut digest, mut rows) = (Sha256::new(), 0);
        self.each(&mut |row| {
            row.digest(&mut digest);
            rows += 1;
            Ok(())
        })?;
        Ok((
            Source {
                kind: "gearmand-sqlite",
                digest: hex::encode(digest.finalize()),
            },
            rows,
        ))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let mut unique = bytes(row.get_ref(2)?);
    if unique.len() == UNIQUE_BYTES_MAX && unique.ends_with(&[0]) {
        unique.truncate(UNIQUE_BYTES_MAX - 1);
    }
    Ok(Row {
        number: row.get(0)?,
        function: bytes(row.get_ref(1)?),
        unique,
        priority: number(row.get_ref(3)?),
        data: bytes(row.get_ref(4)?),
        when_to_run: number(row.get_ref(5)?).unwrap_or_default(),
    })
}

fn number(value: ValueRef<'_>) -> Option<i64> {
    if let ValueRef::Integer(number) = value {
        Some(number)
    } else {
        None
    }
}

/// The bytes of a value, whatever its SQLite type.
fn bytes(value: ValueRef<'_>) -> Bytes {
    match value {
        ValueRef::Null => Bytes::new(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Bytes::copy_from_slice(bytes),
        ValueRef::Integer(number) => number.to_string().into(),
        ValueRef::Real(number) => number.to_string().into(),
    }
}

/// Opens a database and reads from it: SQLite reports errors only on the first read.
fn connect(file: &Path, how: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(file, how | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA table_info({table})"))?;
    let names = statement.query_map([], |row| row.get(1))?;
    names.collect()
}

fn has(columns: &[String], name: &str) -> bool {
    columns
        .iter()
        .any(|column| column.eq_ignore_ascii_case(name))
}

// ---- files of a killed gearmand ---------------------------------------------------------------------------------------

/// How often to check whether the old gearmand has closed the file.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const COPY: &str = "queue";
/// The files that SQLite leaves beside a database whose writer was killed.
const BESIDE: [&str; 2] = ["-journal", "-wal"];

/// Whether SQLite would have to write before it can read.
fn needs_mending(why: &rusqlite::Error) -> bool {
    matches!(
        why.sqlite_error_code(),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen)
    )
}

/// A copy of the database and the files beside it, in a directory of their own.
fn copy(file: &Path) -> io::Result<TempDir> {
    let dir = tempfile::tempdir()?;
    let to = dir.path().join(COPY);
    fs::copy(file, &to)?;
    for suffix in BESIDE {
        let from = with_suffix(file, suffix);
        if from.exists() {
            fs::copy(from, with_suffix(&to, suffix))?;
        }
    }
    Ok(dir)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Waits this long for other processes to close the file: jobs that the old gearmand still holds would run twice.
pub(super) fn wait_for(file: &Path, timeout: Duration) -> Result<(), Failure> {
    let since = Instant::now();
    while let Some(pid) = lasting(|| holder(file)) {
        if since.elapsed() >= timeout {
            let reason = format_args!(
                "process {pid} has it open: stop gearmand first, or its jobs run twice"
            );
            return Err(Failure::unusable(file, reason));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Another process that has the file open, as far as permissions let us see. A process that has just been forked holds
/// its parent's files.
fn holder(file: &Path) -> Option<u32> {
    let same = fs::metadata(file).ok()?;
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        let mut open = open.filter_map(|entry| fs::metadata(entry.path()).ok());
        *pid != std::process::id()
            && open.any(|it| (it.dev(), it.ino()) == (same.dev(), same.ino()))
    })
}
