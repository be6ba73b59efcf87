//! Predicts the order and times in which the ready jobs of a queue start, assuming that workers
//! only take jobs and time passes. Nothing is modified, and each step costs as much as a start.

use super::bucket::Bucket;
use super::keys::Turns;
use crate::ids::Timestamp;
use crate::jobs::Slot;
use crate::queues::audience::View;
use crate::queues::ready::{ReadyQueue, SortKey};

/// The next starts. Jobs that wait for the end of another job of the same key are not included.
#[derive(Debug)]
pub(crate) struct Starts<'a> {
    pub(super) now: Timestamp,
    /// The rate of the queue.
    pub(super) bucket: Option<Bucket>,
    pub(super) order: Order<'a>,
}

/// The source of the next job.
#[derive(Debug)]
pub(super) enum Order<'a> {
    /// By the order of the queue.
    Ranks {
        ready: &'a ReadyQueue,
        view: View,
        after: Option<SortKey>,
    },
    /// By the turns of keys.
    Turns(Turns<'a>),
}

/// A predicted start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// The job.
    pub(crate) slot: Slot,
    /// The earliest time, by the engine's clock, at which there are tokens for it and for all jobs
    /// before it.
    pub(crate) at: Timestamp,
}

impl Order<'_> {
    fn next(&mut self) -> Option<Slot> {
        match self {
            Self::Ranks { ready, view, after } => {
                ready.after_of(*view, *after).map(|(_, slot)| slot)
            }
            Self::Turns(turns) => turns.first().map(|(.., slot)| slot),
        }
    }

    /// Predicts the start of the next job.
    fn start(&mut self, now: Timestamp) {
        match self {
            Self::Ranks { ready, view, after } => {
                *after = ready.after_of(*view, *after).map(|(at, _)| at)
            }
            Self::Turns(turns) => {
                if let Some((place, class, number, _)) = turns.first() {
                    turns.start(place, class, number, now);
                }
            }
        }
    }

    fn next_due(&mut self) -> Timestamp {
        if let Self::Turns(turns) = self {
            turns.next_due()
        } else {
            Timestamp::NEVER
        }
    }
}

impl Iterator for Starts<'_> {
    type Item = Start;

    fn next(&mut self) -> Option<Start> {
        loop {
            let next = self.order.next();
            let bucket = self.bucket.as_ref().filter(|bucket| bucket.tokens() == 0);
            if let (Some(slot), None) = (next, bucket) {
                if let Some(bucket) = &mut self.bucket {
                    bucket.spend(self.now);
                }
                self.order.start(self.now);
                return Some(Start { slot, at: self.now });
            }
            let token_at = bucket
                .filter(|_| next.is_some())
                .map_or(Timestamp::NEVER, Bucket::next_at);
            let at = token_at.min(self.order.next_due());
            if at == Timestamp::NEVER {
                return None;
            }
            self.now = self.now.max(at);
            if let Some(bucket) = &mut self.bucket {
                bucket.refill(self.now);
            }
            if let Order::Turns(turns) = &mut self.order {
                turns.come_due(self.now);
            }
        }
    }
}
