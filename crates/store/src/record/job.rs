//! A job's bytes.
//!
//! ```text
//! put   = 1 id queue bits protocol priority standing retry [key] [extra] result-len body-len result body
//! ```

use bytes::Bytes;
use windlass_engine::{
    Backoff, Coalesced, Expiry, Extra, Job, JobId, KeyUntil, Member, Payload, Priority, Progress,
    Protocol, QueueId, Retry, Role, Stored, Track, Unfit,
};

use super::attempts::{put_attempts, read_attempts};
use super::standing::{
    Standing, failed_before, has, has_next_at, is_bound, put_losses, put_standing, put_tagged_time,
    put_told, read_losses, read_standing, read_told,
};
use super::{COUNT_MAX, PUT, owned_if};
use crate::codec::{
    DecodeError, Number, Reader, code, put_bytes, put_i64, put_time, put_u32, put_u64,
};

/// The last bytes of a record, not yet copied: a result, then a body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    pub(crate) result: Bytes,
    pub(crate) body: Bytes,
    /// Where the body is, until it is read into `body`.
    pub(crate) stored: Option<Stored>,
    /// The record to write if it cannot be read: the changing part of the job, the rest of which an earlier commit has.
    pub(crate) moved: Vec<u8>,
    /// Bytes of the record before the tail.
    pub(crate) inline: usize,
}

impl Tail {
    pub(crate) fn len(&self) -> usize {
        self.result.len()
            + self
                .stored
                .map_or(self.body.len(), |stored| stored.len as usize)
    }

    /// The changing part of the job, with its length in front.
    pub(crate) fn framed_moved(&self) -> Vec<u8> {
        let mut framed = Number::of(self.moved.len() as u64).to_vec();
        framed.extend_from_slice(&self.moved);
        framed
    }

    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.result);
        out.extend_from_slice(&self.body);
    }
}

/// Appends a whole job without its tail if that exceeds `inline_max` bytes. Such a tail is shared, not copied, and the
/// caller appends it.
pub(crate) fn encode_put(job: &Job, inline_max: usize, out: &mut Vec<u8>) -> Option<Box<Tail>> {
    let extra = job.extra.as_deref();
    let progress = extra
        .and_then(|e| e.progress.as_ref())
        .filter(|_| !is_bound(job));
    out.push(PUT);
    put_u64(out, job.id.0);
    put_u32(out, job.queue.0);
    put_u64(out, bits(job, extra, progress));
    out.push(job.protocol.0);
    out.push(job.priority.value());
    put_standing(&Standing::of(job), out);
    put_retry(job.retry, out);
    if let Some(key) = job.key() {
        put_bytes(out, key);
    }
    if !job.name().is_empty() {
        put_bytes(out, job.name());
    }
    if let Some(extra) = extra {
        put_extra(extra, progress, out);
    }
    let result = extra.and_then(|e| e.result.as_ref());
    if let Some(result) = result {
        put_u64(out, result.len() as u64);
    }
    let (body_bytes, stored) = (job.payload.body_len(), job.payload.stored());
    put_u64(out, body_bytes as u64);
    if stored.is_some() || body_bytes + result.map_or(0, Bytes::len) > inline_max {
        let body = if stored.is_some() {
            Bytes::new()
        } else {
            job.payload.share_body()
        };
        let result = result.cloned().unwrap_or_default();
        return Some(Box::new(Tail {
            result,
            body,
            stored,
            ..Tail::default()
        }));
    }
    if let Some(result) = result {
        out.extend_from_slice(result);
    }
    out.extend_from_slice(job.body());
    None
}

fn bits(job: &Job, extra: Option<&Extra>, progress: Option<&Progress>) -> u64 {
    let bit = |there: bool, bit: u64| if there { bit } else { 0 };
    let key = bit(job.key().is_some(), has::KEY);
    let common = key | bit(!job.name().is_empty(), has::NAME);
    let Some(extra) = extra else { return common };
    common
        | bit(!extra.meta.is_empty(), has::META)
        | bit(matches!(extra.expires, Expiry::At(_)), has::EXPIRES_AT)
        | bit(extra.key_until != KeyUntil::End, has::KEY_UNTIL)
        | bit(extra.cycle.is_some(), has::CYCLE)
        | bit(extra.failure.is_some(), has::FAILURE)
        | bit(failed_before(extra.failure.as_deref()), has::FAILED_BEFORE)
        | bit(has_next_at(extra.failure.as_deref()), has::NEXT_AT)
        | bit(progress.is_some(), has::PROGRESS)
        | bit(extra.result_keep_ms != 0, has::RESULT_KEEP)
        | bit(extra.lease_ms.is_some(), has::LEASE_MS)
        | bit(extra.result.is_some(), has::RESULT)
        | bit(extra.result_by.is_some(), has::RESULT_BY)
        | bit(extra.member.is_some(), has::MEMBER)
        | bit(extra.track.is_some(), has::TRACK)
        | bit(extra.losses > 0, has::LOSSES)
        | bit(matches!(extra.expires, Expiry::By(_)), has::EXPIRES_BY)
        | bit(!extra.collector.is_empty(), has::COLLECTOR)
        | bit(extra.attempts.is_some(), has::ATTEMPTS)
        | bit(extra.coalesced.is_some(), has::COALESCED)
        | bit(
            extra.coalesced.as_deref().is_some_and(|it| it.joined),
            has::JOINED,
        )
}

pub(super) fn put_retry(retry: Retry, out: &mut Vec<u8>) {
    put_i64(out, retry.failures_max.into());
    put_u32(out, retry.losses_max);
    match retry.backoff {
        Backoff::None => out.push(0),
        Backoff::Fixed(ms) => put_tagged(1, ms, out),
        Backoff::Doubling(ms) => put_tagged(2, ms, out),
        Backoff::Faktory => out.push(3),
    }
}

fn put_tagged(tag: u8, value: u32, out: &mut Vec<u8>) {
    out.push(tag);
    put_u32(out, value);
}

/// All fields with a set bit, in order of the bits.
fn put_extra(extra: &Extra, progress: Option<&Progress>, out: &mut Vec<u8>) {
    if !extra.meta.is_empty() {
        put_bytes(out, &extra.meta);
    }
    if let Expiry::At(at) = extra.expires {
        put_time(out, at);
    }
    put_key_until(extra.key_until, out);
    put_told((extra.cycle, extra.failure.as_deref(), progress), out);
    if extra.result_keep_ms != 0 {
        put_u64(out, extra.result_keep_ms);
    }
    if let Some(ms) = extra.lease_ms {
        put_u64(out, ms);
    }
    if let Some(Member { batch, role, ran }) = extra.member {
        put_u64(out, batch.0);
        out.push(code(&ROLES, role) << 1 | u8::from(ran));
    }
    if let Some(Track {
        keep_ms,
        updated_at,
    }) = extra.track
    {
        put_u64(out, keep_ms);
        put_time(out, updated_at);
    }
    if let Some(by) = extra.result_by {
        out.push(by.0);
    }
    put_losses(extra.losses, out);
    if let Expiry::By(at) = extra.expires {
        put_time(out, at);
    }
    if !extra.collector.is_empty() {
        put_bytes(out, &extra.collector);
    }
    put_attempts(extra.attempts.as_deref(), out);
    if let Some(Coalesced {
        since,
        submits,
        attempts,
        behind,
        joined: _,
    }) = extra.coalesced.as_deref().copied()
    {
        put_time(out, since);
        put_u32(out, submits);
        put_u32(out, attempts);
        // No job has the number 0.
        put_u64(out, behind.map_or(0, |job| job.0));
    }
}

/// Writes nothing for the most common end.
pub(super) fn put_key_until(until: KeyUntil, out: &mut Vec<u8>) {
    match until {
        KeyUntil::End => {}
        KeyUntil::Start => out.push(1),
        KeyUntil::EndOr(at) => put_tagged_time(2, at, out),
        KeyUntil::StartOr(at) => put_tagged_time(3, at, out),
        KeyUntil::Gone => out.push(4),
    }
}

// ---- reading -------------------------------------------------------------------------------------------------------

pub(super) fn decode_put(from: &mut Reader<'_>) -> Result<Job, DecodeError> {
    let id = JobId(from.below("a job's number", COUNT_MAX)?);
    let queue = QueueId(from.u32("a queue's number")?);
    let bits = from.below("a job's bits", has::END)?;
    let part_of_none = bits & (has::JOINED | has::COALESCED) == has::JOINED;
    if bits & has::RAN != 0 || bits & has::EXPIRES == has::EXPIRES || part_of_none {
        return Err(DecodeError::Range {
            field: "a job's bits",
            value: bits,
        });
    }
    let protocol = Protocol(from.u8()?);
    let priority = read_priority(from)?;
    let (state, rank, ready_at, attempts, failures) = read_standing(from)?;
    let retry = read_retry(from)?;
    let key = if bits & has::KEY != 0 {
        Some(from.bytes()?)
    } else {
        None
    };
    let name = if bits & has::NAME != 0 {
        from.bytes()?
    } else {
        &[]
    };
    let mut extra = if bits & !(has::KEY | has::NAME) == 0 {
        None
    } else {
        Some(Box::new(read_extra(from, bits)?))
    };
    let result_bytes = if bits & has::RESULT != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    let body_bytes = from.u64()?;
    if let (Some(extra), Some(bytes)) = (&mut extra, result_bytes) {
        extra.result = Some(Bytes::copy_from_slice(from.slice(bytes)?));
    }
    let payload = Payload::copy(key, name, from.slice(body_bytes)?);
    let durable = true;
    let unfit = Unfit::NONE;
    Ok(Job {
        id,
        queue,
        protocol,
        priority,
        durable,
        rank,
        state,
        ready_at,
        payload,
        attempts,
        failures,
        retry,
        unfit,
        extra,
    })
}

pub(super) fn read_priority(from: &mut Reader<'_>) -> Result<Priority, DecodeError> {
    match from.u8()? {
        priority @ 1..=9 => Ok(Priority::clamped(priority)),
        other => Err(DecodeError::Range {
            field: "a priority",
            value: other.into(),
        }),
    }
}

pub(super) fn read_retry(from: &mut Reader<'_>) -> Result<Retry, DecodeError> {
    let failures_max = from.i64()?;
    let failures_max = i32::try_from(failures_max).map_err(|_| DecodeError::Range {
        field: "a retry budget",
        value: failures_max.cast_unsigned(),
    })?;
    let losses_max = from.u32("a loss budget")?;
    let backoff = match from.u8()? {
        0 => Backoff::None,
        1 => Backoff::Fixed(from.u32("a back-off")?),
        2 => Backoff::Doubling(from.u32("a back-off")?),
        3 => Backoff::Faktory,
        other => {
            return Err(DecodeError::Range {
                field: "a back-off",
                value: other.into(),
            });
        }
    };
    Ok(Retry {
        failures_max,
        losses_max,
        backoff,
    })
}

fn read_extra(from: &mut Reader<'_>, bits: u64) -> Result<Extra, DecodeError> {
    let has = |bit: u64| bits & bit != 0;
    let mut extra = Extra {
        meta: owned_if(from, has(has::META))?.unwrap_or_default(),
        ..Extra::default()
    };
    if has(has::EXPIRES_AT) {
        extra.expires = Expiry::At(from.time()?);
    }
    if has(has::KEY_UNTIL) {
        extra.key_until = read_key_until(from)?;
    }
    (extra.cycle, extra.failure, extra.progress) = read_told(from, bits)?;
    if has(has::RESULT_KEEP) {
        extra.result_keep_ms = from.u64()?;
    }
    if has(has::LEASE_MS) {
        extra.lease_ms = Some(from.u64()?);
    }
    if has(has::MEMBER) {
        extra.member = Some(read_member(from)?);
    }
    if has(has::TRACK) {
        extra.track = Some(Track {
            keep_ms: from.u64()?,
            updated_at: from.time()?,
        });
    }
    if has(has::RESULT_BY) {
        extra.result_by = Some(Protocol(from.u8()?));
    }
    extra.losses = read_losses(from, bits)?;
    if has(has::EXPIRES_BY) {
        extra.expires = Expiry::By(from.time()?);
    }
    extra.collector = owned_if(from, has(has::COLLECTOR))?.unwrap_or_default();
    if has(has::ATTEMPTS) {
        extra.attempts = Some(read_attempts(from)?);
    }
    if has(has::COALESCED) {
        let (since, submits, attempts) =
            (from.time()?, from.u32("submits")?, from.u32("deliveries")?);
        let behind = Some(JobId(from.below("a job's number", COUNT_MAX)?)).filter(|job| job.0 > 0);
        extra.coalesced = Some(Box::new(Coalesced {
            since,
            submits,
            attempts,
            behind,
            joined: has(has::JOINED),
        }));
    }
    Ok(extra)
}

/// By their codes.
const ROLES: [Role; 3] = [Role::Job, Role::Complete, Role::Success];

fn read_member(from: &mut Reader<'_>) -> Result<Member, DecodeError> {
    let batch = JobId(from.below("a batch's number", COUNT_MAX)?);
    let code = from.u8()?;
    let role = ROLES.get(usize::from(code >> 1)).copied();
    let role = role.ok_or(DecodeError::Range {
        field: "a job's role",
        value: code.into(),
    })?;
    Ok(Member {
        batch,
        role,
        ran: code & 1 != 0,
    })
}

pub(super) fn read_key_until(from: &mut Reader<'_>) -> Result<KeyUntil, DecodeError> {
    Ok(match from.u8()? {
        1 => KeyUntil::Start,
        2 => KeyUntil::EndOr(from.time()?),
        3 => KeyUntil::StartOr(from.time()?),
        4 => KeyUntil::Gone,
        other => {
            return Err(DecodeError::Range {
                field: "a key's end",
                value: other.into(),
            });
        }
    })
}

/// A job that waits, without anything optional.
#[cfg(test)]
pub(crate) fn plain_job(id: u64) -> Job {
    Job {
        unfit: Unfit::NONE,
        id: JobId(id),
        queue: QueueId(0),
        protocol: Protocol::GEARMAN,
        priority: Priority::NORMAL,
        durable: true,
        rank: id,
        state: windlass_engine::JobState::Ready,
        ready_at: windlass_engine::Timestamp(1),
        payload: Payload::copy(None, b"", &[7; 100]),
        attempts: 0,
        failures: 0,
        retry: Retry::NONE,
        extra: None,
    }
}
