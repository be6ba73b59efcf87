//! Schedules: set, remove, list, run.

use windlass_engine::{
    Capacity, ClientId, Cursor, Expiry, JobId, KeyUntil, NewJob, NewSchedule, Protocol, Recurrence,
    Refusal, Reply, Schedule, ScheduleRef, Thing, Timestamp,
};

use super::{Answer, Checked, Oracle};
use crate::calendar;

/// Every date that occurs at all occurs within this many years.
const YEARS: u64 = 41;

impl Oracle {
    pub(super) fn set_schedule(&mut self, new: &NewSchedule) -> Answer {
        let before = self
            .schedule_keyed(new.job.protocol, new.key.as_deref())
            .cloned();
        self.judge_schedule(new, before.as_ref())?;
        let queue = self.find_or_make_queue(&new.job.queue, new.job.kind)?;
        self.make_known(queue, Some(new.job.protocol));
        let weight = before.as_ref().map_or(0, Schedule::weight_bytes);
        self.make_way(0, (new.job.body.len() as u64).saturating_sub(weight));
        let now = self.now_for(new.recurrence);
        let kept = before
            .clone()
            .filter(|before| new.keep_grid && before.recurrence == new.recurrence);
        let (anchor, next_at) = match kept {
            Some(kept) => (kept.anchor, kept.next_at),
            None if new.at_once => (now, now),
            None => (now, next_after(new.recurrence, now, now)),
        };
        let id = before
            .as_ref()
            .map_or(JobId(self.next_job), |before| before.id);
        self.next_job += u64::from(before.is_none());
        self.schedules.retain(|schedule| schedule.id != id);
        let (job, recurrence, runs_left) = (new.job.clone(), new.recurrence, new.runs);
        let (key, last) = (new.key.clone(), None);
        self.schedules.push(Schedule {
            id,
            key,
            job,
            recurrence,
            anchor,
            next_at,
            runs_left,
            last,
        });
        self.schedules.sort_by_key(|schedule| schedule.id);
        Ok(Some(Reply::ScheduleSet {
            schedule: id,
            replaced: before.is_some(),
        }))
    }

    fn judge_schedule(&self, new: &NewSchedule, before: Option<&Schedule>) -> Checked {
        let unique = new.job.unique.as_ref().map(|unique| &unique.key);
        for name in [
            new.key.as_ref(),
            Some(&new.job.queue),
            new.job.name.as_ref(),
            new.job.batch.as_ref(),
            unique,
        ]
        .into_iter()
        .flatten()
        {
            self.check_name(name)?;
        }
        if new.job.listen.is_wanted() || !new.job.durable || new.job.batch.is_some() {
            return Err(Refusal::OutOfPlace);
        }
        self.check_new_body(&new.job)?;
        let happens = match &new.recurrence {
            Recurrence::Cron(cron) | Recurrence::Zoned(cron, _) => {
                calendar::next_after(cron, self.wall(), YEARS).is_some()
            }
            Recurrence::Every { interval_ms } => *interval_ms > 0,
        };
        if !happens || new.runs == Some(0) {
            return Err(Refusal::NeverDue);
        }
        let limit = self.limits.schedules_max;
        if before.is_none() && self.schedules.len() >= limit as usize {
            return Err(Capacity::Schedules.exceeded(limit, limit));
        }
        self.judge_bytes(
            new.job.body.len() as u64,
            before.map_or(0, Schedule::weight_bytes),
        )
    }

    /// The schedule, if the client sees it.
    pub(super) fn schedule_of(
        &self,
        client: ClientId,
        which: &ScheduleRef,
    ) -> Result<Schedule, Refusal> {
        let found = match which {
            ScheduleRef::Id(id) => self.schedules.iter().find(|schedule| schedule.id == *id),
            ScheduleRef::Key { protocol, key } => self.schedule_keyed(*protocol, Some(key)),
        };
        let seen = found.filter(|schedule| self.sees_schedule(client, schedule));
        seen.cloned().ok_or(Refusal::NotFound(Thing::Schedule))
    }

    fn sees_schedule(&self, client: ClientId, schedule: &Schedule) -> bool {
        let bridged = self
            .queue_named(&schedule.job.queue)
            .is_some_and(|queue| queue.bridged);
        bridged || self.may_see(client, Some(schedule.job.protocol))
    }

    pub(super) fn run_now(&mut self, client: ClientId, which: &ScheduleRef) -> Answer {
        let job = job_of(&self.schedule_of(client, which)?, self.now, self.wall());
        self.push(ClientId(u64::MAX), &job)
    }

    pub(super) fn pause_schedule(
        &mut self,
        client: ClientId,
        which: &ScheduleRef,
        paused: bool,
    ) -> Answer {
        let Schedule {
            id,
            recurrence,
            anchor,
            next_at,
            ..
        } = self.schedule_of(client, which)?;
        let next_at = match (paused, next_at) {
            (true, _) => Timestamp::NEVER,
            (false, Timestamp::NEVER) => next_after(recurrence, anchor, self.now_for(recurrence)),
            (false, next_at) => next_at,
        };
        self.schedules
            .iter_mut()
            .filter(|schedule| schedule.id == id)
            .for_each(|schedule| schedule.next_at = next_at);
        Ok(Some(Reply::Done))
    }

    pub(super) fn remove_schedule(&mut self, client: ClientId, which: &ScheduleRef) -> Answer {
        let id = self.schedule_of(client, which)?.id;
        self.schedules.retain(|schedule| schedule.id != id);
        Ok(Some(Reply::Done))
    }

    pub(super) fn list_schedules(
        &mut self,
        client: ClientId,
        protocol: Option<Protocol>,
        (after, limit): (Cursor, u32),
    ) -> Answer {
        let limit = self.page(limit);
        let all: Vec<&Schedule> = self
            .schedules
            .iter()
            .filter(|schedule| schedule.id.0 >= after.0)
            .collect();
        let is_listed = |schedule: &&&Schedule| {
            protocol.is_none_or(|o| schedule.job.protocol == o)
                && self.sees_schedule(client, schedule)
        };
        let wanted = all.iter().take(limit).filter(is_listed);
        let rows = wanted.map(|schedule| (*schedule).clone()).collect();
        let next = all.get(limit).map(|schedule| Cursor(schedule.id.0, 0));
        Ok(Some(Reply::Schedules { rows, next }))
    }

    fn schedule_keyed(&self, protocol: Protocol, key: Option<&[u8]>) -> Option<&Schedule> {
        let key = key?;
        self.schedules.iter().find(|schedule| {
            schedule.job.protocol == protocol && schedule.key.as_deref() == Some(key)
        })
    }

    const fn now_for(&self, recurrence: Recurrence) -> Timestamp {
        match recurrence {
            Recurrence::Cron(_) | Recurrence::Zoned(..) => self.wall(),
            Recurrence::Every { .. } => self.now,
        }
    }

    /// A schedule's next run by the engine's clock.
    pub(super) const fn run_due(&self, schedule: &Schedule) -> Timestamp {
        match schedule.recurrence {
            Recurrence::Cron(_) | Recurrence::Zoned(..) => self.by_engine(schedule.next_at),
            Recurrence::Every { .. } => schedule.next_at,
        }
    }

    /// The wall clock was set back: calendar schedules run at the latest at their second match from there.
    pub(super) fn rewind_schedules(&mut self) {
        let wall = self.wall();
        for schedule in self
            .schedules
            .iter_mut()
            .filter(|schedule| !schedule.is_paused())
        {
            let next = |from| match schedule.recurrence {
                Recurrence::Zoned(cron, zone) => {
                    calendar::next_in_zone(&cron, zone, from).unwrap_or(Timestamp::NEVER)
                }
                Recurrence::Cron(cron) => {
                    calendar::next_after(&cron, from, YEARS).unwrap_or(Timestamp::NEVER)
                }
                Recurrence::Every { .. } => Timestamp::NEVER,
            };
            schedule.next_at = schedule.next_at.min(next(next(wall)));
        }
    }

    /// Runs a schedule that is due.
    pub(super) fn run(&mut self, id: JobId) {
        let Some(at) = self.schedules.iter().position(|schedule| schedule.id == id) else {
            return;
        };
        let schedule = self.schedules[at].clone();
        self.forget_idle_queues();
        let ran = self
            .push(
                ClientId(u64::MAX),
                &job_of(&schedule, self.now, self.wall()),
            )
            .is_ok();
        self.forget_idle_queues();
        let runs_left = schedule.runs_left.map(|runs| runs - u64::from(ran));
        if runs_left == Some(0) {
            self.schedules.remove(at);
        } else {
            let next_at = next_after(
                schedule.recurrence,
                schedule.next_at,
                self.now_for(schedule.recurrence),
            );
            self.schedules[at] = Schedule {
                next_at,
                runs_left,
                ..schedule
            };
        }
    }
}

/// The first time on the grid that is later than `now`; `grid` is a moment on it.
fn next_after(recurrence: Recurrence, grid: Timestamp, now: Timestamp) -> Timestamp {
    match recurrence {
        Recurrence::Cron(cron) => {
            calendar::next_after(&cron, now, YEARS).unwrap_or(Timestamp::NEVER)
        }
        Recurrence::Zoned(cron, zone) => {
            calendar::next_in_zone(&cron, zone, now).unwrap_or(Timestamp::NEVER)
        }
        Recurrence::Every { .. } if grid > now => grid,
        // A life can leap over years: a billion steps of a short interval.
        Recurrence::Every { interval_ms } => {
            grid.after_ms((now.ms_since(grid) / interval_ms + 1) * interval_ms)
        }
    }
}

/// The job of a run: times in the template are relative to the run.
fn job_of(schedule: &Schedule, now: Timestamp, wall: Timestamp) -> NewJob {
    let from_now = |ms: Timestamp| now.after_ms(ms.0);
    let from_wall = |ms: Timestamp| wall.after_ms(ms.0);
    let mut job = schedule.job.clone();
    job.not_before = job.not_before.map(from_wall);
    match &mut job.expires {
        Expiry::At(at) => *at = from_wall(*at),
        Expiry::By(at) => *at = from_now(*at),
        Expiry::Never => {}
    }
    if let Some(unique) = &mut job.unique {
        match &mut unique.until {
            KeyUntil::EndOr(at) | KeyUntil::StartOr(at) => *at = from_now(*at),
            KeyUntil::End | KeyUntil::Start | KeyUntil::Gone => {}
        }
    }
    job
}
