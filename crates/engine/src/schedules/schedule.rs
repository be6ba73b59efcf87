//! A schedule: a job that is pushed repeatedly, and the times.
//!
//! Not here: the calendar (`calendar`).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::calendar::Cron;
use super::zone::Zone;
use crate::ids::{JobId, Protocol, Timestamp};
use crate::jobs::{Expiry, JobStateKind, KeyUntil};
use crate::request::NewJob;

/// A recurring job. Fields are public to read; only the engine writes them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Schedule {
    /// The ID, from the same sequence as job IDs.
    pub id: JobId,
    /// The name among the schedules of the template's protocol, if it has one.
    pub key: Option<Bytes>,
    /// The template of each job: see [`NewSchedule::job`].
    pub job: NewJob,
    /// The times at which the job is pushed.
    pub recurrence: Recurrence,
    /// The start of the grid, by the clock that it uses ([`Recurrence::by_wall`]).
    pub anchor: Timestamp,
    /// The next occurrence, by the same clock; [`Timestamp::NEVER`] if there is no next one.
    pub next_at: Timestamp,
    /// Remaining occurrences; `None` = unlimited.
    pub runs_left: Option<u64>,
    /// The last occurrence, if there was one in this store.
    pub last: Option<LastRun>,
}

/// The limit of previous jobs that a schedule remembers.
pub const EARLIER_RUNS_MAX: usize = 32;

/// A run of a schedule.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct LastRun {
    /// When, by the wall clock.
    pub at: Timestamp,
    /// The pushed job: a new one, or the one that had the key.
    pub job: JobId,
    /// The outcome of the job.
    pub end: RunEnd,
    /// Unfinished jobs of previous occurrences when this one started, oldest first: the last
    /// [`EARLIER_RUNS_MAX`]. A reply contains only the jobs that are still unfinished.
    pub earlier: Vec<JobId>,
}

/// The outcome of an occurrence's job. The journal records the first four; the rest appears only in replies,
/// for a job that exists or is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum RunEnd {
    /// Unfinished: the job is waiting, or a worker has it.
    Running,
    /// It succeeded.
    Done,
    /// The job failed, or expired, and was removed.
    Failed,
    /// It went to the dead-letter queue.
    Dead,
    /// The job was removed before it finished, and is missing.
    Forgotten,
    /// Unfinished, and in this state.
    In(JobStateKind),
    /// The job is ready, and no worker serves the queue.
    Unserved,
}

/// The times at which a schedule pushes a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Recurrence {
    /// At the start of each matching second, by the wall clock, in UTC.
    Cron(Cron),
    /// The same in a time zone.
    Zoned(Cron, Zone),
    /// At a fixed interval of at least 1 ms, measured from when it was set: a late occurrence does not delay
    /// later ones. Uses the engine's time.
    Every {
        /// Milliseconds.
        interval_ms: u64,
    },
}

/// A schedule to set.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct NewSchedule {
    /// The name among the schedules of the template's protocol. A schedule with the same name is replaced and
    /// retains the ID. Schedules without a name differ only by ID.
    pub key: Option<Bytes>,
    /// The template of each job. It must be durable and have no listeners. Times (`not_before`,
    /// `expires`, the time limit of the key) are milliseconds after each occurrence.
    pub job: NewJob,
    /// The times at which the job is pushed.
    pub recurrence: Recurrence,
    /// True if the job is also pushed immediately.
    pub at_once: bool,
    /// True if a schedule that is set again with the same recurrence retains the grid and the next
    /// occurrence, and does not push a job immediately, so that a program may set it at each start. Otherwise
    /// the schedule starts again from the beginning.
    pub keep_grid: bool,
    /// Number of occurrences, including the immediate one; `None` = unlimited.
    pub runs: Option<u64>,
}

/// A reference to a schedule.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum ScheduleRef {
    /// By ID.
    Id(JobId),
    /// By name.
    Key {
        /// The protocol of the name space.
        protocol: Protocol,
        /// The name.
        key: Bytes,
    },
}

impl Recurrence {
    /// Returns true if it is ever due.
    pub fn happens(&self) -> bool {
        match self {
            Self::Cron(cron) => cron.can_match(),
            Self::Zoned(cron, zone) => cron.can_match() && *zone != Zone::UNKNOWN,
            Self::Every { interval_ms } => *interval_ms > 0,
        }
    }

    /// Returns true if it uses the wall clock; otherwise it uses the engine's time.
    pub const fn by_wall(&self) -> bool {
        matches!(self, Self::Cron(_) | Self::Zoned(..))
    }

    /// The first time after `now` on the grid that starts at `anchor`, all by the clock that it uses.
    pub(crate) fn next_after(&self, anchor: Timestamp, now: Timestamp) -> Timestamp {
        match self {
            Self::Cron(cron) => cron.next_after(now),
            Self::Zoned(cron, zone) => zone.next_after(cron, now),
            Self::Every { interval_ms } => {
                let done = now.ms_since(anchor).checked_div(*interval_ms);
                let elapsed = done.and_then(|done| (done + 1).checked_mul(*interval_ms));
                elapsed.map_or(Timestamp::NEVER, |elapsed| anchor.after_ms(elapsed))
            }
        }
    }
}

impl Schedule {
    /// Moves all times that use the engine's time, for a move to another engine.
    pub const fn shift(&mut self, ms: i64) {
        if !self.recurrence.by_wall() {
            (self.anchor, self.next_at) = (self.anchor.shifted(ms), self.next_at.shifted(ms));
        }
    }

    /// Returns true if there is no next occurrence: an operator paused it, or the last time has
    /// passed.
    pub fn is_paused(&self) -> bool {
        self.next_at == Timestamp::NEVER
    }

    /// The bytes of the schedule towards memory limits.
    pub fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 225;
        (FIXED + self.key.as_ref().map_or(0, Bytes::len)) as u64 + self.job.weight_bytes()
    }

    /// The job to push now, by the engine's time and by the wall clock.
    pub(crate) fn run_at(&self, now: Timestamp, wall: Timestamp) -> NewJob {
        let later = |ms: Timestamp| now.after_ms(ms.0);
        let later_by_wall = |ms: Timestamp| wall.after_ms(ms.0);
        let mut job = self.job.clone();
        job.not_before = job.not_before.map(later_by_wall);
        job.expires = match job.expires {
            Expiry::Never => Expiry::Never,
            Expiry::At(ms) => Expiry::At(later_by_wall(ms)),
            Expiry::By(ms) => Expiry::By(later(ms)),
        };
        if let Some(unique) = &mut job.unique {
            unique.until = match unique.until {
                KeyUntil::EndOr(ms) => KeyUntil::EndOr(later(ms)),
                KeyUntil::StartOr(ms) => KeyUntil::StartOr(later(ms)),
                until @ (KeyUntil::End | KeyUntil::Start | KeyUntil::Gone) => until,
            };
        }
        job
    }
}
