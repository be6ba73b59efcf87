//! Text commands: their commands for the engine, and the one-line answers. Lists are in `listing`.
//!
//! Spec: `PROTOCOL`, "Administrative Protocol"; commands it does not list are gearmand's.
//!
//! A text command that needs the engine is a [`Task`]. Reading stops until it is done, so that answers keep their
//! order.

use bytes::{Bytes, BytesMut};
use windlass_engine::{
    Command, Cursor, JobCommand, JobId, JobRef, JobView, Priority, Query, QueueCommand, QueueKind,
    QueueRow, Refusal, Right, Schedule, ScheduleCommand, ScheduleRef, Thing,
};
use windlass_session::{Reason, Stop};

use super::ask::Ask;
use super::client::is_live;
use super::{GearmanSpeaker, Talk};
use crate::wire::{AdminError, AdminRequest, ErrorReply, QueueLimits, reply};

/// The text command being answered.
#[derive(Debug)]
pub(super) enum Task {
    /// `status`.
    Status,
    /// `prioritystatus`.
    PriorityStatus,
    /// `workers`. The row of a connection with many functions may come in parts.
    Workers { amid_row: bool },
    /// `show jobs`.
    Jobs,
    /// `show unique jobs`.
    Uniques,
    /// `show dead jobs`.
    Dead,
    /// `requeue job`: searches the dead-letter queue for the job.
    Requeue(JobId),
    /// The schedules at the end of `show jobs` or `show unique jobs`.
    Schedules { uniques: bool },
    /// `drop function`: searches for the function, ignoring case. `found` is the first that differs in case only.
    Drop {
        wanted: Bytes,
        found: Option<Box<QueueRow>>,
    },
    /// `maxqueue`: searches for the function.
    Limit { wanted: Bytes, limits: QueueLimits },
    /// `cancel job`: checks whether Gearman sees the job, or a schedule.
    Cancel(JobId),
    /// The last step of a command: it succeeded, or was refused.
    Confirm,
}

impl GearmanSpeaker {
    pub(super) fn line(&mut self, line: &Bytes, talk: &mut Talk<'_>) {
        match AdminRequest::parse(line) {
            Ok(AdminRequest::Shutdown { .. })
                if !self.settings.section.shutdown || !talk.may(Right::Administer) =>
            {
                let verb = line.split(|byte| *byte == b' ').next().unwrap_or_default();
                talk.bytes()
                    .extend_from_slice(&reply::unknown_command(verb));
            }
            Ok(request) => self.admin(request, talk),
            Err(AdminError::Answer(reply)) => talk.bytes().extend_from_slice(&reply),
            Err(AdminError::Close(reason)) => talk.end(Reason::Protocol(reason)),
        }
    }

    fn admin(&mut self, request: AdminRequest, talk: &mut Talk<'_>) {
        let settings = &self.settings;
        match request {
            AdminRequest::Version => reply::value(talk.bytes(), &settings.section.version),
            AdminRequest::Pid => reply::value(talk.bytes(), &settings.pid.to_string()),
            AdminRequest::Verbosity => reply::value(talk.bytes(), &settings.verbosity_text),
            AdminRequest::Shutdown { graceful } => {
                talk.bytes().extend_from_slice(reply::DONE);
                talk.stop_daemon(if graceful {
                    Stop::Gracefully
                } else {
                    Stop::Now
                });
            }
            AdminRequest::Status => self.list(Task::Status, talk),
            AdminRequest::PriorityStatus => self.list(Task::PriorityStatus, talk),
            AdminRequest::Workers => self.list(Task::Workers { amid_row: false }, talk),
            AdminRequest::ShowJobs => self.list(Task::Jobs, talk),
            AdminRequest::ShowUniqueJobs => self.list(Task::Uniques, talk),
            AdminRequest::ShowDeadJobs => self.list(Task::Dead, talk),
            AdminRequest::RequeueJob { handle } => match self.job(&handle) {
                Some(job) => self.requeue(job, Cursor::default(), talk),
                None => talk.bytes().extend_from_slice(reply::UNKNOWN_JOB),
            },
            AdminRequest::DropFunction { function } => self.list(
                Task::Drop {
                    wanted: function,
                    found: None,
                },
                talk,
            ),
            AdminRequest::MaxQueue { function, limits } => self.list(
                Task::Limit {
                    wanted: function,
                    limits,
                },
                talk,
            ),
            AdminRequest::CreateFunction { function } => {
                self.confirm(
                    QueueCommand::Create {
                        queue: function,
                        kind: QueueKind::Work,
                    },
                    talk,
                );
            }
            AdminRequest::CancelJob { handle } => match self.job(&handle) {
                Some(job) => self.begin(Task::Cancel(job), Query::Job(JobRef::Id(job)), talk),
                None => talk.bytes().extend_from_slice(reply::UNKNOWN_JOB),
            },
        }
    }

    fn list(&mut self, task: Task, talk: &mut Talk<'_>) {
        self.ask_page(task, Cursor::default(), talk);
    }

    pub(super) fn begin(&mut self, task: Task, command: impl Into<Command>, talk: &mut Talk<'_>) {
        self.task = Some(task);
        talk.ask(Ask::Admin, command);
    }

    fn confirm(&mut self, command: impl Into<Command>, talk: &mut Talk<'_>) {
        self.begin(Task::Confirm, command, talk);
    }

    /// Sends the last line of an answer, then the packets that waited for it.
    pub(super) fn answer(&mut self, reply: &[u8], talk: &mut Talk<'_>) {
        talk.bytes().extend_from_slice(reply);
        self.finish_task(talk.bytes());
    }

    fn finish_task(&mut self, out: &mut BytesMut) {
        self.task = None;
        self.amid_lines = false;
        out.extend_from_slice(&std::mem::take(&mut self.held));
    }

    // ---- the steps of a command ------------------------------------------------------------------------------------

    /// `None` if there is no such function. A function that holds jobs is not dropped: those jobs were acknowledged and
    /// must run.
    pub(super) fn found_to_drop(&mut self, row: Option<&QueueRow>, talk: &mut Talk<'_>) {
        match row {
            None => self.answer(reply::FUNCTION_NOT_FOUND, talk),
            Some(row) if row.workers > 0 || row.live() > 0 => {
                self.answer(reply::FUNCTION_BUSY, talk)
            }
            Some(row) => self.confirm(
                QueueCommand::Remove {
                    queue: row.name.clone(),
                    only_idle: true,
                },
                talk,
            ),
        }
    }

    /// An unknown function cannot have a limit. That is not an error.
    pub(super) fn found_to_limit(
        &mut self,
        row: Option<&QueueRow>,
        limits: QueueLimits,
        talk: &mut Talk<'_>,
    ) {
        match row {
            None => self.answer(reply::DONE, talk),
            Some(row) => {
                let jobs_max = by_priority(limits);
                self.confirm(
                    QueueCommand::Limit {
                        queue: row.name.clone(),
                        jobs_max,
                    },
                    talk,
                );
            }
        }
    }

    pub(super) fn looked_to_cancel(
        &mut self,
        view: Option<&JobView>,
        schedule: Option<&Schedule>,
        talk: &mut Talk<'_>,
    ) {
        let Some(Task::Cancel(job)) = self.task else {
            return;
        };
        if view.is_some_and(|view| is_live(&view.job)) {
            self.confirm(JobCommand::Cancel(JobRef::Id(job)), talk);
        } else if schedule.is_some() {
            self.confirm(ScheduleCommand::Remove(ScheduleRef::Id(job)), talk);
        } else {
            self.answer(reply::UNKNOWN_JOB, talk);
        }
    }

    pub(super) fn admin_done(&mut self, talk: &mut Talk<'_>) {
        self.answer(reply::DONE, talk);
    }

    pub(super) fn admin_refused(&mut self, why: Refusal, talk: &mut Talk<'_>) {
        match why {
            Refusal::NotFound(Thing::Job | Thing::Schedule) => {
                self.answer(reply::UNKNOWN_JOB, talk)
            }
            Refusal::NotFound(Thing::Queue) => self.answer(reply::FUNCTION_NOT_FOUND, talk),
            Refusal::InUse => self.answer(reply::FUNCTION_BUSY, talk),
            Refusal::NotPermitted => {
                let ErrorReply { code, text } = ErrorReply::NOT_PERMITTED;
                self.error(code, text, talk);
            }
            Refusal::NotFound(Thing::Batch | Thing::Worker | Thing::Client | Thing::Namespace)
            | Refusal::Limit { .. }
            | Refusal::NeverDue
            | Refusal::NotUnique
            | Refusal::NotHeld
            | Refusal::WrongKind
            | Refusal::OutOfPlace
            | Refusal::Unavailable
            | Refusal::DiskFull
            | Refusal::Unknown => self.error("QUEUE_ERROR", &why.to_string(), talk),
        }
    }

    /// gearmand's form: a code, and a sentence with its blanks replaced.
    fn error(&mut self, code: &str, sentence: &str, talk: &mut Talk<'_>) {
        let sentence = sentence.replace(' ', "+");
        talk.bytes()
            .extend_from_slice(format!("ERR {code} {sentence}\r\n").as_bytes());
        self.finish_task(talk.bytes());
    }
}

/// 7–9 are high, 4–6 normal, 1–3 low; 0 means no limit.
fn by_priority(limits: QueueLimits) -> [Option<u32>; Priority::COUNT] {
    let [high, normal, low] =
        [limits.high, limits.normal, limits.low].map(|jobs| (jobs > 0).then_some(jobs));
    [high, high, high, normal, normal, normal, low, low, low]
}
