//! Administration of one job (look, replace, cancel) and of a queue's settings.

use bytes::Bytes;

use crate::context::Context;
use crate::engine::Engine;
use crate::event::Reply;
use crate::ids::{ClientId, Priority, QueueId, Tag};
use crate::job::Job;
use crate::outcome::End;
use crate::payload::Payload;
use crate::query::JobView;
use crate::queue::QueueImage;
use crate::ready::Slot;
use crate::refusal::{Refusal, Thing};
use crate::request::{Cursor, JobRef, QueueKind};

impl Engine {
    pub(crate) fn replace(
        &mut self,
        client: ClientId,
        tag: Tag,
        job: &JobRef,
        body: &Bytes,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let slot = self.find(job)?;
        if let Some(job) = self.jobs.at(slot) {
            self.check_body(job.queue, body)?;
        }
        self.jobs.reweigh(slot, |job| job.payload = Payload::copy(job.key(), job.name(), body));
        self.remember_put(slot, context);
        self.suits_anew(slot, context);
        self.tell_done(client, tag, context);
        Ok(())
    }

    pub(crate) fn cancel(
        &mut self,
        client: ClientId,
        tag: Tag,
        job: &JobRef,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let slot = self.find(job)?;
        self.discard(slot, context);
        self.tell_done(client, tag, context);
        Ok(())
    }

    /// Removes a job and notifies its listeners.
    pub(crate) fn discard(&mut self, slot: Slot, context: &mut Context) {
        self.count(slot, |totals| totals.cancelled += 1);
        self.tell_end(slot, &End::Cancelled, context);
        self.remove_job(slot, context);
    }

    pub(crate) fn look(&self, client: ClientId, tag: Tag, job: &JobRef, context: &mut Context) {
        let schedule = match job {
            JobRef::Id(id) => self.schedules.at(*id).cloned().map(Box::new),
            JobRef::Name(_) | JobRef::Key { .. } | JobRef::KeyAnywhere { .. } => None,
        };
        let job = self.find(job).ok().and_then(|slot| self.view(self.jobs.at(slot)?)).map(Box::new);
        context.reply(client, tag, Reply::Looked { job, schedule });
    }

    pub(crate) fn view(&self, job: &Job) -> Option<JobView> {
        let queue = &self.queues.at(job.queue)?.image;
        Some(JobView { job: job.clone(), queue: queue.name.clone(), codec: queue.rules().codec })
    }

    // ---- queues ----------------------------------------------------------------------------------------------------

    pub(crate) fn create_queue(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        kind: QueueKind,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        self.check_name(name)?;
        let queue = self.queues.find_or_make(name, kind, self.limits.queues_max)?;
        self.make_known(queue, context);
        self.tell_done(client, tag, context);
        Ok(())
    }

    /// Removes the ready jobs with their queue. Leased, scheduled and retrying jobs keep the queue alive, unlisted, until they
    /// end.
    pub(crate) fn remove_queue(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        only_idle: bool,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let known = |id: &QueueId| self.queues.at(*id).is_some_and(|queue| queue.image.known);
        let id = self.queues.named(name).filter(known).ok_or(Refusal::NotFound(Thing::Queue))?;
        let Some(queue) = self.queues.at(id) else { return Err(Refusal::NotFound(Thing::Queue)) };
        if only_idle && (queue.workers() > 0 || queue.live() > 0) {
            return Err(Refusal::InUse);
        }
        if let Err(changed) = self.discard_ready(id, context) {
            context.reply(client, tag, Reply::Mutated { changed, next: Some(Cursor(0, 0)) });
            return Ok(());
        }
        let forget = |image: &mut QueueImage| {
            (image.known, image.paused, image.jobs_max) = (false, false, [None; Priority::COUNT]);
        };
        self.set_queue(id, forget, context);
        self.drop_if_unknown(id);
        self.tell_done(client, tag, context);
        Ok(())
    }

    pub(crate) fn pause_queue(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        paused: bool,
        context: &mut Context,
    ) {
        if let Some(id) = self.queues.named(name)
            && self.queues.at(id).is_some_and(|queue| queue.image.paused != paused)
        {
            self.set_queue(id, |image| image.paused = paused, context);
            self.serve(id, context);
        }
        self.tell_done(client, tag, context);
    }

    pub(crate) fn limit_queue(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        jobs_max: [Option<u32>; Priority::COUNT],
        context: &mut Context,
    ) -> Result<(), Refusal> {
        self.check_name(name)?;
        let id = self.queues.find_or_make(name, QueueKind::Work, self.limits.queues_max)?;
        self.set_queue(id, |image| (image.known, image.jobs_max) = (true, jobs_max), context);
        self.tell_done(client, tag, context);
        Ok(())
    }
}
