//! Schedules: set, removed, listed, inspected, run.

use bytes::Bytes;

use crate::context::{Change, Context};
use crate::engine::Engine;
use crate::event::Reply;
use crate::ids::{ClientId, JobId, Protocol, Tag, Timestamp};
use crate::refusal::{Capacity, Refusal, Thing};
use crate::request::{Cursor, NewJob};
use crate::schedule::{NewSchedule, Recurrence, Schedule, ScheduleRef};
use crate::warning::WarningKind;

/// The client that pushes the job of a run: no connection.
pub(crate) const NOBODY: ClientId = ClientId(u64::MAX);

impl Engine {
    pub(crate) fn set_schedule(
        &mut self,
        client: ClientId,
        tag: Tag,
        new: NewSchedule,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let before = new.key.as_ref().and_then(|key| {
            let named = ScheduleRef::Key { protocol: new.job.protocol, key: key.clone() };
            self.schedules.at(self.schedules.find(&named)?)
        });
        let (id, grid) = (before.map(|before| before.id), self.grid(&new, before));
        self.check_schedule(&new, before)?;
        let more = (new.job.body.len() as u64).saturating_sub(before.map_or(0, Schedule::weight_bytes));
        // The queue is listed from now on, and keeps its kind.
        let queue = self.queues.find_or_make(&new.job.queue, new.job.kind, self.limits.queues_max)?;
        self.make_known(queue, context);
        self.make_way(0, more, context);
        let schedule = Schedule {
            id: id.unwrap_or_else(|| self.new_job_id(context)),
            key: new.key.as_ref().map(Self::own),
            job: owned(new.job),
            recurrence: new.recurrence,
            anchor: grid.0,
            next_at: grid.1,
            runs_left: new.runs,
        };
        let number = schedule.id;
        self.schedules.put(schedule);
        context.remember(Change::SchedulePut(number));
        if tag.wants_answer() {
            context.reply(client, tag, Reply::ScheduleSet { schedule: number, replaced: id.is_some() });
        }
        Ok(())
    }

    /// The anchor of a new schedule's grid, and the time of its first run.
    fn grid(&self, new: &NewSchedule, before: Option<&Schedule>) -> (Timestamp, Timestamp) {
        match before.filter(|before| new.keep_grid && before.recurrence == new.recurrence) {
            Some(before) => (before.anchor, before.next_at),
            None => {
                let now = self.now_for(new.recurrence);
                (now, if new.at_once { now } else { new.recurrence.next_after(now, now) })
            }
        }
    }

    /// The time now, by the clock that a schedule uses.
    const fn now_for(&self, recurrence: Recurrence) -> Timestamp {
        if recurrence.by_wall() { self.wall() } else { self.now }
    }

    /// The wall clock was set back. A calendar schedule then waits at most for the second of its times after the new now: a
    /// time that falls only once into the repeated hours does not run again, and a schedule that runs often does not wait until
    /// they are over.
    pub(crate) fn rewind_schedules(&mut self, context: &mut Context) {
        let wall = self.wall();
        for id in self.schedules.by_wall() {
            let Some(schedule) = self.schedules.at(id) else { continue };
            let (anchor, runs_left, recurrence) = (schedule.anchor, schedule.runs_left, schedule.recurrence);
            let second = recurrence.next_after(anchor, recurrence.next_after(anchor, wall));
            if second < schedule.next_at {
                self.schedules.advance(id, second, runs_left);
                context.remember(Change::ScheduleMoved(id));
            }
        }
    }

    /// Checks that a new schedule could be set, under a name that is free.
    pub(crate) fn check_new_schedule(&self, new: &NewSchedule) -> Result<(), Refusal> {
        let named = |key: &Bytes| ScheduleRef::Key { protocol: new.job.protocol, key: key.clone() };
        if new.key.as_ref().is_some_and(|key| self.schedules.find(&named(key)).is_some()) {
            return Err(Refusal::NotUnique);
        }
        self.check_schedule(new, None)
    }

    fn check_schedule(&self, new: &NewSchedule, before: Option<&Schedule>) -> Result<(), Refusal> {
        self.check_name(new.key.as_deref().unwrap_or_default())?;
        self.check_names(&new.job)?;
        // Its runs join no batch: they would be refused once the batch is forgotten.
        if new.job.listen || !new.job.durable || new.job.past.is_some() || new.job.batch.is_some() {
            return Err(Refusal::OutOfPlace);
        }
        self.check_new_body(&new.job)?;
        if !new.recurrence.happens() || new.runs == Some(0) {
            return Err(Refusal::NeverDue);
        }
        let limit = self.limits.schedules_max;
        if before.is_none() && self.schedules.len() >= limit as usize {
            return Err(Capacity::Schedules.exceeded(limit, limit));
        }
        self.check_bytes_for(new.job.body.len() as u64, before.map_or(0, Schedule::weight_bytes))
    }

    pub(crate) fn remove_schedule(
        &mut self,
        client: ClientId,
        tag: Tag,
        which: &ScheduleRef,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let id = self.schedules.find(which).ok_or(Refusal::NotFound(Thing::Schedule))?;
        self.end_schedule(id, context);
        self.tell_done(client, tag, context);
        Ok(())
    }

    fn end_schedule(&mut self, id: JobId, context: &mut Context) {
        self.schedules.remove(id);
        context.remember(Change::ScheduleGone(id));
    }

    pub(crate) fn list_schedules(
        &self,
        client: ClientId,
        tag: Tag,
        protocol: Option<Protocol>,
        (after, limit): (Cursor, u32),
        context: &mut Context,
    ) {
        let limit = self.page(limit);
        let mut all = self.schedules.from(JobId(after.0));
        let page = all
            .by_ref()
            .take(limit)
            .filter(|schedule| protocol.is_none_or(|protocol| schedule.job.protocol == protocol));
        let rows = page.cloned().collect();
        let next = all.next().map(|schedule| Cursor(schedule.id.0, 0));
        context.reply(client, tag, Reply::Schedules { rows, next });
    }

    /// Runs a schedule that is due: one run, however many times were missed, then its next time after now.
    pub(crate) fn run_schedule(&mut self, id: JobId, context: &mut Context) {
        let Some(schedule) = self.schedules.at(id) else { return };
        let (job, runs_left) = (schedule.run_at(self.now, self.wall()), schedule.runs_left);
        let next_at = schedule.recurrence.next_after(schedule.anchor, self.now_for(schedule.recurrence));
        // Journal the dropped queues first: this job may create a queue with the number of one of them.
        self.tell_dropped(context);
        // A refused run does not count; there will be others.
        let ran = self.push_job(NOBODY, &job, context);
        if let Err(why) = ran {
            let key = self.schedules.at(id).and_then(|schedule| schedule.key.as_ref()).map(Self::own);
            context.warn(WarningKind::RunRefused(why), || (job.queue.clone(), key.unwrap_or_default(), Bytes::new()));
        }
        let runs_left = runs_left.map(|left| left.saturating_sub(ran.is_ok().into()));
        if runs_left == Some(0) {
            self.end_schedule(id, context);
        } else {
            self.schedules.advance(id, next_at, runs_left);
            context.remember(Change::ScheduleMoved(id));
        }
    }
}

/// Copies the names: the read buffer in which they arrived must not stay alive for them.
pub(crate) fn owned(job: NewJob) -> NewJob {
    let own = |bytes: Bytes| Engine::own(&bytes);
    let mut job = NewJob { queue: own(job.queue), name: job.name.map(own), meta: own(job.meta), ..job };
    if let Some(unique) = &mut job.unique {
        unique.key = Engine::own(&unique.key);
    }
    job
}
