//! Asking the history. A question reads the files of its days, the newest first, beside the thread that writes them. It
//! never touches the engine, and it stops after a bounded time and says where to go on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::Error;
use crate::cursor::Cursor;
use crate::file_id::{FileId, RowId};
use crate::hours::{HOUR_COLUMNS, HourRow};
use crate::question::{Ends, Hours, Question};
use crate::row::{COLUMNS, Row, read};
use crate::shelf::{Conditions, Reader, Select, Shelf};

/// How long a question may take before it answers with what it has.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Bytes of bodies, results and output of one file in an answer, about: with more of them it has fewer rows.
const BYTES_MAX: usize = 4 << 20;

/// Rows of a file that are looked at between two looks at the clock.
const STEP: i64 = 20_000;

/// The history of a daemon, to be asked by any thread.
#[derive(Clone, Debug)]
pub struct Book {
    shelf: Arc<dyn Shelf>,
    /// Nobody wants an answer any more when it is gone.
    asker: Option<Weak<()>>,
}

/// Rows, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The rows that were found.
    pub rows: Vec<Row>,
    /// Where a question goes on that was not done: its limit, or its time, was used up.
    pub next: Option<Cursor>,
    /// Files that could not be read, and why.
    pub unreadable: Vec<String>,
}

impl Book {
    /// The history on this shelf.
    pub fn new(shelf: Arc<dyn Shelf>) -> Self {
        Self { shelf, asker: None }
    }

    /// The same, for questions that end early when `asker` is dropped.
    #[must_use]
    pub fn asked_by(&self, asker: &Arc<()>) -> Self {
        Self {
            asker: Some(Arc::downgrade(asker)),
            ..self.clone()
        }
    }

    fn patience(&self, time: Duration) -> Patience {
        Patience {
            end: Instant::now() + time,
            asker: self.asker.clone(),
        }
    }

    /// Answers a question.
    ///
    /// # Errors
    ///
    /// The history cannot be read. A file that cannot be read is named in the answer.
    pub fn ask(&self, question: &Question) -> Result<Answer, Error> {
        self.ask_within(question, TIME_MAX)
    }

    /// The same, with another bound of its time.
    fn ask_within(&self, question: &Question, time: Duration) -> Result<Answer, Error> {
        let patience = self.patience(time);
        let mut reader = self.shelf.reader()?;
        let conditions = question.conditions(&reader.dialect());
        let mut answer = Answer::default();
        let after = question.after.as_ref();
        let is_asked = |file: &FileId| {
            let is_over = after.is_some_and(|after| after.is_past(file.day));
            file.is_within(question.from_ms, question.until_ms) && !is_over
        };
        let files = reader.files()?.into_iter();
        let files: Vec<FileId> = files.filter(is_asked).collect();
        for day in files.chunk_by(|one, two| one.day == two.day) {
            let mut parts = Vec::new();
            for file in day {
                let search = Search {
                    file: *file,
                    conditions: &conditions,
                    limit: question.limit - answer.rows.len(),
                    patience: &patience,
                };
                let before = after.and_then(|after| after.before(*file));
                if before == Some(1) {
                    continue;
                }
                match search.run(&mut *reader, before) {
                    Ok(found) => parts.push(found),
                    Err(Error::File { why, .. }) => {
                        answer.unreadable.push(format!("{file}: {why}"));
                    }
                    Err(error) => return Err(error),
                }
            }
            // Of a day of which nothing is left, the question goes on with the next one, however late it is.
            if parts.is_empty() {
                continue;
            }
            merge(&mut parts, question.limit, &mut answer.rows);
            let is_done = parts.iter().all(Part::is_done);
            if !is_done || answer.rows.len() >= question.limit || patience.is_over() {
                answer.next = Some(rest_of(day, &parts));
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
        let mut conditions = Conditions::default();
        conditions.and(&format!("n = {}", id.n));
        let select = Select {
            columns: COLUMNS,
            table: "ended",
            conditions: &conditions,
            rest: String::new(),
        };
        let mut found = None;
        self.shelf.reader()?.select(id.file, &select, &mut |row| {
            found = Some(read(row, |n| RowId { n, ..id })?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// What ended in each hour, the oldest first, by queue and kind.
    ///
    /// # Errors
    ///
    /// The history cannot be read. Files that cannot be read are left out.
    pub fn hours(&self, hours: &Hours) -> Result<Ends, Error> {
        let mut ends = self.sum(hours, Sums::by_hour(), SUM_TIME_MAX)?;
        ends.rows.sort_by(|one, two| {
            let key = |row: &HourRow| (row.hour_ms, row.queue.clone(), row.kind.clone());
            key(one).cmp(&key(two))
        });
        Ok(ends)
    }

    /// What ended of each queue and kind, those with the most ends first.
    ///
    /// # Errors
    ///
    /// The history cannot be read. Files that cannot be read are left out.
    pub fn kinds(&self, hours: &Hours) -> Result<Ends, Error> {
        self.kinds_within(hours, SUM_TIME_MAX)
    }

    fn kinds_within(&self, hours: &Hours, time: Duration) -> Result<Ends, Error> {
        let mut ends = self.sum(hours, Sums::by_kind(), time)?;
        ends.rows.sort_by_key(|row| Reverse(row.ends()));
        let least = ends.rows.split_off(ends.rows.len().min(KINDS_MAX));
        for row in least {
            match ends.others.first_mut() {
                Some(others) => others.add(&row),
                None => ends.others.push(row),
            }
        }
        Ok(ends)
    }

    /// Adds up the figures of hours. Days are read from the last one back, as far as the time allows: one that could not be
    /// read to its end does not count.
    fn sum(&self, hours: &Hours, mut sums: Sums, time: Duration) -> Result<Ends, Error> {
        let patience = self.patience(time);
        // The last day is what people look at most: it gets three times as long.
        let longer = self.patience(3 * time);
        let mut reader = self.shelf.reader()?;
        let conditions = hours.conditions(&reader.dialect());
        let files = reader.files()?.into_iter();
        let files: Vec<FileId> = files
            .filter(|file| file.is_within(hours.from_ms, hours.until_ms))
            .collect();
        // Without files nothing is missing. Until a day was read, nothing is there.
        let mut from_ms = files.first().map_or(hours.from_ms, |_| hours.until_ms);
        let mut is_first = true;
        for day in files.chunk_by(|one, two| one.day == two.day) {
            let mut of_day = sums.empty();
            let patience_of_day = if is_first { &longer } else { &patience };
            let mut read = true;
            for file in day {
                match add_hours(
                    &mut *reader,
                    *file,
                    &conditions,
                    patience_of_day,
                    &mut of_day,
                ) {
                    Ok(whole) => read = whole,
                    Err(error @ Error::File { .. }) => {
                        tracing::debug!(%file, %error, "a file of the history cannot be read");
                    }
                    Err(error) => return Err(error),
                }
                if !read {
                    break;
                }
            }
            if !read {
                break;
            }
            is_first = false;
            sums.merge(of_day);
            if let Some(file) = day.first() {
                from_ms = hours.from_ms.max(file.begin_ms());
            }
            if patience.is_over() {
                break;
            }
        }
        Ok(sums.ends(from_ms))
    }
}

/// How long figures of many days may take before they are given for fewer days.
const SUM_TIME_MAX: Duration = Duration::from_secs(2);

/// Rows of hours, and queues and kinds, that are summed on their own: all that is in memory.
const SUMS_MAX: usize = 10_000;

/// Queues and kinds with figures of their own in an answer.
const KINDS_MAX: usize = 1_000;

/// Figures that are added up.
#[derive(Debug)]
struct Sums {
    by_hour: bool,
    rows: HashMap<SumKey, HourRow>,
    /// What is beyond [`SUMS_MAX`], by hour.
    others: BTreeMap<u64, HourRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SumKey {
    hour_ms: u64,
    queue: Bytes,
    kind: Bytes,
}

impl Sums {
    fn by_hour() -> Self {
        Self::new(true)
    }

    fn by_kind() -> Self {
        Self::new(false)
    }

    fn new(by_hour: bool) -> Self {
        Self {
            by_hour,
            rows: HashMap::new(),
            others: BTreeMap::new(),
        }
    }

    fn empty(&self) -> Self {
        Self::new(self.by_hour)
    }

    fn add(&mut self, row: HourRow) {
        let hour_ms = if self.by_hour { row.hour_ms } else { 0 };
        let key = SumKey {
            hour_ms,
            queue: row.queue.clone(),
            kind: row.kind.clone(),
        };
        if let Some(sum) = self.rows.get_mut(&key) {
            sum.add(&row);
        } else if self.rows.len() < SUMS_MAX {
            self.rows.insert(key, row);
        } else if let Some(sum) = self.others.get_mut(&hour_ms) {
            sum.add(&row);
        } else {
            self.others.insert(hour_ms, row.of_others());
        }
    }

    fn merge(&mut self, other: Self) {
        for row in other.rows.into_values() {
            self.add(row);
        }
        for (hour_ms, row) in other.others {
            self.others
                .entry(hour_ms)
                .and_modify(|sum| sum.add(&row))
                .or_insert(row);
        }
    }

    fn ends(self, from_ms: u64) -> Ends {
        Ends {
            rows: self.rows.into_values().collect(),
            others: self.others.into_values().collect(),
            from_ms,
        }
    }
}

/// For how long a question is answered.
struct Patience {
    end: Instant,
    asker: Option<Weak<()>>,
}

impl Patience {
    fn is_over(&self) -> bool {
        let is_alone = |asker: &Weak<()>| asker.strong_count() == 0;
        Instant::now() >= self.end || self.asker.as_ref().is_some_and(is_alone)
    }
}

/// A search in one file.
struct Search<'a> {
    file: FileId,
    conditions: &'a Conditions,
    limit: usize,
    patience: &'a Patience,
}

/// What was found in one file, the newest first.
struct Part {
    file: FileId,
    rows: VecDeque<Row>,
    /// Bytes of bodies, results and output in them.
    bytes: usize,
    /// Rows from here on were looked at, and either did not match, or are in `rows` or in the answer.
    seen_to: i64,
}

impl Part {
    /// Whether nothing is left of its file.
    fn is_done(&self) -> bool {
        self.rows.is_empty() && self.seen_to <= 1
    }

    /// The number below which a question goes on.
    fn before(&self) -> i64 {
        self.rows.front().map_or(self.seen_to, |row| row.id.n + 1)
    }
}

/// Takes rows from the files of a day in the order of time. Within a file the order of commits counts, which a change of the
/// clock does not change.
fn merge(parts: &mut [Part], limit: usize, rows: &mut Vec<Row>) {
    while rows.len() < limit {
        let newest = parts
            .iter_mut()
            .filter(|part| !part.rows.is_empty())
            .max_by_key(|part| part.rows.front().map(|row| row.ended_at));
        let Some(row) = newest.and_then(|part| part.rows.pop_front()) else {
            return;
        };
        rows.push(row);
    }
}

/// Where a question goes on. `day`: all files of the day.
fn rest_of(day: &[FileId], parts: &[Part]) -> Cursor {
    let place = |file: &FileId| RowId {
        file: *file,
        n: parts
            .iter()
            .find(|part| part.file == *file)
            .map_or(1, Part::before),
    };
    Cursor::at(day.iter().map(place).collect())
}

impl Search<'_> {
    /// Looks through the rows with numbers below `before`, from the last one on.
    fn run(&self, reader: &mut dyn Reader, before: Option<i64>) -> Result<Part, Error> {
        let mut part = Part {
            file: self.file,
            rows: VecDeque::new(),
            bytes: 0,
            seen_to: 1,
        };
        let mut upto = match before {
            Some(before) => before - 1,
            None => self.last(reader)?,
        };
        while upto > 0 {
            let from = if self.conditions.is_indexed {
                1
            } else {
                (upto - STEP + 1).max(1)
            };
            // With as many rows as are wanted there may be more below the last one.
            let is_full = self.piece(reader, from, upto, &mut part)?;
            part.seen_to = match part.rows.back() {
                Some(row) if is_full => row.id.n,
                _ => from,
            };
            if is_full || self.patience.is_over() {
                break;
            }
            upto = from - 1;
        }
        Ok(part)
    }

    /// The last number of the file; 0: it has no rows.
    fn last(&self, reader: &mut dyn Reader) -> Result<i64, Error> {
        let select = Select {
            columns: "max(n) AS n",
            table: "ended",
            conditions: &Conditions::default(),
            rest: String::new(),
        };
        let mut last = None;
        reader.select(self.file, &select, &mut |row| {
            last = row.number("n")?;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(last.unwrap_or(0))
    }

    /// Looks through some rows. Returns whether the answer has enough of them.
    fn piece(
        &self,
        reader: &mut dyn Reader,
        from: i64,
        upto: i64,
        part: &mut Part,
    ) -> Result<bool, Error> {
        let room = self.limit.saturating_sub(part.rows.len());
        let select = Select {
            columns: COLUMNS,
            table: "ended",
            conditions: self.conditions,
            rest: format!(" AND n BETWEEN {from} AND {upto} ORDER BY n DESC LIMIT {room}"),
        };
        let file = self.file;
        reader.select(file, &select, &mut |row| {
            let row = read(row, |n| RowId { file, n })?;
            part.bytes += row.kept_bytes();
            part.rows.push_back(row);
            Ok(if part.bytes >= BYTES_MAX {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        Ok(part.bytes >= BYTES_MAX || part.rows.len() >= self.limit)
    }
}

/// Adds the hours in a file. Returns whether there was time for all of them.
fn add_hours(
    reader: &mut dyn Reader,
    file: FileId,
    conditions: &Conditions,
    patience: &Patience,
    sums: &mut Sums,
) -> Result<bool, Error> {
    const LOOK_EVERY: usize = 1_000;
    let select = Select {
        columns: HOUR_COLUMNS,
        table: "hours",
        conditions,
        rest: String::new(),
    };
    let mut read = 0;
    let mut is_whole = true;
    reader.select(file, &select, &mut |row| {
        sums.add(HourRow::read(row)?);
        read += 1;
        is_whole = read % LOOK_EVERY != 0 || !patience.is_over();
        Ok(if is_whole {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    Ok(is_whole)
}

#[cfg(test)]
pub(crate) mod tests;
