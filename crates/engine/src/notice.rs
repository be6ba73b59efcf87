//! What an operator should know of and nobody asked for: jobs that end badly, and jobs that are not taken.
//!
//! The engine logs nothing. A turn holds at most one notice of each kind, with the first case as its example and a count of all, so
//! a million jobs that expire in one visit cost a million additions. Whoever drives the engine takes the notices out
//! ([`crate::Turn::notices`]) or leaves them.

use std::mem::discriminant;

use bytes::Bytes;

use crate::engine::Engine;
use crate::event::{End, Refusal};
use crate::ids::Origin;
use crate::line::Slot;
use crate::turn::Turn;

/// Something that happened to one or more jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// What happened.
    pub kind: NoticeKind,
    /// How often, in this turn.
    pub times: u64,
    /// The queue of the first of them.
    pub queue: Bytes,
    /// The producer's name for the first job, empty if there is none; of a schedule, its key.
    pub name: Bytes,
    /// Why the first of them failed, in the words of its worker, shortened; empty if it did not fail.
    pub why: Bytes,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// Jobs failed, or were lost with their workers, and went to the dead set.
    Buried,
    /// Jobs whose workers were lost too often are gone: they are not kept when they fail.
    LostForGood,
    /// Jobs that their worker's protocol has no words for. They wait for a worker of another, or are given up if there can be
    /// none.
    Unfit {
        /// They are given up.
        is_dead: bool,
    },
    /// Jobs of one protocol wait in a queue that only other protocols' workers serve. At most once a minute of a queue.
    Unserved {
        /// The protocol of the jobs.
        jobs: Origin,
        /// The protocols of those who work there.
        workers: Vec<Origin>,
    },
    /// Jobs were not begun in time and are gone.
    Expired,
    /// Jobs were not taken, for this reason. That one is not unique is an answer, and no notice.
    Refused(Refusal),
    /// Runs of schedules were not taken, for this reason.
    RunRefused(Refusal),
}

impl NoticeKind {
    /// Refusals that differ in nothing but their figures are of one kind.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Refused(one), Self::Refused(other)) | (Self::RunRefused(one), Self::RunRefused(other)) => {
                discriminant(one) == discriminant(other)
            }
            // Each is about a queue of its own.
            (Self::Unserved { .. }, _) => false,
            _ => self == other,
        }
    }
}

/// How much of a text an example has.
const TEXT_BYTES_MAX: usize = 256;

fn head(text: &[u8]) -> &[u8] {
    text.get(..TEXT_BYTES_MAX).unwrap_or(text)
}

impl Turn {
    /// Takes something down. The first of its kind is the example: the queue, the name and the failure.
    pub fn notice(&mut self, kind: NoticeKind, example: impl FnOnce() -> (Bytes, Bytes, Bytes)) {
        match self.notices.iter_mut().find(|notice| notice.kind.is_like(&kind)) {
            Some(notice) => notice.times = notice.times.saturating_add(1),
            None => {
                let (queue, name, why) = example();
                self.notices.push(Notice { kind, times: 1, queue, name, why });
            }
        }
    }
}

impl Engine {
    /// Takes down what happened to a job, before it is gone.
    pub(crate) fn notice_job(&self, kind: NoticeKind, slot: Slot, turn: &mut Turn) {
        let Some(job) = self.jobs.at(slot) else { return };
        turn.notice(kind, || {
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

    /// A worker's protocol has no words for a job.
    pub(crate) fn notice_unfit(&self, slot: Slot, why: &Bytes, is_dead: bool, turn: &mut Turn) {
        let Some(job) = self.jobs.at(slot) else { return };
        turn.notice(NoticeKind::Unfit { is_dead }, || {
            let queue = self.queues.at(job.queue).map(|queue| Self::own(&queue.image.name)).unwrap_or_default();
            (queue, Bytes::copy_from_slice(job.name()), Bytes::copy_from_slice(head(why)))
        });
    }

    /// A job is given up: what that is called.
    pub(crate) fn notice_end(&self, slot: Slot, end: &End, kept: bool, turn: &mut Turn) {
        if kept {
            self.notice_job(NoticeKind::Buried, slot, turn);
        } else if matches!(end, End::Lost) && self.jobs.at(slot).is_some_and(|job| job.durable) {
            self.notice_job(NoticeKind::LostForGood, slot, turn);
        }
    }
}
