//! WORK_STATUS, WORK_DATA, WORK_WARNING, WORK_COMPLETE, WORK_FAIL, WORK_EXCEPTION, from a worker to the engine and from the
//! engine to the waiting clients.
//!
//! Spec: `PROTOCOL`, "Worker Requests" and "Client Responses". A worker receives no answer unless it does not hold the job. The
//! specification is vague on exceptions. Here an exception ends the job, and each client receives exactly one packet for it:
//! WORK_EXCEPTION if it enabled that option, else WORK_FAIL.

use bytes::{Bytes, BytesMut};
use windlass_engine::{Command, End, Failure, JobId, JobRef, LeaseCommand, Note, Proof, Protocol};
use windlass_session::Outbox;

use super::ask::Ask;
use super::{GearmanSession, refusal};
use crate::bridge;
use crate::wire::{Response, status_number};

/// The [`Failure::kind`] of a WORK_FAIL.
const FAIL: &[u8] = b"GearmanFail";
const EXCEPTION: &[u8] = b"GearmanException";

/// Longest numerator or denominator that is forwarded verbatim. A longer one is forwarded as the number it stands for. 20 digits
/// hold any 64-bit number.
const STATUS_NUMBER_BYTES_MAX: usize = 20;

/// Packets from the worker.
impl GearmanSession {
    pub(super) fn work_status(&self, handle: &[u8], numerator: &[u8], denominator: &[u8], out: &mut Outbox) {
        let verbatim = numerator.len().max(denominator.len()) <= STATUS_NUMBER_BYTES_MAX;
        let raw = if verbatim { [numerator, b"\0", denominator].concat().into() } else { Bytes::new() };
        let (numerator, denominator) = (status_number(numerator), status_number(denominator));
        self.tell(handle, Ask::Result, Note::Progress { numerator, denominator, raw }, out);
    }

    pub(super) fn work_data(&self, handle: &[u8], data: &Bytes, out: &mut Outbox) {
        self.tell(handle, Ask::Data, Note::Data(self.keep(data)), out);
    }

    pub(super) fn work_warning(&self, handle: &[u8], data: &Bytes, out: &mut Outbox) {
        self.tell(handle, Ask::Data, Note::Warning(self.keep(data)), out);
    }

    pub(super) fn work_complete(&self, handle: &[u8], data: &Bytes, out: &mut Outbox) {
        let result = self.keep(data);
        self.report(handle, Ask::Result, out, |job| {
            Command::Lease(LeaseCommand::Finish { job, proof: Proof::Connection, result })
        });
    }

    /// Perl workers also send it after their WORK_EXCEPTION, when the job has already failed. That WORK_FAIL is ignored.
    pub(super) fn work_fail(&mut self, handle: &[u8], out: &mut Outbox) {
        let job = self.job(handle);
        if job.is_some() && self.excepted == job {
            self.excepted = None;
            return;
        }
        self.fail(handle, Ask::Result, FAIL, Bytes::new(), out);
    }

    pub(super) fn work_exception(&mut self, handle: &[u8], data: &Bytes, out: &mut Outbox) {
        self.excepted = self.job(handle);
        self.fail(handle, Ask::Exception, EXCEPTION, self.keep(data), out);
    }

    fn fail(&self, handle: &[u8], ask: Ask, kind: &'static [u8], message: Bytes, out: &mut Outbox) {
        let failure = Box::new(Failure { kind: Bytes::from_static(kind), message, ..Failure::default() });
        self.report(handle, ask, out, |job| {
            Command::Lease(LeaseCommand::Fail { job, proof: Proof::Connection, failure })
        });
    }

    fn tell(&self, handle: &[u8], ask: Ask, note: Note, out: &mut Outbox) {
        self.report(handle, ask, out, |job| {
            Command::Lease(LeaseCommand::Progress { job, proof: Proof::Connection, note })
        });
    }

    /// Only the connection that holds a job may report on it. No connection holds a job with a handle of another server.
    fn report(&self, handle: &[u8], ask: Ask, out: &mut Outbox, command: impl FnOnce(JobRef) -> Command) {
        match self.job(handle) {
            Some(job) => out.command(ask.tag(), command(JobRef::Id(job))),
            None => refusal::not_held(ask).encode(out.bytes()),
        }
    }
}

/// Packets to a waiting client.
impl GearmanSession {
    pub(super) fn told(&mut self, job: JobId, note: &Note, out: &mut Outbox) {
        let handle: &[u8] = &self.handle(job);
        let out = self.unasked(out);
        match note {
            Note::Progress { numerator, denominator, raw } => status(handle, (*numerator, *denominator), raw, out),
            Note::Data(data) => Response::WorkData { handle, data }.encode(out),
            Note::Warning(data) => Response::WorkWarning { handle, data }.encode(out),
        }
    }

    pub(super) fn ended(&mut self, job: JobId, end: &End, out: &mut Outbox) {
        let handle: &[u8] = &self.handle(job);
        let exceptions = self.exceptions;
        let result_text;
        let response = match end {
            End::Succeeded { result, by } => {
                let by = by.unwrap_or(Protocol::GEARMAN);
                result_text = bridge::result(&self.settings.bridge, by, result);
                Response::WorkComplete { handle, data: &result_text }
            }
            End::Failed(failure) if exceptions && failure.kind != FAIL => {
                Response::WorkException { handle, data: &failure.message }
            }
            End::Failed(_) | End::Lost | End::TimedOut | End::Expired | End::Cancelled => Response::WorkFail { handle },
        };
        response.encode(self.unasked(out));
    }
}

/// Sends a Gearman worker's numbers verbatim. A worker of another protocol may have sent text instead; then the plain numbers are
/// sent.
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
