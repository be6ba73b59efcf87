//! A connection: the served queues, the pending takes, and the credits.
//!
//! Not here: the state of the connection's session (half-read bytes, handshakes). The jobs that the client
//! has leased or listens to are in `jobs`.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::held::{Held, Share, hashed, heap};
use crate::ids::{ClientId, Namespace, Protocol, QueueId, Realm, Tag, Timestamp};
use crate::queues::WaitKey;
use crate::request::{ClientInfo, LeaseTerms, Select};

/// The limit of blocked takes of a client.
const BLOCKED_MAX: usize = 1 << 16;

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Client {
    info: ClientInfo,
    /// The namespace of the names in the commands.
    namespace: Namespace,
    label: Bytes,
    /// In the order of registration, with repetitions.
    pub(super) subscriptions: Vec<Served>,
    pub(super) waiting: Waiting,
    pub(super) credit: Credit,
    /// The number of the worker to which it belongs.
    pub(super) worker: Option<u64>,
    /// The queues that the client takes from by name.
    pub(crate) takes_from: Vec<TakesFrom>,
    /// When it last did.
    pub(crate) took_at: Timestamp,
    /// The birth number of the queue of the last delivered job, for round robin.
    last_queue: Option<u64>,
    /// The memory, without blocked takes.
    held: Share,
}

/// A queue that a client takes from by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakesFrom {
    pub(crate) queue: QueueId,
    /// The queue's birth number.
    pub(crate) birth: u64,
    /// When it last did.
    pub(crate) at: Timestamp,
}

/// A queue that a client serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) queue: QueueId,
    pub(crate) weight: u32,
    pub(crate) lease: LeaseTerms,
    pub(crate) unclaimed: Option<Protocol>,
}

impl Served {
    /// The realm of the unclaimed jobs that it takes, if any.
    pub(crate) fn unclaimed_realm(&self) -> Option<Realm> {
        Some(self.queue.realm(self.unclaimed?))
    }

    /// The memory of a subscription and of the client's entry in the queue.
    pub(crate) const BYTES: u64 = 2 * (size_of::<Self>() + size_of::<(WaitKey, ClientId)>()) as u64;
}

/// The kind of wait of a client.
#[derive(Debug, Default)]
pub(super) enum Waiting {
    #[default]
    Nothing,
    /// Blocked takes of a job each, in order of their turns; never empty. There is more than one only without
    /// deadlines.
    Jobs(VecDeque<Blocked>),
    /// Sleeping until woken, with this turn in every queue that the client serves.
    Asleep { turn: u64 },
    /// It was woken for this queue and has not asked for work since.
    Awake { queue: QueueId, turn: u64 },
}

/// A take that found no job and is blocked.
#[derive(Debug)]
pub(crate) struct Blocked {
    pub(crate) tag: Tag,
    /// The queues to take from, in the taker's order.
    pub(crate) sources: Vec<Served>,
    pub(crate) worker: Bytes,
    pub(crate) until: Timestamp,
    pub(super) turn: u64,
    held: Share,
}

/// Number of jobs that the engine may send a client without a request.
#[derive(Debug, Default)]
pub(super) struct Credit {
    pub(super) left: u32,
    pub(super) select: Option<Select>,
    /// The turn in every queue that the client serves, while `left` is not 0.
    pub(super) turn: u64,
}

impl Client {
    pub(super) fn new(info: ClientInfo, namespace: Namespace, held: &Held) -> Self {
        let mut client = Self {
            info,
            namespace,
            held: held.share(),
            ..Self::default()
        };
        client.recount();
        client
    }

    /// Updates the memory after a list or a name was replaced.
    pub(crate) fn recount(&mut self) {
        self.held.set(self.bytes());
    }

    /// The memory, without blocked takes.
    fn bytes(&self) -> u64 {
        const ORDER: u64 = size_of::<ClientId>() as u64 * 2;
        let served = heap(self.subscriptions.capacity() * size_of::<Served>());
        let takes = heap(self.takes_from.capacity() * size_of::<TakesFrom>());
        let namespace = self.info.namespace.as_deref().map_or(0, str::len);
        let names = heap(self.info.address.len()) + heap(self.label.len()) + heap(namespace);
        hashed(size_of::<(ClientId, Self)>()) + ORDER + served + takes + names
    }

    /// Asserts that the memory is accounted for.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check(&self) {
        assert_eq!(self.held.bytes(), self.bytes(), "bytes of {:?}", self.info);
        for blocked in self.blocked().into_iter().flatten() {
            assert_eq!(
                blocked.held.bytes(),
                blocked.bytes(),
                "bytes of a blocked take of {:?}",
                self.info
            );
        }
    }

    pub(crate) const fn info(&self) -> &ClientInfo {
        &self.info
    }

    pub(crate) const fn protocol(&self) -> Option<Protocol> {
        self.info.protocol
    }

    /// The namespace of the names in the commands.
    pub(crate) const fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// The namespace whose things the client sees; `None`: those of all.
    pub(crate) fn sees(&self) -> Option<Namespace> {
        let sees_all = self.info.protocol.is_none() && self.info.namespace.is_none();
        (!sees_all).then_some(self.namespace)
    }

    /// The name that the client gave.
    pub(crate) const fn label(&self) -> &Bytes {
        &self.label
    }

    pub(crate) fn set_label(&mut self, label: Bytes) {
        self.label = label;
        self.recount();
    }

    /// The birth number of the queue of the last delivered job.
    pub(crate) const fn last_queue(&self) -> Option<u64> {
        self.last_queue
    }

    pub(crate) const fn set_last_queue(&mut self, birth: u64) {
        self.last_queue = Some(birth);
    }

    /// The number of the worker to which it belongs.
    pub(crate) const fn worker(&self) -> Option<u64> {
        self.worker
    }

    // ---- subscriptions ---------------------------------------------------------------------------------------------

    /// The queues that the client serves, in the order of registration, with repetitions.
    pub(crate) fn subscriptions(&self) -> &[Served] {
        &self.subscriptions
    }

    /// Replaces the terms of the subscriptions of a queue. Returns the number of these
    /// subscriptions.
    pub(crate) fn renew(&mut self, queue: QueueId, lease: LeaseTerms) -> u32 {
        let same = self
            .subscriptions
            .iter_mut()
            .filter(|served| served.queue == queue);
        same.map(|served| served.lease = lease)
            .fold(0, |times, ()| times + 1)
    }

    pub(crate) fn subscribe(&mut self, served: Served) {
        self.subscriptions.push(served);
        self.recount();
    }

    /// Removes subscriptions and returns them. The caller must remove the client's entries at these
    /// queues.
    pub(crate) fn unsubscribe(&mut self, which: impl Fn(&Served) -> bool) -> Vec<Served> {
        let (gone, kept) = self
            .subscriptions
            .drain(..)
            .partition(|served| which(served));
        self.subscriptions = kept;
        self.recount();
        gone
    }

    /// Removes the last `many` subscriptions and returns them. The caller must remove the client's entries at
    /// these queues.
    pub(crate) fn unsubscribe_last(&mut self, many: usize) -> Vec<Served> {
        let gone = self
            .subscriptions
            .split_off(self.subscriptions.len().saturating_sub(many));
        self.recount();
        gone
    }

    /// The subscriptions that take unclaimed jobs of this protocol with this weight.
    pub(crate) fn takes_unclaimed(
        &self,
        protocol: Protocol,
        weight: u32,
    ) -> impl Iterator<Item = &Served> {
        self.subscriptions
            .iter()
            .filter(move |served| served.unclaimed == Some(protocol) && served.weight == weight)
    }

    // ---- waiting ---------------------------------------------------------------------------------------------------

    /// Returns true if the client is waiting for work in any way.
    pub(crate) const fn waits(&self) -> bool {
        matches!(self.waiting, Waiting::Jobs(_) | Waiting::Asleep { .. }) || self.has_credit()
    }

    pub(crate) const fn has_credit(&self) -> bool {
        self.credit.left > 0
    }

    /// The selection of a queue for credits.
    pub(crate) fn select(&self) -> Select {
        self.credit.select.unwrap_or(Select::BestPriority)
    }

    pub(crate) const fn is_asleep(&self) -> bool {
        matches!(self.waiting, Waiting::Asleep { .. })
    }

    /// The queue for which it was woken, if it has not asked for work since.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(crate) const fn woken_for(&self) -> Option<QueueId> {
        if let Waiting::Awake { queue, .. } = self.waiting {
            Some(queue)
        } else {
            None
        }
    }

    /// Returns true if it was woken at this turn, and has not asked for work since.
    pub(crate) const fn is_awake(&self, since: u64) -> bool {
        matches!(self.waiting, Waiting::Awake { turn, .. } if turn == since)
    }

    /// The queues to take from at this turn, and the worker's name. A sleep and credits have no name.
    pub(crate) fn takes_from(&self, turn: u64) -> (&[Served], &[u8]) {
        let blocked = self
            .blocked()
            .and_then(|takes| takes.get(index_of(turn, takes)?));
        blocked.map_or((&self.subscriptions, &[]), |blocked| {
            (&blocked.sources, &blocked.worker)
        })
    }

    /// The deadline of the blocked takes.
    pub(crate) fn waits_until(&self) -> Option<Timestamp> {
        self.blocked()?.front().map(|blocked| blocked.until)
    }

    /// The blocked take, if it has a deadline.
    pub(crate) fn blocked_until_a_time(&self) -> Option<&Blocked> {
        self.blocked()?
            .front()
            .filter(|blocked| blocked.until < Timestamp::NEVER)
    }

    /// Number of blocked takes.
    pub(crate) fn blocked_count(&self) -> usize {
        self.blocked().map_or(0, VecDeque::len)
    }

    /// Returns true if another take without a deadline may be blocked: the blocked takes must have no
    /// deadline either.
    pub(super) fn may_block_more(&self) -> bool {
        let endless = self
            .waits_until()
            .is_none_or(|until| until == Timestamp::NEVER);
        endless && self.blocked_count() < BLOCKED_MAX
    }

    /// The blocked takes, if any.
    pub(super) const fn blocked(&self) -> Option<&VecDeque<Blocked>> {
        match &self.waiting {
            Waiting::Jobs(takes) => Some(takes),
            Waiting::Nothing | Waiting::Asleep { .. } | Waiting::Awake { .. } => None,
        }
    }

    /// Adds a blocked take at the end.
    pub(super) fn block(&mut self, blocked: Blocked) {
        if let Waiting::Jobs(takes) = &mut self.waiting {
            takes.push_back(blocked);
        } else {
            let mut takes = VecDeque::with_capacity(1);
            takes.push_back(blocked);
            self.waiting = Waiting::Jobs(takes);
        }
    }

    /// Removes the blocked take with this turn.
    pub(super) fn unblock(&mut self, turn: u64) -> Option<Blocked> {
        let Waiting::Jobs(takes) = &mut self.waiting else {
            return None;
        };
        let blocked = takes.remove(index_of(turn, takes)?);
        if takes.is_empty() {
            self.waiting = Waiting::Nothing;
        }
        blocked
    }
}

/// The index of the take that has this turn.
fn index_of(turn: u64, takes: &VecDeque<Blocked>) -> Option<usize> {
    takes
        .binary_search_by_key(&turn, |blocked| blocked.turn)
        .ok()
}

impl Blocked {
    pub(super) fn new(
        tag: Tag,
        until: Timestamp,
        turn: u64,
        sources: Vec<Served>,
        worker: Bytes,
        held: &Held,
    ) -> Self {
        let mut blocked = Self {
            tag,
            sources,
            worker,
            until,
            turn,
            held: held.share(),
        };
        blocked.recount();
        blocked
    }

    /// Removes the queues of a blocked take. It stays blocked, at no queue.
    pub(super) fn leave(&mut self) -> Vec<Served> {
        let sources = std::mem::take(&mut self.sources);
        self.recount();
        sources
    }

    fn recount(&mut self) {
        self.held.set(self.bytes());
    }

    fn bytes(&self) -> u64 {
        let sources = heap(self.sources.capacity() * size_of::<Served>());
        heap(size_of::<Self>()) + sources + heap(self.worker.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_bounded_number_of_blocked_takes() {
        let mut client = Client::default();
        let take = |turn| {
            Blocked::new(
                Tag::NONE,
                Timestamp::NEVER,
                turn,
                Vec::new(),
                Bytes::new(),
                &Held::default(),
            )
        };
        for turn in (0..).take(BLOCKED_MAX) {
            assert!(client.may_block_more(), "{turn}");
            client.block(take(turn));
        }
        assert!(!client.may_block_more());
    }
}
