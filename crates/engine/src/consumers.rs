//! The consumers of a queue by protocol: how many abilities and waiting clients there are.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::ids::{ClientId, Protocol};
use crate::queue::Queue;

/// The consumers of one protocol at one queue.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    /// The protocol. Clients without a protocol see all jobs.
    pub(crate) protocol: Option<Protocol>,
    /// Abilities registered.
    pub(crate) workers: u32,
    /// Sleepers that were woken for the queue and have not asked for work since.
    pub(crate) woken: u32,
    /// Clients that are handed jobs: blocked takes and clients with credits.
    pub(crate) takers: BTreeMap<WaitKey, ClientId>,
    /// Clients that sleep until woken.
    pub(crate) sleepers: BTreeMap<WaitKey, ClientId>,
}

/// The order among waiting clients of one protocol: higher weight first, then first come, first served.
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
    /// Whether there are any.
    pub(crate) fn are_there(&self) -> bool {
        self.workers > 0 || self.woken > 0 || !self.takers.is_empty() || !self.sleepers.is_empty()
    }
}

impl Queue {
    /// The consumers of one protocol.
    pub(crate) fn consumers_of(&self, protocol: Option<Protocol>) -> Option<&Consumers> {
        self.consumers.iter().find(|consumers| consumers.protocol == protocol)
    }

    /// Changes the consumers of one protocol, which are created if absent.
    pub(crate) fn change_consumers<T>(
        &mut self,
        protocol: Option<Protocol>,
        change: impl FnOnce(&mut Consumers) -> T,
    ) -> T {
        if let Some(consumers) = self.consumers.iter_mut().find(|consumers| consumers.protocol == protocol) {
            return change(consumers);
        }
        let mut new = Consumers { protocol, ..Consumers::default() };
        let answer = change(&mut new);
        self.consumers.push(new);
        answer
    }

    /// Records that clients of this protocol take from the queue.
    pub(crate) fn is_asked_for_by(&mut self, protocol: Option<Protocol>) {
        self.change_consumers(protocol, |_| {});
    }

    /// Abilities registered.
    pub(crate) fn workers(&self) -> u32 {
        self.consumers.iter().map(|consumers| consumers.workers).sum()
    }

    /// Sleepers that were woken for it and have not asked for work since.
    pub(crate) fn woken(&self) -> u32 {
        self.consumers.iter().map(|consumers| consumers.woken).sum()
    }

    /// Changes the number of abilities.
    pub(crate) fn count_workers(&mut self, protocol: Option<Protocol>, by: i32) {
        self.change_consumers(protocol, |consumers| consumers.workers = consumers.workers.saturating_add_signed(by));
    }

    /// Changes the number of woken sleepers.
    pub(crate) fn count_woken(&mut self, protocol: Option<Protocol>, by: i32) {
        self.change_consumers(protocol, |consumers| consumers.woken = consumers.woken.saturating_add_signed(by));
    }
}
