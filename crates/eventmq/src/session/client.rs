//! Clients' commands: single jobs and schedules.
//!
//! Spec: "eMQP / Client".

use bytes::Bytes;
use windlass_engine::{
    Command, JobCommand, JobId, Listen, NewJob, Protocol, Right, ScheduleCommand, ScheduleRef,
};
use windlass_zmtp::{Message, Ready};

use super::ask::Ask;
use super::schedule::{new_schedule, schedule_key};
use super::{EventmqSpeaker, Talk, ignored};
use crate::config::Scheduler;
use crate::wire::{Plan, Request};

impl EventmqSpeaker {
    /// A peer that has stated an identity collects the results that its earlier connections have requested.
    pub(super) fn introduced(&mut self, ready: &Ready, talk: &mut Talk<'_>) {
        // A connection without the identity that it stated is beside the one that has it.
        let stated = ready
            .identity
            .as_ref()
            .filter(|identity| self.link.identity() == Some(*identity));
        if !talk.may(Right::Submit) {
            return;
        }
        self.name = stated.map(|identity| match &ready.user {
            Some(user) => Bytes::from([user, &b"\0"[..], identity].concat()),
            None => identity.clone(),
        });
        self.collect(JobId(0), talk);
    }

    /// Collects results of jobs from this number on.
    pub(super) fn collect(&self, from: JobId, talk: &mut Talk<'_>) {
        if let Some(name) = self.name.clone() {
            talk.ask(Ask::Collect, JobCommand::Collect { name, from });
        }
    }

    /// `REQUEST`. A first reply follows when the job is durable, a second one with the result if the client has
    /// requested it.
    pub(super) fn request(
        &self,
        id: &[u8],
        request: &Request<'_>,
        message: &Message,
        talk: &mut Talk<'_>,
    ) {
        let (id, listen) = (message.view(id), request.headers.reply_requested());
        let job = NewJob {
            listen: match &self.name {
                Some(name) if listen => Listen::As(name.clone()),
                None if listen => Listen::Yes,
                Some(_) | None => Listen::No,
            },
            unique: self.settings.unique(id.clone()),
            result_keep_ms: self.settings.section.dedup.as_ms(),
            ..self.settings.job(request, message)
        };
        talk.ask(Ask::Request { id, listen }, JobCommand::Push(Box::new(job)));
    }

    /// `SCHEDULE`. For the engine, or for a stock scheduler if so configured.
    pub(super) fn schedule(
        &self,
        id: &[u8],
        plan: &Plan<'_>,
        message: &Message,
        talk: &mut Talk<'_>,
    ) {
        if self.settings.section.scheduler == Scheduler::External {
            return self.forward(message, talk);
        }
        let request = Request {
            queue: plan.queue,
            headers: plan.headers,
            job: plan.job,
        };
        match new_schedule(plan, self.settings.job(&request, message)) {
            Ok(Some(schedule)) => Self::plan(
                id,
                Command::Schedule(ScheduleCommand::Set(Box::new(schedule))),
                message,
                talk,
            ),
            // No runs at all: the same as removing the schedule.
            Ok(None) => self.unschedule(id, plan, message, talk),
            Err(why) => ignored(&why),
        }
    }

    /// `UNSCHEDULE`. Jobs that were pushed already remain.
    pub(super) fn unschedule(
        &self,
        id: &[u8],
        plan: &Plan<'_>,
        message: &Message,
        talk: &mut Talk<'_>,
    ) {
        if self.settings.section.scheduler == Scheduler::External {
            // Any of them may have the schedule.
            let (schedulers, frames) = (
                self.settings.directory.schedulers(),
                Bytes::copy_from_slice(message.frames()),
            );
            self.settings.directory.send_to_other_schedulers(&frames);
            return talk.publish(&schedulers, frames);
        }
        match schedule_key(plan) {
            Ok(key) => {
                let which = ScheduleRef::Key {
                    protocol: Protocol::EVENTMQ,
                    key,
                };
                Self::plan(
                    id,
                    Command::Schedule(ScheduleCommand::Remove(which)),
                    message,
                    talk,
                );
            }
            Err(why) => ignored(&why),
        }
    }

    fn plan(id: &[u8], command: Command, message: &Message, talk: &mut Talk<'_>) {
        talk.ask(
            Ask::Plan {
                id: message.view(id),
            },
            command,
        );
    }

    /// Sends a schedule to the newest scheduler.
    fn forward(&self, message: &Message, talk: &mut Talk<'_>) {
        let frames = Bytes::copy_from_slice(message.frames());
        let publish = |scheduler| talk.publish(&[scheduler], frames.clone());
        if !self
            .settings
            .directory
            .send_to_newest_scheduler(&frames, publish)
        {
            tracing::debug!("dropped a schedule: there is no scheduler");
        }
    }

    /// `PUBLISH`. To the current subscribers of the topic.
    pub(super) fn publish(&self, topic: &[u8], text: &[u8], talk: &mut Talk<'_>) {
        self.settings.exchange.publish(topic, text, talk);
    }
}
