//! A schedule: a job that is pushed repeatedly, and its times. Also the table of schedules.
//!
//! Not here: the calendar (`calendar`), and what setting, removing and running a schedule does (`recur`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::calendar::Cron;
use crate::ids::{JobId, Protocol, Timestamp};
use crate::job::KeyUntil;
use crate::request::NewJob;
use crate::zone::Zone;

/// A recurring job. Fields are public to read; only the engine writes them.
#[derive(Clone, Debug, PartialEq)]
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
}

/// When a schedule runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recurrence {
    /// At the beginning of each matching second, by the wall clock, in UTC.
    Cron(Cron),
    /// The same in a time zone.
    Zoned(Cron, Zone),
    /// At a fixed interval of at least 1 ms, counted from when it was set: a late run does not delay later ones. Uses the
    /// engine's time.
    Every {
        /// Milliseconds.
        interval_ms: u64,
    },
}

/// A schedule to set.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSchedule {
    /// Its name among the schedules of the template's protocol: a schedule of the same name is replaced, and its number kept.
    /// Schedules without a name differ only by number.
    pub key: Option<Bytes>,
    /// The template of each run. It must be durable and have no listeners. Its times (`not_before`, `expires_at`, the end of
    /// its hold on a key) are milliseconds after each run.
    pub job: NewJob,
    /// When it runs.
    pub recurrence: Recurrence,
    /// Whether it also runs at once.
    pub at_once: bool,
    /// Whether a schedule that is set again with the same recurrence keeps its grid and its next run, and does not run at once.
    /// A program may then set it at each start. Otherwise everything begins anew.
    pub keep_grid: bool,
    /// Runs, including the one at once; `None` = no end.
    pub runs: Option<u64>,
}

/// A reference to a schedule.
#[derive(Clone, Debug, PartialEq)]
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
    #[must_use]
    pub fn happens(&self) -> bool {
        match self {
            Self::Cron(cron) => cron.can_match(),
            Self::Zoned(cron, zone) => cron.can_match() && *zone != Zone::UNKNOWN,
            Self::Every { interval_ms } => *interval_ms > 0,
        }
    }

    /// Whether it uses the wall clock; otherwise it uses the engine's time.
    #[must_use]
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
    /// The bytes that memory limits count for it.
    #[must_use]
    pub fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 600;
        let job = &self.job;
        let names = [Some(&job.queue), job.name.as_ref(), self.key.as_ref(), Some(&job.meta), Some(&job.body)];
        let unique = job.unique.as_ref().map_or(0, |unique| unique.key.len());
        (FIXED + unique + names.into_iter().flatten().map(Bytes::len).sum::<usize>()) as u64
    }

    /// The job of a run now, by the engine's time and by the wall clock.
    pub(crate) fn run_at(&self, now: Timestamp, wall: Timestamp) -> NewJob {
        let later = |ms: Timestamp| now.after_ms(ms.0);
        let later_by_wall = |ms: Timestamp| wall.after_ms(ms.0);
        let mut job = self.job.clone();
        job.not_before = job.not_before.map(later_by_wall);
        job.expires_at = job.expires_at.map(later_by_wall);
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

/// All schedules: by number, by name, by next run.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    by_id: BTreeMap<JobId, Schedule>,
    by_key: BTreeMap<(Protocol, Bytes), JobId>,
    due: BTreeSet<(Timestamp, JobId)>,
    /// The next runs of schedules that use the wall clock.
    due_by_wall: BTreeSet<(Timestamp, JobId)>,
    bytes: u64,
}

impl Schedules {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn at(&self, id: JobId) -> Option<&Schedule> {
        self.by_id.get(&id)
    }

    /// All schedules from a number on.
    pub(crate) fn from(&self, first: JobId) -> impl Iterator<Item = &Schedule> {
        self.by_id.range(first..).map(|(_, schedule)| schedule)
    }

    pub(crate) fn find(&self, which: &ScheduleRef) -> Option<JobId> {
        match which {
            ScheduleRef::Id(id) => self.by_id.get(id).map(|schedule| schedule.id),
            ScheduleRef::Key { protocol, key } => self.by_key.get(&(*protocol, key.clone())).copied(),
        }
    }

    /// The first schedule due, and when that is by the engine's time.
    pub(crate) fn next(&self, skew_ms: i64) -> Option<(Timestamp, JobId)> {
        let by_wall = self.due_by_wall.first().map(|(at, id)| (at.shifted(skew_ms.saturating_neg()), *id));
        self.due.first().copied().into_iter().chain(by_wall).min()
    }

    /// The numbers of the schedules that use the wall clock.
    pub(crate) fn by_wall(&self) -> Vec<JobId> {
        self.due_by_wall.iter().map(|(_, id)| *id).collect()
    }

    /// Inserts a schedule, or replaces the one with its number.
    pub(crate) fn put(&mut self, schedule: Schedule) {
        self.remove(schedule.id);
        self.bytes += schedule.weight_bytes();
        if let Some(key) = &schedule.key {
            self.by_key.insert((schedule.job.protocol, key.clone()), schedule.id);
        }
        self.due_at(schedule.recurrence, schedule.next_at, schedule.id);
        self.by_id.insert(schedule.id, schedule);
    }

    pub(crate) fn remove(&mut self, id: JobId) -> Option<Schedule> {
        let schedule = self.by_id.remove(&id)?;
        self.bytes -= schedule.weight_bytes();
        if let Some(key) = &schedule.key {
            self.by_key.remove(&(schedule.job.protocol, key.clone()));
        }
        self.due_of(schedule.recurrence).remove(&(schedule.next_at, id));
        Some(schedule)
    }

    /// Sets a schedule's next run, and the runs left after it.
    pub(crate) fn advance(&mut self, id: JobId, next_at: Timestamp, runs_left: Option<u64>) {
        let Some(schedule) = self.by_id.get_mut(&id) else { return };
        let (recurrence, before) = (schedule.recurrence, schedule.next_at);
        (schedule.next_at, schedule.runs_left) = (next_at, runs_left);
        self.due_of(recurrence).remove(&(before, id));
        self.due_at(recurrence, next_at, id);
    }

    fn due_at(&mut self, recurrence: Recurrence, at: Timestamp, id: JobId) {
        if at < Timestamp::NEVER {
            self.due_of(recurrence).insert((at, id));
        }
    }

    const fn due_of(&mut self, recurrence: Recurrence) -> &mut BTreeSet<(Timestamp, JobId)> {
        if recurrence.by_wall() { &mut self.due_by_wall } else { &mut self.due }
    }

    /// Asserts that the indexes agree.
    pub(crate) fn check(&self) {
        let bytes: u64 = self.by_id.values().map(Schedule::weight_bytes).sum();
        assert_eq!(bytes, self.bytes, "bytes of schedules");
        let named = self.by_id.values().filter(|schedule| schedule.key.is_some());
        assert_eq!(named.count(), self.by_key.len(), "schedules by name");
        for ((protocol, key), id) in &self.by_key {
            let named = self.at(*id).map(|schedule| (schedule.job.protocol, schedule.key.as_ref()));
            assert_eq!(named, Some((*protocol, Some(key))), "{id:?} by name");
        }
        for (by_wall, indexed) in [(false, &self.due), (true, &self.due_by_wall)] {
            let timed = self.by_id.values().filter(|schedule| schedule.next_at < Timestamp::NEVER);
            let timed = timed.filter(|schedule| schedule.recurrence.by_wall() == by_wall);
            let due: BTreeSet<_> = timed.map(|schedule| (schedule.next_at, schedule.id)).collect();
            assert_eq!(due, *indexed, "schedules by when they run");
        }
        for (id, schedule) in &self.by_id {
            assert_eq!(*id, schedule.id);
            assert_ne!(schedule.runs_left, Some(0), "{id:?} has no run left");
        }
    }
}
