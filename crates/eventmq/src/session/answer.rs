//! Turns the engine's replies, and the ends of jobs, into messages for the peer.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

use bytes::Bytes;
use windlass_engine::{
    Cursor, End, JobId, JobRef, JobStateKind, JobView, Protocol, Pushed, Query, Refusal, Reply,
    Thing,
};

use super::ask::Ask;
use super::{EventmqSpeaker, Talk};
use crate::bridge;
use crate::wire::{Command, value_text};

impl EventmqSpeaker {
    pub(super) fn replied(&mut self, ask: Ask, reply: Reply, talk: &mut Talk<'_>) {
        match (ask, reply) {
            (ask, Reply::Refused(why)) => self.refuse(ask, why, talk),
            (Ask::Request { id, listen }, Reply::Pushed { job, how, .. }) => {
                self.pushed(&id, job, listen, how, talk)
            }
            (
                Ask::Collect,
                Reply::Counted {
                    next: Some(Cursor(from, _)),
                    ..
                },
            ) => self.collect(JobId(from), talk),
            (Ask::Look { id }, Reply::Looked { job, .. }) => self.looked(&id, job.as_deref(), talk),
            (Ask::Plan { id }, Reply::ScheduleSet { .. } | Reply::Done) => self.accepted(&id, talk),
            (Ask::Status { report }, Reply::Queues { rows, next }) => {
                self.status_page(report, &rows, next, talk)
            }
            (Ask::Show { workers }, Reply::Stats(_)) => self.shown(workers, talk),
            _ => {}
        }
    }

    /// A request's job is stored, or equals a job that was stored before.
    fn pushed(&mut self, id: &[u8], job: JobId, listen: bool, how: Pushed, talk: &mut Talk<'_>) {
        self.accepted(id, talk);
        if !listen {
            return;
        }
        let id = Bytes::copy_from_slice(id);
        if how == Pushed::Attached && !self.settings.section.dedup.is_zero() {
            talk.ask(Ask::Look { id: id.clone() }, Query::Job(JobRef::Id(job)));
        }
        self.awaited.entry(job).or_default().insert(id);
    }

    /// An equal job was stored before: if it is done, send its result now.
    fn looked(&mut self, id: &[u8], view: Option<&JobView>, talk: &mut Talk<'_>) {
        let Some(JobView { job, .. }) =
            view.filter(|view| view.job.state.kind() == JobStateKind::Done)
        else {
            return;
        };
        if self.answered(job.id, |ids| ids.take(id)).is_none() {
            return;
        }
        let extra = job.extra.as_deref();
        let by = extra
            .and_then(|extra| extra.result_by)
            .unwrap_or(Protocol::EVENTMQ);
        let result = extra
            .and_then(|extra| extra.result.as_deref())
            .unwrap_or_default();
        let text = bridge::result(&self.settings.bridge, by, result);
        self.send(
            Command::Reply {
                text: &text,
                of: Some(id),
            },
            talk,
        );
    }

    /// Takes one of the requests that await the end of a job.
    fn answered(
        &mut self,
        job: JobId,
        which: impl FnOnce(&mut BTreeSet<Bytes>) -> Option<Bytes>,
    ) -> Option<Bytes> {
        let Entry::Occupied(mut awaited) = self.awaited.entry(job) else {
            return None;
        };
        let id = which(awaited.get_mut());
        if awaited.get().is_empty() {
            awaited.remove();
        }
        id
    }

    /// A request or schedule is stored.
    fn accepted(&mut self, id: &[u8], talk: &mut Talk<'_>) {
        self.send(Command::Reply { text: id, of: None }, talk);
    }

    /// A job has ended, and its client has requested a reply.
    pub(super) fn job_ended(&mut self, job: JobId, end: &End, talk: &mut Talk<'_>) {
        // Each request of the job has a notice of its own.
        let Some(id) = self.answered(job, BTreeSet::pop_first) else {
            return;
        };
        let text: Cow<'_, [u8]> = match end {
            // EventMQ workers' results are sent verbatim.
            End::Succeeded { result, by } => bridge::result(
                &self.settings.bridge,
                by.unwrap_or(Protocol::EVENTMQ),
                result,
            ),
            // A worker of another protocol may fail without a message.
            End::Failed(failure) if failure.message.is_empty() => value_text(&failure.kind).into(),
            End::Failed(failure) => value_text(&failure.message).into(),
            End::TimedOut => value_text(b"TimeoutError").into(),
            End::Lost => value_text(b"workers lost").into(),
            End::Expired => value_text(b"expired").into(),
            End::Cancelled => value_text(b"cancelled").into(),
        };
        self.send(
            Command::Reply {
                text: &text,
                of: Some(&id),
            },
            talk,
        );
    }

    /// A refused command gets no reply. But removing an unknown schedule counts as done.
    fn refuse(&mut self, ask: Ask, why: Refusal, talk: &mut Talk<'_>) {
        match ask {
            Ask::Plan { id } if why == Refusal::NotFound(Thing::Schedule) => {
                self.accepted(&id, talk)
            }
            // The link to the leader was cut.
            Ask::Collect if why == Refusal::Unknown => self.collect(JobId(0), talk),
            // One warning for each connection, so that a peer cannot fill the log.
            Ask::Request { id, .. } | Ask::Plan { id } | Ask::Look { id } if !self.refused => {
                self.refused = true;
                tracing::warn!(%why, id = %id.escape_ascii(), "refused a command; later refusals are debug messages");
            }
            Ask::Request { .. }
            | Ask::Plan { .. }
            | Ask::Look { .. }
            | Ask::Collect
            | Ask::Status { .. }
            | Ask::Show { .. } => refused(why),
        }
    }
}

/// Logs a command that the engine has refused. eMQP has no error reply.
pub(super) fn refused(why: Refusal) {
    tracing::debug!(%why, "refused a command");
}
