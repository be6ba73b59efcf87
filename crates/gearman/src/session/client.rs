//! A client's other requests: GET_STATUS, GET_STATUS_UNIQUE, OPTION_REQ.
//!
//! Spec: `PROTOCOL`, "GET_STATUS …", "STATUS_RES …", "OPTION_REQ", "OPTION_RES".

use bytes::Bytes;
use windlass_engine::{Job, JobId, JobRef, JobStateKind, JobView, Protocol, Query, Schedule};
use windlass_session::Outbox;

use super::ask::{Ask, JOB_NUMBER_END};
use super::{GearmanSession, unique};
use crate::wire::{ErrorReply, Response, Status, is_exceptions};

/// The engine's numbers begin at 1.
const NO_JOB: JobId = JobId(0);

impl GearmanSession {
    /// A handle of another server is unknown. It is sent back unchanged.
    pub(super) fn get_status(&self, handle: &[u8], out: &mut Outbox) {
        match self.job(handle).filter(|job| job.0 < JOB_NUMBER_END) {
            Some(job) => out.command(Ask::Status(job).tag(), Query::Job(JobRef::Id(job))),
            None => Response::StatusRes { handle, status: Status::default() }.encode(out.bytes()),
        }
    }

    /// A schedule is known as long as it exists. It is never running; its jobs are.
    pub(super) fn tell_status(&self, id: JobId, view: Option<&JobView>, schedule: Option<&Schedule>, out: &mut Outbox) {
        let of_schedule = schedule.map(|_| Status { known: true, ..Status::default() });
        let status = view.map(|view| status(&view.job)).or(of_schedule).unwrap_or_default();
        Response::StatusRes { handle: &self.handle(id), status }.encode(out.bytes());
    }

    /// An invalid id matches no job. A valid id does not fit into a tag; the order of the answers identifies it.
    pub(super) fn get_status_unique(&mut self, unique: &Bytes, out: &mut Outbox) {
        match unique::key(unique, b"") {
            Some(key) => {
                self.uniques_open.push_back(Bytes::copy_from_slice(unique));
                let job = JobRef::KeyAnywhere { protocol: Protocol::GEARMAN, key };
                out.command(Ask::StatusUnique.tag(), Query::Job(job));
            }
            None => Response::StatusResUnique { unique, status: Status::default(), clients: 0 }.encode(out.bytes()),
        }
    }

    pub(super) fn tell_status_unique(&mut self, view: Option<&JobView>, out: &mut Outbox) {
        let Some(unique) = self.uniques_open.pop_front() else { return };
        let status = view.map(|view| status(&view.job)).unwrap_or_default();
        let clients = view.map_or(0, |view| view.job.listeners().len());
        let clients = u32::try_from(clients).unwrap_or(u32::MAX);
        Response::StatusResUnique { unique: &unique, status, clients }.encode(out.bytes());
    }

    /// Commands sent before may still yield an exception, which must follow the option's old value. So the option waits for an
    /// answer of the engine, which takes its place in the order.
    pub(super) fn set_option(&mut self, name: Bytes, out: &mut Outbox) {
        if !is_exceptions(&name) {
            ErrorReply::UNKNOWN_OPTION.encode(out.bytes());
        } else if self.exceptions {
            Response::OptionRes { name: &name }.encode(out.bytes());
        } else {
            self.option = Some(name);
            out.command(Ask::Option.tag(), Query::Job(JobRef::Id(NO_JOB)));
        }
    }

    pub(super) fn option_set(&mut self, out: &mut Outbox) {
        if let Some(name) = self.option.take() {
            self.exceptions = true;
            Response::OptionRes { name: &name }.encode(out.bytes());
        }
    }
}

fn status(job: &Job) -> Status {
    if !is_live(job) {
        return Status::default();
    }
    let progress = job.extra.as_deref().and_then(|extra| extra.progress.as_ref());
    Status {
        known: true,
        running: job.lease().is_some(),
        numerator: progress.map_or(0, |progress| progress.numerator),
        denominator: progress.map_or(0, |progress| progress.denominator),
    }
}

/// Whether Gearman sees the job. A finished job is gone. So is a dead or parked job, which only an operator can bring back. An
/// entry of a `cycle` queue is not a job.
pub(super) fn is_live(job: &Job) -> bool {
    let waits_or_runs = match job.state.kind() {
        JobStateKind::Ready | JobStateKind::Leased | JobStateKind::Scheduled | JobStateKind::Retrying => true,
        JobStateKind::Dead | JobStateKind::Parked | JobStateKind::Done => false,
    };
    waits_or_runs && job.cycle().is_none()
}
