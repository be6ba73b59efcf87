//! Facts and their bytes: a whole job, a job's standing, a job's deletion, a queue, a queue's deletion, the engine
//! meta; a whole schedule, a schedule's next run; a whole batch, a batch's progress; the beginning of a day. Schedules
//! and batches share the numbers of jobs, and are deleted by the same record.
//!
//! The encoding is written by hand and never derived from the engine's types, so that renaming a field cannot break a
//! disk. A record marks its own end; `frame` handles the bytes around records. The formats here must stay readable for
//! ever: the files in `golden/` verify it. A record that must change gets a new kind, and the old kind stays readable.

mod attempts;
mod batch;
mod job;
mod moved;
mod policy;
mod schedule;
mod standing;
mod template;

use std::collections::BTreeSet;

use bytes::Bytes;
use windlass_engine::{
    Batch, Clock, Coalesce, Codec, DAYS_KEPT, DayBegin, EngineMeta, Job, JobId, Priority, Protocol,
    Protocols, QueueId, QueueImage, QueueKind, QueueRules, Schedule, Throttle, Totals,
};

use crate::codec::{DecodeError, Reader, code, put_bytes, put_i64, put_time, put_u32, put_u64};
pub use batch::BatchMoved;
pub(crate) use batch::{encode_batch, encode_batch_moved};
#[cfg(test)]
pub(crate) use job::plain_job;
pub(crate) use job::{Tail, encode_put};
pub use moved::Moved;
pub(crate) use moved::encode_moved;
pub use schedule::NextRun;
pub(crate) use schedule::{encode_next_run, encode_schedule};

const PUT: u8 = 1;
const MOVED: u8 = 2;
const GONE: u8 = 3;
const QUEUE_SET: u8 = 4;
const QUEUE_GONE: u8 = 5;
/// Without totals by origin: read, but no longer written.
const SCHEDULE: u8 = 7;
const NEXT_RUN: u8 = 8;
const BATCH: u8 = 9;
const BATCH_MOVED: u8 = 10;
const HEAD: u8 = 12;
const DAY: u8 = 13;

/// Counts, numbers and ranks stay below this, so that counting on from a journal never overflows.
pub(crate) const COUNT_MAX: u64 = 1 << 63;
/// By their codes.
const KINDS: [QueueKind; 2] = [QueueKind::Work, QueueKind::Cycle];
const CODECS: [Codec; 3] = [Codec::Text, Codec::Json, Codec::Base64];

/// One fact of the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A whole job. It replaces all earlier records of this job.
    Put(Job),
    /// How a job stands now; the rest of it is unchanged.
    Moved(Moved),
    /// A job, a schedule or a batch is deleted.
    Gone(JobId),
    /// A queue, whole.
    QueueSet(QueueImage),
    /// A queue is deleted.
    QueueGone(QueueId),
    /// A whole schedule. It replaces all earlier records of this schedule.
    Schedule(Box<Schedule>),
    /// When a schedule runs next; the rest of it is unchanged.
    NextRun(NextRun),
    /// A whole batch. It replaces all earlier records of this batch.
    Batch(Box<Batch>),
    /// The progress of a batch; the rest of it is unchanged.
    BatchMoved(BatchMoved),
    /// The counters when a day began. It replaces the record of the day that began [`DAYS_KEPT`] days before.
    Day(DayBegin),
    /// The engine's own numbers. Every commit has one.
    Meta(MetaRecord),
}

/// Journalled state besides jobs and queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaRecord {
    /// The engine's numbers.
    pub meta: EngineMeta,
    /// The daemon stopped cleanly after this commit.
    pub clean: bool,
}

/// The kind of a record's subject.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Subject {
    /// The engine's own numbers.
    Meta,
    /// A queue, by number.
    Queue,
    /// A job, a schedule or a batch: they share one range of numbers.
    Entity,
    /// The beginning of a day, by its number modulo [`DAYS_KEPT`].
    Day,
}

/// A record's effect on its subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Replaces the whole subject.
    Whole,
    /// Replaces the part that changes; the rest is unchanged.
    Part,
    /// Deletes the subject.
    Gone,
}

/// A record's subject and effect, decoded from its first bytes alone.
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
        let (subject, effect) = match kind {
            PUT | SCHEDULE | BATCH => (Subject::Entity, Effect::Whole),
            MOVED | NEXT_RUN | BATCH_MOVED => (Subject::Entity, Effect::Part),
            GONE => (Subject::Entity, Effect::Gone),
            QUEUE_SET => (Subject::Queue, Effect::Whole),
            QUEUE_GONE => (Subject::Queue, Effect::Gone),
            DAY => (Subject::Day, Effect::Whole),
            HEAD => {
                return Ok(Self {
                    subject: Subject::Meta,
                    number: 0,
                    effect: Effect::Whole,
                });
            }
            kind => return Err(DecodeError::Kind(kind)),
        };
        let number = from.below("a number", COUNT_MAX)?;
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

pub(crate) fn encode_gone(id: JobId, out: &mut Vec<u8>) {
    out.push(GONE);
    put_u64(out, id.0);
}

pub(crate) fn encode_queue_gone(id: QueueId, out: &mut Vec<u8>) {
    out.push(QUEUE_GONE);
    put_u32(out, id.0);
}

pub(crate) fn encode_queue(image: &QueueImage, out: &mut Vec<u8>) {
    out.push(QUEUE_SET);
    put_u32(out, image.id.0);
    put_bytes(out, &image.name);
    out.push(code(&KINDS, image.kind));
    let (throttled, ruled) = (image.throttle.is_some(), image.rules.is_some());
    let is_paused = !image.paused.is_empty();
    let paused_at = image.paused_at.filter(|_| is_paused);
    let parts = Parts::of(image);
    let has_policy = image.policy.is_some() || !image.paused_keys.is_empty();
    let flags = [
        image.is_known(),
        is_paused,
        throttled,
        ruled,
        paused_at.is_some(),
        parts != Parts::ALL,
        has_policy,
    ];
    let flags = flags.into_iter().chain([image.saved.is_some()]);
    put_u64(
        out,
        (0..)
            .zip(flags)
            .map(|(bit, flag)| u64::from(flag) << bit)
            .sum(),
    );
    for limit in image.jobs_max {
        put_u64(out, limit.map_or(0, |limit| u64::from(limit) + 1));
    }
    put_u64(out, image.serial);
    if let Some(throttle) = &image.throttle {
        encode_throttle(throttle, out);
    }
    if let Some(rules) = &image.rules {
        encode_rules(rules, out);
    }
    paused_at.into_iter().for_each(|at| put_time(out, at));
    if parts != Parts::ALL {
        out.extend([parts.known.bits(), parts.paused.bits()]);
        put_u64(
            out,
            parts
                .jobs_max_of
                .map_or(0, |protocol| u64::from(protocol.0) + 1),
        );
    }
    if has_policy {
        policy::encode(image.policy.as_deref(), &image.paused_keys, out);
    }
    if let Some(saved) = image.saved.as_deref() {
        policy::encode_saved(saved, out);
    }
}

/// Whose a queue's settings are. A record without them has them for all protocols, as those of earlier versions.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Parts {
    known: Protocols,
    paused: Protocols,
    jobs_max_of: Option<Protocol>,
}

impl Parts {
    const ALL: Self = Self {
        known: Protocols::ALL,
        paused: Protocols::ALL,
        jobs_max_of: None,
    };

    /// An empty set is written as all: a flag distinguishes them.
    fn of(image: &QueueImage) -> Self {
        let part = |protocols: Protocols| {
            if protocols.is_empty() {
                Protocols::ALL
            } else {
                protocols
            }
        };
        Self {
            known: part(image.known),
            paused: part(image.paused),
            jobs_max_of: image.jobs_max_of,
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (known, paused) = (
            Protocols::from_bits(from.u8()?),
            Protocols::from_bits(from.u8()?),
        );
        let coded = from.below("the protocol of a queue's limit", 1 << 8 | 1)?;
        let jobs_max_of = coded
            .checked_sub(1)
            .and_then(|number| u8::try_from(number).ok())
            .map(Protocol);
        Ok(Self {
            known,
            paused,
            jobs_max_of,
        })
    }
}

/// Flags for the parts that exist, then these parts.
fn encode_throttle(throttle: &Throttle, out: &mut Vec<u8>) {
    let Throttle {
        leased_max,
        per_worker_max,
        timeout_ms,
        configured,
    } = *throttle;
    let parts = [
        leased_max.map(u64::from),
        per_worker_max.map(u64::from),
        timeout_ms,
    ];
    let flags = parts.iter().map(Option::is_some).chain([configured]);
    out.push(
        (0..)
            .zip(flags)
            .map(|(bit, flag)| u8::from(flag) << bit)
            .sum(),
    );
    parts
        .into_iter()
        .flatten()
        .for_each(|part| put_u64(out, part));
}

/// The codec, flags for the rules that exist, then these rules.
fn encode_rules(rules: &QueueRules, out: &mut Vec<u8>) {
    let QueueRules {
        codec,
        retry,
        body_bytes_max,
        ttl_ms,
        dead_ms,
        dead_max,
        dedup_ms,
        coalesce,
    } = *rules;
    let numbers = [
        body_bytes_max.map(u64::from),
        ttl_ms,
        dead_ms,
        dead_max.map(u64::from),
        dedup_ms,
    ];
    out.push(code(&CODECS, codec));
    let flags = std::iter::once(retry.is_some()).chain(numbers.iter().map(Option::is_some));
    let flags = flags.chain([coalesce.is_some()]);
    put_u64(
        out,
        (1..)
            .zip(flags)
            .map(|(bit, flag)| u64::from(flag) << bit)
            .sum(),
    );
    retry
        .into_iter()
        .for_each(|retry| job::put_retry(retry, out));
    numbers
        .into_iter()
        .flatten()
        .for_each(|number| put_u64(out, number));
    if let Some(Coalesce {
        by_key,
        latest,
        quiet_ms,
        at_most_ms,
        once_more,
    }) = coalesce
    {
        let flags = [by_key, latest, once_more, at_most_ms.is_some()];
        out.push(
            (0..)
                .zip(flags)
                .map(|(bit, flag)| u8::from(flag) << bit)
                .sum(),
        );
        put_u64(out, quiet_ms);
        at_most_ms.into_iter().for_each(|ms| put_u64(out, ms));
    }
}

pub(crate) fn encode_meta(record: &MetaRecord, out: &mut Vec<u8>) {
    let MetaRecord { meta, clean } = record;
    out.push(HEAD);
    let boot_count = Some(meta.boot_count).filter(|boot_count| *boot_count > 0);
    let clock = Some(meta.clock).filter(|clock| *clock != Clock::default());
    let misfits =
        meta.totals.misfits > 0 || meta.protocols.iter().any(|(_, totals)| totals.misfits > 0);
    out.push(
        u8::from(*clean)
            | u8::from(boot_count.is_some()) << 1
            | u8::from(misfits) << 2
            | u8::from(clock.is_some()) << 3,
    );
    boot_count
        .into_iter()
        .for_each(|boot_count| put_u64(out, boot_count));
    put_u64(out, meta.next_job);
    put_u64(out, meta.reserved);
    put_totals(&meta.totals, misfits, out);
    put_u64(out, meta.protocols.len() as u64);
    for (protocol, totals) in &meta.protocols {
        out.push(protocol.0);
        put_totals(totals, misfits, out);
    }
    if let Some(Clock {
        skew_ms,
        boot,
        ahead_ms,
        at,
    }) = clock
    {
        put_i64(out, skew_ms);
        out.extend_from_slice(&boot.to_le_bytes());
        put_i64(out, ahead_ms);
        put_time(out, at);
    }
}

pub(crate) fn encode_day(begin: &DayBegin, out: &mut Vec<u8>) {
    let DayBegin {
        number,
        day,
        totals,
    } = begin;
    out.push(DAY);
    put_u64(out, *number);
    put_u64(out, *day);
    put_totals(totals, true, out);
}

/// `told`: whether `misfits` is written, because one of the totals has some.
fn put_totals(totals: &Totals, told: bool, out: &mut Vec<u8>) {
    let values = totals.values();
    let told = if told { values.len() } else { values.len() - 1 };
    values.into_iter().take(told).for_each(|n| put_u64(out, n));
}

impl Record {
    /// Decodes the record at the front of the reader.
    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.u8()? {
            PUT => job::decode_put(from).map(Self::Put),
            MOVED => moved::decode_moved(from).map(Self::Moved),
            GONE => from
                .below("a job's number", COUNT_MAX)
                .map(|id| Self::Gone(JobId(id))),
            QUEUE_SET => decode_queue(from).map(Self::QueueSet),
            QUEUE_GONE => from
                .u32("a queue's number")
                .map(|id| Self::QueueGone(QueueId(id))),
            HEAD => decode_meta(from).map(Self::Meta),
            SCHEDULE => {
                schedule::decode_schedule(from).map(|schedule| Self::Schedule(Box::new(schedule)))
            }
            NEXT_RUN => schedule::decode_next_run(from).map(Self::NextRun),
            BATCH => batch::decode_batch(from).map(|batch| Self::Batch(Box::new(batch))),
            BATCH_MOVED => batch::decode_batch_moved(from).map(Self::BatchMoved),
            DAY => decode_day(from).map(Self::Day),
            kind => Err(DecodeError::Kind(kind)),
        }
    }

    /// Every record of `bytes`, up to the first invalid one.
    pub fn all(bytes: &[u8]) -> impl Iterator<Item = Result<Self, DecodeError>> {
        Reader::new(bytes).each(Self::decode)
    }

    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Put(job) => append_tail(encode_put(job, usize::MAX, out), out),
            Self::Moved(moved) => moved.encode(out),
            Self::Gone(id) => encode_gone(*id, out),
            Self::QueueSet(image) => encode_queue(image, out),
            Self::QueueGone(id) => encode_queue_gone(*id, out),
            Self::Schedule(schedule) => {
                append_tail(encode_schedule(schedule, usize::MAX, out), out)
            }
            Self::NextRun(next) => next.encode(out),
            Self::Batch(batch) => encode_batch(batch, out),
            Self::BatchMoved(moved) => moved.encode(out),
            Self::Day(begin) => encode_day(begin, out),
            Self::Meta(meta) => encode_meta(meta, out),
        }
    }
}

fn decode_queue(from: &mut Reader<'_>) -> Result<QueueImage, DecodeError> {
    let id = QueueId(from.u32("a queue's number")?);
    let name = from.owned()?;
    let kind = from.one_of(&KINDS, "a queue's kind")?;
    let flags = from.below("a queue's flags", 1 << 8)?;
    let mut jobs_max = [None; Priority::COUNT];
    for limit in &mut jobs_max {
        let coded = from.below("a queue's limit", 1 << 33)?;
        *limit = coded.checked_sub(1).and_then(|n| u32::try_from(n).ok());
    }
    let serial = from.below("a queue's serial", COUNT_MAX)?;
    let throttle = if flags & 4 != 0 {
        Some(decode_throttle(from)?)
    } else {
        None
    };
    let rules = if flags & 8 != 0 {
        Some(decode_rules(from)?)
    } else {
        None
    };
    let rules = rules
        .filter(|rules| *rules != QueueRules::default())
        .map(Box::new);
    let paused_at = if flags & 16 != 0 {
        Some(from.time()?).filter(|_| flags & 2 != 0)
    } else {
        None
    };
    let parts = if flags & 32 != 0 {
        Parts::decode(from)?
    } else {
        Parts::ALL
    };
    let known = if flags & 1 != 0 {
        parts.known
    } else {
        Protocols::NONE
    };
    let paused = if flags & 2 != 0 {
        parts.paused
    } else {
        Protocols::NONE
    };
    let jobs_max_of = parts.jobs_max_of;
    let (policy, paused_keys) = if flags & 64 != 0 {
        policy::decode(from)?
    } else {
        (None, BTreeSet::new())
    };
    let saved = if flags & 128 != 0 {
        Some(Box::new(policy::decode_saved(from)?))
    } else {
        None
    };
    Ok(QueueImage {
        id,
        name,
        kind,
        known,
        paused,
        paused_at,
        jobs_max,
        jobs_max_of,
        throttle,
        rules,
        policy,
        paused_keys,
        saved,
        serial,
    })
}

/// In earlier versions the first flag isolated the protocols from one another. Now the configuration decides.
fn decode_rules(from: &mut Reader<'_>) -> Result<QueueRules, DecodeError> {
    let codec = from.one_of(&CODECS, "a queue's codec")?;
    let flags = from.below("a rule's flags", 1 << 8)?;
    let retry = if flags & 2 != 0 {
        Some(job::read_retry(from)?)
    } else {
        None
    };
    let body_bytes_max = if flags & 4 != 0 {
        Some(from.u32("a limit of bodies")?)
    } else {
        None
    };
    let ttl_ms = if flags & 8 != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    let dead_ms = if flags & 16 != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    let dead_max = if flags & 32 != 0 {
        Some(from.u32("a limit of dead jobs")?)
    } else {
        None
    };
    let dedup_ms = if flags & 64 != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    let coalesce = if flags & 128 != 0 {
        Some(decode_coalesce(from)?)
    } else {
        None
    };
    Ok(QueueRules {
        codec,
        retry,
        body_bytes_max,
        ttl_ms,
        dead_ms,
        dead_max,
        dedup_ms,
        coalesce,
    })
}

fn decode_coalesce(from: &mut Reader<'_>) -> Result<Coalesce, DecodeError> {
    let flags = from.below("flags of coalescing", 16)?;
    let [by_key, latest, once_more] = [1, 2, 4].map(|bit| flags & bit != 0);
    let quiet_ms = from.u64()?;
    let at_most_ms = if flags & 8 != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    Ok(Coalesce {
        by_key,
        latest,
        quiet_ms,
        at_most_ms,
        once_more,
    })
}

fn decode_throttle(from: &mut Reader<'_>) -> Result<Throttle, DecodeError> {
    let flags = from.below("a throttle's flags", 16)?;
    let leased_max = if flags & 1 != 0 {
        Some(from.u32("a throttle's limit")?)
    } else {
        None
    };
    let per_worker_max = if flags & 2 != 0 {
        Some(from.u32("a throttle's limit for a worker")?)
    } else {
        None
    };
    let timeout_ms = if flags & 4 != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    Ok(Throttle {
        leased_max,
        per_worker_max,
        timeout_ms,
        configured: flags & 8 != 0,
    })
}

fn decode_meta(from: &mut Reader<'_>) -> Result<MetaRecord, DecodeError> {
    let flags = from.below("the engine meta's flags", 16)?;
    let misfits = flags & 4 != 0;
    let boot_count = if flags & 2 != 0 {
        from.below("the boot count", COUNT_MAX)?
    } else {
        0
    };
    let next_job = from.below("the next job's number", COUNT_MAX)?;
    let reserved = from.below("the reserved numbers", COUNT_MAX)?;
    let totals = read_totals(from, misfits)?;
    let mut protocols = Vec::new();
    for _ in 0..from.below("a count of protocols", 257)? {
        let protocol = Protocol(from.u8()?);
        if protocols.last().is_some_and(|(last, _)| *last >= protocol) {
            return Err(DecodeError::Range {
                field: "a protocol",
                value: protocol.0.into(),
            });
        }
        protocols.push((protocol, read_totals(from, misfits)?));
    }
    let clock = if flags & 8 != 0 {
        read_clock(from)?
    } else {
        Clock::default()
    };
    let meta = EngineMeta {
        next_job,
        reserved,
        boot_count,
        clock,
        totals,
        protocols,
    };
    Ok(MetaRecord {
        meta,
        clean: flags & 1 != 0,
    })
}

fn decode_day(from: &mut Reader<'_>) -> Result<DayBegin, DecodeError> {
    let number = from.below("a day's number", COUNT_MAX)?;
    if number == 0 {
        return Err(DecodeError::Range {
            field: "a day's number",
            value: number,
        });
    }
    let day = from.below("a day", COUNT_MAX)?;
    Ok(DayBegin {
        number,
        day,
        totals: read_totals(from, true)?,
    })
}

fn read_clock(from: &mut Reader<'_>) -> Result<Clock, DecodeError> {
    let skew_ms = from.i64()?;
    let boot = read_le(from)?;
    Ok(Clock {
        skew_ms,
        boot,
        ahead_ms: from.i64()?,
        at: from.time()?,
    })
}

/// Eight bytes, the low one first.
fn read_le(from: &mut Reader<'_>) -> Result<u64, DecodeError> {
    Ok(from
        .slice(8)?
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn read_totals(from: &mut Reader<'_>, misfits: bool) -> Result<Totals, DecodeError> {
    let mut values = Totals::default().values();
    let told = if misfits {
        values.len()
    } else {
        values.len() - 1
    };
    for total in values.iter_mut().take(told) {
        *total = from.below("a total", COUNT_MAX)?;
    }
    Ok(Totals::of(values))
}

/// Reads an optional byte string; `there` is the caller's flag bit.
pub(crate) fn owned_if(from: &mut Reader<'_>, there: bool) -> Result<Option<Bytes>, DecodeError> {
    if there {
        from.owned().map(Some)
    } else {
        Ok(None)
    }
}

fn append_tail(tail: Option<Box<Tail>>, out: &mut Vec<u8>) {
    tail.iter().for_each(|tail| tail.append_to(out));
}
