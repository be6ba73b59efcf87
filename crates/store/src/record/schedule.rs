//! A schedule's bytes: whole, with the job it is made from, or only when it runs next.
//!
//! ```text
//! schedule = 7 id bits origin priority queue-name retry [key] [name] [meta] [unique] [not-before] [expires] [keep]
//!            [lease] recurrence anchor next-run body-len body
//! next-run = 8 id next-at runs-left
//! ```
//!
//! Runs left are written one higher, 0 being no end. The times of the job are written as times, although they are spans.

use bytes::Bytes;
use windlass_engine::{
    Clash, Cron, JobId, KeyUntil, NewJob, Origin, Priority, QueueKind, Recurrence, Schedule, Timestamp, Unique,
};

use super::job::{Tail, put_key_until, put_retry, read_key_until, read_retry};
use super::{COUNT_MAX, NEXT_RUN, SCHEDULE, owned_if};
use crate::codec::{DecodeError, Reader, put_bytes, put_time, put_u64};

/// What of a schedule there is to tell, as bits.
mod has {
    pub(super) const KEY: u64 = 1;
    pub(super) const NAME: u64 = 1 << 1;
    pub(super) const META: u64 = 1 << 2;
    pub(super) const UNIQUE: u64 = 1 << 3;
    pub(super) const NOT_BEFORE: u64 = 1 << 4;
    pub(super) const EXPIRES_AT: u64 = 1 << 5;
    pub(super) const RESULT_KEEP: u64 = 1 << 6;
    pub(super) const LEASE_MS: u64 = 1 << 7;
    pub(super) const CYCLE: u64 = 1 << 8;
    pub(super) const FRONT: u64 = 1 << 9;
    pub(super) const NAME_UNIQUE: u64 = 1 << 10;
    pub(super) const KEY_UNTIL: u64 = 1 << 11;
    /// Beyond all of them.
    pub(super) const END: u64 = 1 << 12;
}

/// When a schedule runs next: what changes while it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextRun {
    /// Which schedule.
    pub schedule: JobId,
    /// When.
    pub next_at: Timestamp,
    /// How often from then on; `None` = no end.
    pub runs_left: Option<u64>,
}

impl NextRun {
    const fn of(schedule: &Schedule) -> Self {
        Self { schedule: schedule.id, next_at: schedule.next_at, runs_left: schedule.runs_left }
    }

    /// Brings a schedule up to this.
    pub(crate) const fn apply(self, schedule: &mut Schedule) {
        (schedule.next_at, schedule.runs_left) = (self.next_at, self.runs_left);
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(NEXT_RUN);
        put_u64(out, self.schedule.0);
        self.put(out);
    }

    fn put(self, out: &mut Vec<u8>) {
        put_time(out, self.next_at);
        put_u64(out, self.runs_left.map_or(0, |runs| runs.saturating_add(1)));
    }

    fn read(schedule: JobId, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let next_at = from.time()?;
        let runs_left = match from.u64()? {
            // A schedule whose last run is over is gone.
            1 => return Err(DecodeError::Range { field: "a schedule's runs", value: 1 }),
            coded => coded.checked_sub(1),
        };
        Ok(Self { schedule, next_at, runs_left })
    }
}

/// Appends a schedule whole, but for a body of more than `inline_max` bytes: that is shared, not copied, and the caller's
/// to append.
pub(crate) fn encode_schedule(schedule: &Schedule, inline_max: usize, out: &mut Vec<u8>) -> Tail {
    let job = &schedule.job;
    out.push(SCHEDULE);
    put_u64(out, schedule.id.0);
    put_u64(out, bits(schedule));
    out.push(job.origin.0);
    out.push(job.priority.value());
    put_bytes(out, &job.queue);
    put_retry(job.retry, out);
    [&schedule.key, &job.name].into_iter().flatten().for_each(|name| put_bytes(out, name));
    if !job.meta.is_empty() {
        put_bytes(out, &job.meta);
    }
    if let Some(unique) = &job.unique {
        put_unique(unique, out);
    }
    [job.not_before, job.expires_at].into_iter().flatten().for_each(|span| put_time(out, span));
    if job.result_keep_ms != 0 {
        put_u64(out, job.result_keep_ms);
    }
    job.lease_ms.into_iter().for_each(|ms| put_u64(out, ms));
    put_recurrence(schedule.recurrence, out);
    put_time(out, schedule.anchor);
    NextRun::of(schedule).put(out);
    put_u64(out, job.body.len() as u64);
    if job.body.len() > inline_max {
        return Tail { result: Bytes::new(), body: job.body.clone() };
    }
    out.extend_from_slice(&job.body);
    Tail::default()
}

/// Appends when a schedule runs next.
pub(crate) fn encode_next_run(schedule: &Schedule, out: &mut Vec<u8>) {
    NextRun::of(schedule).encode(out);
}

fn bits(schedule: &Schedule) -> u64 {
    let bit = |there: bool, bit: u64| if there { bit } else { 0 };
    let job = &schedule.job;
    bit(schedule.key.is_some(), has::KEY)
        | bit(job.name.is_some(), has::NAME)
        | bit(!job.meta.is_empty(), has::META)
        | bit(job.unique.is_some(), has::UNIQUE)
        | bit(job.unique.as_ref().is_some_and(|unique| unique.until != KeyUntil::End), has::KEY_UNTIL)
        | bit(job.not_before.is_some(), has::NOT_BEFORE)
        | bit(job.expires_at.is_some(), has::EXPIRES_AT)
        | bit(job.result_keep_ms != 0, has::RESULT_KEEP)
        | bit(job.lease_ms.is_some(), has::LEASE_MS)
        | bit(job.kind == QueueKind::Cycle, has::CYCLE)
        | bit(job.front, has::FRONT)
        | bit(job.name_unique, has::NAME_UNIQUE)
}

fn put_unique(unique: &Unique, out: &mut Vec<u8>) {
    put_bytes(out, &unique.key);
    out.push(match unique.clash {
        Clash::Attach => 0,
        Clash::Refuse => 1,
        Clash::Keep => 2,
    });
    put_key_until(unique.until, out);
}

fn put_recurrence(recurrence: Recurrence, out: &mut Vec<u8>) {
    match recurrence {
        Recurrence::Every { interval_ms } => {
            out.push(0);
            put_u64(out, interval_ms);
        }
        Recurrence::Cron(Cron { minutes, hours, days, months, weekdays, either_day }) => {
            out.push(1);
            out.push(either_day.into());
            for bits in [minutes, hours.into(), days.into(), months.into(), weekdays] {
                put_u64(out, bits);
            }
        }
    }
}

// ---- reading -------------------------------------------------------------------------------------------------------

pub(super) fn decode_next_run(from: &mut Reader<'_>) -> Result<NextRun, DecodeError> {
    let schedule = JobId(from.below("a schedule's number", COUNT_MAX)?);
    NextRun::read(schedule, from)
}

pub(super) fn decode_schedule(from: &mut Reader<'_>) -> Result<Schedule, DecodeError> {
    let id = JobId(from.below("a schedule's number", COUNT_MAX)?);
    let bits = from.below("a schedule's bits", has::END)?;
    let is = |bit: u64| bits & bit != 0;
    let origin = Origin(from.u8()?);
    let priority = match from.u8()? {
        priority @ 1..=9 => Priority::clamped(priority),
        other => return Err(DecodeError::Range { field: "a priority", value: other.into() }),
    };
    let (queue, retry) = (from.owned()?, read_retry(from)?);
    let (key, name) = (owned_if(from, is(has::KEY))?, owned_if(from, is(has::NAME))?);
    let meta = owned_if(from, is(has::META))?.unwrap_or_default();
    let unique = if is(has::UNIQUE) { Some(read_unique(from, is(has::KEY_UNTIL))?) } else { None };
    let mut time_if = |there: bool| if there { from.time().map(Some) } else { Ok(None) };
    let (not_before, expires_at) = (time_if(is(has::NOT_BEFORE))?, time_if(is(has::EXPIRES_AT))?);
    let result_keep_ms = if is(has::RESULT_KEEP) { from.u64()? } else { 0 };
    let lease_ms = if is(has::LEASE_MS) { Some(from.u64()?) } else { None };
    let recurrence = read_recurrence(from)?;
    let anchor = from.time()?;
    let NextRun { next_at, runs_left, .. } = NextRun::read(id, from)?;
    let body = from.owned()?;
    let job = NewJob {
        kind: if is(has::CYCLE) { QueueKind::Cycle } else { QueueKind::Work },
        priority,
        front: is(has::FRONT),
        name,
        name_unique: is(has::NAME_UNIQUE),
        meta,
        unique,
        not_before,
        expires_at,
        retry,
        result_keep_ms,
        lease_ms,
        ..NewJob::new(origin, queue, body)
    };
    Ok(Schedule { id, key, job, recurrence, anchor, next_at, runs_left })
}

fn read_unique(from: &mut Reader<'_>, has_end: bool) -> Result<Unique, DecodeError> {
    let key = from.owned()?;
    let clash = match from.u8()? {
        0 => Clash::Attach,
        1 => Clash::Refuse,
        2 => Clash::Keep,
        other => return Err(DecodeError::Range { field: "what a clash means", value: other.into() }),
    };
    let until = if has_end { read_key_until(from)? } else { KeyUntil::End };
    Ok(Unique { key, clash, until })
}

fn read_recurrence(from: &mut Reader<'_>) -> Result<Recurrence, DecodeError> {
    match from.u8()? {
        0 => Ok(Recurrence::Every { interval_ms: from.u64()? }),
        1 => {
            let either_day = from.below("which days fit", 2)? == 1;
            let minutes = from.u64()?;
            let (hours, days) = (from.u32("hours")?, from.u32("days")?);
            let months = u16::try_from(from.below("months", 1 << 16)?).unwrap_or_default();
            Ok(Recurrence::Cron(Cron { minutes, hours, days, months, weekdays: from.u64()?, either_day }))
        }
        other => Err(DecodeError::Range { field: "a recurrence", value: other.into() }),
    }
}
