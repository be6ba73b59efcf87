//! Turns each event of the engine into messages for the peer.

use std::borrow::Cow;

use bytes::Bytes;
use windlass_engine::{End, Event, JobId, JobRef, JobStateKind, JobView, Protocol, Pushed, Refusal, Tag, Timestamp};
use windlass_session::{Outbox, Reason};

use super::EventmqSession;
use super::asked::Ask;
use crate::wire::{Command, value_text};

impl EventmqSession {
    pub(super) fn event(&mut self, now: Timestamp, event: Event, out: &mut Outbox) {
        match event {
            Event::Taken { job, .. } => self.taken(now, *job, out),
            Event::Pushed { tag, job, how, .. } => {
                if let Some(Ask::Request { id, listen }) = self.asked.take(tag) {
                    self.pushed(&id, job, listen, how, out);
                }
            }
            Event::Looked { tag, job, .. } => {
                if let Some(Ask::Look { id }) = self.asked.take(tag) {
                    self.looked(&id, job.as_deref(), out);
                }
            }
            Event::ScheduleSet { tag, .. } | Event::Done { tag } => {
                if let Some(Ask::Plan { id }) = self.asked.take(tag) {
                    self.accepted(&id, out);
                }
            }
            Event::Queues { tag, rows, next } => {
                if let Some(Ask::Status { report }) = self.asked.take(tag) {
                    self.status_page(report, &rows, next, out);
                }
            }
            Event::Ended { job, end } => self.ended(job, &end, out),
            Event::Refused { tag, why } => self.refused(tag, why, out),
            Event::Dismissed => self.end(Reason::Dismissed, out),
            // eMQP has no progress; the other events answer commands that this session never sends.
            Event::Progress { .. }
            | Event::Empty { .. }
            | Event::WorkAvailable
            | Event::Finished { .. }
            | Event::Failed { .. }
            | Event::Settled { .. }
            | Event::Schedules { .. }
            | Event::BatchLooked { .. }
            | Event::Jobs { .. }
            | Event::Clients { .. }
            | Event::Stats { .. }
            | Event::Mutated { .. }
            | Event::Beaten { .. } => {}
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
            out.command(tag, windlass_engine::Command::Look(JobRef::Id(job)));
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
        let text = windlass_bridge::result(by, Protocol::EVENTMQ, result);
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
                windlass_bridge::result(by.unwrap_or(Protocol::EVENTMQ), Protocol::EVENTMQ, result)
            }
            // A Gearman worker may fail without a message.
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
    fn refused(&mut self, tag: Tag, why: Refusal, out: &mut Outbox) {
        match self.asked.take(tag) {
            Some(Ask::Plan { id }) if why == Refusal::UnknownSchedule => self.accepted(&id, out),
            // One warning for each connection, so that a peer cannot fill the log.
            Some(Ask::Request { id, .. } | Ask::Plan { id } | Ask::Look { id }) if !self.refused => {
                self.refused = true;
                tracing::warn!(%why, id = %id.escape_ascii(), "refused a command; later refusals are debug messages");
            }
            Some(_) | None => tracing::debug!(%why, "refused a command"),
        }
    }
}
