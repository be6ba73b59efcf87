//! Events that the engine sends to clients: a reply to a command, or a notice without a command. Names are
//! past participles.
//!
//! The properties of an event that matter to its carriers are declared here, so that carriers match no
//! variants: whether it must wait for the journal, which queue names it contains, and how large it is.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{JobId, Protocol, Tag, Timestamp};
use crate::jobs::{Attempt, Failure, JobStateKind};
use crate::outcome::{End, Fate, Pushed, Taken};
use crate::query::{
    BatchView, ClientRow, FiguresRow, JobView, KeyRow, KindRow, NamespaceRow, PolicyRow, QueueRow,
    Stats, ThrottleRow, Totals, Why, WorkLeft, WorkerRow,
};
use crate::refusal::Refusal;
use crate::request::{Cursor, Note, WorkerState};
use crate::schedules::Schedule;

/// A message to a client.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Event {
    /// The reply to the command with this tag.
    Reply(Tag, Reply),
    /// A message without a command.
    Notice(Notice),
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Reply {
    /// A push succeeded.
    Pushed {
        /// The new job, or the existing one.
        job: JobId,
        /// The effect of the push.
        how: Pushed,
        /// True if this reply must wait for the journal (see [`Event::acknowledges`]).
        durable: bool,
    },
    /// A take got this job.
    Taken(Box<Taken>),
    /// A take found no job.
    Empty,
    /// This job succeeded.
    Finished(JobId),
    /// A job's failure was recorded.
    Failed {
        /// The job.
        job: JobId,
        /// The job's new state.
        fate: Fate,
    },
    /// The command succeeded.
    Done,
    /// All previous changes are durable. Must not be sent before the journal has written them, even where
    /// acknowledgements may be.
    Settled,
    /// The command was refused.
    Refused(Refusal),
    /// A job or a schedule in the current state. They share a sequence of IDs, so an ID never
    /// identifies both.
    Looked {
        /// The job, if it exists.
        job: Option<Box<JobView>>,
        /// The schedule with this number, if it exists.
        schedule: Option<Box<Schedule>>,
    },
    /// A schedule was set.
    ScheduleSet {
        /// The number: new, or that of the schedule it replaced.
        schedule: JobId,
        /// True if it replaced the schedule with the same name.
        replaced: bool,
    },
    /// A page of schedules.
    Schedules {
        /// The rows, by number.
        rows: Vec<Schedule>,
        /// The cursor of the next page; `None` at the end. A short page may have a successor.
        next: Option<Cursor>,
    },
    /// A batch in the current state.
    Batch(Box<BatchView>),
    /// A page of batches.
    Batches {
        /// The rows, by number.
        rows: Vec<BatchView>,
        /// The cursor of the next page; `None` at the end.
        next: Option<Cursor>,
    },
    /// A page of queues.
    Queues {
        /// The rows.
        rows: Vec<QueueRow>,
        /// The cursor of the next page; `None` at the end.
        next: Option<Cursor>,
    },
    /// A page of jobs.
    Jobs {
        /// The rows.
        rows: Vec<JobView>,
        /// The cursor of the next page; `None` at the end. A short or empty page may have a
        /// successor.
        next: Option<Cursor>,
    },
    /// A page of queues with throttles.
    Throttles {
        /// The rows.
        rows: Vec<ThrottleRow>,
        /// The cursor of the next page; `None` at the end.
        next: Option<Cursor>,
    },
    /// A page of named workers.
    Workers {
        /// The rows.
        rows: Vec<WorkerRow>,
        /// The cursor of the next page; `None` at the end.
        next: Option<Cursor>,
    },
    /// A page of connections.
    Clients {
        /// The rows.
        rows: Vec<ClientRow>,
        /// The cursor of the next page; `None` at the end.
        next: Option<Cursor>,
    },
    /// Why a job does not run.
    Why(Why),
    /// A page of queues' figures.
    Figures {
        /// The rows.
        rows: Vec<FiguresRow>,
        /// The cursor of the next page; `None` at the end.
        next: Option<Cursor>,
    },
    /// The engine's figures.
    Stats(Box<Stats>),
    /// The counters of each day with activity, by days since 1 January 1970.
    Days(BTreeMap<u64, Totals>),
    /// A round of a bulk command is complete.
    Mutated {
        /// Jobs changed in this round.
        changed: u32,
        /// The cursor of the next round; `None` at the end.
        next: Option<Cursor>,
    },
    /// One round of a preview, which modifies no job, or one round of collected jobs.
    Counted {
        /// Jobs that the change would change in this round, or that were collected.
        jobs: u32,
        /// The cursor of the next round; `None` at the end.
        next: Option<Cursor>,
    },
    /// A worker's heartbeat was recorded; this state is requested of the worker.
    Beaten(WorkerState),
    /// The unfinished work of a daemon's clients.
    WorkLeft(Box<WorkLeft>),
    /// Past deliveries of a job that did not succeed, oldest first, with the error if there was one.
    Attempts(Vec<Attempt>),
    /// The policy of a queue, if any, and a page of keys.
    Keys {
        /// The policy.
        policy: Option<Box<PolicyRow>>,
        /// The rows.
        rows: Vec<KeyRow>,
        /// The cursor of the next page; `None` at the end.
        next: Option<Cursor>,
    },
    /// A page of the figures of kinds.
    Kinds {
        /// The rows.
        rows: Vec<KindRow>,
        /// The cursor of the next page; `None` at the end.
        next: Option<Cursor>,
    },
    /// A page of namespaces.
    Namespaces {
        /// The rows.
        rows: Vec<NamespaceRow>,
        /// The cursor of the next page; `None` at the end.
        next: Option<Cursor>,
    },
}

/// A message without a command.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Notice {
    /// This client received a job on credit.
    Delivered(Box<Taken>),
    /// A client that is waiting for work can request it now.
    WorkAvailable,
    /// A listener receives a report from the worker.
    Progress {
        /// The job.
        job: JobId,
        /// The report.
        note: Note,
    },
    /// A listened-to job has finished or was removed.
    Ended {
        /// The job.
        job: JobId,
        /// The outcome.
        end: End,
    },
    /// A change for a watcher, or a gap.
    Watched(Watched),
    /// The session must close this connection, because the worker missed heartbeats or on behalf of an
    /// operator.
    Close,
    /// A job for a collector with this client's name ([`crate::JobCommand::Collect`]).
    Collected {
        /// The job.
        job: JobId,
        /// The coalescing key; empty if the job has no key.
        key: Bytes,
        /// The outcome; `None`: the job is unfinished and the client is now a listener.
        end: Option<Box<End>>,
    },
}

/// An event for a watcher.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Watched {
    /// A job has a new state.
    Changed(Box<JobChange>),
    /// An event of the queue with this name.
    Queue(Bytes, QueueChange),
    /// An event of the worker with this name. Not sent to watchers of a single queue.
    Worker(Bytes, WorkerChange),
    /// This many events were skipped: the watcher had no credit, or it watches for a text and the job's body
    /// is not in memory.
    Missed(u64),
}

/// An event of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum QueueChange {
    /// The queue was paused.
    Paused,
    /// The queue was resumed.
    Resumed,
    /// The removal of all ready jobs of the queue has started.
    Cleared,
    /// The queue was removed with the ready jobs.
    Removed,
}

/// An event of a named worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum WorkerChange {
    /// The worker's first connection has registered.
    Registered,
    /// The worker was asked to take no more jobs.
    Quiet,
    /// It was asked to end.
    Stopping,
    /// The worker's last connection has closed, or the worker has missed heartbeats.
    Gone,
}

/// A job's new state.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct JobChange {
    /// The job.
    pub job: JobId,
    /// The queue's name.
    pub queue: Bytes,
    /// The protocol of the producer.
    pub protocol: Protocol,
    /// The state; `None` if it was removed.
    pub now: Option<JobStateKind>,
    /// When, by the wall clock.
    pub at: Timestamp,
    /// The body, for a client that watches jobs with a text; otherwise empty.
    pub body: Bytes,
    /// The name of the namespace; empty for that without a name.
    pub namespace: Bytes,
}

impl Event {
    /// Returns true if this event promises durability: it must not be sent before the journal has written the
    /// change.
    pub const fn acknowledges(&self) -> bool {
        match self {
            Self::Reply(tag, reply) => reply.acknowledges(*tag),
            Self::Notice(_) => false,
        }
    }

    /// Returns true if this event must wait for the journal even where acknowledgements need not. The journal
    /// must then have written all previous changes.
    pub const fn is_barrier(&self) -> bool {
        matches!(self, Self::Reply(_, Reply::Settled))
    }

    /// The job that this event delivers to a worker.
    pub fn handed_out(&self) -> Option<&Taken> {
        match self {
            Self::Reply(_, Reply::Taken(job)) | Self::Notice(Notice::Delivered(job)) => Some(job),
            Self::Reply(..) | Self::Notice(_) => None,
        }
    }

    /// The job with the ID that this event returns to a producer.
    pub const fn created(&self) -> Option<JobId> {
        if let Self::Reply(_, Reply::Pushed { job, .. }) = self {
            Some(*job)
        } else {
            None
        }
    }

    /// The job that this event reports on to a listener.
    pub const fn news_of(&self) -> Option<JobId> {
        match self {
            Self::Notice(Notice::Progress { job, .. } | Notice::Ended { job, .. }) => Some(*job),
            Self::Reply(..) | Self::Notice(_) => None,
        }
    }

    /// Returns true if this event delivers a job with a lease that survives the connection.
    pub fn grants_lasting_lease(&self) -> bool {
        self.handed_out().is_some_and(|job| !job.connection_bound)
    }

    /// Returns true if the client must get this event however much it has not read yet.
    pub const fn is_urgent(&self) -> bool {
        matches!(self, Self::Notice(Notice::Close))
    }

    /// Passes each queue name in this event to `each`.
    pub fn queue_names_mut(&mut self, mut each: impl FnMut(&mut Bytes)) {
        match self {
            Self::Reply(_, Reply::Taken(job)) | Self::Notice(Notice::Delivered(job)) => {
                each(&mut job.queue)
            }
            Self::Reply(_, Reply::Looked { job, schedule }) => {
                job.iter_mut().for_each(|view| each(&mut view.queue));
                schedule
                    .iter_mut()
                    .for_each(|schedule| each(&mut schedule.job.queue));
            }
            Self::Reply(_, Reply::Schedules { rows, .. }) => {
                rows.iter_mut().for_each(|row| each(&mut row.job.queue))
            }
            Self::Reply(_, Reply::Queues { rows, .. }) => {
                rows.iter_mut().for_each(|row| each(&mut row.name))
            }
            Self::Reply(_, Reply::Throttles { rows, .. }) => {
                rows.iter_mut().for_each(|row| each(&mut row.queue))
            }
            Self::Reply(_, Reply::Jobs { rows, .. }) => {
                rows.iter_mut().for_each(|row| each(&mut row.queue))
            }
            Self::Reply(_, Reply::Figures { rows, .. }) => {
                rows.iter_mut().for_each(|row| each(&mut row.name))
            }
            Self::Notice(Notice::Watched(Watched::Changed(change))) => each(&mut change.queue),
            Self::Notice(Notice::Watched(Watched::Queue(queue, _))) => each(queue),
            Self::Reply(..) | Self::Notice(_) => {}
        }
    }

    /// Approximate size of this event in bytes. Bodies in rows of a listing are shared with the engine.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Reply(_, reply) => reply.bytes(),
            Self::Notice(notice) => notice.bytes(),
        }
    }

    /// The bytes of this event that may be shared with the engine or with other clients' events, if they are at least
    /// this many.
    pub fn large_body(&self, bytes_min: usize) -> Option<Bytes> {
        let bytes = match self {
            Self::Reply(
                _,
                Reply::Looked {
                    job: Some(view), ..
                },
            ) if view.job.payload.stored().is_none()
                && view.job.payload.body().len() >= bytes_min =>
            {
                return Some(view.job.payload.share_body());
            }
            Self::Reply(_, Reply::Taken(job)) | Self::Notice(Notice::Delivered(job)) => &job.body,
            Self::Notice(Notice::Progress { note, .. }) => note.body(),
            Self::Notice(Notice::Ended { end, .. }) => end.result()?,
            Self::Notice(Notice::Collected { end: Some(end), .. }) => end.result()?,
            Self::Reply(..) | Self::Notice(_) => return None,
        };
        (bytes.len() >= bytes_min).then(|| bytes.clone())
    }
}

/// Approximate size of a listing's row in bytes.
const ROW_BYTES: usize = 256;

impl Reply {
    /// Returns true if the reply to a command with this tag promises durability: see [`Event::acknowledges`].
    pub const fn acknowledges(&self, tag: Tag) -> bool {
        match self {
            Self::Pushed { durable, .. } => *durable,
            // A session may treat such a refusal like success.
            Self::Refused(why) => tag.wants_answer() && why.is_already_so(),
            Self::Finished(_)
            | Self::Failed { .. }
            | Self::Done
            | Self::Settled
            | Self::ScheduleSet { .. }
            | Self::Mutated { .. } => true,
            Self::Taken(_)
            | Self::Empty
            | Self::Looked { .. }
            | Self::Schedules { .. }
            | Self::Batch(_)
            | Self::Batches { .. }
            | Self::Queues { .. }
            | Self::Namespaces { .. }
            | Self::Throttles { .. }
            | Self::Jobs { .. }
            | Self::Workers { .. }
            | Self::Clients { .. }
            | Self::Why(_)
            | Self::Keys { .. }
            | Self::Figures { .. }
            | Self::Kinds { .. }
            | Self::Stats(_)
            | Self::Days(_)
            | Self::Counted { .. }
            | Self::WorkLeft(_)
            | Self::Attempts(_)
            | Self::Beaten(_) => false,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Taken(job) => job.bytes(),
            Self::Looked { job, schedule } => {
                let job = job
                    .as_deref()
                    .map_or(0, |view| ROW_BYTES + view.job.payload.body_len());
                job + schedule.as_deref().map_or(0, |_| ROW_BYTES)
            }
            Self::Schedules { rows, .. } => rows.len() * ROW_BYTES,
            Self::Queues { rows, .. } => rows.len() * ROW_BYTES,
            Self::Namespaces { rows, .. } => rows.len() * ROW_BYTES,
            Self::Throttles { rows, .. } => rows
                .iter()
                .map(|row| ROW_BYTES * (1 + row.holders.len()))
                .sum(),
            Self::Jobs { rows, .. } => {
                let stored = rows.iter().filter_map(|row| row.job.payload.stored());
                rows.len() * ROW_BYTES + stored.map(|stored| stored.len as usize).sum::<usize>()
            }
            Self::Workers { rows, .. } => rows.len() * ROW_BYTES,
            Self::Keys { rows, .. } => rows.len() * ROW_BYTES,
            Self::Clients { rows, .. } => rows.len() * ROW_BYTES,
            Self::Batch(batch) => ROW_BYTES + batch.about.len() + batch.meta.len(),
            Self::Batches { rows, .. } => rows
                .iter()
                .map(|batch| ROW_BYTES + batch.about.len() + batch.meta.len())
                .sum(),
            Self::Figures { rows, .. } => rows.len() * 2 * ROW_BYTES,
            Self::Kinds { rows, .. } => rows.len() * 2 * ROW_BYTES,
            Self::Stats(_) | Self::Why(_) | Self::WorkLeft(_) => ROW_BYTES,
            Self::Days(days) => days.len() * ROW_BYTES,
            Self::Attempts(rows) => rows.len() * 2 * ROW_BYTES,
            Self::Pushed { .. }
            | Self::Empty
            | Self::Finished(_)
            | Self::Failed { .. }
            | Self::Done
            | Self::Settled
            | Self::Refused(_)
            | Self::ScheduleSet { .. }
            | Self::Mutated { .. }
            | Self::Counted { .. }
            | Self::Beaten(_) => 0,
        }
    }
}

impl Notice {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Delivered(job) => job.bytes(),
            Self::Progress { note, .. } => note.body().len(),
            Self::Ended { end, .. } => end.bytes(),
            Self::Collected { key, end, .. } => key.len() + end.as_deref().map_or(0, End::bytes),
            Self::WorkAvailable | Self::Watched(_) | Self::Close => 0,
        }
    }
}

impl End {
    const fn result(&self) -> Option<&Bytes> {
        if let Self::Succeeded { result, .. } = self {
            Some(result)
        } else {
            None
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Succeeded { result, .. } => result.len(),
            Self::Failed(failure) => failure_bytes(failure),
            Self::Lost | Self::TimedOut | Self::Expired | Self::Cancelled => 0,
        }
    }
}

impl Taken {
    /// Bytes of the body, wherever it is.
    pub fn body_len(&self) -> usize {
        self.stored
            .map_or(self.body.len(), |stored| stored.len as usize)
    }

    fn bytes(&self) -> usize {
        self.body_len() + self.failure.as_deref().map_or(0, failure_bytes)
    }
}

fn failure_bytes(failure: &Failure) -> usize {
    let lines: usize = failure
        .backtrace
        .iter()
        .map(|line| size_of::<Bytes>() + line.len())
        .sum();
    failure.kind.len() + failure.message.len() + lines
}
