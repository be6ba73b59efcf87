//! Requests for work that are blocked while deliveries are held, or until there is space for more bytes of
//! jobs.

use std::collections::{BTreeMap, VecDeque};

use crate::command::TakeCommand;
use crate::held::{Held, Share, heap};
use crate::ids::{ClientId, Tag, Timestamp};
use crate::request::From;

/// The limit of blocked requests per client.
const CLIENT_MAX: u32 = 1 << 16;

/// Requests for work, in order.
#[derive(Debug)]
pub(crate) struct Deferred {
    /// No job is delivered before.
    held_until: Timestamp,
    takes: VecDeque<(ClientId, Tag, TakeCommand)>,
    /// Requests in `takes` by client.
    waiting: BTreeMap<ClientId, u32>,
    held: Share,
}

/// The memory used by a blocked request, in bytes.
fn bytes_of(command: &TakeCommand) -> u64 {
    const REQUEST: u64 = heap(size_of::<(ClientId, Tag, TakeCommand)>());
    let TakeCommand::Take(take) = command else {
        return REQUEST;
    };
    let names = match &take.from {
        From::Subscriptions => 0,
        From::Cycle { queue, .. } => heap(queue.len()),
        From::Listed { queues, .. } => {
            heap(size_of_val(queues.as_slice()))
                + queues.iter().map(|queue| heap(queue.len())).sum::<u64>()
        }
    };
    REQUEST + names + heap(take.worker.len())
}

impl Deferred {
    pub(crate) fn new(held: &Held) -> Self {
        Self {
            held_until: Timestamp(0),
            takes: VecDeque::new(),
            waiting: BTreeMap::new(),
            held: held.share(),
        }
    }

    /// Asserts that the memory is accounted for.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) fn check(&self) {
        let bytes: u64 = self.takes.iter().map(|(.., take)| bytes_of(take)).sum();
        assert_eq!(self.held.bytes(), bytes, "bytes of requests that wait");
    }

    /// No job is delivered before this time.
    pub(crate) const fn hold_until(&mut self, until: Timestamp) {
        self.held_until = until;
    }

    /// Returns true if no job is delivered yet.
    pub(crate) fn is_held(&self, now: Timestamp) -> bool {
        now < self.held_until
    }

    /// The end of the hold. No job is delivered before it.
    pub(crate) const fn held_until(&self) -> Timestamp {
        self.held_until
    }

    /// Returns true if a request must be blocked. After the end of the hold this is still so behind
    /// previously blocked requests.
    pub(crate) fn must_wait(&self, now: Timestamp) -> bool {
        self.is_held(now) || self.has_any()
    }

    /// Returns true if any request is blocked.
    pub(crate) fn has_any(&self) -> bool {
        !self.takes.is_empty()
    }

    /// Returns true if a request of the client is blocked.
    pub(crate) fn has_any_of(&self, client: ClientId) -> bool {
        self.count_of(client) > 0
    }

    /// Blocked requests of the client.
    pub(crate) fn count_of(&self, client: ClientId) -> usize {
        self.waiting
            .get(&client)
            .map_or(0, |waiting| *waiting as usize)
    }

    /// Blocks a request. Returns false if there is no space for it.
    pub(crate) fn add(&mut self, client: ClientId, tag: Tag, take: TakeCommand) -> bool {
        let waiting = self.waiting.entry(client).or_default();
        if *waiting >= CLIENT_MAX {
            return false;
        }
        *waiting += 1;
        self.held.add(bytes_of(&take));
        self.takes.push_back((client, tag, take));
        true
    }

    /// Removes the requests of a client that no longer asks for work.
    pub(crate) fn forget(&mut self, client: ClientId) {
        if self.waiting.remove(&client).is_some() {
            let Self { takes, held, .. } = self;
            takes.retain(|(waiting, _, take)| {
                let stays = *waiting != client;
                held.subtract(if stays { 0 } else { bytes_of(take) });
                stays
            });
        }
    }

    /// The oldest request.
    pub(crate) fn pop(&mut self) -> Option<(ClientId, Tag, TakeCommand)> {
        let take = self.takes.pop_front()?;
        self.held.subtract(bytes_of(&take.2));
        if self.takes.is_empty() {
            self.waiting.clear();
        } else if let Some(waiting) = self.waiting.get_mut(&take.0) {
            *waiting -= 1;
        }
        Some(take)
    }
}
