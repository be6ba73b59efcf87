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
use crate::wire::{Report, Response, status_number};

/// The [`Failure::kind`] of a WORK_FAIL.
const FAIL_KIND: &[u8] = b"GearmanFail";
const EXCEPTION_KIND: &[u8] = b"GearmanException";

/// Longest numerator or denominator that is forwarded verbatim. A longer one is forwarded as the number it stands for.
/// 20 digits hold any 64-bit number.
const STATUS_NUMBER_BYTES_MAX: usize = 20;

/// Packets from the worker.
impl GearmanSpeaker {
    /// Only the connection that holds a job may report on it. No connection holds a job with a handle of another
    /// server.
    pub(super) fn work(&mut self, handle: &[u8], report: Report<Bytes>, talk: &mut Talk<'_>) {
        let held = self.job(handle);
        let code = match report {
            Report::Status { .. } | Report::Complete(_) | Report::Fail => RESULT,
            Report::Data(_) | Report::Warning(_) => DATA,
            Report::Exception(_) => EXCEPTION,
        };
        if code == EXCEPTION {
            self.excepted = held;
        } else if report == Report::Fail && held.is_some() && self.excepted == held {
            // Perl workers also send it after their WORK_EXCEPTION, when the job has already failed.
            self.excepted = None;
            return;
        }
        let Some(job) = held else {
            return refusal::not_held(code).encode(talk.bytes());
        };
        let (job, proof) = (JobRef::Id(job), Proof::Connection);
        let progress = |note| LeaseCommand::Progress {
            job: job.clone(),
            proof,
            note,
        };
        let fail = |kind, message| {
            let failure = Box::new(Failure {
                kind: Bytes::from_static(kind),
                message,
                ..Failure::default()
            });
            LeaseCommand::Fail {
                job: job.clone(),
                proof,
                failure,
            }
        };
        let command = match report {
            Report::Status {
                numerator,
                denominator,
            } => progress(amount(&numerator, &denominator)),
            Report::Data(data) => progress(Note::Data(talk.keep(&data))),
            Report::Warning(data) => progress(Note::Warning(talk.keep(&data))),
            Report::Complete(data) => LeaseCommand::Finish {
                job,
                proof,
                result: talk.keep(&data),
            },
            Report::Exception(data) => fail(EXCEPTION_KIND, talk.keep(&data)),
            Report::Fail => fail(FAIL_KIND, Bytes::new()),
        };
        talk.send_as(code, Command::Lease(command));
    }
}

fn amount(numerator: &[u8], denominator: &[u8]) -> Note {
    let verbatim = numerator.len().max(denominator.len()) <= STATUS_NUMBER_BYTES_MAX;
    let raw = if verbatim {
        [numerator, b"\0", denominator].concat().into()
    } else {
        Bytes::new()
    };
    Note::Progress {
        numerator: status_number(numerator),
        denominator: status_number(denominator),
        raw,
    }
}

/// Packets to a waiting client.
impl GearmanSpeaker {
    pub(super) fn progress(&mut self, job: JobId, note: &Note, talk: &mut Talk<'_>) {
        let handle: &[u8] = &self.handle(job);
        let out = self.unasked(talk);
        match note {
            Note::Progress {
                numerator,
                denominator,
                raw,
            } => status(handle, *numerator, *denominator, raw, out),
            Note::Data(data) => Response::Work {
                handle,
                report: Report::Data(data),
            }
            .encode(out),
            Note::Warning(data) => Response::Work {
                handle,
                report: Report::Warning(data),
            }
            .encode(out),
        }
    }

    pub(super) fn job_ended(&mut self, job: JobId, end: &End, talk: &mut Talk<'_>) {
        let handle: &[u8] = &self.handle(job);
        let exceptions = self.exceptions;
        let result_text;
        let report = match end {
            End::Succeeded { result, by } => {
                let by = by.unwrap_or(Protocol::GEARMAN);
                result_text = bridge::result(&self.settings.bridge, by, result);
                Report::Complete(&result_text[..])
            }
            End::Failed(failure) if exceptions && failure.kind != FAIL_KIND => {
                Report::Exception(&failure.message[..])
            }
            End::Failed(_) | End::Lost | End::TimedOut | End::Expired | End::Cancelled => {
                Report::Fail
            }
        };
        let response = Response::Work { handle, report };
        match (report, end) {
            (Report::Complete(data), End::Succeeded { result, .. })
                if data.len() >= LARGE_BYTES
                    && data.as_ptr() == result.as_ptr()
                    && !self.amid_lines =>
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
fn status(handle: &[u8], done: u32, total: u32, raw: &[u8], out: &mut BytesMut) {
    let mut parts = raw.splitn(2, |byte| *byte == 0);
    if let (Some(numerator), Some(denominator)) = (parts.next(), parts.next())
        && status_number(numerator) == done
        && status_number(denominator) == total
    {
        return Response::Work {
            handle,
            report: Report::Status {
                numerator,
                denominator,
            },
        }
        .encode(out);
    }
    let (numerator, denominator) = (done.to_string(), total.to_string());
    let (numerator, denominator) = (numerator.as_bytes(), denominator.as_bytes());
    Response::Work {
        handle,
        report: Report::Status {
            numerator,
            denominator,
        },
    }
    .encode(out);
}
