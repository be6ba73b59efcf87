//! A schedule: a job that is pushed again and again, and when. The table of them.
//!
//! Not here: the calendar (`calendar`), and what setting, removing and running one does (`recur`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::calendar::Cron;
use crate::command::NewJob;
use crate::ids::{JobId, Origin, Timestamp};
use crate::job::KeyUntil;
use crate::zone::Zone;

/// A recurring job. Fields are public to read; only the engine writes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Its number, from the same row as those of jobs.
    pub id: JobId,
    /// Its name among the schedules of its template's origin, if it has one.
    pub key: Option<Bytes>,
    /// What each run is made from: see [`NewSchedule::job`].
    pub job: NewJob,
    /// When it runs.
    pub recurrence: Recurrence,
    /// The moment its grid is laid from, by the clock it goes by ([`Recurrence::by_wall`]).
    pub anchor: Timestamp,
    /// When it runs next, by that clock; [`Timestamp::NEVER`] once there is no such time before the end of all time.
    pub next_at: Timestamp,
    /// Runs left; `None` = no end.
    pub runs_left: Option<u64>,
}

/// When a schedule runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recurrence {
    /// At the beginning of each second that matches, by the wall clock, in UTC.
    Cron(Cron),
    /// The same by the clocks of a time zone.
    Zoned(Cron, Zone),
    /// Every so many milliseconds, at least 1, counted from when it was set: runs that are late move no later one. Goes by
    /// the engine's clock.
    Every {
        /// Milliseconds.
        interval_ms: u64,
    },
}

/// A schedule to be.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSchedule {
    /// Its name among the schedules of the template's origin: what is set under the same name takes its place and its
    /// number. Nameless ones are told apart by their numbers only.
    pub key: Option<Bytes>,
    /// What each run is made from. It must be durable, and nobody listens to it. Its times (`not_before`, `expires_at`,
    /// the end of its hold on a key) are not moments but milliseconds after each run.
    pub job: NewJob,
    /// When it runs.
    pub recurrence: Recurrence,
    /// It runs at once as well.
    pub at_once: bool,
    /// Set again with the same recurrence it keeps its grid and its next run, and does not run at once: a program may
    /// say so each time it starts. Otherwise everything begins anew.
    pub keep_grid: bool,
    /// Runs, the one at once included; `None` = no end.
    pub runs: Option<u64>,
}

/// Which schedule is meant.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleRef {
    /// By its number.
    Id(JobId),
    /// By its name.
    Key {
        /// The protocol of the name space.
        origin: Origin,
        /// The name.
        key: Bytes,
    },
}

impl Recurrence {
    /// Whether it ever happens.
    #[must_use]
    pub fn happens(&self) -> bool {
        match self {
            Self::Cron(cron) => cron.can_match(),
            Self::Zoned(cron, zone) => cron.can_match() && *zone != Zone::UNKNOWN,
            Self::Every { interval_ms } => *interval_ms > 0,
        }
    }

    /// Whether it goes by the wall clock; otherwise by the engine's.
    #[must_use]
    pub const fn by_wall(&self) -> bool {
        matches!(self, Self::Cron(_) | Self::Zoned(..))
    }

    /// The first time later than `now`, on the grid laid from `anchor`; all by the clock it goes by.
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
    /// Bytes it is counted as in memory limits.
    #[must_use]
    pub fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 600;
        let job = &self.job;
        let names = [Some(&job.queue), job.name.as_ref(), self.key.as_ref(), Some(&job.meta), Some(&job.body)];
        let unique = job.unique.as_ref().map_or(0, |unique| unique.key.len());
        (FIXED + unique + names.into_iter().flatten().map(Bytes::len).sum::<usize>()) as u64
    }

    /// The job of a run at this time, by the engine's clock and by the wall clock.
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

/// All schedules: by number, by name, by when they run.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    by_id: BTreeMap<JobId, Schedule>,
    by_key: BTreeMap<(Origin, Bytes), JobId>,
    due: BTreeSet<(Timestamp, JobId)>,
    /// The same, of those that go by the wall clock.
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

    /// From a number on.
    pub(crate) fn from(&self, first: JobId) -> impl Iterator<Item = &Schedule> {
        self.by_id.range(first..).map(|(_, schedule)| schedule)
    }

    pub(crate) fn find(&self, which: &ScheduleRef) -> Option<JobId> {
        match which {
            ScheduleRef::Id(id) => self.by_id.get(id).map(|schedule| schedule.id),
            ScheduleRef::Key { origin, key } => self.by_key.get(&(*origin, key.clone())).copied(),
        }
    }

    /// The first that runs, and when that is by the engine's clock.
    pub(crate) fn next(&self, skew_ms: i64) -> Option<(Timestamp, JobId)> {
        let by_wall = self.due_by_wall.first().map(|(at, id)| (at.shifted(skew_ms.saturating_neg()), *id));
        self.due.first().copied().into_iter().chain(by_wall).min()
    }

    /// The numbers of those that go by the wall clock.
    pub(crate) fn by_wall(&self) -> Vec<JobId> {
        self.due_by_wall.iter().map(|(_, id)| *id).collect()
    }

    /// Puts a schedule in, in the place of the one with its number if there is one.
    pub(crate) fn put(&mut self, schedule: Schedule) {
        self.remove(schedule.id);
        self.bytes += schedule.weight_bytes();
        if let Some(key) = &schedule.key {
            self.by_key.insert((schedule.job.origin, key.clone()), schedule.id);
        }
        self.due_at(schedule.recurrence, schedule.next_at, schedule.id);
        self.by_id.insert(schedule.id, schedule);
    }

    pub(crate) fn remove(&mut self, id: JobId) -> Option<Schedule> {
        let schedule = self.by_id.remove(&id)?;
        self.bytes -= schedule.weight_bytes();
        if let Some(key) = &schedule.key {
            self.by_key.remove(&(schedule.job.origin, key.clone()));
        }
        self.due_of(schedule.recurrence).remove(&(schedule.next_at, id));
        Some(schedule)
    }

    /// Sets when a schedule runs next, and how often after that.
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
        for ((origin, key), id) in &self.by_key {
            let named = self.at(*id).map(|schedule| (schedule.job.origin, schedule.key.as_ref()));
            assert_eq!(named, Some((*origin, Some(key))), "{id:?} by name");
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
