//! One connection: turns requests into commands for the engine, and the engine's events into packets.
//!
//! Reading order: this file, where every packet of the specification has a line; then the topics: `submit`, `schedule`,
//! `worker`, `grab`, `work`, `client`, and `admin` and `listing` for text lines. What every topic uses: `ask` (what a
//! command was for), `unique` (unique ids), `refusal` (refusals as Gearman errors).
//!
//! Invariants: answers leave in the order of their requests; the outbox ensures that, not this module. A job never
//! keeps its read buffer alive. No packet is sent between the lines of a text answer.
//!
//! Spec: `PROTOCOL`, all of it.

mod admin;
mod adopt;
mod ask;
mod client;
mod dead;
mod grab;
mod listing;
mod refusal;
mod schedule;
mod settings;
mod submit;
#[cfg(test)]
mod tests;
mod unique;
mod work;
mod worker;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientCommand, ClientInfo, JobId, Notice, Protocol, Refusal, Reply};
use windlass_session::{Conversation, Read, Reason, Speaker};

pub use settings::Settings;
pub use submit::background;

use crate::wire::{ErrorReply, Frames, Handle, Message, Request, Response};
use ask::Ask;
use submit::Manner;

/// The id that `workers` shows for a connection without SET_CLIENT_ID.
const NAMELESS: &[u8] = b"-";

/// Bytes for clients that may wait for the end of a text list.
const HELD_BYTES_MAX: usize = 16 << 20;

/// One connection's output.
type Talk<'a> = windlass_session::Talk<'a, Ask>;

/// One Gearman connection.
pub type GearmanSession = Conversation<GearmanSpeaker>;

/// The protocol's side of a connection: client, worker and administrator in one.
#[derive(Debug)]
pub struct GearmanSpeaker {
    settings: Arc<Settings>,
    /// What log lines contain about this worker, and which warnings were logged.
    about: worker::About,
    frames: Frames,
    /// The peer understands WORK_EXCEPTION.
    exceptions: bool,
    /// The job of this worker's last WORK_EXCEPTION, until the worker asks for another job.
    excepted: Option<JobId>,
    /// The job that this worker got last, if it has a time limit.
    limited: Option<JobId>,
    /// The worker sent PRE_SLEEP since it last asked for a job.
    sleeps: bool,
    /// The text command being answered.
    task: Option<admin::Task>,
    /// Some lines of the answer were sent, and more will follow.
    amid_lines: bool,
    /// Packets that wait for the end of the list.
    held: BytesMut,
}

impl GearmanSpeaker {
    /// The session of a connection that has just been accepted.
    pub fn session(settings: Arc<Settings>, info: ClientInfo) -> GearmanSession {
        let speaker = Self {
            about: worker::About::new(&info),
            frames: Frames::new(settings.limits()),
            exceptions: settings.section.exceptions,
            settings,
            excepted: None,
            limited: None,
            sleeps: false,
            task: None,
            amid_lines: false,
            held: BytesMut::new(),
        };
        Conversation::new(speaker, info)
    }

    /// Every packet of the specification.
    fn request(&mut self, request: Request, talk: &mut Talk<'_>) {
        match request {
            // "Client/Worker Requests"
            Request::Echo { data } => Response::EchoRes { data: &data }.encode(talk.bytes()),
            Request::SetOption { name } => self.set_option(&name, talk),
            // "Client Requests"
            Request::Submit {
                job,
                priority,
                background,
            } => self.submit(job, Manner::new(priority, background), talk),
            Request::SubmitReduce {
                job,
                reducer,
                background,
                aggregate: _,
            } => {
                self.submit(job, Manner::reduce(reducer, background), talk);
            }
            Request::SubmitEpoch { job, when_s } => self.submit(job, Manner::at(when_s), talk),
            Request::GetStatus { handle } => self.get_status(&handle, talk),
            Request::SubmitSched { job, schedule } => self.submit_sched(job, &schedule, talk),
            Request::GetStatusUnique { unique } => Self::get_status_unique(&unique, talk),
            // "Worker Requests"
            Request::CanDo { function } => self.can_do(function, 0, talk),
            Request::CanDoTimeout {
                function,
                timeout_ms,
            } => self.can_do_timeout(function, timeout_ms, talk),
            Request::CantDo { function } => Self::cant_do(function, talk),
            Request::ResetAbilities => Self::reset_abilities(talk),
            Request::PreSleep => self.pre_sleep(talk),
            Request::Grab(form) => self.grab(form, talk),
            Request::Work { handle, report } => self.work(&handle, report, talk),
            Request::SetClientId { id } => self.set_client_id(id, talk),
            // No server implements it. Accepting it costs nothing.
            Request::AllYours => {}
        }
    }

    // ---- shared ----------------------------------------------------------------------------------------------------

    fn handle(&self, job: JobId) -> Handle {
        self.settings.handle_prefix.handle(job.0)
    }

    /// The job that a handle names; `None` if this daemon cannot have assigned the handle.
    fn job(&self, handle: &[u8]) -> Option<JobId> {
        self.settings.handle_prefix.parse(handle).map(JobId)
    }

    /// The buffer for packets that are not answers. While a text list is partly sent, they wait for its end.
    fn unasked<'a>(&'a mut self, talk: &'a mut Talk<'_>) -> &'a mut BytesMut {
        if self.amid_lines {
            &mut self.held
        } else {
            talk.bytes()
        }
    }
}

impl Speaker for GearmanSpeaker {
    const PROTOCOL: Protocol = Protocol::GEARMAN;

    type Question = Ask;

    fn open(&mut self, talk: &mut Talk<'_>) {
        talk.enter(None);
        talk.send(ClientCommand::SetName(Bytes::from_static(NAMELESS)));
    }

    fn read(&mut self, input: &mut BytesMut, talk: &mut Talk<'_>) -> Result<Read, Reason> {
        match self.frames.decode(input) {
            Ok(Some(Message::Packet(packet))) => match Request::of(packet) {
                Ok(request) => self.request(request, talk),
                Err(refusal) => refusal.encode(talk.bytes()),
            },
            Ok(Some(Message::Line(line))) => self.line(&line, talk),
            Ok(None) => return Ok(Read::Needs(self.frames.bytes_wanted())),
            Err(error) => return Err(Reason::Protocol(error.to_string())),
        }
        Ok(Read::Message)
    }

    fn reply(&mut self, ask: Ask, reply: Reply, talk: &mut Talk<'_>) {
        match (ask, reply) {
            (Ask::Submit, Reply::Pushed { job, .. } | Reply::ScheduleSet { schedule: job, .. }) => {
                self.pushed(job, talk);
            }
            (Ask::Grab(form), Reply::Taken(job)) => self.taken(form, &job, talk),
            (Ask::Grab(_), Reply::Empty) => Response::NoJob.encode(talk.bytes()),
            (Ask::Status(id), Reply::Looked { job, schedule }) => {
                self.send_status(id, job.as_deref(), schedule.as_deref(), talk);
            }
            (Ask::StatusUnique(unique), Reply::Looked { job, .. }) => {
                Self::send_status_unique(&unique, job.as_deref(), talk);
            }
            (Ask::Option(name), Reply::Looked { .. }) => self.option_set(&name, talk),
            (Ask::Admin, Reply::Looked { job, schedule }) => {
                self.looked_to_cancel(job.as_deref(), schedule.as_deref(), talk);
            }
            (Ask::Admin, Reply::Schedules { rows, next }) => self.schedules(&rows, next, talk),
            (Ask::Admin, Reply::Queues { rows, next }) => self.queues(&rows, next, talk),
            (Ask::Admin, Reply::Jobs { rows, next }) => self.jobs(&rows, next, talk),
            (Ask::Admin, Reply::Clients { rows, next }) => self.clients(&rows, next, talk),
            (Ask::Admin, Reply::Mutated { changed, next }) => self.requeued(changed, next, talk),
            (Ask::Admin, Reply::Done) => self.admin_done(talk),
            (Ask::Admin, Reply::Refused(why)) => self.admin_refused(why, talk),
            (_, Reply::Refused(why)) => {
                refusal::reply(ErrorReply::JOB_NOT_FOUND_FOR_RESULT, why).encode(talk.bytes());
            }
            _ => {}
        }
    }

    fn turned_away(&mut self, why: Refusal, talk: &mut Talk<'_>) {
        refusal::reply(refusal::not_held(0), why).encode(talk.bytes());
    }

    fn refused(&mut self, code: u64, why: Refusal, talk: &mut Talk<'_>) {
        if code > 0 {
            refusal::reply(refusal::not_held(code), why).encode(talk.bytes());
        }
    }

    fn notice(&mut self, notice: Notice, talk: &mut Talk<'_>) {
        match notice {
            Notice::WorkAvailable => Response::Noop.encode(self.unasked(talk)),
            Notice::Progress { job, note } => self.progress(job, &note, talk),
            Notice::Ended { job, end } => self.job_ended(job, &end, talk),
            // Gearman has no credit.
            Notice::Delivered(_)
            | Notice::Collected { .. }
            | Notice::Watched(_)
            | Notice::Close => {}
        }
        if self.held.len() > HELD_BYTES_MAX {
            talk.end(Reason::Limit("held_bytes_max"));
        }
    }

    fn held_bytes(&self) -> usize {
        self.held.capacity()
    }
}
