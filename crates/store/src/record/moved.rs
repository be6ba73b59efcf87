//! The changing part of a job or of a schedule.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_engine::{
    Attempts, Cycle, Failure, Job, JobId, JobState, LastRun, Progress, Schedule, Timestamp, rank,
};

use super::{MOVED, NEXT_RUN, put};

/// The changing part of a job. The type parameters allow the larger fields to be owned, or borrowed from a
/// job.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Moved<S = JobState, F = Box<Failure>, P = Progress, A = Arc<Attempts>> {
    /// The job.
    pub job: JobId,
    /// The place. Once read, never a connection-bound lease.
    pub state: S,
    /// The rank: the sort key within the ready queue.
    #[serde(with = "rank")]
    pub rank: u64,
    /// When it became ready.
    pub ready_at: Timestamp,
    /// Deliveries.
    pub attempts: u32,
    /// Failures.
    pub failures: u32,
    /// The standing in a `cycle` queue.
    pub cycle: Option<Cycle>,
    /// The last failure.
    pub failure: Option<F>,
    /// The last progress.
    pub progress: Option<P>,
    /// The batch has counted it as run.
    pub ran: bool,
    /// Time of the last visible change, if the job is tracked.
    pub updated_at: Option<Timestamp>,
    /// Number of workers that disappeared with the job.
    pub losses: u32,
    /// The past attempts.
    pub past: Option<A>,
}

impl Moved {
    /// Applies this standing to a job.
    pub(crate) fn apply(self, job: &mut Job) {
        job.state = self.state;
        job.rank = self.rank;
        job.ready_at = self.ready_at;
        job.attempts = self.attempts;
        job.failures = self.failures;
        let plain = self.cycle.is_none() && self.failure.is_none() && self.progress.is_none();
        if job.extra.is_none() && plain && self.losses == 0 && self.past.is_none() {
            return;
        }
        let extra = job.extra.get_or_insert_default();
        extra.losses = self.losses;
        extra.attempts = self.past;
        extra.cycle = self.cycle;
        extra.failure = self.failure;
        extra.progress = self.progress;
        if let Some(member) = &mut extra.member {
            member.ran = self.ran;
        }
        if let (Some(track), Some(at)) = (&mut extra.track, self.updated_at) {
            track.updated_at = at;
        }
    }

    /// As [`Job::rest`].
    pub(super) fn rest(&mut self) {
        if let JobState::Leased(lease) = &self.state
            && lease.connection_bound()
        {
            self.state = JobState::Ready;
            self.attempts = self.attempts.saturating_sub(1);
            self.progress = None;
        }
    }
}

/// Appends the changing part of a job.
pub(crate) fn encode_moved(job: &Job, out: &mut Vec<u8>) {
    let extra = job.extra.as_deref();
    let moved = Moved {
        job: job.id,
        state: &job.state,
        rank: job.rank,
        ready_at: job.ready_at,
        attempts: job.attempts,
        failures: job.failures,
        cycle: job.cycle(),
        failure: extra.and_then(|extra| extra.failure.as_deref()),
        progress: extra.and_then(|extra| extra.progress.as_ref()),
        ran: extra
            .and_then(|extra| extra.member)
            .is_some_and(|member| member.ran),
        updated_at: extra
            .and_then(|extra| extra.track)
            .map(|track| track.updated_at),
        losses: extra.map_or(0, |extra| extra.losses),
        past: extra.and_then(|extra| extra.attempts.as_deref()),
    };
    put(MOVED, &moved, out);
}

/// The next and the last occurrence of a schedule: the part that changes.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct NextRun {
    /// The schedule.
    pub schedule: JobId,
    /// Time of the next run.
    pub next_at: Timestamp,
    /// Number of occurrences from then on; `None`: unlimited.
    pub runs_left: Option<u64>,
    /// The last run.
    pub last: Option<LastRun>,
}

impl NextRun {
    /// Applies this to a schedule.
    pub(crate) fn apply(self, schedule: &mut Schedule) {
        schedule.next_at = self.next_at;
        schedule.runs_left = self.runs_left;
        schedule.last = self.last;
    }
}

/// Appends the next occurrence of a schedule.
pub(crate) fn encode_next_run(schedule: &Schedule, out: &mut Vec<u8>) {
    let next = NextRun {
        schedule: schedule.id,
        next_at: schedule.next_at,
        runs_left: schedule.runs_left,
        last: schedule.last.clone(),
    };
    put(NEXT_RUN, &next, out);
}
#[cfg(test)]
mod tests {
    use windlass_engine::{Attempt, AttemptEnd, ClientId, Holder, Lease, OnExpiry, Token};

    use super::*;
    use crate::record::{Record, plain_job};
    use windlass_codec::Reader;

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
