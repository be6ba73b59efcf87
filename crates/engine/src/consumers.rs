//! Those of one protocol who work on a queue's jobs: how many there are, and who of them waits.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::ids::{ClientId, Origin};
use crate::queue::Queue;

/// One protocol's, at one queue.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    /// The protocol; those who say none see all jobs.
    pub(crate) origin: Option<Origin>,
    /// Abilities registered.
    pub(crate) workers: u32,
    /// Sleepers woken for the queue who have not asked for work since.
    pub(crate) woken: u32,
    /// Clients that get a job handed to them: blocked takers and those with credits.
    pub(crate) takers: BTreeMap<WaitKey, ClientId>,
    /// Clients that sleep until woken.
    pub(crate) sleepers: BTreeMap<WaitKey, ClientId>,
}

/// Order among waiting clients of one protocol: heavier first, then first come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WaitKey {
    pub(crate) weight: Reverse<u32>,
    pub(crate) seq: u64,
}

impl WaitKey {
    pub(crate) const fn new(weight: u32, seq: u64) -> Self {
        Self { weight: Reverse(weight), seq }
    }
}

impl Consumers {
    /// Whether there is anybody.
    pub(crate) fn are_there(&self) -> bool {
        self.workers > 0 || self.woken > 0 || !self.takers.is_empty() || !self.sleepers.is_empty()
    }
}

impl Queue {
    /// One protocol's.
    pub(crate) fn consumers_of(&self, origin: Option<Origin>) -> Option<&Consumers> {
        self.consumers.iter().find(|consumers| consumers.origin == origin)
    }

    /// The same, to be changed; made if there were none so far.
    pub(crate) fn change_consumers<T>(
        &mut self,
        origin: Option<Origin>,
        change: impl FnOnce(&mut Consumers) -> T,
    ) -> T {
        if let Some(consumers) = self.consumers.iter_mut().find(|consumers| consumers.origin == origin) {
            return change(consumers);
        }
        let mut new = Consumers { origin, ..Consumers::default() };
        let answer = change(&mut new);
        self.consumers.push(new);
        answer
    }

    /// Remembers that one of this protocol works on its jobs, if that is new.
    pub(crate) fn is_asked_for_by(&mut self, origin: Option<Origin>) {
        self.change_consumers(origin, |_| {});
    }

    /// Abilities registered.
    pub(crate) fn workers(&self) -> u32 {
        self.consumers.iter().map(|consumers| consumers.workers).sum()
    }

    /// Sleepers woken for it who have not asked for work since.
    pub(crate) fn woken(&self) -> u32 {
        self.consumers.iter().map(|consumers| consumers.woken).sum()
    }

    /// There are more of those who serve it, or less.
    pub(crate) fn count_workers(&mut self, origin: Option<Origin>, by: i32) {
        self.change_consumers(origin, |consumers| consumers.workers = consumers.workers.saturating_add_signed(by));
    }

    /// There are more of those who were woken for it, or less.
    pub(crate) fn count_woken(&mut self, origin: Option<Origin>, by: i32) {
        self.change_consumers(origin, |consumers| consumers.woken = consumers.woken.saturating_add_signed(by));
    }
}
