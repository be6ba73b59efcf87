//! Facts and their bytes: a whole job, a job's standing, a job's deletion, a queue, a queue's deletion, the engine
//! meta; a whole schedule, a schedule's next run; a whole batch, a batch's progress; the beginning of a day; the end of a
//! job, for the history; a namespace, a namespace's deletion. Schedules
//! and batches share the numbers of jobs, and are deleted by the same record.
//!
//! ```text
//! record = kind value        a deletion has a number as its value
//! ```
//!
//! A value is encoded from the type by `windlass_codec`. The page of that crate lists the permitted changes
//! of a type: the store of an older program must stay readable, as the records in `golden/` verify. A record
//! is self-delimiting.

mod check;
mod moved;
mod put;

use serde::{Deserialize, Serialize};
use windlass_codec::{DecodeError, Reader, decode, encode, put_u32, put_u64};
use windlass_engine::{
    Batch, BatchProgress, DAYS_KEPT, DayBegin, Ended, EngineMeta, Job, JobId, Namespace,
    NamespaceImage, QueueId, QueueImage, Schedule,
};

pub use moved::{Moved, NextRun};
pub(crate) use moved::{encode_moved, encode_next_run};
pub(crate) use put::{Tail, encode_put};

const PUT: u8 = 1;
const MOVED: u8 = 2;
const GONE: u8 = 3;
const QUEUE_SET: u8 = 4;
const QUEUE_GONE: u8 = 5;
const SCHEDULE: u8 = 7;
const NEXT_RUN: u8 = 8;
const BATCH: u8 = 9;
const BATCH_MOVED: u8 = 10;
const HEAD: u8 = 12;
const DAY: u8 = 13;
const ENDED: u8 = 14;
const NAMESPACE: u8 = 15;
const NAMESPACE_GONE: u8 = 16;

/// Counts, numbers and ranks stay below this, so that continuing a recovered sequence never
/// overflows.
pub(crate) const COUNT_MAX: u64 = 1 << 63;

/// A fact of the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A full job, replacing all previous records of this job.
    Put(Job),
    /// The changing part of a job; the rest is unchanged.
    Moved(Moved),
    /// A job, a schedule or a batch is deleted.
    Gone(JobId),
    /// A full queue.
    QueueSet(QueueImage),
    /// A queue is deleted.
    QueueGone(QueueId),
    /// A full schedule, replacing all previous records of this schedule.
    Schedule(Box<Schedule>),
    /// The next occurrence of a schedule; the rest is unchanged.
    NextRun(NextRun),
    /// A full batch, replacing all previous records of this batch.
    Batch(Box<Batch>),
    /// The progress of a batch; the rest of it is unchanged.
    BatchMoved(BatchMoved),
    /// The counters when a day began. It replaces the record of the day that began [`DAYS_KEPT`] days before.
    Day(DayBegin),
    /// A row for the history. It changes nothing in the store, and no table has it.
    Ended(Box<Ended>),
    /// A full namespace, before the queues in it.
    Namespace(Box<NamespaceImage>),
    /// A namespace is deleted.
    NamespaceGone(Namespace),
    /// The engine's own numbers. Every commit has one.
    Meta(MetaRecord),
}

/// Journalled state besides jobs and queues.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct MetaRecord {
    /// The engine meta.
    pub meta: EngineMeta,
    /// The daemon stopped cleanly after this commit.
    pub clean: bool,
}

/// The progress of a batch: the part that is updated while jobs are processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct BatchMoved {
    /// The batch.
    pub batch: JobId,
    /// The progress.
    pub progress: BatchProgress,
}

/// The kind of a record's subject.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Subject {
    /// The engine meta.
    Meta,
    /// A namespace, by number.
    Namespace,
    /// A queue, by number.
    Queue,
    /// A job, a schedule or a batch: they share a range of numbers.
    Entity,
    /// The start of a day, by the day's number modulo [`DAYS_KEPT`].
    Day,
}

/// A record's effect on the subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Replaces the full subject.
    Whole,
    /// Replaces the changing part; the rest is unchanged.
    Part,
    /// Deletes the subject.
    Gone,
}

/// A record's subject and effect, decoded only from the first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag {
    pub(crate) subject: Subject,
    pub(crate) number: u64,
    pub(crate) effect: Effect,
}

impl Tag {
    pub(crate) fn of(record: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(record);
        let kind = from.u8()?;
        let number = match kind {
            GONE | QUEUE_GONE | NAMESPACE_GONE => from.u64()?,
            HEAD => 0,
            _ => first_field(&mut from)?,
        };
        Self::new(kind, number)
    }

    /// The tag of a record of this kind and number.
    pub(crate) fn new(kind: u8, number: u64) -> Result<Self, DecodeError> {
        let (subject, effect) = match kind {
            PUT | SCHEDULE | BATCH => (Subject::Entity, Effect::Whole),
            MOVED | NEXT_RUN | BATCH_MOVED => (Subject::Entity, Effect::Part),
            GONE => (Subject::Entity, Effect::Gone),
            QUEUE_SET => (Subject::Queue, Effect::Whole),
            QUEUE_GONE => (Subject::Queue, Effect::Gone),
            DAY => (Subject::Day, Effect::Whole),
            NAMESPACE => (Subject::Namespace, Effect::Whole),
            NAMESPACE_GONE => (Subject::Namespace, Effect::Gone),
            HEAD => (Subject::Meta, Effect::Whole),
            kind => return Err(DecodeError::Kind(kind)),
        };
        check::below("a number", number, COUNT_MAX)?;
        let number = if subject == Subject::Day {
            number % DAYS_KEPT
        } else {
            number
        };
        Ok(Self {
            subject,
            number,
            effect,
        })
    }
}

/// The first field of a struct, a number: that of the record's subject.
fn first_field(from: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let has_fields = from.u64()? > 0;
    let has_number = has_fields && from.u64()? & 1 == 1;
    if has_number { from.u64() } else { Ok(0) }
}

/// Appends a record.
fn put<T: Serialize>(kind: u8, value: &T, out: &mut Vec<u8>) {
    out.push(kind);
    #[expect(
        clippy::expect_used,
        reason = "whether a type can be written does not depend on its value, and a test writes each"
    )]
    encode(value, out).expect("a type that can be written");
}

pub(crate) fn encode_gone(id: JobId, out: &mut Vec<u8>) {
    out.push(GONE);
    put_u64(out, id.0);
}

pub(crate) fn encode_queue_gone(id: QueueId, out: &mut Vec<u8>) {
    out.push(QUEUE_GONE);
    put_u32(out, id.0);
}

pub(crate) fn encode_namespace(image: &NamespaceImage, out: &mut Vec<u8>) {
    put(NAMESPACE, image, out);
}

pub(crate) fn encode_namespace_gone(id: Namespace, out: &mut Vec<u8>) {
    out.push(NAMESPACE_GONE);
    put_u32(out, id.0.into());
}

pub(crate) fn encode_queue(image: &QueueImage, out: &mut Vec<u8>) {
    put(QUEUE_SET, image, out);
}

pub(crate) fn encode_schedule(schedule: &Schedule, out: &mut Vec<u8>) {
    put(SCHEDULE, schedule, out);
}

pub(crate) fn encode_batch(batch: &Batch, out: &mut Vec<u8>) {
    put(BATCH, batch, out);
}

pub(crate) fn encode_batch_moved(batch: &Batch, out: &mut Vec<u8>) {
    let moved = BatchMoved {
        batch: batch.id,
        progress: batch.progress,
    };
    put(BATCH_MOVED, &moved, out);
}

pub(crate) fn encode_meta(record: &MetaRecord, out: &mut Vec<u8>) {
    put(HEAD, record, out);
}

pub(crate) fn encode_day(begin: &DayBegin, out: &mut Vec<u8>) {
    put(DAY, begin, out);
}

pub(crate) fn encode_ended(row: &Ended, out: &mut Vec<u8>) {
    put(ENDED, row, out);
}

/// The row for the history that a record is; `None`: it is something else.
pub(crate) fn read_ended(record: &[u8]) -> Option<Result<Ended, DecodeError>> {
    let mut from = Reader::new(record);
    (from.u8() == Ok(ENDED)).then(|| decode(&mut from))
}

/// Whether a record is a row for the history.
pub(crate) fn is_ended(record: &[u8]) -> bool {
    record.first() == Some(&ENDED)
}

const NAMESPACE_NUMBER: &str = "a namespace's number";

fn namespace(number: u32) -> Result<Namespace, DecodeError> {
    check::below(
        NAMESPACE_NUMBER,
        number.into(),
        u64::from(Namespace::MAX.0) + 1,
    )?;
    Ok(Namespace(u16::try_from(number).unwrap_or_default()))
}

impl Record {
    /// The namespace of a full queue, job, schedule or batch.
    pub(crate) fn namespace(&self) -> Option<Namespace> {
        match self {
            Self::QueueSet(image) => Some(image.id.namespace()),
            Self::Put(job) => Some(job.queue.namespace()),
            Self::Schedule(schedule) => Some(schedule.job.namespace),
            Self::Batch(batch) => Some(batch.namespace),
            Self::Moved(_)
            | Self::Gone(_)
            | Self::QueueGone(_)
            | Self::NextRun(_)
            | Self::BatchMoved(_)
            | Self::Day(_)
            | Self::Ended(_)
            | Self::Namespace(_)
            | Self::NamespaceGone(_)
            | Self::Meta(_) => None,
        }
    }

    /// Decodes the record at the front of the reader.
    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let record = match from.u8()? {
            PUT => Self::Put(decode(from)?),
            MOVED => Self::Moved(decode(from)?),
            GONE => Self::Gone(JobId(from.u64()?)),
            QUEUE_SET => Self::QueueSet(decode(from)?),
            QUEUE_GONE => Self::QueueGone(QueueId(from.u32("a queue's number")?)),
            SCHEDULE => Self::Schedule(decode(from)?),
            NEXT_RUN => Self::NextRun(decode(from)?),
            BATCH => Self::Batch(decode(from)?),
            BATCH_MOVED => Self::BatchMoved(decode(from)?),
            DAY => Self::Day(decode(from)?),
            ENDED => Self::Ended(decode(from)?),
            HEAD => Self::Meta(decode(from)?),
            NAMESPACE => Self::Namespace(decode(from)?),
            NAMESPACE_GONE => Self::NamespaceGone(namespace(from.u32(NAMESPACE_NUMBER)?)?),
            kind => return Err(DecodeError::Kind(kind)),
        };
        record.check()?;
        Ok(record.at_rest())
    }

    /// Removes the state that does not survive a connection ([`Job::rest`]).
    fn at_rest(mut self) -> Self {
        if let Self::Put(job) = &mut self {
            job.rest();
        } else if let Self::Moved(moved) = &mut self {
            moved.rest();
        }
        self
    }

    /// Every record of `bytes`, up to the first invalid one.
    pub fn all(bytes: &[u8]) -> impl Iterator<Item = Result<Self, DecodeError>> {
        Reader::new(bytes).each(Self::decode)
    }

    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Put(job) => {
                if let Some(tail) = encode_put(job, usize::MAX, out) {
                    tail.append_to(out);
                }
            }
            Self::Moved(moved) => put(MOVED, moved, out),
            Self::Gone(id) => encode_gone(*id, out),
            Self::QueueSet(image) => encode_queue(image, out),
            Self::QueueGone(id) => encode_queue_gone(*id, out),
            Self::Schedule(schedule) => encode_schedule(schedule, out),
            Self::NextRun(next) => put(NEXT_RUN, next, out),
            Self::Batch(batch) => encode_batch(batch, out),
            Self::BatchMoved(moved) => put(BATCH_MOVED, moved, out),
            Self::Day(begin) => encode_day(begin, out),
            Self::Ended(row) => encode_ended(row, out),
            Self::Namespace(image) => encode_namespace(image, out),
            Self::NamespaceGone(id) => encode_namespace_gone(*id, out),
            Self::Meta(meta) => encode_meta(meta, out),
        }
    }
}

/// A ready job without optional fields.
#[cfg(test)]
pub(crate) fn plain_job(id: u64) -> Job {
    use windlass_engine::{Payload, Priority, Protocol, Retry, Timestamp, Unfit};

    Job {
        unfit: Unfit::NONE,
        id: JobId(id),
        queue: QueueId(0),
        protocol: Protocol::GEARMAN,
        priority: Priority::NORMAL,
        durable: true,
        rank: id,
        state: windlass_engine::JobState::Ready,
        ready_at: Timestamp(1),
        payload: Payload::copy(None, b"", &[7; 100]),
        attempts: 0,
        failures: 0,
        retry: Retry::NONE,
        extra: None,
    }
}
