//! ACK, FAIL, REQUEUE and BEAT: a worker's reports on its jobs and on itself.
//!
//! Spec: "Consumer Commands". Any connection may report on any leased job, even if another one took it.

use bytes::Bytes;
use windlass_engine::{Command, Failure, LeaseCommand, Proof, Refusal, Reply, Thing, WorkerCommand, WorkerState};
use windlass_session::Outbox;

use super::fetch::job_ref;
use super::push::readable;
use super::refusal;
use super::{Answer, Ask, FaktorySession};
use crate::wire::{Ack, Beat, Failed, JobName, echo, reply};

impl FaktorySession {
    pub(super) fn ack(&mut self, text: &[u8], out: &mut Outbox) {
        let Some(Ack { jid, result }) = Ack::parse(&readable(text)) else { return invalid("ACK", text, out) };
        let finish =
            Command::Lease(LeaseCommand::Finish { job: job_ref(&jid), proof: Proof::AnyLease, result: result.into() });
        self.ask(Ask::Finish, finish, out);
    }

    /// An unknown job, or one without a lease, is not an error: another client may have finished it first.
    pub(super) fn finished(answer: &Answer, out: &mut Outbox) {
        match answer {
            Err(why) if !is_unknown(*why) => refusal::write(*why, out.bytes()),
            Ok(_) | Err(_) => reply::ok(out.bytes()),
        }
    }

    pub(super) fn fail(&mut self, text: &[u8], out: &mut Outbox) {
        let Some(failed) = Failed::parse(&readable(text)) else { return invalid("FAIL", text, out) };
        if failed.jid.is_empty() {
            return reply::error("missing JID", out.bytes());
        }
        let failure = Failure {
            kind: failed.errtype.into(),
            message: failed.message.into(),
            backtrace: failed.backtrace.into_iter().map(Bytes::from).collect(),
            ..Failure::default()
        };
        let fail = Command::Lease(LeaseCommand::Fail {
            job: job_ref(&failed.jid),
            proof: Proof::AnyLease,
            failure: Box::new(failure),
        });
        self.ask(Ask::Report(failed.jid.into()), fail, out);
    }

    /// Returns a job to the front of its queue. It costs no retry.
    pub(super) fn requeue(&mut self, text: &[u8], out: &mut Outbox) {
        let Some(JobName { jid }) = JobName::parse(&readable(text)) else { return invalid("REQUEUE", text, out) };
        let release = Command::Lease(LeaseCommand::Release { job: job_ref(&jid), proof: Proof::AnyLease, front: true });
        self.ask(Ask::Report(jid.into()), release, out);
    }

    pub(super) fn reported(jid: &[u8], answer: &Answer, out: &mut Outbox) {
        match answer {
            Ok(_) => reply::ok(out.bytes()),
            Err(why) if is_unknown(*why) => {
                reply::error([b"Job not found ", echo(jid)].concat(), out.bytes());
            }
            Err(why) => refusal::write(*why, out.bytes()),
        }
    }

    pub(super) fn beat(&mut self, text: &[u8], out: &mut Outbox) {
        let Some(Beat { wid, state }) = Beat::parse(&readable(text)) else { return invalid("BEAT", text, out) };
        let state = match state.as_str() {
            "quiet" => Some(WorkerState::Quiet),
            "terminate" => Some(WorkerState::Terminate),
            _ => None,
        };
        let worker = Bytes::from(wid);
        self.ask(Ask::Beat(worker.clone()), WorkerCommand::Beat { worker, state }, out);
    }

    /// "Unknown" is upper case, as on older servers: Go's client looks for it.
    pub(super) fn beaten(wid: &[u8], answer: &Answer, out: &mut Outbox) {
        match answer {
            Ok(Reply::Beaten(WorkerState::Quiet)) => reply::bulk(b"{\"state\":\"quiet\"}", out.bytes()),
            Ok(Reply::Beaten(WorkerState::Terminate)) => {
                reply::bulk(b"{\"state\":\"terminate\"}", out.bytes());
            }
            Ok(_) => reply::ok(out.bytes()),
            Err(Refusal::NotFound(Thing::Worker)) => {
                reply::error([b"Unknown worker ", echo(wid)].concat(), out.bytes())
            }
            Err(why) => refusal::write(*why, out.bytes()),
        }
    }
}

const fn is_unknown(why: Refusal) -> bool {
    matches!(why, Refusal::NotFound(Thing::Job) | Refusal::NotHeld)
}

/// Returns invalid text to its sender.
fn invalid(verb: &str, text: &[u8], out: &mut Outbox) {
    reply::error([b"invalid ", verb.as_bytes(), b" ", echo(text)].concat(), out.bytes());
}
