//! The consumers of a queue by protocol: the number of clients that serve it, and the clients that
//! are waiting.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::held::{Held, Share, heap, tree};
use crate::ids::{ClientId, Protocol};

/// The consumers of a protocol at a queue.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    /// The protocol. Clients without a protocol see all jobs.
    protocol: Option<Protocol>,
    /// The number of subscriptions.
    workers: u32,
    /// Sleepers that were woken for the queue and have not requested work since.
    woken: u32,
    /// Clients that included the queue in the last take by name.
    taking: BTreeSet<ClientId>,
    /// Waiting clients that receive jobs directly: blocked takes and clients with credits.
    takers: BTreeMap<WaitKey, ClientId>,
    /// Clients that sleep until woken.
    sleepers: BTreeMap<WaitKey, ClientId>,
}

/// The order of waiting clients of a protocol: by weight, then first come, first served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WaitKey {
    weight: Reverse<u32>,
    turn: u64,
}

impl WaitKey {
    pub(crate) const fn new(weight: u32, turn: u64) -> Self {
        Self {
            weight: Reverse(weight),
            turn,
        }
    }

    pub(crate) const fn weight(self) -> u32 {
        self.weight.0
    }

    /// The position in the order of arrival.
    pub(crate) const fn turn(self) -> u64 {
        self.turn
    }
}

/// The kind of wait at a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitsAs {
    /// It receives jobs directly, because of a blocked take or credits.
    Taker,
    /// Sleeping until woken.
    Sleeper,
}

impl Consumers {
    pub(crate) const fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    pub(crate) const fn workers(&self) -> u32 {
        self.workers
    }

    pub(crate) const fn woken(&self) -> u32 {
        self.woken
    }

    pub(crate) const fn taking(&self) -> &BTreeSet<ClientId> {
        &self.taking
    }

    /// Memory of the trees with clients.
    fn trees_bytes(&self) -> u64 {
        let waiting = [&self.takers, &self.sleepers]
            .map(|tree_of| tree(tree_of.len(), size_of::<(WaitKey, ClientId)>()));
        tree(self.taking.len(), size_of::<ClientId>()) + waiting.iter().sum::<u64>()
    }

    fn set_taker(&mut self, client: ClientId, takes: bool) {
        if takes {
            self.taking.insert(client);
        } else {
            self.taking.remove(&client);
        }
    }

    pub(crate) const fn waiting(&self, role: WaitsAs) -> &BTreeMap<WaitKey, ClientId> {
        match role {
            WaitsAs::Taker => &self.takers,
            WaitsAs::Sleeper => &self.sleepers,
        }
    }

    const fn waiting_mut(&mut self, role: WaitsAs) -> &mut BTreeMap<WaitKey, ClientId> {
        match role {
            WaitsAs::Taker => &mut self.takers,
            WaitsAs::Sleeper => &mut self.sleepers,
        }
    }

    pub(super) fn count_workers(&mut self, by: i32) {
        self.workers = self.workers.saturating_add_signed(by);
    }

    pub(super) fn count_woken(&mut self, by: i32) {
        self.woken = self.woken.saturating_add_signed(by);
    }

    /// Returns true if there are any consumers.
    pub(crate) fn are_there(&self) -> bool {
        self.workers > 0 || self.woken > 0 || !self.takers.is_empty() || !self.sleepers.is_empty()
    }
}

/// All consumers of a queue, in the order in which protocols first appeared.
#[derive(Debug, Default)]
pub(super) struct AllConsumers {
    all: Vec<Consumers>,
    held: Share,
}

impl AllConsumers {
    pub(super) fn new(held: &Held) -> Self {
        Self {
            all: Vec::new(),
            held: held.share(),
        }
    }

    /// Asserts that the memory is accounted for.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check(&self, name: &[u8]) {
        let trees: u64 = self.all.iter().map(Consumers::trees_bytes).sum();
        assert_eq!(
            self.held.bytes(),
            heap(size_of_val(&*self.all)) + trees,
            "{name:?}: bytes of its consumers"
        );
    }

    /// Adds a waiting client.
    pub(super) fn add_waiter(
        &mut self,
        own: Option<Protocol>,
        role: WaitsAs,
        key: WaitKey,
        client: ClientId,
    ) {
        self.change(own, |consumers| {
            consumers.waiting_mut(role).insert(key, client);
        });
    }

    /// Removes a waiting client.
    pub(super) fn remove_waiter(&mut self, own: Option<Protocol>, role: WaitsAs, key: WaitKey) {
        self.change(own, |consumers| {
            consumers.waiting_mut(role).remove(&key);
        });
    }

    /// Records that a client takes from the queue by name, or no longer does.
    pub(super) fn set_taker(&mut self, own: Option<Protocol>, client: ClientId, takes: bool) {
        self.change(own, |consumers| consumers.set_taker(client, takes));
    }

    /// Modifies the trees of the consumers of a protocol, and updates the sum of bytes.
    fn change(&mut self, own: Option<Protocol>, change: impl FnOnce(&mut Consumers)) {
        let Some(consumers) = self.of_mut(own) else {
            return;
        };
        let before = consumers.trees_bytes();
        change(consumers);
        let now = consumers.trees_bytes();
        if before != now {
            self.held.set(self.held.bytes() - before + now);
        }
    }

    /// Returns true if clients of one protocol have requested jobs, while all existing jobs are of
    /// another.
    #[inline]
    pub(super) fn are_mixed<T>(&self, jobs: &[(Protocol, T)]) -> bool {
        match (&*self.all, jobs) {
            ([], _) => false,
            ([only], [(protocol, _)]) => only.protocol.is_some_and(|own| own != *protocol),
            _ => true,
        }
    }

    /// Returns true if any client is waiting.
    pub(super) fn wait(&self) -> bool {
        self.all
            .iter()
            .any(|consumers| !consumers.takers.is_empty() || !consumers.sleepers.is_empty())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Consumers> {
        self.all.iter()
    }

    /// The consumers of a protocol.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn of(&self, protocol: Option<Protocol>) -> Option<&Consumers> {
        self.all
            .iter()
            .find(|consumers| consumers.protocol == protocol)
    }

    /// The consumers of a protocol, created if absent.
    #[inline]
    pub(super) fn of_mut(&mut self, protocol: Option<Protocol>) -> Option<&mut Consumers> {
        let index = self
            .all
            .iter()
            .position(|consumers| consumers.protocol == protocol);
        let index = index.unwrap_or_else(|| {
            self.add(protocol);
            self.all.len() - 1
        });
        self.all.get_mut(index)
    }

    #[cold]
    fn add(&mut self, protocol: Option<Protocol>) {
        self.all.reserve_exact(1);
        let before = heap(size_of_val(&*self.all));
        self.all.push(Consumers {
            protocol,
            ..Consumers::default()
        });
        self.held
            .set(self.held.bytes() - before + heap(size_of_val(&*self.all)));
    }

    /// The number of subscriptions.
    pub(super) fn workers(&self) -> u32 {
        self.all.iter().map(|consumers| consumers.workers).sum()
    }

    /// Sleepers that were woken for the queue and have not requested work since.
    pub(super) fn woken(&self) -> u32 {
        self.all.iter().map(|consumers| consumers.woken).sum()
    }

    /// Returns true if any client of this protocol, or without a protocol, ever requested jobs.
    pub(super) fn have(&self, protocol: Protocol) -> bool {
        self.all
            .iter()
            .any(|consumers| consumers.protocol.is_none_or(|own| own == protocol))
    }
}
