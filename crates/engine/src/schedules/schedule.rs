//! A schedule: a job that is pushed repeatedly, and its times.
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
    /// Its number, from the same sequence as the numbers of jobs.
    pub id: JobId,
    /// Its name among the schedules of its template's protocol, if it has one.
    pub key: Option<Bytes>,
    /// The template of each run: see [`NewSchedule::job`].
    pub job: NewJob,
    /// When it runs.
    pub recurrence: Recurrence,
    /// The start of its grid, by the clock that it uses ([`Recurrence::by_wall`]).
    pub anchor: Timestamp,
    /// Its next run, by the same clock; [`Timestamp::NEVER`] if there is none.
    pub next_at: Timestamp,
    /// Runs left; `None` = no end.
    pub runs_left: Option<u64>,
    /// Its last run, if it has had one here.
    pub last: Option<LastRun>,
}

/// The most earlier runs that a schedule remembers.
pub const EARLIER_RUNS_MAX: usize = 32;

/// A run of a schedule.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct LastRun {
    /// When, by the wall clock.
    pub at: Timestamp,
    /// Its job: a new one, or the one that held its key.
    pub job: JobId,
    /// How the job ended.
    pub end: RunEnd,
    /// Jobs of runs before this one that had not ended when it began, the oldest first: the last [`EARLIER_RUNS_MAX`]. In
    /// an answer only those that still wait.
    pub earlier: Vec<JobId>,
}

/// How the job of a run ended. The journal records the first four; an answer has the others for a job that lives, or is
/// missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum RunEnd {
    /// It has not ended: it waits, or a worker has it.
    Running,
    /// It succeeded.
    Done,
    /// It failed, or came too late, and was removed.
    Failed,
    /// It went to the dead-letter queue.
    Dead,
    /// It was removed before it ended: the job is missing.
    Forgotten,
    /// It has not ended, and is in this state.
    In(JobStateKind),
    /// It is ready, and no worker serves its queue.
    Unserved,
}

/// When a schedule runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Recurrence {
    /// At the beginning of each matching second, by the wall clock, in UTC.
    Cron(Cron),
    /// The same in a time zone.
    Zoned(Cron, Zone),
    /// At a fixed interval of at least 1 ms, counted from when it was set: a late run does not delay later ones. Uses
    /// the engine's time.
    Every {
        /// Milliseconds.
        interval_ms: u64,
    },
}

/// A schedule to set.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct NewSchedule {
    /// Its name among the schedules of the template's protocol: a schedule of the same name is replaced, and its number
    /// kept. Schedules without a name differ only by number.
    pub key: Option<Bytes>,
    /// The template of each run. It must be durable and have no listeners. Its times (`not_before`, `expires`, the
    /// end of its hold on a key) are milliseconds after each run.
    pub job: NewJob,
    /// When it runs.
    pub recurrence: Recurrence,
    /// Whether it also runs at once.
    pub at_once: bool,
    /// Whether a schedule that is set again with the same recurrence keeps its grid and its next run, and does not run
    /// at once. A program may then set it at each start. Otherwise everything begins anew.
    pub keep_grid: bool,
    /// Runs, including the one at once; `None` = no end.
    pub runs: Option<u64>,
}

/// A reference to a schedule.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum ScheduleRef {
    /// By its number.
    Id(JobId),
    /// By its name.
    Key {
        /// The protocol of the name space.
        protocol: Protocol,
        /// The name.
        key: Bytes,
    },
}

impl Recurrence {
    /// Whether it ever comes due.
    pub fn happens(&self) -> bool {
        match self {
            Self::Cron(cron) => cron.can_match(),
            Self::Zoned(cron, zone) => cron.can_match() && *zone != Zone::UNKNOWN,
            Self::Every { interval_ms } => *interval_ms > 0,
        }
    }

    /// Whether it uses the wall clock; otherwise it uses the engine's time.
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

    /// Whether it has no next run: an operator paused it, or its time has passed.
    pub fn is_paused(&self) -> bool {
        self.next_at == Timestamp::NEVER
    }

    /// The bytes that memory limits count for it.
    pub fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 225;
        (FIXED + self.key.as_ref().map_or(0, Bytes::len)) as u64 + self.job.weight_bytes()
    }

    /// The job of a run now, by the engine's time and by the wall clock.
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
