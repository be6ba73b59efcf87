//! Imports records with their full state: jobs, schedules, batches, and the settings of queues.
//!
//! A job keeps its number if the number was never assigned here, and its order among the other jobs. A time-bound lease
//! stays valid: its worker can still finish the job. A record whose number was already assigned here is a duplicate if
//! its content is the same, and is then not imported again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use windlass_config::Failure;
use windlass_engine::{
    Batch, Job, JobId, JobState, Namespace, Payload, QueueId, QueueImage, Refusal, Role, Schedule,
    Thing,
};

use super::jsonl::{Line, Ranks};
use super::{Importer, Outcome};

/// State kept while a source is imported.
#[derive(Debug, Default)]
pub(super) struct Adoption {
    /// The smallest sort key in the source, the number of sort keys from there to the largest, and the first one
    /// reserved here.
    ranks: Option<(u64, u64, u64)>,
    /// Sort keys already in use here.
    used: BTreeSet<u64>,
    /// Batches, by their numbers in the source.
    batches: BTreeMap<JobId, Members>,
    /// Namespaces with names here, by their numbers in the source.
    namespaces: BTreeMap<Namespace, Namespace>,
    /// The engine must be woken to look at the imported jobs.
    asleep: bool,
}

/// An imported batch with its open counts: jobs that have not run, and jobs that have not finished.
#[derive(Clone, Copy, Debug)]
struct Members {
    id: JobId,
    unran: u64,
    open: u64,
}

/// The result for one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Whether it was imported.
    pub outcome: Outcome,
    /// The part that was lost, if any.
    pub without: Option<&'static str>,
}

impl Importer {
    /// Announces the sort keys of the source's jobs. Must be called before the first job is imported.
    pub fn expect(&mut self, ranks: Ranks) {
        let Some((first, many)) = ranks.span() else {
            return;
        };
        let known = self.to.as_ref().and_then(|to| to.record.ranks);
        let reserved = self.engine.reserve_ranks(0);
        let here = known.unwrap_or(reserved);
        // An interrupted import may not have used all its reserved sort keys yet.
        self.engine
            .reserve_ranks((here + many).saturating_sub(reserved));
        self.adoption.ranks = Some((first, many, here));
        let mut used = BTreeSet::new();
        self.each_job(|job| used.extend(Some(job.rank).filter(|rank| *rank >= here)));
        self.adoption.used = used;
        if let Some(to) = &mut self.to {
            to.record.ranks = Some(here);
        }
    }

    /// Imports the line at this position of the source. Positions must increase.
    ///
    /// # Errors
    ///
    /// [`Failure::Runtime`]: a full batch could not be written to the store.
    pub fn take_line(&mut self, place: u64, mut line: Line) -> Result<Adopted, Failure> {
        self.context.changes.clear();
        self.context.events.clear();
        let mut without = None;
        if let Line::New(job) = line {
            let outcome = self.take(place, *job)?;
            return Ok(Adopted { outcome, without });
        }
        let here = self.localize(&mut line);
        let taken = here.and_then(|()| self.adopt(line, &mut without));
        self.journal.append(&self.engine, &self.context.changes);
        self.adoption.asleep = true;
        let outcome = match taken {
            Ok(true) => Outcome::Taken,
            Ok(false) => Outcome::Known,
            Err(why) => Outcome::Refused(why),
        };
        self.count(place, outcome)?;
        Ok(Adopted { outcome, without })
    }

    /// Imports a line that is in the namespaces of this store. `false`: it was imported earlier.
    fn adopt(&mut self, line: Line, without: &mut Option<&'static str>) -> Result<bool, Refusal> {
        match line {
            Line::Job(job, queue) => self.adopt_job(*job, &queue, without),
            Line::Queue(image) => {
                let settings =
                    |of: &QueueImage| (of.paused, of.jobs_max, of.throttle, of.rules.clone());
                let there = self.engine.queue_named(image.id.namespace(), &image.name);
                let differs =
                    there.is_some_and(|there| settings(there.image()) != settings(&image));
                *without = differs.then_some("its settings, because the existing queue has others");
                self.engine.adopt_queue(image, &mut self.context)
            }
            Line::Schedule(schedule) => self.adopt_schedule(*schedule),
            Line::Batch(batch) => self.adopt_batch(*batch),
            Line::NextNumber(next) => {
                self.engine.adopt_numbers(next, &mut self.context);
                Ok(true)
            }
            // The namespace was imported as its number was looked up, and the counters here go on.
            Line::New(_)
            | Line::Namespace(_)
            | Line::Engine(_)
            | Line::Day(_)
            | Line::Heading(_)
            | Line::Ending(_) => Ok(true),
        }
    }

    /// Replaces the number of a namespace in the source by that of the namespace of the same name here, which is
    /// created if there is none; or by that of the namespace that everything goes into.
    fn localize(&mut self, line: &mut Line) -> Result<(), Refusal> {
        match line {
            Line::Namespace(image) if self.into.is_none() => {
                let here = self.engine.adopt_namespace(image, &mut self.context)?;
                self.adoption.namespaces.insert(image.id, here);
            }
            Line::Job(job, _) => job.queue = self.queue_here(job.queue)?,
            Line::Queue(image) => image.id = self.queue_here(image.id)?,
            Line::Schedule(schedule) => {
                schedule.job.namespace = self.namespace_here(schedule.job.namespace)?;
            }
            Line::Batch(batch) => {
                batch.namespace = self.namespace_here(batch.namespace)?;
                let callbacks = [&mut batch.complete, &mut batch.success];
                for callback in callbacks.into_iter().flatten() {
                    callback.namespace = batch.namespace;
                }
            }
            Line::New(_)
            | Line::Namespace(_)
            | Line::NextNumber(_)
            | Line::Engine(_)
            | Line::Day(_)
            | Line::Heading(_)
            | Line::Ending(_) => {}
        }
        Ok(())
    }

    fn queue_here(&self, id: QueueId) -> Result<QueueId, Refusal> {
        Ok(QueueId::new(self.namespace_here(id.namespace())?, 0))
    }

    fn namespace_here(&self, id: Namespace) -> Result<Namespace, Refusal> {
        if let Some(into) = self.into {
            return Ok(into);
        }
        if id == Namespace::UNNAMED {
            return Ok(id);
        }
        let here = self.adoption.namespaces.get(&id).copied();
        here.ok_or(Refusal::NotFound(Thing::Namespace))
    }

    /// Notes a line that was imported earlier; later lines may refer to it.
    pub fn skip_line(&mut self, line: &Line) {
        if !matches!(line, Line::Batch(_) | Line::Namespace(_)) {
            return;
        }
        let mut line = line.clone();
        if self.localize(&mut line).is_ok()
            && let Line::Batch(batch) = line
        {
            self.meet_batch(&batch);
        }
    }

    /// Lets the engine act on the jobs imported since the last call.
    pub(super) fn wake_up(&mut self) {
        if std::mem::take(&mut self.adoption.asleep) {
            self.engine.wake_up();
        }
    }

    fn adopt_job(
        &mut self,
        mut job: Job,
        queue: &Bytes,
        without: &mut Option<&'static str>,
    ) -> Result<bool, Refusal> {
        let same = |other: &Job| {
            let has_body = match other.payload.stored() {
                Some(stored) => stored.is(job.body()),
                None => other.body() == job.body(),
            };
            has_body
                && other.queue.namespace() == job.queue.namespace()
                && (other.protocol, other.key(), other.name())
                    == (job.protocol, job.key(), job.name())
        };
        let namesake = self
            .engine
            .job_named(job.queue.namespace(), job.name())
            .filter(|_| !job.name().is_empty());
        let namesake =
            namesake.filter(|other| other.id < self.first && other.protocol == job.protocol);
        if self.engine.job(job.id).is_some_and(same) || namesake.is_some() {
            return Ok(false);
        }
        if !self.enrol(&mut job) {
            *without = Some("its batch, which does not exist here");
        }
        job.shift(self.ahead_ms());
        let rank = self.rank_of(&job);
        job.rank = rank;
        match self
            .engine
            .adopt_job(job.clone(), queue, self.first, &mut self.context)
        {
            Ok(_) => {}
            // As for a client that submits the job again, the existing job counts.
            Err(Refusal::NotUnique) if job.cycle().is_some() || self.key_is_identity(&job) => {
                return Ok(false);
            }
            Err(Refusal::NotUnique) => {
                *without = Some("its key, which another job holds");
                let payload = Payload::copy(None, job.name(), job.body());
                self.engine.adopt_job(
                    Job { payload, ..job },
                    queue,
                    self.first,
                    &mut self.context,
                )?;
            }
            Err(why) => return Err(why),
        }
        self.adoption.used.insert(rank);
        Ok(true)
    }

    /// Whether another job with the job's key is the same job.
    fn key_is_identity(&self, job: &Job) -> bool {
        let protocol = self
            .protocols
            .iter()
            .find(|protocol| protocol.id() == job.protocol);
        protocol.is_some_and(|protocol| protocol.import_terms().key_is_identity)
    }

    /// The sort key of a job here.
    fn rank_of(&mut self, job: &Job) -> u64 {
        let shifted = self.adoption.ranks.and_then(|(first, many, here)| {
            let at = job.rank.checked_sub(first).filter(|at| *at < many)?;
            Some(here + at).filter(|rank| !self.adoption.used.contains(rank))
        });
        shifted.unwrap_or_else(|| self.engine.reserve_ranks(1))
    }

    /// Puts a job into its batch. `false` if the batch does not exist here, or does not count the job.
    fn enrol(&mut self, job: &mut Job) -> bool {
        let over = matches!(job.state, JobState::Done(_));
        let Some(member) = job
            .extra
            .as_deref_mut()
            .and_then(|extra| extra.member.as_mut())
        else {
            return true;
        };
        let (unran, open) = (u64::from(!member.ran), u64::from(!over));
        let members = self.adoption.batches.get_mut(&member.batch);
        let Some(members) =
            members.filter(|it| member.role != Role::Job || (it.unran >= unran && it.open >= open))
        else {
            job.extra.iter_mut().for_each(|extra| extra.member = None);
            return false;
        };
        if member.role == Role::Job {
            (members.unran, members.open) = (members.unran - unran, members.open - open);
        }
        member.batch = members.id;
        true
    }

    fn adopt_schedule(&mut self, mut schedule: Schedule) -> Result<bool, Refusal> {
        let same = |other: &Schedule| (&other.key, &other.job) == (&schedule.key, &schedule.job);
        if self.engine.schedule(schedule.id).is_some_and(same) {
            return Ok(false);
        }
        schedule.shift(self.ahead_ms());
        match self.engine.adopt_schedule(schedule, &mut self.context) {
            Ok(_) => Ok(true),
            Err(Refusal::NotUnique) => Ok(false),
            Err(why) => Err(why),
        }
    }

    fn adopt_batch(&mut self, mut batch: Batch) -> Result<bool, Refusal> {
        if self.meet_batch(&batch) {
            return Ok(false);
        }
        let (number, at) = (batch.id, batch.progress);
        let parent = batch
            .parent
            .and_then(|parent| self.adoption.batches.get(&parent))
            .map(|members| members.id);
        batch.parent = batch.parent.map(|_| parent.unwrap_or(JobId(0)));
        batch.shift(self.ahead_ms());
        let id = match self.engine.adopt_batch(batch, &mut self.context) {
            Ok(id) => id,
            Err(Refusal::NotUnique) => return Ok(false),
            Err(why) => return Err(why),
        };
        let members = Members {
            id,
            unran: at.total - at.ran,
            open: at.total - at.succeeded,
        };
        self.adoption.batches.insert(number, members);
        Ok(true)
    }

    /// Shows all jobs, as many of them unpacked at once as share a page.
    fn each_job(&mut self, mut show: impl FnMut(&Job)) {
        for page in self.engine.job_pages() {
            self.engine.jobs_in(page).for_each(&mut show);
            self.engine.close_page(page);
        }
    }

    /// Whether an earlier import created this batch; the jobs that follow may then belong to it.
    fn meet_batch(&mut self, batch: &Batch) -> bool {
        let same = |other: &&Batch| {
            (
                &other.name,
                other.protocol,
                other.created_at,
                other.namespace,
            ) == (
                &batch.name,
                batch.protocol,
                batch.created_at,
                batch.namespace,
            )
        };
        let Some(here) = self.engine.batches().find(same) else {
            return false;
        };
        let (id, at) = (here.id, here.progress);
        let mut members = Members {
            id,
            unran: at.total - at.ran,
            open: at.total - at.succeeded,
        };
        self.each_job(|job| {
            let member = job.extra.as_deref().and_then(|extra| extra.member);
            if let Some(member) =
                member.filter(|member| member.batch == id && member.role == Role::Job)
            {
                members.unran = members.unran.saturating_sub((!member.ran).into());
                members.open = members
                    .open
                    .saturating_sub((!matches!(job.state, JobState::Done(_))).into());
            }
        });
        self.adoption.batches.insert(batch.id, members);
        true
    }
}
