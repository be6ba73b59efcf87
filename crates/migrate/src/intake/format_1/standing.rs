//! How a job stands.

use windlass_codec::{DecodeError, Reader};
use windlass_engine::{
    Cycle, Failure, Holder, JobState, Lease, OnExpiry, Progress, Protocol, Timestamp, Token,
};

use super::{COUNT_MAX, owned, time};

/// Ranks are written as their distance from here, where the engine's ranks start.
const RANK_MIDDLE: i64 = 1 << 62;

/// The number of halvings that reduce a 64-bit number to zero.
const BOOST_MAX: u64 = 64;

/// Optional fields of a job, as bits.
pub(super) mod has {
    pub(in super::super) const KEY: u64 = 1;
    pub(in super::super) const NAME: u64 = 1 << 1;
    pub(in super::super) const META: u64 = 1 << 2;
    pub(in super::super) const EXPIRES_AT: u64 = 1 << 3;
    pub(in super::super) const KEY_UNTIL: u64 = 1 << 4;
    pub(in super::super) const CYCLE: u64 = 1 << 5;
    pub(in super::super) const FAILURE: u64 = 1 << 6;
    pub(in super::super) const PROGRESS: u64 = 1 << 7;
    pub(in super::super) const RESULT_KEEP: u64 = 1 << 8;
    pub(in super::super) const LEASE_MS: u64 = 1 << 9;
    pub(in super::super) const RESULT: u64 = 1 << 10;
    pub(in super::super) const MEMBER: u64 = 1 << 11;
    /// Only in a job's standing: its batch has counted it as run.
    pub(in super::super) const RAN: u64 = 1 << 12;
    pub(in super::super) const TRACK: u64 = 1 << 13;
    /// A failure that was not the first.
    pub(in super::super) const FAILED_BEFORE: u64 = 1 << 14;
    /// The result is in the format of another protocol than the job's.
    pub(in super::super) const RESULT_BY: u64 = 1 << 15;
    /// A failure with a known time of its next try.
    pub(in super::super) const NEXT_AT: u64 = 1 << 16;
    /// Number of workers lost with the job.
    pub(in super::super) const LOSSES: u64 = 1 << 17;
    /// It expires by the engine's time.
    pub(in super::super) const EXPIRES_BY: u64 = 1 << 18;
    /// The name under which its producer collects its end.
    pub(in super::super) const COLLECTOR: u64 = 1 << 19;
    /// Past attempts.
    pub(in super::super) const ATTEMPTS: u64 = 1 << 20;
    /// Submits that became the job.
    pub(in super::super) const COALESCED: u64 = 1 << 21;
    /// Its submits are a part of those of the job ahead.
    pub(in super::super) const JOINED: u64 = 1 << 22;
    /// A job has one time to expire, at most.
    pub(in super::super) const EXPIRES: u64 = EXPIRES_AT | EXPIRES_BY;
    /// Above all of them.
    pub(in super::super) const END: u64 = 1 << 23;
}

/// In the place of what happens when a lease runs out: its worker's connection has ended with the daemon's earlier life.
/// The worker's name is its protocol then.
const AWAY: u8 = 3;

pub(super) fn read_standing(
    from: &mut Reader<'_>,
) -> Result<(JobState, u64, Timestamp, u32, u32), DecodeError> {
    let state = match from.u8()? {
        0 => JobState::Ready,
        1 => JobState::Leased(Box::new(read_lease(from)?)),
        2 => JobState::Scheduled(time(from)?),
        3 => JobState::Retrying(time(from)?),
        4 => JobState::Dead(time(from)?),
        5 => JobState::Parked,
        6 => JobState::Done(time(from)?),
        other => {
            return Err(DecodeError::Range {
                field: "a state",
                value: other.into(),
            });
        }
    };
    let rank = from.i64()?.wrapping_add(RANK_MIDDLE).cast_unsigned();
    if rank == 0 || rank >= COUNT_MAX {
        return Err(DecodeError::Range {
            field: "a rank",
            value: rank,
        });
    }
    Ok((
        state,
        rank,
        time(from)?,
        from.u32("attempts")?,
        from.u32("failures")?,
    ))
}

fn read_lease(from: &mut Reader<'_>) -> Result<Lease, DecodeError> {
    let name = from.bytes()?;
    let (token, taken_at, until) = (Token(from.u64()?), time(from)?, time(from)?);
    let (holder, on_expiry) = match (from.u8()?, name) {
        (0, name) => (Holder::Named(name.into()), OnExpiry::Fail),
        (1, name) => (Holder::Named(name.into()), OnExpiry::Requeue),
        (2, name) => (Holder::Named(name.into()), OnExpiry::Front),
        (AWAY, [protocol]) => (Holder::Away(Protocol(*protocol)), OnExpiry::Requeue),
        (other, _) => {
            return Err(DecodeError::Range {
                field: "a lease's end",
                value: other.into(),
            });
        }
    };
    Ok(Lease::new(holder, token, taken_at, until, on_expiry))
}

pub(super) fn read_losses(from: &mut Reader<'_>, bits: u64) -> Result<u32, DecodeError> {
    if bits & has::LOSSES == 0 {
        Ok(0)
    } else {
        from.u32("workers lost")
    }
}

pub(super) type ToldOwned = (Option<Cycle>, Option<Box<Failure>>, Option<Progress>);

pub(super) fn read_told(from: &mut Reader<'_>, bits: u64) -> Result<ToldOwned, DecodeError> {
    let cycle = if bits & has::CYCLE == 0 {
        None
    } else {
        Some(read_cycle(from)?)
    };
    if bits & has::FAILURE == 0 && bits & (has::FAILED_BEFORE | has::NEXT_AT) != 0 {
        return Err(DecodeError::Range {
            field: "a failure's bits",
            value: bits,
        });
    }
    let failure = if bits & has::FAILURE == 0 {
        None
    } else {
        Some(Box::new(read_failure(from, bits)?))
    };
    let progress = if bits & has::PROGRESS == 0 {
        None
    } else {
        Some(read_progress(from)?)
    };
    Ok((cycle, failure, progress))
}

fn read_cycle(from: &mut Reader<'_>) -> Result<Cycle, DecodeError> {
    let priority = from.below("a cycle's priority", COUNT_MAX)?;
    let boost = from.below("a cycle's boost", BOOST_MAX)?;
    Ok(Cycle {
        priority,
        boost: u32::try_from(boost).unwrap_or_default(),
    })
}

fn read_failure(from: &mut Reader<'_>, bits: u64) -> Result<Failure, DecodeError> {
    let at = time(from)?;
    let first_at = if bits & has::FAILED_BEFORE == 0 {
        at
    } else {
        time(from)?
    };
    let next_at = if bits & has::NEXT_AT == 0 {
        None
    } else {
        Some(time(from)?)
    };
    let (kind, message) = (owned(from)?, owned(from)?);
    let lines = from.u64()?;
    // Grown while reading: the announced count is untrusted.
    let mut backtrace = Vec::new();
    for _ in 0..lines {
        backtrace.push(owned(from)?);
    }
    Ok(Failure {
        at,
        first_at,
        next_at,
        kind,
        message,
        backtrace,
    })
}

fn read_progress(from: &mut Reader<'_>) -> Result<Progress, DecodeError> {
    Ok(Progress {
        numerator: from.u32("progress")?,
        denominator: from.u32("progress")?,
        text: owned(from)?,
    })
}
