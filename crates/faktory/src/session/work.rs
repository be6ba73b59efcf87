//! ACK, FAIL, REQUEUE and BEAT: a worker's reports on its jobs and on itself.
//!
//! Spec: "Consumer Commands". Any connection may report on any leased job, even if another one took it.

use bytes::Bytes;
use windlass_engine::{Command, Failure, LeaseCommand, Proof, Reply, WorkerCommand, WorkerState};

use super::ask::Ask;
use super::{FaktorySpeaker, Talk, job_ref, readable};
use crate::wire::{Ack, Beat, Failed, echo, reply, requeued};

impl FaktorySpeaker {
    pub(super) fn ack(text: &[u8], talk: &mut Talk<'_>) {
        let Some(Ack { jid, result }) = Ack::parse(&readable(text)) else {
            return invalid("ACK", text, talk);
        };
        let finish = Command::Lease(LeaseCommand::Finish {
            job: job_ref(&jid),
            proof: Proof::AnyLease,
            result: result.into(),
        });
        talk.ask(Ask::Finish, finish);
    }

    pub(super) fn fail(text: &[u8], talk: &mut Talk<'_>) {
        let Some(failed) = Failed::parse(&readable(text)) else {
            return invalid("FAIL", text, talk);
        };
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
        let Some(jid) = requeued(&readable(text)) else {
            return invalid("REQUEUE", text, talk);
        };
        let release = Command::Lease(LeaseCommand::Release {
            job: job_ref(&jid),
            proof: Proof::AnyLease,
            front: true,
        });
        talk.ask(Ask::Report(jid.into()), release);
    }

    pub(super) fn beat(text: &[u8], talk: &mut Talk<'_>) {
        let Some(Beat {
            wid,
            state,
            rss_kib,
        }) = Beat::parse(&readable(text))
        else {
            return invalid("BEAT", text, talk);
        };
        let state = match state.as_str() {
            "quiet" => Some(WorkerState::Quiet),
            "terminate" => Some(WorkerState::Terminate),
            _ => None,
        };
        let worker = Bytes::from(wid);
        let memory_bytes = rss_kib.map(|kib| kib.saturating_mul(1_024));
        talk.ask(
            Ask::Beat(worker.clone()),
            WorkerCommand::Beat {
                worker,
                state,
                memory_bytes,
            },
        );
    }

    pub(super) fn beaten(reply: &Reply, talk: &mut Talk<'_>) {
        let Reply::Beaten(state) = reply else {
            return reply::ok(talk.bytes());
        };
        match state {
            WorkerState::Quiet => reply::bulk(b"{\"state\":\"quiet\"}", talk.bytes()),
            WorkerState::Terminate => reply::bulk(b"{\"state\":\"terminate\"}", talk.bytes()),
            WorkerState::Running => reply::ok(talk.bytes()),
        }
    }
}

/// Returns invalid text to its sender.
fn invalid(verb: &str, text: &[u8], talk: &mut Talk<'_>) {
    reply::error(
        [b"invalid ", verb.as_bytes(), b" ", echo(text)].concat(),
        talk.bytes(),
    );
}
