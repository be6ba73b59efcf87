//! Items for a peer that speaks [`OLDEST`](crate::OLDEST), in the words that it knows.

use serde::Serialize;
use windlass_engine::{
    BatchCommand, BulkCommand, Capacity, Claim, Command, Condition, Event, Expiry, JobCommand,
    JobView, Listen, Mutation, NewJob, Query, QueueCommand, Refusal, Reply, ScheduleCommand, Turn,
    Why,
};

use crate::to_edge::ToEdge;
use crate::to_leader::ToLeader;

/// What one direction of a stream consists of.
pub trait Item: Serialize + Clone {
    /// Replaces what a peer of the version before does not know. `skew_ms`: the wall clock less the engine's time.
    fn make_older(&mut self, skew_ms: i64);
}

impl Item for ToLeader {
    fn make_older(&mut self, skew_ms: i64) {
        if let Self::Command {
            client,
            tag,
            command: Command::Job(JobCommand::Collect { .. }),
        } = *self
        {
            // It is answered by a refusal.
            *self = Self::Forbidden { client, tag };
        } else if let Self::Command {
            client,
            tag,
            ref command,
        } = *self
            && is_new(command)
        {
            *self = Self::Forbidden { client, tag };
        } else if let Self::Command { command, .. } = self {
            make_command_older(command, skew_ms);
        } else if let Self::Claim { claim, .. } = self {
            make_claim_older(claim, skew_ms);
        }
    }
}

impl Item for ToEdge {
    fn make_older(&mut self, skew_ms: i64) {
        let Self::Event {
            event: Event::Reply(_, reply),
            ..
        } = self
        else {
            return;
        };
        if let Reply::Looked { job, schedule } = reply {
            job.iter_mut()
                .for_each(|view| make_view_older(view, skew_ms));
            schedule
                .iter_mut()
                .for_each(|schedule| make_job_older(&mut schedule.job, 0));
        } else if let Reply::Jobs { rows, .. } = reply {
            rows.iter_mut()
                .for_each(|view| make_view_older(view, skew_ms));
        } else if let Reply::Schedules { rows, .. } = reply {
            rows.iter_mut()
                .for_each(|row| make_job_older(&mut row.job, 0));
        } else if let Reply::Why(Why::Turn(turn)) = reply {
            let Turn { jobs, more, .. } = **turn;
            *reply = Reply::Why(Why::Behind { jobs, more });
        } else if let Reply::Refused(why @ Refusal::DiskFull) = reply {
            *why = Refusal::Unavailable;
        } else if let Reply::Why(why @ Why::Coalesced { .. }) = reply {
            *why = Why::NotReady;
        } else if let Reply::Refused(Refusal::Limit {
            what: what @ Capacity::KeyJobs,
            ..
        }) = reply
        {
            *what = Capacity::QueueJobs;
        }
    }
}

/// Whether a query, a filter or a change asks what only version 5 knows.
fn is_new(command: &Command) -> bool {
    if let Command::Query(
        Query::Attempts(_) | Query::JobsBy { .. } | Query::Keys { .. } | Query::Kinds { .. },
    )
    | Command::Queue(
        QueueCommand::SetPatterns(_)
        | QueueCommand::SetPolicy { .. }
        | QueueCommand::PauseKey { .. },
    )
    | Command::Bulk(
        BulkCommand::ReadKeys { .. }
        | BulkCommand::Redrive { .. }
        | BulkCommand::Mutate {
            action: Mutation::Redrive { .. },
            ..
        },
    )
    | Command::Query(Query::Preview {
        action: Mutation::Redrive { .. },
        ..
    }) = command
    {
        return true;
    }
    let (Command::Bulk(BulkCommand::Mutate { filter, .. })
    | Command::Query(Query::Jobs { filter, .. } | Query::Preview { filter, .. })) = command
    else {
        return false;
    };
    let is_new = |it: &Condition| {
        use Condition::{FailedLike, InBatch, OfKey, OfKind};
        matches!(it, FailedLike(_) | InBatch(_) | OfKey(_) | OfKind(_))
    };
    filter.conditions.iter().any(is_new)
}

fn make_command_older(command: &mut Command, skew_ms: i64) {
    if let Command::Job(JobCommand::Push(job)) = command {
        make_job_older(job, skew_ms);
    } else if let Command::Claim(claim) = command {
        make_claim_older(claim, skew_ms);
    } else if let Command::Schedule(ScheduleCommand::Set(new)) = command {
        // The times of a schedule's job begin at each run.
        make_job_older(&mut new.job, 0);
    } else if let Command::Batch(BatchCommand::New(batch)) = command {
        let callbacks = batch.complete.iter_mut().chain(&mut batch.success);
        callbacks.for_each(|job| make_job_older(job, skew_ms));
    }
}

fn make_claim_older(claim: &mut Claim, skew_ms: i64) {
    if let Claim::Pushed { new, .. } = claim {
        make_job_older(new, skew_ms);
    }
}

/// [`Expiry::By`] and [`Listen::As`] are new in version 5.
fn make_job_older(job: &mut NewJob, skew_ms: i64) {
    job.expires = by_wall(job.expires, skew_ms);
    if let Listen::As(_) = job.listen {
        job.listen = Listen::Yes;
    }
}

fn make_view_older(view: &mut JobView, skew_ms: i64) {
    if let Some(extra) = view.job.extra.as_deref_mut() {
        extra.expires = by_wall(extra.expires, skew_ms);
    }
}

/// The same moment by the wall clock alone.
const fn by_wall(expires: Expiry, skew_ms: i64) -> Expiry {
    if let Expiry::By(at) = expires {
        Expiry::At(at.shifted(skew_ms))
    } else {
        expires
    }
}
