//! Jobs in: limits, coalescing, creation.

use bytes::Bytes;

use crate::batch::Member;
use crate::context::Context;
use crate::engine::Engine;
use crate::event::Reply;
use crate::ids::{ClientId, JobId, QueueId, Tag, Token};
use crate::isolation::Unfit;
use crate::job::{Cycle, Extra, Job, JobState, JobStateKind, KeyUntil, Lease, Track};
use crate::outcome::Pushed;
use crate::payload::Payload;
use crate::place::expiry;
use crate::ready::Slot;
use crate::refusal::{Capacity, Refusal, Thing};
use crate::request::{Clash, NewJob, Past, QueueKind};
use crate::warning::WarningKind;

impl Engine {
    pub(crate) fn push(
        &mut self,
        client: ClientId,
        tag: Tag,
        new: &NewJob,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let pushed = self.push_job(client, new, context);
        if let Err(why) = pushed
            && why != Refusal::NotUnique
        {
            context.warn(WarningKind::Refused(why), || (Self::own(&new.queue), Bytes::new(), Bytes::new()));
        }
        let (job, durable, how) = pushed?;
        if tag.wants_answer() {
            context.reply(client, tag, Reply::Pushed { job, how, durable });
        }
        Ok(())
    }

    /// Accepts a new job, or finds the job that holds its key. Returns the job, whether it is durable, and how it was pushed.
    pub(crate) fn push_job(
        &mut self,
        client: ClientId,
        new: &NewJob,
        context: &mut Context,
    ) -> Result<(JobId, bool, Pushed), Refusal> {
        self.check_new(new)?;
        let queue = self.queues.find_or_make(&new.queue, new.kind, self.limits.queues_max)?;
        let outcome = self.check_body(queue, &new.body).and_then(|()| match self.clash(queue, new) {
            Some((slot, clash)) => self.coalesce(client, slot, clash, new, context),
            None => self.insert_new(client, queue, new, context),
        });
        self.drop_if_unknown(queue);
        outcome
    }

    fn check_new(&self, new: &NewJob) -> Result<(), Refusal> {
        self.check_names(new)?;
        if new.past.as_deref().is_some_and(|past| !past.is_possible(new)) {
            return Err(Refusal::OutOfPlace);
        }
        match &new.name {
            Some(name) if new.name_unique && self.jobs.named(name).is_some() => Err(Refusal::NotUnique),
            Some(_) | None => self.membership(new).map(drop),
        }
    }

    pub(crate) fn check_names(&self, new: &NewJob) -> Result<(), Refusal> {
        self.check_name(&new.queue)?;
        self.check_name(new.name.as_deref().unwrap_or_default())?;
        self.check_name(new.batch.as_deref().unwrap_or_default())?;
        self.check_name(new.unique.as_ref().map_or(&[], |unique| &unique.key))
    }

    /// The job that holds the key of a new job.
    fn clash(&self, queue: QueueId, new: &NewJob) -> Option<(Slot, Clash)> {
        let unique = new.unique.as_ref()?;
        Some((self.jobs.keyed(queue, new.protocol, &unique.key)?, unique.clash))
    }

    /// The key is held by another job. The producer's [`Clash`] decides the answer.
    fn coalesce(
        &mut self,
        client: ClientId,
        slot: Slot,
        clash: Clash,
        new: &NewJob,
        context: &mut Context,
    ) -> Result<(JobId, bool, Pushed), Refusal> {
        let how = match clash {
            Clash::Refuse => return Err(Refusal::NotUnique),
            Clash::Keep => Pushed::Kept,
            Clash::Attach => {
                let is_done = self.jobs.at(slot).is_some_and(|job| matches!(job.state, JobState::Done(_)));
                if new.listen && !is_done {
                    self.start_hearing(client, slot)?;
                }
                // The job now has a producer that expects it to last, so it no longer lives only for its listeners.
                if new.durable && self.jobs.at(slot).is_some_and(|job| !job.durable) {
                    self.jobs.reweigh(slot, |job| job.durable = true);
                    self.remember_put(slot, context);
                }
                Pushed::Attached
            }
        };
        let job = self.jobs.at(slot).ok_or(Refusal::NotFound(Thing::Job))?;
        Ok((job.id, job.durable, how))
    }

    pub(crate) fn start_hearing(&mut self, client: ClientId, slot: Slot) -> Result<(), Refusal> {
        let Some(job) = self.jobs.at(slot) else { return Err(Refusal::NotFound(Thing::Job)) };
        let id = job.id;
        self.check_ears(client, job.listeners().len())?;
        *self.client(client)?.hears.entry(id).or_default() += 1;
        self.jobs.reweigh(slot, |job| job.extra_mut().listeners.push(client));
        Ok(())
    }

    /// Checks that a client may listen to a job that has this many listeners.
    fn check_ears(&mut self, client: ClientId, held: usize) -> Result<(), Refusal> {
        self.client(client)?;
        let limit = self.limits.listeners_max;
        if held >= limit as usize { Err(Capacity::QueueJobs.exceeded(limit, limit)) } else { Ok(()) }
    }

    fn insert_new(
        &mut self,
        client: ClientId,
        queue: QueueId,
        new: &NewJob,
        context: &mut Context,
    ) -> Result<(JobId, bool, Pushed), Refusal> {
        if new.listen {
            self.check_ears(client, 0)?;
        } else if !new.durable {
            // No client would ever ask for its result.
            return Err(Refusal::OutOfPlace);
        }
        self.check_room(queue, new)?;
        let member = self.membership(new)?;
        // Make the queue known first: dropping dead jobs may remove the last job of a queue that is not known.
        self.make_known(queue, context);
        self.make_way(1, new.body.len() as u64, context);
        let (listen, durable) = (new.listen, new.durable);
        let slot = self.place_new(queue, new, member, context);
        if listen {
            self.start_hearing(client, slot)?;
        }
        let id = self.announce(slot, queue, context).ok_or(Refusal::NotFound(Thing::Job))?;
        Ok((id, durable, Pushed::New))
    }

    /// Creates a job without a pushing client or a listener, regardless of limits.
    pub(crate) fn push_internal(
        &mut self,
        queue: QueueId,
        new: &NewJob,
        member: Option<Member>,
        context: &mut Context,
    ) {
        let slot = self.place_new(queue, new, member, context);
        self.announce(slot, queue, context);
    }

    /// Creates a new job and inserts it in its state.
    fn place_new(&mut self, queue: QueueId, new: &NewJob, member: Option<Member>, context: &mut Context) -> Slot {
        self.make_known(queue, context);
        let job = self.make_job(queue, new, member, context);
        let slot = self.insert_job(job);
        self.join_batch(member, context);
        slot
    }

    /// Completes the insertion of a job: counts and journals it, and serves its queue.
    fn announce(&mut self, slot: Slot, queue: QueueId, context: &mut Context) -> Option<JobId> {
        let (id, expires_at) = self.jobs.at(slot).map(|job| (job.id, expiry(job)))?;
        self.count(slot, |totals| totals.pushed += 1);
        self.remember_put(slot, context);
        // The job may have expired already. Then no waiting client must get it.
        if expires_at <= self.wall() {
            self.expire_job(id, context);
        }
        self.serve(queue, context);
        Some(id)
    }

    /// Checks all limits on the number and size of jobs.
    fn check_room(&self, queue: QueueId, new: &NewJob) -> Result<(), Refusal> {
        self.check_room_for(new.body.len())?;
        let Some(queue) = self.queues.at(queue) else { return Ok(()) };
        match queue.image.jobs_max.get(new.priority.lane()).copied().flatten() {
            Some(limit) if queue.live() >= limit => Err(Capacity::QueueJobs.exceeded(queue.live(), limit)),
            Some(_) | None => Ok(()),
        }
    }

    fn make_job(&mut self, queue: QueueId, new: &NewJob, member: Option<Member>, context: &mut Context) -> Job {
        let cycle = match new.kind {
            QueueKind::Work => None,
            QueueKind::Cycle => Some(Cycle { priority: self.next_serial(queue, new.front, context), boost: 0 }),
        };
        let unique = new.unique.as_ref();
        let payload =
            Payload::new(unique.map(|unique| &*unique.key), new.name.as_deref().unwrap_or_default(), &new.body);
        let extra = Extra {
            meta: new.meta.clone(),
            expires_at: new.expires_at,
            key_until: unique.map_or(KeyUntil::End, |unique| unique.until),
            cycle,
            result_keep_ms: new.result_keep_ms,
            lease_ms: new.lease_ms,
            track: (new.track_ms > 0).then_some(Track { keep_ms: new.track_ms, updated_at: self.wall() }),
            member,
            ..Extra::default()
        };
        let rule = self.queues.at(queue).and_then(|queue| queue.image.rules.as_deref()?.retry);
        let Past { ready_at, failures, state } = new.past.as_deref().cloned().unwrap_or_default();
        // Each failure was a delivery, and so is a current lease.
        let attempts = failures.saturating_add(u32::from(matches!(state, Some(JobState::Leased(_)))));
        let state = match (state, new.not_before) {
            (Some(JobState::Leased(lease)), _) => JobState::Leased(Box::new(self.moved_lease(*lease, attempts))),
            (Some(state), _) => state,
            (None, Some(at)) if at > self.wall() => JobState::Scheduled(at),
            (None, Some(_) | None) => JobState::Ready,
        };
        Job {
            id: self.new_job_id(context),
            queue,
            protocol: new.protocol,
            priority: new.priority,
            durable: new.durable,
            rank: self.rank(new.front && new.kind == QueueKind::Work),
            state,
            ready_at: ready_at.unwrap_or(self.wall()).min(self.wall()),
            payload,
            attempts,
            failures,
            retry: rule.filter(|_| new.retry_default).unwrap_or(new.retry),
            unfit: Unfit::NONE,
            extra: (extra != Extra::default()).then(|| Box::new(extra)),
        }
    }

    /// A lease granted by another server, cut to this daemon's limits.
    fn moved_lease(&self, lease: Lease, attempts: u32) -> Lease {
        let longest = self.now.after_ms(self.limits.lease_ms_max);
        Lease { token: Token(attempts.into()), until: lease.until.min(longest), ..lease }
    }

    /// The next serial number of a `cycle` queue; 0 for an entry that goes to the front.
    pub(crate) fn next_serial(&mut self, queue: QueueId, front: bool, context: &mut Context) -> u64 {
        self.set_queue(queue, |image| image.serial += 1, context);
        let serial = self.queues.at(queue).map_or(0, |queue| queue.image.serial);
        if front { 0 } else { serial }
    }

    /// Makes a job ready: at its own position, or with a new rank, behind (or before) all its equals.
    pub(crate) fn make_ready(&mut self, slot: Slot, rank: Option<u64>, context: &mut Context) {
        if self.is_abandoned(slot) {
            self.remove_job(slot, context);
            return;
        }
        let now = self.wall();
        let Some(job) = self.jobs.at(slot) else { return };
        let (queue, was_off) = (job.queue, matches!(job.state.kind(), JobStateKind::Dead | JobStateKind::Done));
        if was_off && let Some(job) = self.jobs.at_mut(slot) {
            // A client wants the job tried again.
            job.unfit = Unfit::NONE;
            job.extra.iter_mut().for_each(|extra| extra.losses = 0);
        }
        self.depart_for(slot, rank);
        if let Some(job) = self.jobs.at_mut(slot) {
            job.ready_at = now;
        }
        if was_off {
            self.reclaim_key(slot, context);
        }
        self.make_known(queue, context);
        self.remember_move(slot, context);
        self.serve(queue, context);
    }

    /// Whether a job lives only for its listeners and they are all gone. Its current lease may run to the end, but it is not
    /// tried again.
    pub(crate) fn is_abandoned(&self, slot: Slot) -> bool {
        self.jobs.at(slot).is_some_and(|job| !job.durable && job.listeners().is_empty())
    }

    /// Moves a job to ready, and changes its rank while it is in no ready queue.
    fn depart_for(&mut self, slot: Slot, rank: Option<u64>) {
        let Some(rank) = rank else { return self.move_job(slot, JobState::Ready) };
        // A shelved job is in no index that depends on its sort key.
        self.move_job(slot, JobState::Parked);
        if let Some(job) = self.jobs.at_mut(slot) {
            job.rank = rank;
        }
        self.move_job(slot, JobState::Ready);
    }
}

impl Past {
    /// Whether a new job can have this past.
    fn is_possible(&self, new: &NewJob) -> bool {
        let state = match &self.state {
            None | Some(JobState::Retrying(_) | JobState::Dead(_)) => true,
            Some(JobState::Leased(lease)) => !lease.connection_bound(),
            Some(JobState::Ready | JobState::Scheduled(_) | JobState::Parked | JobState::Done(_)) => false,
        };
        state && new.durable && new.kind == QueueKind::Work
    }
}
