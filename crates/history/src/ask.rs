//! Asking the history. A question reads the files of its days, the newest first, beside the thread that writes them. It
//! never touches the engine, and it stops after a bounded time and says where to go on.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::types::Value;

use crate::Error;
use crate::day_file::{durations, open_to_read};
use crate::folder::{self, FileId, RowId};
use crate::question::{Conditions, HourRow, Hours, Question};
use crate::row::{COLUMNS, Row, number, read, text};

/// How long a question may take before it answers with what it has.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Rows of a file that are looked at between two looks at the clock.
const STEP: i64 = 20_000;

/// The history of a daemon, to be asked by any thread.
#[derive(Clone, Debug)]
pub struct Book {
    folder: PathBuf,
}

/// Rows, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The rows that were found.
    pub rows: Vec<Row>,
    /// Where a question goes on that was not done: its limit, or its time, was used up.
    pub next: Option<RowId>,
    /// Files that could not be read, and why.
    pub unreadable: Vec<String>,
}

impl Book {
    /// The history in this folder, which need not exist.
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Answers a question.
    ///
    /// # Errors
    ///
    /// The folder cannot be read. A file that cannot be read is named in the answer.
    pub fn ask(&self, question: &Question) -> Result<Answer, Error> {
        self.ask_within(question, TIME_MAX)
    }

    /// The same, with another bound of its time.
    fn ask_within(&self, question: &Question, time: Duration) -> Result<Answer, Error> {
        let end = Instant::now() + time;
        let conditions = question.conditions();
        let mut answer = Answer::default();
        let is_left = |file: &FileId| {
            let comes = |after: RowId| *file < after.file || *file == after.file && after.n > 1;
            question.covers(*file) && question.after.is_none_or(comes)
        };
        for file in folder::list(&self.folder)?.into_iter().filter(is_left) {
            let before = question
                .after
                .filter(|after| after.file == file)
                .map(|after| after.n);
            let mut search = Search {
                file,
                conditions: &conditions,
                limit: question.limit,
                end,
                answer: &mut answer,
            };
            let searched = open_to_read(&self.folder, file).and_then(|db| search.file(&db, before));
            if let Err(why) = searched {
                answer.unreadable.push(format!("{file}: {why}"));
            }
            // The next file is another day's.
            if answer.next.is_none() && Instant::now() >= end {
                answer.next = Some(RowId { file, n: 1 });
            }
            if answer.next.is_some() {
                break;
            }
        }
        Ok(answer)
    }

    /// One row by its place.
    ///
    /// # Errors
    ///
    /// Its file cannot be read.
    pub fn row(&self, id: RowId) -> Result<Option<Row>, Error> {
        if !id.file.path(&self.folder).exists() {
            return Ok(None);
        }
        let found = open_to_read(&self.folder, id.file).and_then(|db| {
            let sql = format!("SELECT {COLUMNS} FROM ended WHERE n = ?1");
            let mut rows = db.prepare(&sql)?;
            let mut rows = rows.query_map([id.n], |row| read(row, |n| RowId { n, ..id }))?;
            rows.next().transpose()
        });
        found.map_err(|why| Error::File {
            place: id.file.path(&self.folder).display().to_string(),
            why,
        })
    }

    /// What ended in each hour, the oldest first, by queue and kind.
    ///
    /// # Errors
    ///
    /// The folder cannot be read. Files that cannot be read are left out.
    pub fn hours(&self, hours: &Hours) -> Result<Vec<HourRow>, Error> {
        let mut all = Vec::new();
        let files = folder::list(&self.folder)?.into_iter();
        let covers = |file: &FileId| {
            file.begins_by(hours.until_ms.saturating_sub(1)) && file.ends_after(hours.from_ms)
        };
        for file in files.filter(covers) {
            let found = open_to_read(&self.folder, file).and_then(|db| hours_of(&db, hours));
            match found {
                Ok(found) => all.extend(found),
                Err(error) => {
                    tracing::debug!(%file, %error, "a file of the history cannot be read")
                }
            }
        }
        all.sort_by(|one, two| {
            let key = |row: &HourRow| (row.hour_ms, row.queue.clone(), row.kind.clone());
            key(one).cmp(&key(two))
        });
        Ok(all)
    }
}

/// A search in one file.
struct Search<'a> {
    file: FileId,
    conditions: &'a Conditions,
    limit: usize,
    end: Instant,
    answer: &'a mut Answer,
}

impl Search<'_> {
    /// Looks through the rows with numbers below `before`, from the last one on.
    fn file(&mut self, db: &Connection, before: Option<i64>) -> rusqlite::Result<()> {
        let last: Option<i64> = db.query_row("SELECT max(n) FROM ended", [], |row| row.get(0))?;
        let mut upto = before.map_or(last.unwrap_or(0), |before| before - 1);
        while upto > 0 {
            let from = if self.conditions.is_indexed {
                1
            } else {
                (upto - STEP + 1).max(1)
            };
            self.piece(db, from, upto)?;
            if self.answer.next.is_some() {
                return Ok(());
            }
            upto = from - 1;
            if upto > 0 && Instant::now() >= self.end {
                self.answer.next = Some(self.at(from));
            }
            if self.answer.next.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn piece(&mut self, db: &Connection, from: i64, upto: i64) -> rusqlite::Result<()> {
        let sql = format!(
            "SELECT {COLUMNS} FROM ended WHERE n BETWEEN ? AND ?{} ORDER BY n DESC LIMIT ?",
            self.conditions.sql
        );
        let room = self.limit.saturating_sub(self.answer.rows.len());
        let values = [Value::Integer(from), Value::Integer(upto)]
            .into_iter()
            .chain(self.conditions.values.iter().cloned())
            .chain([number(room as u64)]);
        let mut statement = db.prepare(&sql)?;
        let file = self.file;
        let rows = statement.query_map(rusqlite::params_from_iter(values), |row| {
            read(row, |n| RowId { file, n })
        })?;
        for row in rows {
            self.answer.rows.push(row?);
        }
        if self.answer.rows.len() >= self.limit {
            self.answer.next = self.answer.rows.last().map(|row| row.id);
        }
        Ok(())
    }

    const fn at(&self, n: i64) -> RowId {
        RowId { file: self.file, n }
    }
}

fn hours_of(db: &Connection, hours: &Hours) -> rusqlite::Result<Vec<HourRow>> {
    const HOUR_MS: u64 = 3_600_000;
    let mut sql = "SELECT hour, queue, kind, done, failed, other, waited, ran FROM hours WHERE hour >= ? AND hour < ?".to_owned();
    let mut values = vec![
        number(hours.from_ms / HOUR_MS * HOUR_MS),
        number(hours.until_ms),
    ];
    if let Some(queue) = &hours.queue {
        sql.push_str(" AND queue = ?");
        values.push(text(queue));
    }
    if let Some(kind) = &hours.kind {
        sql.push_str(" AND CASE kind WHEN '' THEN queue ELSE kind END = ?");
        values.push(text(kind));
    }
    let count = |row: &rusqlite::Row<'_>, column| -> rusqlite::Result<u64> {
        Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or_default())
    };
    let bytes = |row: &rusqlite::Row<'_>, column| -> rusqlite::Result<bytes::Bytes> {
        Ok(match row.get::<_, Value>(column)? {
            Value::Text(text) => text.into(),
            Value::Blob(bytes) => bytes.into(),
            Value::Null | Value::Integer(_) | Value::Real(_) => bytes::Bytes::new(),
        })
    };
    let mut statement = db.prepare(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(values), |row| {
        Ok(HourRow {
            hour_ms: count(row, 0)?,
            queue: bytes(row, 1)?,
            kind: bytes(row, 2)?,
            done: count(row, 3)?,
            failed: count(row, 4)?,
            other: count(row, 5)?,
            waited: durations(&row.get::<_, String>(6)?),
            ran: durations(&row.get::<_, String>(7)?),
        })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests;
