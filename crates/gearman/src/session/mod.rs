//! One connection: turns requests into commands for the engine, and the engine's events into packets.
//!
//! Reading order: this file, where every packet of the specification has a line; then the topics: `submit`, `schedule`, `worker`,
//! `grab`, `work`, `client`, and `admin` and `listing` for text lines. What every topic uses: `ask` (how an answer finds its
//! question), `unique` (unique ids), `refusal` (refusals as Gearman errors).
//!
//! Invariants: answers leave in the order of their requests; the outbox ensures that, not this module. A job never keeps its read
//! buffer alive. No packet is sent between the lines of a text answer.
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

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientCommand, ClientInfo, Event, JobId, Notice, Protocol, Refusal, Reply, Tag, Timestamp};
use windlass_session::{Outbox, Reason, Session};

pub use adopt::Unfit;
pub use settings::{OnTimeout, Settings, TimeoutUnit};

use crate::wire::{Frames, Handle, Message, Packet, Request, Response};
use ask::Ask;
use submit::Manner;

/// The id that `workers` shows for a connection without SET_CLIENT_ID.
const NAMELESS: &[u8] = b"-";

/// Unanswered grabs of a connection after which reading stops. Answers carry workloads, so a few bytes of requests must not
/// release all of them at once.
const GRABS_OPEN_MAX: u32 = 64;

/// Unanswered GET_STATUS_UNIQUE of a connection after which reading stops. Their ids are kept until they are answered.
const UNIQUES_OPEN_MAX: usize = 64;

/// Bytes for clients that may wait for the end of a text list.
const HELD_BYTES_MAX: usize = 16 << 20;

/// A body this large is read into a buffer of its own, and kept without a copy.
const LARGE_BYTES: usize = 256 << 10;

/// One Gearman connection: client, worker and administrator in one.
#[derive(Debug)]
pub struct GearmanSession {
    settings: Arc<Settings>,
    /// Sent to the engine when the connection opens; empty afterwards.
    info: ClientInfo,
    /// What log lines contain about this worker, and which warnings were logged.
    about: worker::About,
    frames: Frames,
    /// Number of packets and lines received.
    messages: u64,
    /// The peer understands WORK_EXCEPTION.
    exceptions: bool,
    /// The name of the option that is being set. Reading stops until it is set.
    option: Option<Bytes>,
    /// The job of this worker's last WORK_EXCEPTION, until the worker asks for another job.
    excepted: Option<JobId>,
    /// Unique ids of unanswered GET_STATUS_UNIQUE, in order.
    uniques_open: VecDeque<Bytes>,
    /// Number of unanswered grabs.
    grabs_open: u32,
    /// The text command being answered. Reading stops until it is done.
    task: Option<admin::Task>,
    /// Some lines of the answer were sent, and more will follow.
    amid_lines: bool,
    /// Packets that wait for the end of the list.
    held: BytesMut,
    /// The buffer was allocated for the body that is being read.
    dedicated: bool,
    /// The current packet came in such a buffer.
    owned: bool,
    /// The buffer holds unread bytes.
    unread: bool,
    /// The peer has closed its side.
    eof: bool,
    /// The connection is ending: nothing sent after the reason counts.
    over: bool,
}

impl GearmanSession {
    /// A connection that has just been accepted.
    #[must_use]
    pub fn new(settings: Arc<Settings>, info: ClientInfo) -> Self {
        let frames = Frames::new(settings.limits());
        let exceptions = settings.exceptions;
        Self {
            settings,
            about: worker::About::new(&info),
            info: ClientInfo { protocol: Some(Protocol::GEARMAN), ..info },
            frames,
            messages: 0,
            exceptions,
            option: None,
            excepted: None,
            uniques_open: VecDeque::new(),
            grabs_open: 0,
            task: None,
            amid_lines: false,
            held: BytesMut::new(),
            dedicated: false,
            owned: false,
            unread: false,
            eof: false,
            over: false,
        }
    }

    fn message(&mut self, message: Message, out: &mut Outbox) {
        self.owned = std::mem::take(&mut self.dedicated);
        self.messages += 1;
        match message {
            Message::Packet(packet) => self.packet(&packet, out),
            Message::Line(line) => self.line(&line, out),
        }
    }

    fn packet(&mut self, packet: &Packet, out: &mut Outbox) {
        match Request::parse(packet) {
            Ok(request) => self.request(request, out),
            Err(error) => error.reply().encode(out.bytes()),
        }
    }

    /// Every packet of the specification.
    fn request(&mut self, request: Request, out: &mut Outbox) {
        match request {
            // "Client/Worker Requests"
            Request::Echo { data } => Response::EchoRes { data: &data }.encode(out.bytes()),
            Request::SetOption { name } => self.set_option(name, out),
            // "Client Requests"
            Request::Submit { job, priority, background } => self.submit(job, Manner::new(priority, background), out),
            Request::SubmitReduce { job, reducer, background, aggregate: _ } => {
                self.submit(job, Manner::reduce(reducer, background), out);
            }
            Request::SubmitEpoch { job, when_s } => self.submit(job, Manner::at(when_s), out),
            Request::GetStatus { handle } => self.get_status(&handle, out),
            Request::SubmitSched { job, schedule } => self.submit_sched(job, &schedule, out),
            Request::GetStatusUnique { unique } => self.get_status_unique(&unique, out),
            // "Worker Requests"
            Request::CanDo { function } => self.can_do(function, 0, out),
            Request::CanDoTimeout { function, timeout_ms } => self.can_do_timeout(function, timeout_ms, out),
            Request::CantDo { function } => Self::cant_do(function, out),
            Request::ResetAbilities => Self::reset_abilities(out),
            Request::PreSleep => Self::pre_sleep(out),
            Request::Grab(form) => self.grab(form, out),
            Request::WorkData { handle, data } => self.work_data(&handle, &data, out),
            Request::WorkWarning { handle, data } => self.work_warning(&handle, &data, out),
            Request::WorkStatus { handle, numerator, denominator } => {
                self.work_status(&handle, &numerator, &denominator, out);
            }
            Request::WorkComplete { handle, data } => self.work_complete(&handle, &data, out),
            Request::WorkFail { handle } => self.work_fail(&handle, out),
            Request::WorkException { handle, data } => self.work_exception(&handle, &data, out),
            Request::SetClientId { id } => self.set_client_id(id, out),
            // No server implements it. Accepting it costs nothing.
            Request::AllYours => {}
        }
    }

    /// Every reply of the engine, by the purpose of its command.
    fn reply(&mut self, tag: Tag, reply: Reply, out: &mut Outbox) {
        let Some(ask) = Ask::of(tag) else { return };
        match (ask, reply) {
            (Ask::Submit, Reply::Pushed { job, .. } | Reply::ScheduleSet { schedule: job, .. }) => {
                self.pushed(job, out)
            }
            (Ask::Grab(_), Reply::Taken(job)) => self.taken(tag, &job, out),
            (Ask::Grab(_), Reply::Empty) => self.none_to_take(out),
            (Ask::Status(id), Reply::Looked { job, schedule }) => {
                self.tell_status(id, job.as_deref(), schedule.as_deref(), out);
            }
            (Ask::StatusUnique, Reply::Looked { job, .. }) => self.tell_status_unique(job.as_deref(), out),
            (Ask::Option, Reply::Looked { .. }) => self.option_set(out),
            (Ask::Admin, Reply::Looked { job, schedule }) => {
                self.looked_to_cancel(job.as_deref(), schedule.as_deref(), out);
            }
            (Ask::Admin, Reply::Schedules { rows, next }) => self.schedules(&rows, next, out),
            (Ask::Admin, Reply::Queues { rows, next }) => self.queues(&rows, next, out),
            (Ask::Admin, Reply::Jobs { rows, next }) => self.jobs(&rows, next, out),
            (Ask::Admin, Reply::Clients { rows, next }) => self.clients(&rows, next, out),
            (Ask::Admin, Reply::Mutated { changed, next }) => self.requeued(changed, next, out),
            (Ask::Admin, Reply::Done) => self.admin_done(out),
            (Ask::Admin, Reply::Refused(why)) => self.admin_refused(why, out),
            (ask, Reply::Refused(why)) => self.refused(ask, why, out),
            _ => {}
        }
    }

    fn notice(&mut self, notice: &Notice, out: &mut Outbox) {
        match notice {
            Notice::WorkAvailable => Response::Noop.encode(self.unasked(out)),
            Notice::Progress { job, note } => self.told(*job, note, out),
            Notice::Ended { job, end } => self.ended(*job, end, out),
            Notice::Dismissed => self.end(Reason::Dismissed, out),
            // Gearman has no credit.
            Notice::Delivered(_) => {}
        }
    }

    fn refused(&mut self, ask: Ask, why: Refusal, out: &mut Outbox) {
        if matches!(ask, Ask::Grab(_)) {
            self.grabs_open = self.grabs_open.saturating_sub(1);
        }
        refusal::reply(ask, why).encode(out.bytes());
    }

    // ---- shared ----------------------------------------------------------------------------------------------------

    fn handle(&self, job: JobId) -> Handle {
        self.settings.handle_prefix.handle(job.0)
    }

    /// The job that a handle names; `None` if this daemon cannot have assigned the handle.
    fn job(&self, handle: &[u8]) -> Option<JobId> {
        self.settings.handle_prefix.parse(handle).map(JobId)
    }

    /// Bytes that outlive their read buffer.
    fn keep(&self, bytes: &Bytes) -> Bytes {
        if self.owned && bytes.len() >= LARGE_BYTES { bytes.clone() } else { Bytes::copy_from_slice(bytes) }
    }

    /// The buffer for packets that are not answers. While a text list is partly sent, they wait for its end.
    fn unasked<'a>(&'a mut self, out: &'a mut Outbox) -> &'a mut BytesMut {
        if self.amid_lines { &mut self.held } else { out.bytes() }
    }

    /// Whether reading must stop until an answer has come.
    fn must_wait(&self) -> bool {
        let many = self.grabs_open >= GRABS_OPEN_MAX || self.uniques_open.len() >= UNIQUES_OPEN_MAX;
        self.over || self.task.is_some() || self.option.is_some() || many
    }

    /// Moves the beginning of a large body into a buffer of its own. The buffer grows as the rest arrives.
    fn dedicate(&mut self, input: &mut BytesMut) {
        if !self.dedicated && self.frames.bytes_wanted() >= LARGE_BYTES {
            *input = BytesMut::from(&**input);
            self.dedicated = true;
        }
    }

    fn end(&mut self, reason: Reason, out: &mut Outbox) {
        self.over = true;
        out.hang_up(reason);
    }

    /// Ends the connection if the peer has closed its side and every request before that is answered or soon will be.
    fn leave_if_done(&mut self, out: &mut Outbox) {
        if self.eof && !self.unread && !self.must_wait() {
            self.end(Reason::PeerClosed, out);
        }
    }
}

impl Session for GearmanSession {
    fn on_open(&mut self, _now: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, ClientCommand::Open(std::mem::take(&mut self.info)));
        out.command(Tag::NONE, ClientCommand::SetName(Bytes::from_static(NAMELESS)));
    }

    fn on_bytes(&mut self, _now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        while !self.must_wait() {
            match self.frames.decode(input) {
                Ok(Some(message)) => self.message(message, out),
                Ok(None) => {
                    self.dedicate(input);
                    break;
                }
                Err(error) => self.end(Reason::Protocol(error.to_string()), out),
            }
        }
        // Nothing after an end is read. The peer's end can leave a message cut short; no more bytes will complete it.
        if self.over || (self.eof && !self.must_wait()) {
            input.clear();
        }
        self.unread = !input.is_empty();
        self.leave_if_done(out);
    }

    fn on_event(&mut self, _now: Timestamp, event: Event, out: &mut Outbox) {
        match event {
            Event::Reply(tag, reply) => self.reply(tag, reply, out),
            Event::Notice(notice) => self.notice(&notice, out),
        }
        if self.held.len() > HELD_BYTES_MAX {
            self.end(Reason::Limit("held_bytes_max"), out);
        }
        self.leave_if_done(out);
    }

    fn needs_bytes(&self) -> usize {
        self.frames.bytes_wanted()
    }

    fn messages(&self) -> u64 {
        self.messages
    }

    fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    fn on_eof(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.eof = true;
        // If reading is not held up, the remaining bytes are an incomplete message.
        self.unread &= self.must_wait();
        self.leave_if_done(out);
    }
}
