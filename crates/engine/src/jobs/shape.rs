//! The common part of similar packed jobs, and the values in which such jobs differ.

use std::mem::discriminant;

use super::extra::{Cycle, Expiry, Extra, KeyUntil, Track};
use super::job::{Job, Retry, Unfit};
use super::payload::Payload;
use super::state::JobState;
use crate::ids::{JobId, Priority, Protocol, QueueId, Timestamp};

/// Numbers that a job has of its own, beside those that every job has.
pub(super) const NUMBERS: usize = 7;

/// A job without the values in the row ([`Own`] and [`numbers`]).
#[derive(Clone, Debug)]
pub(super) struct Shape {
    protocol: Protocol,
    priority: Priority,
    durable: bool,
    state: JobState,
    attempts: u32,
    failures: u32,
    retry: Retry,
    unfit: Unfit,
    extra: Option<Box<Extra>>,
}

/// The values that every job has.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) id: JobId,
    pub(super) queue: QueueId,
    pub(super) rank: u64,
    pub(super) ready_at: Timestamp,
    pub(super) payload: Payload,
}

impl Shape {
    pub(super) fn of(job: &Job) -> Self {
        let Job {
            protocol,
            priority,
            durable,
            attempts,
            failures,
            retry,
            unfit,
            ..
        } = *job;
        let (state, extra) = (job.state.clone(), job.extra.clone());
        Self {
            protocol,
            priority,
            durable,
            state,
            attempts,
            failures,
            retry,
            unfit,
            extra,
        }
    }

    /// Returns true if a job differs from this shape only in the values of the row.
    #[inline]
    pub(super) fn fits(&self, job: &Job) -> bool {
        let Job {
            id: _,
            queue: _,
            rank: _,
            ready_at: _,
            payload: _,
            ..
        } = job;
        let Job {
            protocol,
            priority,
            durable,
            state,
            attempts,
            failures,
            retry,
            unfit,
            extra,
            ..
        } = job;
        let same_extra = match (&self.extra, extra) {
            (None, None) => true,
            (Some(one), Some(other)) => is_alike(one, other),
            (None, Some(_)) | (Some(_), None) => false,
        };
        same_extra
            && discriminant(&self.state) == discriminant(state)
            && self.protocol == *protocol
            && self.priority == *priority
            && self.durable == *durable
            && self.attempts == *attempts
            && self.failures == *failures
            && self.unfit == *unfit
            && self.retry == *retry
    }

    /// The job of this shape with these values. The [`numbers`] are those of the shape.
    #[inline]
    pub(super) fn job(&self, own: Own) -> Job {
        let Own {
            id,
            queue,
            rank,
            ready_at,
            payload,
        } = own;
        let Self {
            protocol,
            priority,
            durable,
            attempts,
            failures,
            retry,
            unfit,
            ..
        } = *self;
        let (state, extra) = (self.state.clone(), self.extra.clone());
        Job {
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
        }
    }

    /// Returns true if a job of this shape has some of [`numbers`].
    #[inline]
    pub(super) fn has_numbers(&self) -> bool {
        self.extra.is_some() || !matches!(self.state, JobState::Ready | JobState::Parked)
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> u64 {
        size_of::<Self>() as u64 + extra_bytes(self.extra.as_deref())
    }
}

/// The minimum share of a job's optional fields in [`Job::weight_bytes`].
#[inline]
pub(super) fn extra_bytes(extra: Option<&Extra>) -> u64 {
    extra.map_or(0, |_| (Extra::FIXED_BYTES - Extra::FIXED_BYTES / 4) as u64)
}

/// Returns true if two jobs have the same optional fields except for [`numbers`].
fn is_alike(one: &Extra, other: &Extra) -> bool {
    let Extra {
        meta,
        expires,
        key_until,
        cycle,
        losses,
        failure,
        attempts,
        progress,
        result_keep_ms,
        lease_ms,
        result,
        result_by,
        track,
        member,
        collector,
        taken_back,
        coalesced,
        listeners,
        origin,
        output,
    } = one;
    let boost = |cycle: &Option<Cycle>| cycle.map(|cycle| cycle.boost);
    let keep_ms = |track: &Option<Track>| track.map(|track| track.keep_ms);
    let same_origin = match (origin.as_deref(), other.origin.as_deref()) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is_alike(other),
        (None, Some(_)) | (Some(_), None) => false,
    };
    same_origin
        && *output == other.output
        && (discriminant(expires), discriminant(key_until))
            == (discriminant(&other.expires), discriminant(&other.key_until))
        && (boost(cycle), keep_ms(track)) == (boost(&other.cycle), keep_ms(&other.track))
        && (meta, losses, failure, attempts, progress)
            == (
                &other.meta,
                &other.losses,
                &other.failure,
                &other.attempts,
                &other.progress,
            )
        && (result_keep_ms, lease_ms, result, result_by, member)
            == (
                &other.result_keep_ms,
                &other.lease_ms,
                &other.result,
                &other.result_by,
                &other.member,
            )
        && (collector, taken_back, coalesced, listeners)
            == (
                &other.collector,
                &other.taken_back,
                &other.coalesced,
                &other.listeners,
            )
}

/// The numbers in which jobs differ that are alike otherwise: the time of the state, the expiry, the limit of the key,
/// the position in a `cycle` queue, the time of the last change, and when it was pushed and due.
pub(super) fn numbers(job: &Job) -> [Option<u64>; NUMBERS] {
    let state = match &job.state {
        JobState::Scheduled(at)
        | JobState::Retrying(at)
        | JobState::Dead(at)
        | JobState::Done(at) => Some(at.0),
        JobState::Ready | JobState::Parked | JobState::Leased(_) => None,
    };
    let Some(extra) = job.extra.as_deref() else {
        return [state, None, None, None, None, None, None];
    };
    let expires = match extra.expires {
        Expiry::At(at) | Expiry::By(at) => Some(at.0),
        Expiry::Never => None,
    };
    let key_until = match extra.key_until {
        KeyUntil::EndOr(at) | KeyUntil::StartOr(at) => Some(at.0),
        KeyUntil::End | KeyUntil::Start | KeyUntil::Gone => None,
    };
    let cycle = extra.cycle.map(|cycle| cycle.priority);
    let origin = extra.origin.as_deref();
    [
        state,
        expires,
        key_until,
        cycle,
        extra.track.map(|track| track.updated_at.0),
        origin.map(|origin| origin.pushed_at.0),
        origin.and_then(|origin| origin.due_at).map(|at| at.0),
    ]
}

/// The same values, to modify them.
pub(super) fn numbers_mut(job: &mut Job) -> [Option<&mut u64>; NUMBERS] {
    let state = match &mut job.state {
        JobState::Scheduled(at)
        | JobState::Retrying(at)
        | JobState::Dead(at)
        | JobState::Done(at) => Some(&mut at.0),
        JobState::Ready | JobState::Parked | JobState::Leased(_) => None,
    };
    let Some(extra) = job.extra.as_deref_mut() else {
        return [state, None, None, None, None, None, None];
    };
    let expires = match &mut extra.expires {
        Expiry::At(at) | Expiry::By(at) => Some(&mut at.0),
        Expiry::Never => None,
    };
    let key_until = match &mut extra.key_until {
        KeyUntil::EndOr(at) | KeyUntil::StartOr(at) => Some(&mut at.0),
        KeyUntil::End | KeyUntil::Start | KeyUntil::Gone => None,
    };
    let cycle = extra.cycle.as_mut().map(|cycle| &mut cycle.priority);
    let (pushed_at, due_at) = extra
        .origin
        .as_deref_mut()
        .map(|origin| (&mut origin.pushed_at.0, origin.due_at.as_mut()))
        .unzip();
    [
        state,
        expires,
        key_until,
        cycle,
        extra.track.as_mut().map(|track| &mut track.updated_at.0),
        pushed_at,
        due_at.flatten().map(|at| &mut at.0),
    ]
}
