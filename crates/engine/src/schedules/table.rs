//! All schedules: by ID, by name, by next occurrence.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::schedule::{LastRun, Recurrence, RunEnd, Schedule, ScheduleRef};
use crate::by_namespace::{Sum, Sums};
use crate::change::Change;
use crate::ids::{JobId, Namespace, Realm, Timestamp};
use crate::timers::first_at;

/// All schedules: by ID, by name, by next occurrence.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    by_id: BTreeMap<JobId, Schedule>,
    by_key: BTreeMap<(Realm, Bytes), JobId>,
    due: BTreeSet<(Timestamp, JobId)>,
    /// The next occurrences of schedules that use the wall clock.
    due_by_wall: BTreeSet<(Timestamp, JobId)>,
    /// The jobs of last occurrences, with the schedules.
    runs: BTreeSet<(JobId, JobId)>,
    sums: Sums,
}

impl Schedules {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.sums.all().bytes
    }

    /// Those of a namespace; for `None`, all.
    pub(crate) fn sum_of(&self, namespace: Option<Namespace>) -> Sum {
        self.sums.of(namespace)
    }

    pub(crate) fn at(&self, id: JobId) -> Option<&Schedule> {
        self.by_id.get(&id)
    }

    /// All schedules from an ID on.
    pub(crate) fn from(&self, first: JobId) -> impl Iterator<Item = &Schedule> {
        self.by_id.range(first..).map(|(_, schedule)| schedule)
    }

    pub(crate) fn find(&self, namespace: Namespace, which: &ScheduleRef) -> Option<JobId> {
        match which {
            ScheduleRef::Id(id) => self.by_id.get(id).map(|schedule| schedule.id),
            ScheduleRef::Key { protocol, key } => {
                let name = (namespace.realm(*protocol), key.clone());
                self.by_key.get(&name).copied()
            }
        }
    }

    /// When the first schedule is due, by the engine's time.
    pub(crate) fn next_at(&self, skew_ms: i64) -> Timestamp {
        first_at(&self.due).min(first_at(&self.due_by_wall).shifted(skew_ms.saturating_neg()))
    }

    /// Returns true if a schedule is due, by the engine's time or by the wall clock.
    pub(crate) fn have_due(&self, now: Timestamp, wall: Timestamp) -> bool {
        first_at(&self.due) <= now || first_at(&self.due_by_wall) <= wall
    }

    /// The first schedule due.
    pub(crate) fn next(&self, skew_ms: i64) -> Option<JobId> {
        let by_wall = self
            .due_by_wall
            .first()
            .map(|(at, id)| (at.shifted(skew_ms.saturating_neg()), *id));
        self.due
            .first()
            .copied()
            .into_iter()
            .chain(by_wall)
            .min()
            .map(|(_, id)| id)
    }

    /// The schedule of this name.
    pub(crate) fn named(&self, realm: Realm, key: &Bytes) -> Option<&Schedule> {
        self.at(*self.by_key.get(&(realm, key.clone()))?)
    }

    /// Handles a wall clock that was set back. A calendar schedule then waits no longer than for the second
    /// occurrence after the new time. A time that falls only once into the repeated hours therefore does not
    /// run again, and a frequent schedule does not wait until these hours are over.
    pub(crate) fn rewind(&mut self, wall: Timestamp, changes: &mut Vec<Change>) {
        let by_wall: Vec<JobId> = self.due_by_wall.iter().map(|(_, id)| *id).collect();
        for id in by_wall {
            let Some(schedule) = self.at(id) else {
                continue;
            };
            let (anchor, runs_left, recurrence) =
                (schedule.anchor, schedule.runs_left, schedule.recurrence);
            let second = recurrence.next_after(anchor, recurrence.next_after(anchor, wall));
            if second < schedule.next_at {
                self.advance(id, second, runs_left, changes);
            }
        }
    }

    /// Sets a schedule, replacing any with the same ID.
    pub(crate) fn set(&mut self, schedule: Schedule, changes: &mut Vec<Change>) {
        changes.push(Change::SchedulePut(schedule.id));
        self.put(schedule);
    }

    /// Inserts a schedule, replacing any with the same ID, without recording a change.
    pub(crate) fn put(&mut self, schedule: Schedule) {
        self.remove(schedule.id);
        self.sums
            .add(schedule.job.namespace, schedule.weight_bytes());
        if let Some(key) = &schedule.key {
            self.by_key
                .insert((schedule.job.realm(), key.clone()), schedule.id);
        }
        self.due_at(schedule.recurrence, schedule.next_at, schedule.id);
        self.runs
            .extend(schedule.last.as_ref().map(|last| (last.job, schedule.id)));
        self.by_id.insert(schedule.id, schedule);
    }

    /// Removes a schedule that is finished.
    pub(crate) fn end(&mut self, id: JobId, changes: &mut Vec<Change>) {
        self.remove(id);
        changes.push(Change::ScheduleGone(id));
    }

    fn remove(&mut self, id: JobId) -> Option<Schedule> {
        let schedule = self.by_id.remove(&id)?;
        self.sums
            .subtract(schedule.job.namespace, schedule.weight_bytes());
        if let Some(key) = &schedule.key {
            self.by_key.remove(&(schedule.job.realm(), key.clone()));
        }
        self.due_of(schedule.recurrence)
            .remove(&(schedule.next_at, id));
        schedule
            .last
            .as_ref()
            .map(|last| self.runs.remove(&(last.job, id)));
        Some(schedule)
    }

    /// Sets a schedule's next occurrence, and the number of occurrences after it.
    pub(crate) fn advance(
        &mut self,
        id: JobId,
        next_at: Timestamp,
        runs_left: Option<u64>,
        changes: &mut Vec<Change>,
    ) {
        let Some(schedule) = self.by_id.get_mut(&id) else {
            return;
        };
        let (recurrence, before) = (schedule.recurrence, schedule.next_at);
        (schedule.next_at, schedule.runs_left) = (next_at, runs_left);
        self.due_of(recurrence).remove(&(before, id));
        self.due_at(recurrence, next_at, id);
        changes.push(Change::ScheduleMoved(id));
    }

    /// A schedule has run.
    pub(crate) fn ran(&mut self, id: JobId, last: LastRun, changes: &mut Vec<Change>) {
        let Some(schedule) = self.by_id.get_mut(&id) else {
            return;
        };
        schedule
            .last
            .as_ref()
            .map(|before| self.runs.remove(&(before.job, id)));
        self.runs.insert((last.job, id));
        schedule.last = Some(last);
        changes.push(Change::ScheduleMoved(id));
    }

    /// Returns true if any job is the last run of a schedule.
    pub(crate) fn have_runs(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Records the outcome of a job in the schedules that last pushed it.
    pub(crate) fn run_ended(&mut self, job: JobId, end: RunEnd, changes: &mut Vec<Change>) {
        for (_, id) in self.runs.range((job, JobId(0))..=(job, JobId(u64::MAX))) {
            if let Some(last) = self
                .by_id
                .get_mut(id)
                .and_then(|schedule| schedule.last.as_mut())
            {
                last.end = end;
                changes.push(Change::ScheduleMoved(*id));
            }
        }
    }

    fn due_at(&mut self, recurrence: Recurrence, at: Timestamp, id: JobId) {
        if at < Timestamp::NEVER {
            self.due_of(recurrence).insert((at, id));
        }
    }

    const fn due_of(&mut self, recurrence: Recurrence) -> &mut BTreeSet<(Timestamp, JobId)> {
        if recurrence.by_wall() {
            &mut self.due_by_wall
        } else {
            &mut self.due
        }
    }

    /// Asserts that the indexes agree.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn check(&self) {
        let bytes: u64 = self.by_id.values().map(Schedule::weight_bytes).sum();
        assert_eq!(bytes, self.bytes(), "bytes of schedules");
        let named = self
            .by_id
            .values()
            .filter(|schedule| schedule.key.is_some());
        assert_eq!(named.count(), self.by_key.len(), "schedules by name");
        for ((realm, key), id) in &self.by_key {
            let named = self
                .at(*id)
                .map(|schedule| (schedule.job.realm(), schedule.key.as_ref()));
            assert_eq!(named, Some((*realm, Some(key))), "{id:?} by name");
        }
        for (by_wall, indexed) in [(false, &self.due), (true, &self.due_by_wall)] {
            let timed = self
                .by_id
                .values()
                .filter(|schedule| schedule.next_at < Timestamp::NEVER);
            let timed = timed.filter(|schedule| schedule.recurrence.by_wall() == by_wall);
            let due: BTreeSet<_> = timed
                .map(|schedule| (schedule.next_at, schedule.id))
                .collect();
            assert_eq!(due, *indexed, "schedules by when they run");
        }
        let runs = self
            .by_id
            .values()
            .filter_map(|schedule| Some((schedule.last.as_ref()?.job, schedule.id)));
        assert_eq!(
            runs.collect::<BTreeSet<_>>(),
            self.runs,
            "schedules by the jobs of their last runs"
        );
        for (id, schedule) in &self.by_id {
            assert_eq!(*id, schedule.id);
            assert_ne!(schedule.runs_left, Some(0), "{id:?} has no run left");
        }
    }
}
