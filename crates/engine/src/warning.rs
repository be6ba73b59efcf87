//! Notices: events that an operator should know of although no client asked, such as jobs that fail for good and jobs that are
//! refused.
//!
//! The engine logs nothing. A turn holds at most one notice of each kind, with the first case as its example and a count of all
//! cases; so a million jobs that expire in one visit cost a million additions. The caller of the engine reads the warnings
//! ([`crate::Context::warnings`]) or ignores them.

use bytes::Bytes;

use crate::context::Context;
use crate::engine::Engine;
use crate::ids::Protocol;
use crate::outcome::End;
use crate::ready::Slot;
use crate::refusal::Refusal;

/// Something that happened to one or more jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    /// What happened.
    pub kind: WarningKind,
    /// The number of cases in this turn.
    pub times: u64,
    /// The queue of the first case.
    pub queue: Bytes,
    /// The producer's name for the first job, empty if there is none. For a schedule, its key.
    pub name: Bytes,
    /// The failure of the first job as its worker reported it, shortened; empty if it did not fail.
    pub why: Bytes,
}

/// The kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarningKind {
    /// Jobs failed, or were lost with their workers, and went to the dead-letter queue.
    Buried,
    /// Jobs whose workers were lost too often were removed, because they are not kept on failure.
    LostForGood,
    /// Jobs could not be converted to their worker's protocol. They wait for a worker of another protocol, or are given up if
    /// no other protocol can take them.
    Unfit {
        /// They were given up.
        is_dead: bool,
    },
    /// Jobs of one protocol wait in a queue that only workers of other protocols serve. At most once a minute for a queue.
    Unserved {
        /// The protocol of the jobs.
        jobs: Protocol,
        /// The protocols of the workers there.
        workers: Vec<Protocol>,
    },
    /// Jobs expired before they were taken, and were removed.
    Expired,
    /// New jobs were refused for this reason. `NotUnique` is a normal answer and gives no notice.
    Refused(Refusal),
    /// Runs of schedules were refused for this reason.
    RunRefused(Refusal),
}

impl WarningKind {
    /// Refusals that differ only in their numbers are of one kind.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Refused(one), Self::Refused(other)) | (Self::RunRefused(one), Self::RunRefused(other)) => {
                one.is_like(*other)
            }
            // Each one is about another queue.
            (Self::Unserved { .. }, _) => false,
            _ => self == other,
        }
    }
}

/// The longest text of an example, in bytes.
const TEXT_BYTES_MAX: usize = 256;

fn head(text: &[u8]) -> &[u8] {
    text.get(..TEXT_BYTES_MAX).unwrap_or(text)
}

impl Context {
    /// Records an event. The first of its kind gives the example: the queue, the name and the failure.
    pub fn warn(&mut self, kind: WarningKind, example: impl FnOnce() -> (Bytes, Bytes, Bytes)) {
        match self.warnings.iter_mut().find(|notice| notice.kind.is_like(&kind)) {
            Some(notice) => notice.times = notice.times.saturating_add(1),
            None => {
                let (queue, name, why) = example();
                self.warnings.push(Warning { kind, times: 1, queue, name, why });
            }
        }
    }
}

impl Engine {
    /// Records an event of a job, before the job is removed.
    pub(crate) fn warn_job(&self, kind: WarningKind, slot: Slot, context: &mut Context) {
        let Some(job) = self.jobs.at(slot) else { return };
        context.warn(kind, || {
            let queue = self.queues.at(job.queue).map(|queue| Self::own(&queue.image.name)).unwrap_or_default();
            let failure = job.extra.as_deref().and_then(|extra| extra.failure.as_deref());
            let why = failure.map_or_else(Bytes::new, |failure| match (head(&failure.kind), head(&failure.message)) {
                (kind, b"") => Bytes::copy_from_slice(kind),
                (b"", message) => Bytes::copy_from_slice(message),
                (kind, message) => [kind, b": ", message].concat().into(),
            });
            (queue, Bytes::copy_from_slice(job.name()), why)
        });
    }

    /// Records that a job could not be converted to a worker's protocol.
    pub(crate) fn warn_unfit(&self, slot: Slot, why: &Bytes, is_dead: bool, context: &mut Context) {
        let Some(job) = self.jobs.at(slot) else { return };
        context.warn(WarningKind::Unfit { is_dead }, || {
            let queue = self.queues.at(job.queue).map(|queue| Self::own(&queue.image.name)).unwrap_or_default();
            (queue, Bytes::copy_from_slice(job.name()), Bytes::copy_from_slice(head(why)))
        });
    }

    /// Records that a job was given up.
    pub(crate) fn warn_end(&self, slot: Slot, end: &End, kept: bool, context: &mut Context) {
        if kept {
            self.warn_job(WarningKind::Buried, slot, context);
        } else if matches!(end, End::Lost) && self.jobs.at(slot).is_some_and(|job| job.durable) {
            self.warn_job(WarningKind::LostForGood, slot, context);
        }
    }
}
