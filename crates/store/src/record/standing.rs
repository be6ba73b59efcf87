//! The bytes of how a job stands: the part that both of its records have.
//!
//! State that ends with a connection is not written: listeners, and a connection-bound lease with the progress made
//! under it. Such a job is written as ready, without its interrupted delivery. This matches its last journalled state,
//! because taking a job under such a lease is not journalled. So it recovers the same, however often it was rewritten.

use windlass_engine::{
    Cycle, Failure, Holder, Job, JobState, Lease, OnExpiry, Progress, Protocol, Timestamp, Token,
};

use super::COUNT_MAX;
use crate::codec::{DecodeError, Reader, put_bytes, put_i64, put_time, put_u32, put_u64};

/// Ranks are written as their distance from here, where the engine's ranks start.
const RANK_MIDDLE: i64 = 1 << 62;

/// The number of halvings that reduce a 64-bit number to zero.
const BOOST_MAX: u64 = 64;

/// Optional fields of a job, as bits.
pub(super) mod has {
    pub(in crate::record) const KEY: u64 = 1;
    pub(in crate::record) const NAME: u64 = 1 << 1;
    pub(in crate::record) const META: u64 = 1 << 2;
    pub(in crate::record) const EXPIRES_AT: u64 = 1 << 3;
    pub(in crate::record) const KEY_UNTIL: u64 = 1 << 4;
    pub(in crate::record) const CYCLE: u64 = 1 << 5;
    pub(in crate::record) const FAILURE: u64 = 1 << 6;
    pub(in crate::record) const PROGRESS: u64 = 1 << 7;
    pub(in crate::record) const RESULT_KEEP: u64 = 1 << 8;
    pub(in crate::record) const LEASE_MS: u64 = 1 << 9;
    pub(in crate::record) const RESULT: u64 = 1 << 10;
    pub(in crate::record) const MEMBER: u64 = 1 << 11;
    /// Only in a job's standing: its batch has counted it as run.
    pub(in crate::record) const RAN: u64 = 1 << 12;
    pub(in crate::record) const TRACK: u64 = 1 << 13;
    /// A failure that was not the first.
    pub(in crate::record) const FAILED_BEFORE: u64 = 1 << 14;
    /// The result is in the format of another protocol than the job's.
    pub(in crate::record) const RESULT_BY: u64 = 1 << 15;
    /// A failure with a known time of its next try.
    pub(in crate::record) const NEXT_AT: u64 = 1 << 16;
    /// Number of workers lost with the job.
    pub(in crate::record) const LOSSES: u64 = 1 << 17;
    /// It expires by the engine's time.
    pub(in crate::record) const EXPIRES_BY: u64 = 1 << 18;
    /// The name under which its producer collects its end.
    pub(in crate::record) const COLLECTOR: u64 = 1 << 19;
    /// Past attempts.
    pub(in crate::record) const ATTEMPTS: u64 = 1 << 20;
    /// Submits that became the job.
    pub(in crate::record) const COALESCED: u64 = 1 << 21;
    /// Its submits are a part of those of the job ahead.
    pub(in crate::record) const JOINED: u64 = 1 << 22;
    /// A job has one time to expire, at most.
    pub(in crate::record) const EXPIRES: u64 = EXPIRES_AT | EXPIRES_BY;
    /// Above all of them.
    pub(in crate::record) const END: u64 = 1 << 23;
}

/// The part of a standing that every job has, as it is written.
pub(super) struct Standing<'a> {
    pub(super) state: &'a JobState,
    pub(super) rank: u64,
    pub(super) ready_at: Timestamp,
    pub(super) attempts: u32,
    pub(super) failures: u32,
}

impl<'a> Standing<'a> {
    pub(super) fn of(job: &'a Job) -> Self {
        let bound = is_bound(job);
        Self {
            state: if bound { &JobState::Ready } else { &job.state },
            rank: job.rank,
            ready_at: job.ready_at,
            attempts: job.attempts.saturating_sub(bound.into()),
            failures: job.failures,
        }
    }
}

pub(super) fn is_bound(job: &Job) -> bool {
    job.lease().is_some_and(Lease::connection_bound)
}

pub(super) fn put_standing(standing: &Standing<'_>, out: &mut Vec<u8>) {
    match standing.state {
        // `Standing::of` has turned a connection-bound lease into ready.
        JobState::Ready => out.push(0),
        JobState::Leased(lease) => put_lease(lease, out),
        JobState::Scheduled(at) => put_tagged_time(2, *at, out),
        JobState::Retrying(at) => put_tagged_time(3, *at, out),
        JobState::Dead(until) => put_tagged_time(4, *until, out),
        JobState::Parked => out.push(5),
        JobState::Done(until) => put_tagged_time(6, *until, out),
    }
    put_i64(out, standing.rank.cast_signed().wrapping_sub(RANK_MIDDLE));
    put_time(out, standing.ready_at);
    put_u32(out, standing.attempts);
    put_u32(out, standing.failures);
}

pub(super) fn put_tagged_time(tag: u8, at: Timestamp, out: &mut Vec<u8>) {
    out.push(tag);
    put_time(out, at);
}

/// In the place of what happens when a lease runs out: its worker's connection has ended with the daemon's earlier life.
/// The worker's name is its protocol then.
const AWAY: u8 = 3;

fn put_lease(lease: &Lease, out: &mut Vec<u8>) {
    out.push(1);
    match &lease.holder {
        Holder::Named(name) => put_bytes(out, name),
        Holder::Connection(_) => put_bytes(out, &[]),
        Holder::Away(protocol) => put_bytes(out, &[protocol.0]),
    }
    put_u64(out, lease.token.0);
    put_time(out, lease.taken_at);
    put_time(out, lease.until);
    out.push(match (&lease.holder, lease.on_expiry) {
        (Holder::Away(_), _) => AWAY,
        (_, OnExpiry::Fail) => 0,
        (_, OnExpiry::Requeue) => 1,
        (_, OnExpiry::Front) => 2,
    });
}

/// Writes nothing for 0.
pub(super) fn put_losses(losses: u32, out: &mut Vec<u8>) {
    if losses > 0 {
        put_u32(out, losses);
    }
}

pub(super) fn failed_before(failure: Option<&Failure>) -> bool {
    failure.is_some_and(|failure| failure.at != failure.first_at)
}

pub(super) fn has_next_at(failure: Option<&Failure>) -> bool {
    failure.is_some_and(|failure| failure.next_at.is_some())
}

pub(super) type Told<'a> = (Option<Cycle>, Option<&'a Failure>, Option<&'a Progress>);

pub(super) fn put_told((cycle, failure, progress): Told<'_>, out: &mut Vec<u8>) {
    if let Some(Cycle { priority, boost }) = cycle {
        put_u64(out, priority);
        put_u32(out, boost);
    }
    if let Some(Failure {
        at,
        first_at,
        next_at,
        kind,
        message,
        backtrace,
    }) = failure
    {
        put_time(out, *at);
        if at != first_at {
            put_time(out, *first_at);
        }
        next_at.iter().for_each(|at| put_time(out, *at));
        put_bytes(out, kind);
        put_bytes(out, message);
        put_u64(out, backtrace.len() as u64);
        backtrace.iter().for_each(|line| put_bytes(out, line));
    }
    if let Some(Progress {
        numerator,
        denominator,
        text,
    }) = progress
    {
        put_u32(out, *numerator);
        put_u32(out, *denominator);
        put_bytes(out, text);
    }
}

// ---- reading -------------------------------------------------------------------------------------------------------

pub(super) fn read_standing(
    from: &mut Reader<'_>,
) -> Result<(JobState, u64, Timestamp, u32, u32), DecodeError> {
    let state = match from.u8()? {
        0 => JobState::Ready,
        1 => JobState::Leased(Box::new(read_lease(from)?)),
        2 => JobState::Scheduled(from.time()?),
        3 => JobState::Retrying(from.time()?),
        4 => JobState::Dead(from.time()?),
        5 => JobState::Parked,
        6 => JobState::Done(from.time()?),
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
        from.time()?,
        from.u32("attempts")?,
        from.u32("failures")?,
    ))
}

fn read_lease(from: &mut Reader<'_>) -> Result<Lease, DecodeError> {
    let name = from.bytes()?;
    let (token, taken_at, until) = (Token(from.u64()?), from.time()?, from.time()?);
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
    let at = from.time()?;
    let first_at = if bits & has::FAILED_BEFORE == 0 {
        at
    } else {
        from.time()?
    };
    let next_at = if bits & has::NEXT_AT == 0 {
        None
    } else {
        Some(from.time()?)
    };
    let (kind, message) = (from.owned()?, from.owned()?);
    let lines = from.u64()?;
    // Grown while reading: the announced count is untrusted.
    let mut backtrace = Vec::new();
    for _ in 0..lines {
        backtrace.push(from.owned()?);
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
        text: from.owned()?,
    })
}
