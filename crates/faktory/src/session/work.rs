//! ACK, FAIL, REQUEUE and BEAT: a worker's reports on its jobs and on itself.
//!
//! Spec: "Consumer Commands". Any connection may report on any leased job, even if another one took it.

use bytes::Bytes;
use windlass_engine::{Command, Failure, LeaseCommand, Proof, Refusal, Reply, Thing, WorkerCommand, WorkerState};

use super::ask::Ask;
use super::fetch::job_ref;
use super::push::readable;
use super::refusal;
use super::{Answer, FaktorySpeaker, Talk};
use crate::wire::{Ack, Beat, Failed, JobName, echo, reply};

impl FaktorySpeaker {
    pub(super) fn ack(text: &[u8], talk: &mut Talk<'_>) {
        let Some(Ack { jid, result }) = Ack::parse(&readable(text)) else { return invalid("ACK", text, talk) };
        let finish =
            Command::Lease(LeaseCommand::Finish { job: job_ref(&jid), proof: Proof::AnyLease, result: result.into() });
        talk.ask(Ask::Finish, finish);
    }

    /// An unknown job, or one without a lease, is not an error: another client may have finished it first.
    pub(super) fn finished(answer: &Answer, talk: &mut Talk<'_>) {
        match answer {
            Err(why) if !is_unknown(*why) => refusal::write(*why, talk.bytes()),
            Ok(_) | Err(_) => reply::ok(talk.bytes()),
        }
    }

    pub(super) fn fail(text: &[u8], talk: &mut Talk<'_>) {
        let Some(failed) = Failed::parse(&readable(text)) else { return invalid("FAIL", text, talk) };
        if failed.jid.is_empty() {
            return reply::error("missing JID", talk.bytes());
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
        talk.ask(Ask::Report(failed.jid.into()), fail);
    }

    /// Returns a job to the front of its queue. It costs no retry.
    pub(super) fn requeue(text: &[u8], talk: &mut Talk<'_>) {
        let Some(JobName { jid }) = JobName::parse(&readable(text)) else { return invalid("REQUEUE", text, talk) };
        let release = Command::Lease(LeaseCommand::Release { job: job_ref(&jid), proof: Proof::AnyLease, front: true });
        talk.ask(Ask::Report(jid.into()), release);
    }

    pub(super) fn reported(jid: &[u8], answer: &Answer, talk: &mut Talk<'_>) {
        match answer {
            Ok(_) => reply::ok(talk.bytes()),
            Err(why) if is_unknown(*why) => {
                reply::error([b"Job not found ", echo(jid)].concat(), talk.bytes());
            }
            Err(why) => refusal::write(*why, talk.bytes()),
        }
    }

    pub(super) fn beat(text: &[u8], talk: &mut Talk<'_>) {
        let Some(Beat { wid, state, rss_kib }) = Beat::parse(&readable(text)) else {
            return invalid("BEAT", text, talk);
        };
        let state = match state.as_str() {
            "quiet" => Some(WorkerState::Quiet),
            "terminate" => Some(WorkerState::Terminate),
            _ => None,
        };
        let worker = Bytes::from(wid);
        let memory_bytes = rss_kib.map(|kib| kib.saturating_mul(1_024));
        talk.ask(Ask::Beat(worker.clone()), WorkerCommand::Beat { worker, state, memory_bytes });
    }

    /// "Unknown" is upper case, as on older servers: Go's client looks for it.
    pub(super) fn beaten(wid: &[u8], answer: &Answer, talk: &mut Talk<'_>) {
        match answer {
            Ok(Reply::Beaten(WorkerState::Quiet)) => reply::bulk(b"{\"state\":\"quiet\"}", talk.bytes()),
            Ok(Reply::Beaten(WorkerState::Terminate)) => {
                reply::bulk(b"{\"state\":\"terminate\"}", talk.bytes());
            }
            Ok(_) => reply::ok(talk.bytes()),
            Err(Refusal::NotFound(Thing::Worker)) => {
                reply::error([b"Unknown worker ", echo(wid)].concat(), talk.bytes())
            }
            Err(why) => refusal::write(*why, talk.bytes()),
        }
    }
}

const fn is_unknown(why: Refusal) -> bool {
    matches!(why, Refusal::NotFound(Thing::Job) | Refusal::NotHeld)
}

/// Returns invalid text to its sender.
fn invalid(verb: &str, text: &[u8], talk: &mut Talk<'_>) {
    reply::error([b"invalid ", verb.as_bytes(), b" ", echo(text)].concat(), talk.bytes());
}
