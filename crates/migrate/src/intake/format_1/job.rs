//! A job.

use bytes::Bytes;
use windlass_codec::{DecodeError, Reader};
use windlass_engine::{
    Backoff, Coalesced, Expiry, Extra, Job, JobId, KeyUntil, Member, Payload, Priority, Protocol,
    QueueId, Retry, Role, Track, Unfit,
};

use super::attempts::read_attempts;
use super::standing::{has, read_losses, read_standing, read_told};
use super::{COUNT_MAX, owned_if, time};

pub(super) fn read(from: &mut Reader<'_>) -> Result<Job, DecodeError> {
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
        extra.expires = Expiry::At(time(from)?);
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
            updated_at: time(from)?,
        });
    }
    if has(has::RESULT_BY) {
        extra.result_by = Some(Protocol(from.u8()?));
    }
    extra.losses = read_losses(from, bits)?;
    if has(has::EXPIRES_BY) {
        extra.expires = Expiry::By(time(from)?);
    }
    extra.collector = owned_if(from, has(has::COLLECTOR))?.unwrap_or_default();
    if has(has::ATTEMPTS) {
        extra.attempts = Some(read_attempts(from)?);
    }
    if has(has::COALESCED) {
        let (since, submits, attempts) =
            (time(from)?, from.u32("submits")?, from.u32("deliveries")?);
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
        2 => KeyUntil::EndOr(time(from)?),
        3 => KeyUntil::StartOr(time(from)?),
        4 => KeyUntil::Gone,
        other => {
            return Err(DecodeError::Range {
                field: "a key's end",
                value: other.into(),
            });
        }
    })
}
