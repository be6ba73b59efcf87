//! What can be asked of the history, and how that is said to SQLite.

use bytes::Bytes;
use rusqlite::types::Value;
use windlass_engine::{Ending, Histogram, JobId};

use crate::ask::Cursor;
use crate::row::{number, text};

/// Which rows. All conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Ended at this time or later, in milliseconds since 1970.
    pub from_ms: u64,
    /// Ended before this time.
    pub until_ms: u64,
    /// Of this queue.
    pub queue: Option<Bytes>,
    /// What they call: their kind, or their queue if they have none.
    pub kind: Option<Bytes>,
    /// Ended in one of these ways; empty: in any.
    pub endings: Vec<Ending>,
    /// With this key in the policy of their queue.
    pub key: Option<Bytes>,
    /// Their last worker has this name or this address.
    pub worker: Option<Bytes>,
    /// The producer's public name, or the unique id.
    pub name: Option<Bytes>,
    /// This job.
    pub job: Option<JobId>,
    /// A run of this schedule.
    pub schedule: Option<JobId>,
    /// Another run of this job, which had ended.
    pub again_of: Option<JobId>,
    /// A member of this batch.
    pub batch: Option<JobId>,
    /// Their last run took longer than this, in milliseconds.
    pub slower_than_ms: Option<u64>,
    /// This text is in a name, an error, or in what was kept of body, result and output, whatever the case of ASCII letters.
    pub text: Option<Box<str>>,
    /// Rows, at most.
    pub limit: usize,
    /// Where to go on: `next` of an answer.
    pub after: Option<Cursor>,
}

impl Default for Question {
    /// The newest 100 rows.
    fn default() -> Self {
        Self {
            from_ms: 0,
            until_ms: u64::MAX,
            queue: None,
            kind: None,
            endings: Vec::new(),
            key: None,
            worker: None,
            name: None,
            job: None,
            schedule: None,
            again_of: None,
            batch: None,
            slower_than_ms: None,
            text: None,
            limit: 100,
            after: None,
        }
    }
}

/// Conditions of SQLite with their values.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) sql: String,
    pub(crate) values: Vec<Value>,
    /// Whether an index leads to these rows and to no others, so that a file is asked once and not piece by piece.
    pub(crate) is_indexed: bool,
}

impl Conditions {
    /// Adds a condition, in which each `?` stands for one of the values.
    fn and(&mut self, sql: &str, values: impl IntoIterator<Item = Value>) {
        self.sql.push_str(" AND ");
        self.sql.push_str(sql);
        self.values.extend(values);
    }
}

impl Question {
    pub(crate) fn conditions(&self) -> Conditions {
        let mut all = Conditions::default();
        if self.from_ms > 0 {
            all.and("ended_at >= ?", [number(self.from_ms)]);
        }
        if self.until_ms < u64::MAX {
            all.and("ended_at < ?", [number(self.until_ms)]);
        }
        if let Some(queue) = &self.queue {
            all.and("queue = ?", [text(queue)]);
        }
        if let Some(kind) = &self.kind {
            all.and("coalesce(kind, queue) = ?", [text(kind)]);
        }
        if !self.endings.is_empty() {
            let marks = vec!["?"; self.endings.len()].join(", ");
            let names = self
                .endings
                .iter()
                .map(|ending| Value::Text(ending.name().to_owned()));
            all.and(&format!("ending IN ({marks})"), names);
        }
        if let Some(key) = &self.key {
            all.and("key = ?", [text(key)]);
        }
        if let Some(worker) = &self.worker {
            all.and(
                "(worker = ? OR worker_address = ?)",
                [text(worker), text(worker)],
            );
        }
        if let Some(schedule) = self.schedule {
            all.and("schedule = ?", [number(schedule.0)]);
        }
        if let Some(job) = self.again_of {
            all.and("again_of = ?", [number(job.0)]);
        }
        if let Some(batch) = self.batch {
            all.and("batch = ?", [number(batch.0)]);
        }
        if let Some(ms) = self.slower_than_ms {
            all.and("ended_at - started_at > ?", [number(ms)]);
        }
        if let Some(wanted) = &self.text {
            const PLACES: [&str; 12] = [
                "queue",
                "name",
                "unique_id",
                "kind",
                "key",
                "worker",
                "error",
                "message",
                "backtrace",
                "body",
                "result",
                "output",
            ];
            let pattern = format!("%{}%", escaped(wanted));
            // A body that is no text is a BLOB, in which LIKE finds nothing unless it is taken for text.
            let places = PLACES.map(|place| format!("CAST({place} AS TEXT) LIKE ? ESCAPE '\\'"));
            all.and(
                &format!("({})", places.join(" OR ")),
                PLACES.map(|_| Value::Text(pattern.clone())),
            );
        }
        let plain = all.values.len();
        if let Some(name) = &self.name {
            all.and("(name = ? OR unique_id = ?)", [text(name), text(name)]);
        }
        if let Some(job) = self.job {
            all.and("job = ?", [number(job.0)]);
        }
        let by_queue = plain == usize::from(self.queue.is_some());
        all.is_indexed = all.values.len() > plain || by_queue;
        all
    }
}

/// A text for `LIKE`, in which `%` and `_` are themselves.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// What ended over some hours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hours {
    /// From this time on, in milliseconds since 1970; the hour that it is in counts as a whole.
    pub from_ms: u64,
    /// Before this time, the same.
    pub until_ms: u64,
    /// Of this queue.
    pub queue: Option<Bytes>,
    /// Of this kind, or of the queue of this name if its jobs have no other kind.
    pub kind: Option<Bytes>,
}

/// What ended over some hours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// One for each queue and kind, and each hour if that was asked for.
    pub rows: Vec<HourRow>,
    /// All further queues and kinds, together: one for each hour, or one for all.
    pub others: Vec<HourRow>,
    /// From this time on the answer is complete, in milliseconds since 1970: later than asked if its time was used up, or
    /// if the history begins later.
    pub from_ms: u64,
}

/// What ended in an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HourRow {
    /// Its begin, in milliseconds since 1970.
    pub hour_ms: u64,
    /// The queue.
    pub queue: Bytes,
    /// The kind; empty: the queue.
    pub kind: Bytes,
    /// Jobs that succeeded.
    pub done: u64,
    /// Jobs that failed for good.
    pub failed: u64,
    /// Jobs that ended in another way.
    pub other: u64,
    /// How long they waited, from ready to taken.
    pub waited: Histogram,
    /// How long they ran.
    pub ran: Histogram,
}

impl HourRow {
    /// How many jobs ended.
    pub const fn ends(&self) -> u64 {
        self.done + self.failed + self.other
    }

    /// The same without its names, which stand for others, too.
    pub(crate) fn of_others(self) -> Self {
        Self {
            queue: Bytes::new(),
            kind: Bytes::new(),
            ..self
        }
    }

    /// Adds what ended in another hour.
    pub(crate) fn add(&mut self, other: &Self) {
        self.hour_ms = self.hour_ms.min(other.hour_ms);
        self.done += other.done;
        self.failed += other.failed;
        self.other += other.other;
        self.waited = self.waited.merged(&other.waited, u64::saturating_add);
        self.ran = self.ran.merged(&other.ran, u64::saturating_add);
    }
}
