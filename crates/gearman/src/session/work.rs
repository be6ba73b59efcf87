//! WORK_STATUS, WORK_DATA, WORK_WARNING, WORK_COMPLETE, WORK_FAIL, WORK_EXCEPTION, from a worker to the engine and from
//! the engine to the waiting clients.
//!
//! Spec: `PROTOCOL`, "Worker Requests" and "Client Responses". A worker receives no answer unless it does not hold the
//! job. The specification is vague on exceptions. Here an exception ends the job, and each client receives exactly one
//! packet for it: WORK_EXCEPTION if it enabled that option, else WORK_FAIL.

use bytes::{Bytes, BytesMut};
use windlass_engine::{Command, End, Failure, JobId, JobRef, LeaseCommand, Note, Proof, Protocol};
use windlass_session::LARGE_BYTES;

use super::ask::{DATA, EXCEPTION, RESULT};
use super::{GearmanSpeaker, Talk, refusal};
use crate::bridge;
use crate::wire::{Response, status_number};

/// The [`Failure::kind`] of a WORK_FAIL.
const FAIL_KIND: &[u8] = b"GearmanFail";
const EXCEPTION_KIND: &[u8] = b"GearmanException";

/// Longest numerator or denominator that is forwarded verbatim. A longer one is forwarded as the number it stands for.
/// 20 digits hold any 64-bit number.
const STATUS_NUMBER_BYTES_MAX: usize = 20;

/// Packets from the worker.
impl GearmanSpeaker {
    pub(super) fn work_status(&self, handle: &[u8], numerator: &[u8], denominator: &[u8], talk: &mut Talk<'_>) {
        let verbatim = numerator.len().max(denominator.len()) <= STATUS_NUMBER_BYTES_MAX;
        let raw = if verbatim { [numerator, b"\0", denominator].concat().into() } else { Bytes::new() };
        let (numerator, denominator) = (status_number(numerator), status_number(denominator));
        self.report_progress(handle, RESULT, Note::Progress { numerator, denominator, raw }, talk);
    }

    pub(super) fn work_data(&self, handle: &[u8], data: &Bytes, talk: &mut Talk<'_>) {
        self.report_progress(handle, DATA, Note::Data(talk.keep(data)), talk);
    }

    pub(super) fn work_warning(&self, handle: &[u8], data: &Bytes, talk: &mut Talk<'_>) {
        self.report_progress(handle, DATA, Note::Warning(talk.keep(data)), talk);
    }

    pub(super) fn work_complete(&self, handle: &[u8], data: &Bytes, talk: &mut Talk<'_>) {
        let result = talk.keep(data);
        self.report(handle, RESULT, talk, |job| {
            Command::Lease(LeaseCommand::Finish { job, proof: Proof::Connection, result })
        });
    }

    /// Perl workers also send it after their WORK_EXCEPTION, when the job has already failed. That WORK_FAIL is
    /// ignored.
    pub(super) fn work_fail(&mut self, handle: &[u8], talk: &mut Talk<'_>) {
        let job = self.job(handle);
        if job.is_some() && self.excepted == job {
            self.excepted = None;
            return;
        }
        self.fail(handle, RESULT, FAIL_KIND, Bytes::new(), talk);
    }

    pub(super) fn work_exception(&mut self, handle: &[u8], data: &Bytes, talk: &mut Talk<'_>) {
        self.excepted = self.job(handle);
        self.fail(handle, EXCEPTION, EXCEPTION_KIND, talk.keep(data), talk);
    }

    fn fail(&self, handle: &[u8], code: u64, kind: &'static [u8], message: Bytes, talk: &mut Talk<'_>) {
        let failure = Box::new(Failure { kind: Bytes::from_static(kind), message, ..Failure::default() });
        self.report(handle, code, talk, |job| {
            Command::Lease(LeaseCommand::Fail { job, proof: Proof::Connection, failure })
        });
    }

    fn report_progress(&self, handle: &[u8], code: u64, note: Note, talk: &mut Talk<'_>) {
        self.report(handle, code, talk, |job| {
            Command::Lease(LeaseCommand::Progress { job, proof: Proof::Connection, note })
        });
    }

    /// Only the connection that holds a job may report on it. No connection holds a job with a handle of another
    /// server.
    fn report(&self, handle: &[u8], code: u64, talk: &mut Talk<'_>, command: impl FnOnce(JobRef) -> Command) {
        match self.job(handle) {
            Some(job) => talk.send_as(code, command(JobRef::Id(job))),
            None => refusal::not_held(code).encode(talk.bytes()),
        }
    }
}

/// Packets to a waiting client.
impl GearmanSpeaker {
    pub(super) fn progress(&mut self, job: JobId, note: &Note, talk: &mut Talk<'_>) {
        let handle: &[u8] = &self.handle(job);
        let out = self.unasked(talk);
        match note {
            Note::Progress { numerator, denominator, raw } => status(handle, (*numerator, *denominator), raw, out),
            Note::Data(data) => Response::WorkData { handle, data }.encode(out),
            Note::Warning(data) => Response::WorkWarning { handle, data }.encode(out),
        }
    }

    pub(super) fn job_ended(&mut self, job: JobId, end: &End, talk: &mut Talk<'_>) {
        let handle: &[u8] = &self.handle(job);
        let exceptions = self.exceptions;
        let result_text;
        let response = match end {
            End::Succeeded { result, by } => {
                let by = by.unwrap_or(Protocol::GEARMAN);
                result_text = bridge::result(&self.settings.bridge, by, result);
                Response::WorkComplete { handle, data: &result_text }
            }
            End::Failed(failure) if exceptions && failure.kind != FAIL_KIND => {
                Response::WorkException { handle, data: &failure.message }
            }
            End::Failed(_) | End::Lost | End::TimedOut | End::Expired | End::Cancelled => Response::WorkFail { handle },
        };
        match (&response, end) {
            (Response::WorkComplete { data, .. }, End::Succeeded { result, .. })
                if data.len() >= LARGE_BYTES && data.as_ptr() == result.as_ptr() && !self.amid_lines =>
            {
                response.encode_but(data.len(), talk.bytes());
                talk.share(result.clone());
            }
            _ => response.encode(self.unasked(talk)),
        }
    }
}

/// Sends a Gearman worker's numbers verbatim. A worker of another protocol may have sent text instead; then the plain
/// numbers are sent.
fn status(handle: &[u8], numbers: (u32, u32), raw: &[u8], out: &mut BytesMut) {
    let mut parts = raw.splitn(2, |byte| *byte == 0);
    if let (Some(numerator), Some(denominator)) = (parts.next(), parts.next())
        && (status_number(numerator), status_number(denominator)) == numbers
    {
        return Response::WorkStatus { handle, numerator, denominator }.encode(out);
    }
    let (numerator, denominator) = (numbers.0.to_string(), numbers.1.to_string());
    let (numerator, denominator) = (numerator.as_bytes(), denominator.as_bytes());
    Response::WorkStatus { handle, numerator, denominator }.encode(out);
}
