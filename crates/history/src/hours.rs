//! What ended in each hour, by queue and kind: a row of the table `hours`, and adding it up.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use windlass_engine::{Ended, Ending, Histogram};

use crate::Error;
use crate::file_id::HOUR_MS;
use crate::shelf::Columns;

/// The columns of the table `hours`, in order.
pub const HOUR_COLUMNS: &str = "hour, queue, kind, done, failed, other, waited, ran, namespace";

/// What ended in an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HourRow {
    /// Its begin, in milliseconds since 1970.
    pub hour_ms: u64,
    /// The queue, as the text that operators have for it: in a namespace with a name, behind that and a slash.
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
    /// The name of the queue's namespace; empty: that without a name.
    pub namespace: Bytes,
}

/// Between the name of a namespace and that of a queue. A slash would be ambiguous: the namespace without a name may have
/// a queue `shop/mail`.
const SEPARATOR: u8 = 0x1f;

/// The text for a queue in a namespace, which no two namespaces have for queues of the same name.
pub(crate) fn queue_text(namespace: &Bytes, queue: &Bytes) -> Bytes {
    if namespace.is_empty() {
        return queue.clone();
    }
    [&**namespace, &[SEPARATOR], &**queue].concat().into()
}

impl HourRow {
    /// What ended in these rows, by hour, queue and kind.
    pub fn of<'a>(rows: impl Iterator<Item = &'a Ended>) -> Vec<Self> {
        let mut hours = BTreeMap::new();
        for row in rows {
            let hour_ms = row.ended_at.0 / HOUR_MS * HOUR_MS;
            let queue = queue_text(&row.namespace, &row.queue);
            let key = (hour_ms, queue.clone(), row.kind.clone());
            let hour = hours.entry(key).or_insert_with(|| Self {
                hour_ms,
                queue,
                kind: row.kind.clone(),
                namespace: row.namespace.clone(),
                ..Self::default()
            });
            hour.count(row);
        }
        hours.into_values().collect()
    }

    /// The queue's name in its namespace.
    pub fn name(&self) -> Bytes {
        let before = match self.namespace.len() {
            0 => 0,
            length => length + 1,
        };
        self.queue.slice(before.min(self.queue.len())..)
    }

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

    /// Reads a row of [`HOUR_COLUMNS`].
    ///
    /// # Errors
    ///
    /// As [`Columns::number`].
    pub fn read(row: &dyn Columns) -> Result<Self, Error> {
        let count = |column| -> Result<u64, Error> {
            let count = row.number(column)?.unwrap_or_default();
            Ok(u64::try_from(count).unwrap_or_default())
        };
        let bytes = |column| Ok::<_, Error>(row.bytes(column)?.unwrap_or_default());
        Ok(Self {
            hour_ms: count("hour")?,
            queue: bytes("queue")?,
            kind: bytes("kind")?,
            done: count("done")?,
            failed: count("failed")?,
            other: count("other")?,
            waited: durations(&bytes("waited")?),
            ran: durations(&bytes("ran")?),
            namespace: bytes("namespace")?,
        })
    }

    /// How many jobs ended.
    pub const fn ends(&self) -> u64 {
        self.done + self.failed + self.other
    }

    /// The same without its names, which stand for others, too.
    pub(crate) fn of_others(self) -> Self {
        Self {
            queue: Bytes::new(),
            kind: Bytes::new(),
            namespace: Bytes::new(),
            ..self
        }
    }

    /// Adds what ended in another hour.
    pub fn add(&mut self, other: &Self) {
        self.hour_ms = self.hour_ms.min(other.hour_ms);
        self.done += other.done;
        self.failed += other.failed;
        self.other += other.other;
        self.waited = self.waited.merged(&other.waited, u64::saturating_add);
        self.ran = self.ran.merged(&other.ran, u64::saturating_add);
    }
}

/// How durations are written.
#[derive(Default, Deserialize, Serialize)]
struct Durations {
    counts: Vec<u64>,
    sum_ms: u64,
    max_ms: u64,
}

/// Durations as JSON: how many there were of each bound ([`Histogram::BOUNDS_MS`]; the last has none), without the zeros at
/// the end, their sum and the longest, in milliseconds.
pub fn durations_text(all: &Histogram) -> String {
    let last = all.counts.iter().rposition(|count| *count > 0);
    let counts = all.counts.iter().take(last.map_or(0, |last| last + 1));
    let durations = Durations {
        counts: counts.copied().collect(),
        sum_ms: all.sum_ms,
        max_ms: all.max_ms,
    };
    serde_json::to_string(&durations).unwrap_or_default()
}

/// The inverse of [`durations_text`]. What cannot be read is nothing.
fn durations(json: &[u8]) -> Histogram {
    let read: Durations = serde_json::from_slice(json).unwrap_or_default();
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
