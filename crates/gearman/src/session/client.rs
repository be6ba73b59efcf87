//! What a client asks besides submitting: GET_STATUS, OPTION_REQ.
//!
//! Spec: `PROTOCOL`, "GET_STATUS", "STATUS_RES", "OPTION_REQ", "OPTION_RES".

use windlass_engine::{Command, Job, JobId, JobRef, JobView, PlaceKind};
use windlass_session::Outbox;

use super::GearmanSession;
use super::ask::{Ask, JOB_NUMBER_END};
use crate::wire::{ErrorReply, Response, Status, is_exceptions};

impl GearmanSession {
    /// A handle that is not ours is unknown, and sent back as it came.
    pub(super) fn get_status(&self, handle: &[u8], out: &mut Outbox) {
        match self.job(handle).filter(|job| job.0 < JOB_NUMBER_END) {
            Some(job) => out.command(Ask::Status(job).tag(), Command::Look(JobRef::Id(job))),
            None => Response::StatusRes { handle, status: Status::default() }.encode(out.bytes()),
        }
    }

    pub(super) fn tell_status(&self, id: JobId, view: Option<&JobView>, out: &mut Outbox) {
        let status = view.map(|view| status(&view.job)).unwrap_or_default();
        Response::StatusRes { handle: &self.handle(id), status }.encode(out.bytes());
    }

    pub(super) fn set_option(&mut self, name: &[u8], out: &mut Outbox) {
        if is_exceptions(name) {
            self.exceptions = true;
            Response::OptionRes { name }.encode(out.bytes());
        } else {
            ErrorReply::UNKNOWN_OPTION.encode(out.bytes());
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

/// Whether a job is one that Gearman knows: one that was finished, or that only an operator can bring back, is gone,
/// and what is in a `cycle` queue is no job.
pub(super) fn is_live(job: &Job) -> bool {
    let waits_or_runs = match job.place.kind() {
        PlaceKind::Ready | PlaceKind::Leased | PlaceKind::Scheduled | PlaceKind::Retrying => true,
        PlaceKind::Dead | PlaceKind::Shelved | PlaceKind::Done => false,
    };
    waits_or_runs && job.cycle().is_none()
}
