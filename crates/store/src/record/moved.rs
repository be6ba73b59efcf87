//! The bytes of only the part of a job that changes.
//!
//! ```text
//! moved = 2 id bits standing [cycle] [failure] [progress] [updated-at] [losses] [attempts]
//!         one of its bits: whether its batch has counted the job
//! ```

use std::sync::Arc;

use windlass_engine::{Attempts, Cycle, Failure, Job, JobId, JobState, Progress, Timestamp};

use super::attempts::{put_attempts, read_attempts};
use super::standing::{
    Standing, Told, failed_before, has, has_next_at, is_bound, put_losses, put_standing, put_told,
    read_losses, read_standing, read_told,
};
use super::{COUNT_MAX, MOVED};
use crate::codec::{DecodeError, Reader, put_time, put_u64};

/// How a job stands: the part that changes while it lives.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// The job.
    pub job: JobId,
    /// Its place. Never a connection-bound lease.
    pub state: JobState,
    /// Its rank: the sort key within the ready queue.
    pub rank: u64,
    /// When it became ready.
    pub ready_at: Timestamp,
    /// Deliveries.
    pub attempts: u32,
    /// Failures.
    pub failures: u32,
    /// Its standing in a `cycle` queue.
    pub cycle: Option<Cycle>,
    /// Its last failure.
    pub failure: Option<Box<Failure>>,
    /// Its last progress.
    pub progress: Option<Progress>,
    /// Its batch has counted it as run.
    pub ran: bool,
    /// Time of its last visible change, if it is tracked.
    pub updated_at: Option<Timestamp>,
    /// Number of workers lost with it.
    pub losses: u32,
    /// Its past attempts.
    pub past: Option<Arc<Attempts>>,
}

impl Moved {
    /// Applies this standing to a job.
    pub(crate) fn apply(self, job: &mut Job) {
        (job.state, job.rank, job.ready_at) = (self.state, self.rank, self.ready_at);
        (job.attempts, job.failures) = (self.attempts, self.failures);
        let plain = self.cycle.is_none() && self.failure.is_none() && self.progress.is_none();
        if job.extra.is_none() && plain && self.losses == 0 && self.past.is_none() {
            return;
        }
        let extra = job.extra.get_or_insert_default();
        (extra.losses, extra.attempts) = (self.losses, self.past);
        (extra.cycle, extra.failure, extra.progress) = (self.cycle, self.failure, self.progress);
        extra
            .member
            .iter_mut()
            .for_each(|member| member.ran = self.ran);
        if let (Some(track), Some(at)) = (&mut extra.track, self.updated_at) {
            track.updated_at = at;
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let standing = Standing {
            state: &self.state,
            rank: self.rank,
            ready_at: self.ready_at,
            attempts: self.attempts,
            failures: self.failures,
        };
        let told = (self.cycle, self.failure.as_deref(), self.progress.as_ref());
        put_moved(
            self.job,
            &standing,
            told,
            (self.ran, self.updated_at, self.losses, self.past.as_deref()),
            out,
        );
    }
}

/// Appends how a job stands.
pub(crate) fn encode_moved(job: &Job, out: &mut Vec<u8>) {
    let extra = job.extra.as_deref();
    let progress = extra
        .and_then(|e| e.progress.as_ref())
        .filter(|_| !is_bound(job));
    let told = (
        job.cycle(),
        extra.and_then(|e| e.failure.as_deref()),
        progress,
    );
    let ran = extra
        .and_then(|e| e.member)
        .is_some_and(|member| member.ran);
    let updated_at = extra.and_then(|e| e.track).map(|track| track.updated_at);
    let losses = extra.map_or(0, |extra| extra.losses);
    let past = extra.and_then(|extra| extra.attempts.as_deref());
    put_moved(
        job.id,
        &Standing::of(job),
        told,
        (ran, updated_at, losses, past),
        out,
    );
}

/// Whether its batch has counted a job, the time of its last visible change, the number of workers lost with it, and its
/// past attempts.
type Seen<'a> = (bool, Option<Timestamp>, u32, Option<&'a Attempts>);

fn put_moved(
    id: JobId,
    standing: &Standing<'_>,
    told: Told<'_>,
    seen: Seen<'_>,
    out: &mut Vec<u8>,
) {
    let bit = |there: bool, bit: u64| if there { bit } else { 0 };
    out.push(MOVED);
    put_u64(out, id.0);
    let (cycle, failure, progress) = (told.0.is_some(), told.1.is_some(), told.2.is_some());
    let (ran, updated_at, losses, past) = seen;
    let bits = bit(cycle, has::CYCLE)
        | bit(failure, has::FAILURE)
        | bit(failed_before(told.1), has::FAILED_BEFORE)
        | bit(has_next_at(told.1), has::NEXT_AT)
        | bit(progress, has::PROGRESS)
        | bit(ran, has::RAN)
        | bit(updated_at.is_some(), has::TRACK)
        | bit(losses > 0, has::LOSSES)
        | bit(past.is_some(), has::ATTEMPTS);
    put_u64(out, bits);
    put_standing(standing, out);
    put_told(told, out);
    if let Some(at) = updated_at {
        put_time(out, at);
    }
    put_losses(losses, out);
    put_attempts(past, out);
}

pub(super) fn decode_moved(from: &mut Reader<'_>) -> Result<Moved, DecodeError> {
    const KNOWN: u64 = has::CYCLE
        | has::FAILURE
        | has::FAILED_BEFORE
        | has::NEXT_AT
        | has::PROGRESS
        | has::RAN
        | has::TRACK
        | has::LOSSES
        | has::ATTEMPTS;
    let job = JobId(from.below("a job's number", COUNT_MAX)?);
    let bits = from.u64()?;
    if bits & !KNOWN != 0 {
        return Err(DecodeError::Range {
            field: "a standing's bits",
            value: bits,
        });
    }
    let (state, rank, ready_at, attempts, failures) = read_standing(from)?;
    let (cycle, failure, progress) = read_told(from, bits)?;
    let ran = bits & has::RAN != 0;
    let updated_at = if bits & has::TRACK == 0 {
        None
    } else {
        Some(from.time()?)
    };
    let losses = read_losses(from, bits)?;
    let past = if bits & has::ATTEMPTS == 0 {
        None
    } else {
        Some(read_attempts(from)?)
    };
    Ok(Moved {
        job,
        state,
        rank,
        ready_at,
        attempts,
        failures,
        cycle,
        failure,
        progress,
        ran,
        updated_at,
        losses,
        past,
    })
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Attempt, AttemptEnd, ClientId, Holder, Lease, OnExpiry, Token};

    use super::*;
    use crate::record::{Record, plain_job};

    fn standing() -> Moved {
        let state = JobState::Retrying(Timestamp(9));
        Moved {
            state,
            rank: 2,
            ready_at: Timestamp(3),
            attempts: 4,
            failures: 5,
            ..written(&plain_job(7))
        }
    }

    fn written(job: &Job) -> Moved {
        let mut bytes = Vec::new();
        encode_moved(job, &mut bytes);
        let Record::Moved(moved) = Record::decode(&mut Reader::new(&bytes)).unwrap() else {
            panic!()
        };
        moved
    }

    #[test]
    fn a_job_has_every_part_that_moved() {
        let progress = Progress {
            numerator: 1,
            denominator: 2,
            text: b"half"[..].into(),
        };
        let mut past = Attempts::default();
        past.push(Attempt {
            number: 1,
            worker: b"w"[..].into(),
            began_at: Timestamp(1),
            ended_at: Timestamp(2),
            end: AttemptEnd::Lost,
            error: None,
        });
        let parts = [
            standing(),
            Moved {
                cycle: Some(Cycle {
                    priority: 3,
                    boost: 1,
                }),
                ..standing()
            },
            Moved {
                failure: Some(Box::new(Failure {
                    at: Timestamp(2),
                    ..Failure::default()
                })),
                ..standing()
            },
            Moved {
                progress: Some(progress),
                ..standing()
            },
            Moved {
                losses: 1,
                ..standing()
            },
            Moved {
                past: Some(Arc::new(past)),
                ..standing()
            },
        ];
        let mut moved_often = plain_job(7);
        for moved in parts {
            let mut moved_once = plain_job(7);
            moved.clone().apply(&mut moved_once);
            moved.clone().apply(&mut moved_often);
            assert_eq!(
                (written(&moved_once), written(&moved_often)),
                (moved.clone(), moved)
            );
        }
    }

    #[test]
    fn progress_ends_with_a_lease_that_is_bound_to_a_connection() {
        let progress = Some(Progress {
            numerator: 1,
            denominator: 2,
            text: b"half"[..].into(),
        });
        let mut moved = plain_job(7);
        Moved {
            progress: progress.clone(),
            ..standing()
        }
        .apply(&mut moved);
        for (holder, expected) in [
            (Holder::Named(b"w"[..].into()), progress),
            (Holder::Connection(ClientId(1)), None),
        ] {
            let lease = Lease::new(
                holder,
                Token(1),
                Timestamp(1),
                Timestamp(2),
                OnExpiry::Requeue,
            );
            moved.state = JobState::Leased(Box::new(lease));
            assert_eq!(written(&moved).progress, expected);
        }
    }
}
