//! Turns each event of the engine into messages for the peer.

use std::borrow::Cow;

use bytes::Bytes;
use windlass_engine::{
    End, Event, JobId, JobRef, JobStateKind, JobView, Notice, Protocol, Pushed, Query, Refusal, Reply, Tag, Thing,
    Timestamp,
};
use windlass_session::{Outbox, Reason};

use super::EventmqSession;
use super::asked::Ask;
use crate::bridge;
use crate::wire::{Command, value_text};

impl EventmqSession {
    pub(super) fn event(&mut self, now: Timestamp, event: Event, out: &mut Outbox) {
        match event {
            Event::Reply(tag, reply) => self.answer(tag, reply, out),
            Event::Notice(Notice::Delivered(job)) => self.taken(now, *job, out),
            Event::Notice(Notice::Ended { job, end }) => self.ended(job, &end, out),
            Event::Notice(Notice::Dismissed) => self.end(Reason::Dismissed, out),
            // eMQP has no progress.
            Event::Notice(Notice::Progress { .. } | Notice::WorkAvailable) => {}
        }
    }

    fn answer(&mut self, tag: Tag, reply: Reply, out: &mut Outbox) {
        match (self.asked.take(tag), reply) {
            (ask, Reply::Refused(why)) => self.refused(ask, why, out),
            (Some(Ask::Request { id, listen }), Reply::Pushed { job, how, .. }) => {
                self.pushed(&id, job, listen, how, out);
            }
            (Some(Ask::Look { id }), Reply::Looked { job, .. }) => self.looked(&id, job.as_deref(), out),
            (Some(Ask::Plan { id }), Reply::ScheduleSet { .. } | Reply::Done) => self.accepted(&id, out),
            (Some(Ask::Status { report }), Reply::Queues { rows, next }) => self.status_page(report, &rows, next, out),
            _ => {}
        }
    }

    /// A request's job is stored, or equals a job that was stored before.
    fn pushed(&mut self, id: &[u8], job: JobId, listen: bool, how: Pushed, out: &mut Outbox) {
        self.accepted(id, out);
        if !listen {
            return;
        }
        let id = Bytes::copy_from_slice(id);
        if how == Pushed::Attached && self.settings.dedup_ms > 0 {
            let tag = self.asked.push(Ask::Look { id: id.clone() });
            out.command(tag, Query::Job(JobRef::Id(job)));
        }
        self.awaited.insert(job, id);
    }

    /// An equal job was stored before: if it is done, send its result now.
    fn looked(&mut self, id: &[u8], view: Option<&JobView>, out: &mut Outbox) {
        let Some(JobView { job, .. }) = view.filter(|view| view.job.state.kind() == JobStateKind::Done) else { return };
        self.awaited.remove(&job.id);
        let extra = job.extra.as_deref();
        let by = extra.and_then(|extra| extra.result_by).unwrap_or(Protocol::EVENTMQ);
        let result = extra.and_then(|extra| extra.result.as_deref()).unwrap_or_default();
        let text = bridge::result(&self.settings.bridge, by, result);
        self.say(Command::Reply { text: &text, of: Some(id) }, out);
    }

    /// A request or schedule is stored.
    fn accepted(&mut self, id: &[u8], out: &mut Outbox) {
        self.say(Command::Reply { text: id, of: None }, out);
    }

    /// A job has ended, and its client has requested a reply.
    fn ended(&mut self, job: JobId, end: &End, out: &mut Outbox) {
        let Some(id) = self.awaited.remove(&job) else { return };
        let text: Cow<'_, [u8]> = match end {
            // EventMQ workers' results are sent verbatim.
            End::Succeeded { result, by } => {
                bridge::result(&self.settings.bridge, by.unwrap_or(Protocol::EVENTMQ), result)
            }
            // A worker of another protocol may fail without a message.
            End::Failed(failure) if failure.message.is_empty() => value_text(&failure.kind).into(),
            End::Failed(failure) => value_text(&failure.message).into(),
            End::TimedOut => value_text(b"TimeoutError").into(),
            End::Lost => value_text(b"workers lost").into(),
            End::Expired => value_text(b"expired").into(),
            End::Cancelled => value_text(b"cancelled").into(),
        };
        self.say(Command::Reply { text: &text, of: Some(&id) }, out);
    }

    /// A refused command gets no reply. But removing an unknown schedule counts as done.
    fn refused(&mut self, ask: Option<Ask>, why: Refusal, out: &mut Outbox) {
        match ask {
            Some(Ask::Plan { id }) if why == Refusal::NotFound(Thing::Schedule) => self.accepted(&id, out),
            // One warning for each connection, so that a peer cannot fill the log.
            Some(Ask::Request { id, .. } | Ask::Plan { id } | Ask::Look { id }) if !self.refused => {
                self.refused = true;
                tracing::warn!(%why, id = %id.escape_ascii(), "refused a command; later refusals are debug messages");
            }
            Some(_) | None => tracing::debug!(%why, "refused a command"),
        }
    }
}
