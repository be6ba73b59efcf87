//! The template of a job, as a schedule or a batch stores it: everything but its body.
//!
//! ```text
//! template = bits protocol priority queue-name retry [key] [name] [meta] [unique] [not-before] [expires] [keep] [lease]
//!            [track] [expires-after]
//! ```
//!
//! The key is the key of the template's schedule, if it has one.

use bytes::Bytes;
use windlass_engine::{Clash, Expiry, KeyUntil, NewJob, Protocol, QueueKind, Unique};

use super::job::{put_key_until, put_retry, read_key_until, read_priority, read_retry};
use super::owned_if;
use crate::codec::{DecodeError, Reader, code, put_bytes, put_time, put_u64};

/// Optional fields, as bits.
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
    pub(super) const TRACK: u64 = 1 << 12;
    pub(super) const RETRY_DEFAULT: u64 = 1 << 13;
    /// It expires by the engine's time.
    pub(super) const EXPIRES_BY: u64 = 1 << 14;
    /// A job has one time to expire, at most.
    pub(super) const EXPIRES: u64 = EXPIRES_AT | EXPIRES_BY;
    /// Above all of them.
    pub(super) const END: u64 = 1 << 15;
}

/// Appends a template.
pub(super) fn put_template(job: &NewJob, key: Option<&Bytes>, out: &mut Vec<u8>) {
    put_u64(out, bits(job, key));
    out.push(job.protocol.0);
    out.push(job.priority.value());
    put_bytes(out, &job.queue);
    put_retry(job.retry, out);
    [key, job.name.as_ref()]
        .into_iter()
        .flatten()
        .for_each(|name| put_bytes(out, name));
    if !job.meta.is_empty() {
        put_bytes(out, &job.meta);
    }
    if let Some(unique) = &job.unique {
        put_unique(unique, out);
    }
    let (expires_at, expires_by) = match job.expires {
        Expiry::At(at) => (Some(at), None),
        Expiry::By(at) => (None, Some(at)),
        Expiry::Never => (None, None),
    };
    [job.not_before, expires_at]
        .into_iter()
        .flatten()
        .for_each(|time| put_time(out, time));
    if job.result_keep_ms != 0 {
        put_u64(out, job.result_keep_ms);
    }
    job.lease_ms.into_iter().for_each(|ms| put_u64(out, ms));
    if job.track_ms != 0 {
        put_u64(out, job.track_ms);
    }
    expires_by.into_iter().for_each(|time| put_time(out, time));
}

fn bits(job: &NewJob, key: Option<&Bytes>) -> u64 {
    let bit = |there: bool, bit: u64| if there { bit } else { 0 };
    bit(key.is_some(), has::KEY)
        | bit(job.name.is_some(), has::NAME)
        | bit(!job.meta.is_empty(), has::META)
        | bit(job.unique.is_some(), has::UNIQUE)
        | bit(
            job.unique
                .as_ref()
                .is_some_and(|unique| unique.until != KeyUntil::End),
            has::KEY_UNTIL,
        )
        | bit(job.not_before.is_some(), has::NOT_BEFORE)
        | bit(matches!(job.expires, Expiry::At(_)), has::EXPIRES_AT)
        | bit(job.result_keep_ms != 0, has::RESULT_KEEP)
        | bit(job.lease_ms.is_some(), has::LEASE_MS)
        | bit(job.track_ms != 0, has::TRACK)
        | bit(job.kind == QueueKind::Cycle, has::CYCLE)
        | bit(job.front, has::FRONT)
        | bit(job.name_unique, has::NAME_UNIQUE)
        | bit(job.retry_default, has::RETRY_DEFAULT)
        | bit(matches!(job.expires, Expiry::By(_)), has::EXPIRES_BY)
}

/// By their codes.
const CLASHES: [Clash; 3] = [Clash::Attach, Clash::Refuse, Clash::Keep];

fn put_unique(unique: &Unique, out: &mut Vec<u8>) {
    put_bytes(out, &unique.key);
    out.push(code(&CLASHES, unique.clash));
    put_key_until(unique.until, out);
}

/// Reads a template: its key, and the job. The job's body follows separately.
pub(super) fn read_template(from: &mut Reader<'_>) -> Result<(Option<Bytes>, NewJob), DecodeError> {
    let bits = from.below("a template's bits", has::END)?;
    if bits & has::EXPIRES == has::EXPIRES {
        return Err(DecodeError::Range {
            field: "a template's bits",
            value: bits,
        });
    }
    let is = |bit: u64| bits & bit != 0;
    let protocol = Protocol(from.u8()?);
    let priority = read_priority(from)?;
    let (queue, retry) = (from.owned()?, read_retry(from)?);
    let (key, name) = (
        owned_if(from, is(has::KEY))?,
        owned_if(from, is(has::NAME))?,
    );
    let meta = owned_if(from, is(has::META))?.unwrap_or_default();
    let unique = if is(has::UNIQUE) {
        Some(read_unique(from, is(has::KEY_UNTIL))?)
    } else {
        None
    };
    let mut time_if = |there: bool| {
        if there {
            from.time().map(Some)
        } else {
            Ok(None)
        }
    };
    let (not_before, expires_at) = (time_if(is(has::NOT_BEFORE))?, time_if(is(has::EXPIRES_AT))?);
    let result_keep_ms = if is(has::RESULT_KEEP) { from.u64()? } else { 0 };
    let lease_ms = if is(has::LEASE_MS) {
        Some(from.u64()?)
    } else {
        None
    };
    let track_ms = if is(has::TRACK) { from.u64()? } else { 0 };
    let expires_by = if is(has::EXPIRES_BY) {
        Some(Expiry::By(from.time()?))
    } else {
        None
    };
    let job = NewJob {
        track_ms,
        kind: if is(has::CYCLE) {
            QueueKind::Cycle
        } else {
            QueueKind::Work
        },
        priority,
        front: is(has::FRONT),
        name,
        name_unique: is(has::NAME_UNIQUE),
        meta,
        unique,
        not_before,
        expires: expires_by
            .or(expires_at.map(Expiry::At))
            .unwrap_or_default(),
        retry,
        retry_default: is(has::RETRY_DEFAULT),
        result_keep_ms,
        lease_ms,
        ..NewJob::new(protocol, queue, Bytes::new())
    };
    Ok((key, job))
}

fn read_unique(from: &mut Reader<'_>, has_end: bool) -> Result<Unique, DecodeError> {
    let key = from.owned()?;
    let clash = from.one_of(&CLASHES, "a clash rule")?;
    let until = if has_end {
        read_key_until(from)?
    } else {
        KeyUntil::End
    };
    Ok(Unique { key, clash, until })
}
