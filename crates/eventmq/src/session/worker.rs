//! Workers' and schedulers' messages, and the jobs sent to workers.
//!
//! A worker's `READY` is a credit: the engine sends as many jobs as the worker has credits. Every request goes out with
//! `reply-requested`, so every job has an exact end.
//!
//! Spec: "eMQP / Worker", "eMQP / Scheduler", "Heartbeating".

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, Command, Failure, JobId, JobRef, LeaseCommand, Proof, Protocol, READ_KEY,
    Refusal, Right, Subscription, TakeCommand, Taken, Timestamp,
};
use windlass_session::jid;
use windlass_zmtp::Message;

use super::answer::refused;
use super::beat::Beat;
use super::held::HeldJob;
use super::{EventmqSpeaker, Role, Talk, ignored};
use crate::bridge::message;
use crate::wire::{self, Headers, PeerKind, Queue, Request};

/// The stock `JobManager`'s result for a job that has exceeded its time.
const TIME_OUT: &[u8] = b"TimeoutError";

/// The kind of failure of a result that matches `failure_values`.
const FAILURE_VALUE: &[u8] = b"FailureValue";

/// Bytes kept of such a result.
const MESSAGE_BYTES_MAX: usize = 1_000;

impl EventmqSpeaker {
    /// `INFORM`. Replaces the peer's earlier registration.
    pub(super) fn inform(
        &mut self,
        id: &[u8],
        queues: &[u8],
        kind: PeerKind<'_>,
        talk: &mut Talk<'_>,
    ) {
        let queues = match kind {
            PeerKind::Worker => match wire::queues(queues) {
                Ok(queues) => Some(queues),
                Err(fault) => return ignored(&fault),
            },
            PeerKind::Scheduler => None,
            PeerKind::Other(name) => {
                return ignored(&format_args!("unknown role {}", name.escape_ascii()));
            }
        };
        self.quit(talk);
        if queues.is_some() && !talk.may(Right::Work) {
            refused(Refusal::NotPermitted);
            return self.send(wire::Command::Kbye, talk);
        }
        for queue in queues.iter().flatten() {
            talk.send(ClientCommand::Serve(self.subscription(queue)));
        }
        let is_worker = queues.is_some();
        let identity = self.link.identity().cloned().unwrap_or_default();
        let listed =
            self.settings
                .directory
                .enter(identity, queues, talk.client(), talk.wall(talk.now()));
        self.role = if is_worker {
            Role::Worker(listed)
        } else {
            Role::Scheduler(listed)
        };
        self.beat = Some(Beat::new(talk.now()));
        self.send(wire::Command::Ack { of: id }, talk);
        // The stock JobManager starts its processes at the first heartbeat.
        self.heartbeat(talk);
    }

    /// A subscription to a queue. Weights are shifted, so that negative ones keep their order.
    fn subscription(&self, queue: &Queue) -> Subscription {
        let weight = queue.weight.clamp(i32::MIN.into(), i32::MAX.into()) - i64::from(i32::MIN);
        let fallback = &self.settings.section.fallback;
        let is_fallback = !fallback.is_empty() && fallback.as_bytes() == queue.name;
        Subscription {
            queue: Bytes::copy_from_slice(&queue.name),
            weight: u32::try_from(weight).unwrap_or(u32::MAX),
            lease: self.settings.lease(),
            unclaimed: is_fallback.then_some(Protocol::EVENTMQ),
        }
    }

    /// `READY`. Ignored unless the peer is a worker.
    pub(super) fn ready(&mut self) {
        if matches!(self.role, Role::Worker(_)) {
            self.credits.add();
        }
    }

    /// Sends new credits to the engine, once for all messages that were read.
    pub(super) fn lend_credits(&mut self, talk: &mut Talk<'_>) {
        let Role::Worker(listed) = &self.role else {
            return;
        };
        let credits = self
            .credits
            .lend(self.held.len(), self.settings.section.jobs_max);
        if credits > 0 {
            talk.send(TakeCommand::Credit {
                credits,
                select: self.settings.section.order.select(),
            });
        }
        listed.set_slots(self.credits.open());
    }

    /// Sends a job to the worker.
    pub(super) fn taken(&mut self, job: Taken, talk: &mut Talk<'_>) {
        let Role::Worker(listed) = &self.role else {
            // It has sent `KBYE` meanwhile.
            let job = JobRef::Id(job.id);
            return talk.send(LeaseCommand::Release {
                job,
                proof: Proof::Connection,
                front: false,
            });
        };
        self.credits.spend();
        listed.set_slots(self.credits.open());
        let body = match message(
            &self.settings.bridge,
            &(&job).into(),
            self.settings.section.binary_workers,
        ) {
            Ok(body) => body,
            Err(misfit) => {
                // EventMQ cannot express this job: return it for workers of other protocols, and keep the credit.
                let (job, proof) = (JobRef::Id(job.id), Proof::Connection);
                talk.send(LeaseCommand::Unconvertible {
                    job,
                    proof,
                    why: misfit.to_string().into(),
                });
                self.credits.add();
                return self.lend_credits(talk);
            }
        };
        if let Some(beat) = &mut self.beat {
            beat.worked(talk.now());
        }
        let ours = job.protocol == Protocol::EVENTMQ;
        let is_given = ours && !job.key.is_empty() && !job.key.starts_with(READ_KEY);
        let id = if is_given {
            job.key.clone()
        } else {
            jid::jid_of(job.id.0).into()
        };
        let headers = Headers(if ours { &job.meta } else { b"" }).with_reply_requested();
        let request = Request {
            queue: &job.queue,
            headers: Headers(&headers),
            job: &body,
        };
        self.send_as(&id, wire::Command::Request(request), talk);
        self.held.insert(
            id,
            HeldJob {
                job: job.id,
                queue: job.queue,
                since: talk.now(),
                heard: job.heard,
            },
        );
    }

    /// `REPLY`: a job has ended. The specification's form has no identifier; it is valid if the worker has one job
    /// only.
    pub(super) fn result(
        &mut self,
        text: &[u8],
        of: Option<&[u8]>,
        message: &Message,
        talk: &mut Talk<'_>,
    ) {
        let only = if of.is_none() { self.held.only() } else { None };
        let Some(of) = of.or(only.as_deref()) else {
            return ignored(&"a REPLY without a job");
        };
        let Some(held) = self.held.take(of) else {
            return talk.send(late(text, of, message));
        };
        if let Some(beat) = &mut self.beat {
            beat.worked(talk.now());
        }
        self.count(&held, talk.now());
        let (job, proof) = (JobRef::Id(held.job), Proof::Connection);
        let command = if wire::is_time_out(text) {
            timed_out(job)
        } else if let Some(value) = self.settings.failure(&held.queue, text) {
            let message = Bytes::copy_from_slice(value.get(..MESSAGE_BYTES_MAX).unwrap_or(&value));
            let kind = Bytes::from_static(FAILURE_VALUE);
            Command::Lease(LeaseCommand::Fail {
                job,
                proof,
                failure: Box::new(Failure {
                    kind,
                    message,
                    ..Failure::default()
                }),
            })
        } else {
            let result = if held.heard {
                message.keep(text)
            } else {
                message.view(text)
            };
            Command::Lease(LeaseCommand::Finish {
                job,
                proof: Proof::Late,
                result,
            })
        };
        talk.send(command);
    }

    fn count(&mut self, held: &HeldJob, now: Timestamp) {
        if let Role::Worker(listed) = &self.role {
            listed.processed();
        }
        if self
            .tally
            .as_ref()
            .is_none_or(|(queue, _)| *queue != held.queue)
        {
            self.tally = Some((
                held.queue.clone(),
                self.settings.directory.tally(&held.queue),
            ));
        }
        if let Some((_, tally)) = &self.tally {
            tally.count(now.ms_since(held.since));
        }
    }

    /// Ends a peer's registration, for `KBYE` or a new `INFORM`. The peer keeps its jobs.
    pub(super) fn quit(&mut self, talk: &mut Talk<'_>) {
        if matches!(self.role, Role::Worker(_)) {
            talk.send(ClientCommand::UnserveAll { requeue: false });
            talk.send(TakeCommand::Unwait);
        }
        self.role = Role::Gone;
        self.beat = None;
        self.credits = super::Credits::default();
    }
}

/// A reply for a job that the connection does not hold: the worker's last connection was lost, or the daemon was
/// restarted. It finishes the job unless another worker has it. A time-out ends only a lease that waits for the worker
/// after a restart.
fn late(text: &[u8], of: &[u8], message: &Message) -> Command {
    let number = std::str::from_utf8(of).ok().and_then(jid::number_of);
    let job = match number {
        Some(number) => JobRef::Id(JobId(number)),
        None => JobRef::KeyAnywhere {
            protocol: Protocol::EVENTMQ,
            key: message.view(of),
        },
    };
    match wire::is_time_out(text) {
        true => timed_out(job),
        false => Command::Lease(LeaseCommand::Finish {
            job,
            proof: Proof::Late,
            result: message.keep(text),
        }),
    }
}

fn timed_out(job: JobRef) -> Command {
    let (kind, message) = (Bytes::from_static(TIME_OUT), Bytes::from_static(TIME_OUT));
    let failure = Box::new(Failure {
        kind,
        message,
        ..Failure::default()
    });
    Command::Lease(LeaseCommand::Fail {
        job,
        proof: Proof::Connection,
        failure,
    })
}
