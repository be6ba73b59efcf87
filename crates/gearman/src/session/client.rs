//! A client's other requests: GET_STATUS, GET_STATUS_UNIQUE, OPTION_REQ.
//!
//! Spec: `PROTOCOL`, "GET_STATUS …", "STATUS_RES …", "OPTION_REQ", "OPTION_RES".

use bytes::Bytes;
use windlass_engine::{Job, JobId, JobRef, JobStateKind, JobView, Protocol, Query, Schedule};

use super::ask::Ask;
use super::{GearmanSpeaker, Talk, unique};
use crate::wire::{ErrorReply, Response, Status, is_exceptions};

/// The engine's numbers begin at 1.
const NO_JOB: JobId = JobId(0);

impl GearmanSpeaker {
    /// A handle of another server is unknown. It is sent back unchanged.
    pub(super) fn get_status(&self, handle: &[u8], talk: &mut Talk<'_>) {
        match self.job(handle) {
            Some(job) => talk.ask(Ask::Status(job), Query::Job(JobRef::Id(job))),
            None => Response::StatusRes {
                handle,
                status: Status::default(),
            }
            .encode(talk.bytes()),
        }
    }

    /// A schedule is known as long as it exists. It is never running; its jobs are.
    pub(super) fn send_status(
        &self,
        id: JobId,
        view: Option<&JobView>,
        schedule: Option<&Schedule>,
        talk: &mut Talk<'_>,
    ) {
        let of_schedule = schedule.map(|_| Status {
            known: true,
            ..Status::default()
        });
        let status = view
            .map(|view| status(&view.job))
            .or(of_schedule)
            .unwrap_or_default();
        Response::StatusRes {
            handle: &self.handle(id),
            status,
        }
        .encode(talk.bytes());
    }

    /// An invalid id matches no job.
    pub(super) fn get_status_unique(unique: &Bytes, talk: &mut Talk<'_>) {
        match unique::key(unique, b"") {
            Some(key) => {
                let job = JobRef::KeyAnywhere {
                    protocol: Protocol::GEARMAN,
                    key,
                };
                talk.ask(Ask::StatusUnique(unique.as_ref().into()), Query::Job(job));
            }
            None => Response::StatusResUnique {
                unique,
                status: Status::default(),
                clients: 0,
            }
            .encode(talk.bytes()),
        }
    }

    pub(super) fn send_status_unique(unique: &[u8], view: Option<&JobView>, talk: &mut Talk<'_>) {
        let status = view.map(|view| status(&view.job)).unwrap_or_default();
        let clients = view.map_or(0, |view| view.job.listeners().len());
        let clients = u32::try_from(clients).unwrap_or(u32::MAX);
        Response::StatusResUnique {
            unique,
            status,
            clients,
        }
        .encode(talk.bytes());
    }

    /// Commands sent before may still yield an exception, which must follow the option's old value. So the option waits
    /// for an answer of the engine, which takes its place in the order.
    pub(super) fn set_option(&self, name: &Bytes, talk: &mut Talk<'_>) {
        if !is_exceptions(name) {
            ErrorReply::UNKNOWN_OPTION.encode(talk.bytes());
        } else if self.exceptions {
            Response::OptionRes { name }.encode(talk.bytes());
        } else {
            talk.ask(
                Ask::Option(name.as_ref().into()),
                Query::Job(JobRef::Id(NO_JOB)),
            );
        }
    }

    pub(super) fn option_set(&mut self, name: &[u8], talk: &mut Talk<'_>) {
        self.exceptions = true;
        Response::OptionRes { name }.encode(talk.bytes());
    }
}

fn status(job: &Job) -> Status {
    if !is_live(job) {
        return Status::default();
    }
    let progress = job
        .extra
        .as_deref()
        .and_then(|extra| extra.progress.as_ref());
    Status {
        known: true,
        running: job.lease().is_some(),
        numerator: progress.map_or(0, |progress| progress.numerator),
        denominator: progress.map_or(0, |progress| progress.denominator),
    }
}

/// Whether Gearman sees the job. A finished job is gone. So is a dead job, which only an operator can bring back. An entry
/// of a `cycle` queue is not a job.
pub(super) fn is_live(job: &Job) -> bool {
    let waits_or_runs = match job.state.kind() {
        JobStateKind::Ready
        | JobStateKind::Leased
        | JobStateKind::Scheduled
        | JobStateKind::Retrying
        | JobStateKind::Parked => true,
        JobStateKind::Dead | JobStateKind::Done => false,
    };
    waits_or_runs && job.cycle().is_none()
}
