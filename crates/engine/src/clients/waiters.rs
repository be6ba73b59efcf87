//! Three ways to wait for work: a blocked take, a sleep until woken, and credits.
//!
//! [`Waiters`] updates the two sides of a wait together: the waiting client, and an entry at every such
//! queue. A quiet client has no such entries. Not here: which client is served when work arrives.

use bytes::Bytes;

use super::client::{Blocked, Client, Served, Waiting};
use super::table::Clients;
use super::workers::Workers;
use crate::ids::{ClientId, Protocol, QueueId, Tag, Timestamp};
use crate::queues::{Queues, WaitKey, WaitsAs};
use crate::refusal::{Outcome, Refusal};
use crate::request::{Select, Wait};
use crate::timers::{Timer, Timers};

/// The clients, the queues at which they wait, and the deadlines.
#[derive(Debug)]
pub(crate) struct Waiters<'a> {
    clients: &'a mut Clients,
    workers: &'a Workers,
    queues: &'a mut Queues,
    timers: &'a mut Timers,
}

impl<'a> Waiters<'a> {
    pub(crate) const fn new(
        clients: &'a mut Clients,
        workers: &'a Workers,
        queues: &'a mut Queues,
        timers: &'a mut Timers,
    ) -> Self {
        Self {
            clients,
            workers,
            queues,
            timers,
        }
    }

    // ---- blocked takes ---------------------------------------------------------------------------------------------

    /// Blocks a take at these queues.
    pub(crate) fn block(
        &mut self,
        id: ClientId,
        tag: Tag,
        sources: Vec<Served>,
        worker: Bytes,
        until: Timestamp,
    ) {
        let (turn, own) = (self.clients.next_turn(), self.clients.protocol_of(id));
        let held = self.clients.held();
        for served in &sources {
            self.queues
                .add_waiter(served.queue, own, WaitsAs::Taker, WaitKey::new(0, turn), id);
        }
        self.timers.set(until, Timer::Wait(id));
        if let Some(client) = self.clients.get_mut(id) {
            client.block(Blocked::new(tag, until, turn, sources, worker, &held));
        }
    }

    /// Removes the blocked take with this turn.
    pub(crate) fn unblock(&mut self, id: ClientId, turn: u64) -> Option<Blocked> {
        let blocked = self.clients.get_mut(id)?.unblock(turn)?;
        self.end_take(id, &blocked);
        Some(blocked)
    }

    /// Removes the first blocked take, if it is past the deadline.
    pub(crate) fn unblock_due(&mut self, id: ClientId, now: Timestamp) -> Option<Blocked> {
        // A client with a deadline has only one blocked take.
        let first = self
            .clients
            .get(id)?
            .blocked()?
            .front()
            .filter(|blocked| blocked.until <= now)?;
        let turn = first.turn;
        self.unblock(id, turn)
    }

    /// Removes the last `many` blocked takes of a client.
    pub(crate) fn unblock_last(&mut self, id: ClientId, many: usize) {
        let Some(Waiting::Jobs(takes)) = self.clients.get_mut(id).map(|client| &mut client.waiting)
        else {
            return;
        };
        let gone = takes.split_off(takes.len().saturating_sub(many));
        gone.iter().for_each(|blocked| self.end_take(id, blocked));
    }

    fn end_take(&mut self, id: ClientId, blocked: &Blocked) {
        self.timers.cancel(blocked.until);
        self.leave_takers(id, blocked.turn, &blocked.sources);
    }

    fn leave_takers(&mut self, id: ClientId, turn: u64, sources: &[Served]) {
        let own = self.clients.protocol_of(id);
        for served in sources {
            self.queues
                .remove_waiter(served.queue, own, WaitsAs::Taker, WaitKey::new(0, turn));
            self.queues.drop_if_unknown(served.queue);
        }
    }

    // ---- sleep -----------------------------------------------------------------------------------------------------

    /// Puts a client to sleep until it is woken.
    pub(crate) fn sleep(&mut self, id: ClientId) {
        let turn = self.clients.next_turn();
        if let Some(client) = self.clients.get_mut(id) {
            client.waiting = Waiting::Asleep { turn };
        }
        if !self.is_quiet(id) {
            self.each_subscription(id, |queues, own, served| {
                queues.add_waiter(
                    served.queue,
                    own,
                    WaitsAs::Sleeper,
                    WaitKey::new(served.weight, turn),
                    id,
                );
            });
        }
    }

    /// Wakes a client for a queue. It must request work by this time.
    pub(crate) fn wake(&mut self, id: ClientId, queue: QueueId, by: Timestamp) {
        let turn = self.clients.next_turn();
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let own = client.protocol();
        let before = std::mem::replace(&mut client.waiting, Waiting::Awake { queue, turn });
        if let Waiting::Asleep { turn } = before {
            self.leave_sleepers(id, turn);
        }
        self.queues.count_woken(queue, own, 1);
        self.timers.set_wake(by, id, turn);
    }

    /// Handles a woken client that has not requested work in time. Returns the queue for which it was woken.
    /// The client stays awake, and may still take work.
    pub(crate) fn overslept(&mut self, id: ClientId, turn: u64) -> Option<QueueId> {
        let client = self
            .clients
            .get_mut(id)
            .filter(|client| client.is_awake(turn))?;
        let waiting = std::mem::take(&mut client.waiting);
        self.leave(id, waiting)
    }

    /// Handles a client that was woken for this queue and can no longer serve it. Returns `true` if
    /// it was.
    pub(crate) fn unwake(&mut self, id: ClientId, queue: QueueId) -> bool {
        let awake = |client: &&mut Client| matches!(client.waiting, Waiting::Awake { queue: woken_for, .. } if woken_for == queue);
        let Some(client) = self.clients.get_mut(id).filter(awake) else {
            return false;
        };
        let waiting = std::mem::take(&mut client.waiting);
        self.leave(id, waiting);
        true
    }

    fn leave_sleepers(&mut self, id: ClientId, turn: u64) {
        self.each_subscription(id, |queues, own, served| {
            queues.remove_waiter(
                served.queue,
                own,
                WaitsAs::Sleeper,
                WaitKey::new(served.weight, turn),
            );
        });
    }

    // ---- credits ---------------------------------------------------------------------------------------------------

    /// Gives a client more credits.
    pub(crate) fn add_credit(&mut self, id: ClientId, credits: u32, select: Select) -> Outcome {
        let turn = self.clients.next_turn();
        let credit = &mut self.clients.opened(id)?.credit;
        let had = credit.left;
        credit.left = had.saturating_add(credits);
        credit.select = Some(select);
        if had == 0 {
            credit.turn = turn;
        }
        if had == 0 && credits > 0 {
            self.queue_creditor(id);
        }
        Ok(())
    }

    /// Spends a credit. The client moves behind its equals, or leaves the queues with the last credit.
    pub(crate) fn use_credit(&mut self, id: ClientId) {
        self.unqueue_creditor(id);
        let turn = self.clients.next_turn();
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.credit.left = client.credit.left.saturating_sub(1);
        client.credit.turn = turn;
        if client.has_credit() {
            self.queue_creditor(id);
        }
    }

    fn queue_creditor(&mut self, id: ClientId) {
        let Some(turn) = self.clients.get(id).map(|client| client.credit.turn) else {
            return;
        };
        if !self.is_quiet(id) {
            self.each_subscription(id, |queues, own, served| {
                join_takers(queues, id, own, served, turn)
            });
        }
    }

    fn unqueue_creditor(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id).filter(|client| client.has_credit()) else {
            return;
        };
        let turn = client.credit.turn;
        self.each_subscription(id, |queues, own, served| {
            let key = WaitKey::new(served.weight, turn);
            queues.remove_waiter(served.queue, own, WaitsAs::Taker, key);
            if let Some(realm) = served.unclaimed_realm() {
                queues.remove_unclaimed_waiter(realm, key);
            }
        });
    }

    // ---- the end of a wait -----------------------------------------------------------------------------------------

    /// Removes all waits of a client. Returns the queue for which it was woken, if any. The caller must serve
    /// that queue.
    pub(crate) fn stop(&mut self, id: ClientId) -> Option<QueueId> {
        self.unqueue_creditor(id);
        let client = self.clients.get_mut(id)?;
        client.credit.left = 0;
        let waiting = std::mem::take(&mut client.waiting);
        self.leave(id, waiting)
    }

    /// Resets the sleep of a client that requests work. Returns the queue for which it was woken: the caller
    /// must serve that queue once the client has chosen. Refused if the client has a blocked take, unless
    /// neither take has a deadline.
    pub(crate) fn stop_waking_to_take(
        &mut self,
        id: ClientId,
        wait: Wait,
    ) -> Outcome<Option<QueueId>> {
        let client = self.clients.opened(id)?;
        match client.blocked() {
            None if matches!(client.waiting, Waiting::Nothing) => Ok(None),
            Some(_) if client.may_block_more() && !matches!(wait, Wait::Until(_)) => Ok(None),
            Some(_) | None => self.stop_waking(id),
        }
    }

    /// The same for requests that a client with a blocked take may not send.
    pub(crate) fn stop_waking(&mut self, id: ClientId) -> Outcome<Option<QueueId>> {
        let client = self.clients.opened(id)?;
        if client.blocked().is_some() {
            return Err(Refusal::OutOfPlace);
        }
        let waiting = std::mem::take(&mut client.waiting);
        Ok(self.leave(id, waiting))
    }

    /// Leaves the queues of a removed wait. Returns the queue for which the client was woken, if any.
    fn leave(&mut self, id: ClientId, waiting: Waiting) -> Option<QueueId> {
        match waiting {
            Waiting::Nothing => {}
            Waiting::Jobs(takes) => takes.iter().for_each(|blocked| self.end_take(id, blocked)),
            Waiting::Asleep { turn } => self.leave_sleepers(id, turn),
            Waiting::Awake { queue, .. } => {
                self.queues
                    .count_woken(queue, self.clients.protocol_of(id), -1);
                return Some(queue);
            }
        }
        None
    }

    /// Makes a client quiet: waits stay, but at no queue. Returns the queue for which it was woken, if any.
    /// The caller must serve that queue.
    pub(crate) fn hush(&mut self, id: ClientId) -> Option<QueueId> {
        self.unqueue_creditor(id);
        let client = self.clients.get_mut(id)?;
        match std::mem::take(&mut client.waiting) {
            Waiting::Nothing => None,
            Waiting::Jobs(mut takes) => {
                let left: Vec<(u64, Vec<Served>)> = takes
                    .iter_mut()
                    .map(|blocked| (blocked.turn, blocked.leave()))
                    .collect();
                client.waiting = Waiting::Jobs(takes);
                left.iter()
                    .for_each(|(turn, sources)| self.leave_takers(id, *turn, sources));
                None
            }
            Waiting::Asleep { turn } => {
                client.waiting = Waiting::Asleep { turn };
                self.leave_sleepers(id, turn);
                None
            }
            awake @ Waiting::Awake { .. } => self.leave(id, awake),
        }
    }

    // ---- subscriptions of a waiting client --------------------------------------------------------------------------

    /// A waiting client gained a subscription.
    pub(crate) fn wait_also_at(&mut self, id: ClientId, served: Served) {
        let Some(client) = self.clients.get(id).filter(|_| !self.is_quiet(id)) else {
            return;
        };
        let own = client.protocol();
        if let Waiting::Asleep { turn } = client.waiting {
            self.queues.add_waiter(
                served.queue,
                own,
                WaitsAs::Sleeper,
                WaitKey::new(served.weight, turn),
                id,
            );
        }
        if client.has_credit() {
            join_takers(self.queues, id, own, served, client.credit.turn);
        }
    }

    /// Removes the wait of a client for a subscription that it has lost.
    pub(crate) fn wait_no_more_at(&mut self, id: ClientId, served: Served) {
        let Some(client) = self.clients.get(id) else {
            return;
        };
        let own = client.protocol();
        if let Waiting::Asleep { turn } = client.waiting {
            self.queues.remove_waiter(
                served.queue,
                own,
                WaitsAs::Sleeper,
                WaitKey::new(served.weight, turn),
            );
        }
        if client.has_credit() {
            let key = WaitKey::new(served.weight, client.credit.turn);
            self.queues
                .remove_waiter(served.queue, own, WaitsAs::Taker, key);
        }
        self.take_unclaimed_no_more(id, served);
    }

    /// Removes the wait for unclaimed jobs, unless another subscription of the client takes them.
    pub(crate) fn take_unclaimed_no_more(&mut self, id: ClientId, served: Served) {
        let Some(client) = self.clients.get(id).filter(|client| client.has_credit()) else {
            return;
        };
        let Some(realm) = served.unclaimed_realm() else {
            return;
        };
        if client
            .takes_unclaimed(realm.protocol, served.weight)
            .next()
            .is_none()
        {
            self.queues
                .remove_unclaimed_waiter(realm, WaitKey::new(served.weight, client.credit.turn));
        }
    }

    fn is_quiet(&self, id: ClientId) -> bool {
        self.workers.is_quiet(id, self.clients.get(id), &[])
    }

    fn each_subscription(
        &mut self,
        id: ClientId,
        change: impl Fn(&mut Queues, Option<Protocol>, Served),
    ) {
        let Some(client) = self.clients.get(id) else {
            return;
        };
        client
            .subscriptions()
            .iter()
            .for_each(|served| change(self.queues, client.protocol(), *served));
    }
}

fn join_takers(
    queues: &mut Queues,
    id: ClientId,
    own: Option<Protocol>,
    served: Served,
    turn: u64,
) {
    let key = WaitKey::new(served.weight, turn);
    queues.add_waiter(served.queue, own, WaitsAs::Taker, key, id);
    if let Some(realm) = served.unclaimed_realm() {
        queues.add_unclaimed_waiter(realm, key, id);
    }
}

/// Asserts that each waiting client has entries at the right queues, and that each client with an entry is
/// waiting, is listed with its protocol and is not quiet.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) fn check(clients: &Clients, workers: &Workers, queues: &Queues) {
    clients
        .iter()
        .for_each(|(id, client)| check_client(workers, queues, id, client));
    for queue in queues.iter() {
        let name = &queue.image().name;
        for consumers in queue.consumers() {
            for role in [WaitsAs::Taker, WaitsAs::Sleeper] {
                for (key, id) in consumers.waiting(role) {
                    assert_eq!(
                        clients.protocol_of(*id),
                        consumers.protocol(),
                        "{id:?} waits at {name:?} as another"
                    );
                    assert!(
                        !workers.is_quiet(*id, clients.get(*id), &[]),
                        "{id:?} is quiet and waits at {name:?}"
                    );
                    let waits = clients
                        .get(*id)
                        .is_some_and(|client| waits_with(client, role, *key));
                    assert!(waits, "{id:?} does not wait at {name:?}, {role:?}");
                }
            }
        }
    }
    for realm in queues.watched_realms() {
        let protocol = realm.protocol;
        for (key, id) in queues.unclaimed_waiters(realm).into_iter().flatten() {
            let client = clients
                .get(*id)
                .filter(|client| client.has_credit() && client.credit.turn == key.turn());
            let takes =
                client.and_then(|client| client.takes_unclaimed(protocol, key.weight()).next());
            assert!(
                takes.is_some() && !workers.is_quiet(*id, clients.get(*id), &[]),
                "{id:?} takes no unclaimed jobs of {protocol:?}"
            );
        }
    }
}

#[cfg(any(test, debug_assertions, feature = "testing"))]
fn waits_with(client: &Client, role: WaitsAs, key: WaitKey) -> bool {
    let credits = client.has_credit() && client.credit.turn == key.turn();
    match (role, &client.waiting) {
        (WaitsAs::Taker, Waiting::Jobs(takes)) => {
            credits || takes.iter().any(|blocked| blocked.turn == key.turn())
        }
        (WaitsAs::Taker, Waiting::Nothing | Waiting::Asleep { .. } | Waiting::Awake { .. }) => {
            credits
        }
        (WaitsAs::Sleeper, waiting) => {
            matches!(waiting, Waiting::Asleep { turn } if *turn == key.turn())
        }
    }
}

#[cfg(any(test, debug_assertions, feature = "testing"))]
fn check_client(workers: &Workers, queues: &Queues, id: ClientId, client: &Client) {
    let quiet = workers.is_quiet(id, Some(client), &[]);
    let at = |queue: QueueId, role: WaitsAs, key: WaitKey| {
        let consumers = queues
            .at(queue)
            .and_then(|queue| queue.consumers_of(client.protocol()));
        assert_eq!(
            consumers.and_then(|those| those.waiting(role).get(&key)),
            Some(&id),
            "{id:?} at {queue:?}, {role:?}"
        );
    };
    let subscriptions = || client.subscriptions().iter().filter(|_| !quiet);
    if let Some(takes) = client.blocked() {
        let endless = takes
            .iter()
            .all(|blocked| blocked.until == Timestamp::NEVER);
        assert!(
            takes.len() == 1 || (takes.len() > 1 && endless),
            "{id:?} waits in {} ways",
            takes.len()
        );
        assert!(
            takes.iter().is_sorted_by_key(|blocked| blocked.turn),
            "{id:?} has takes out of order"
        );
        assert!(
            !quiet || takes.iter().all(|blocked| blocked.sources.is_empty()),
            "{id:?} is quiet and blocked"
        );
        let places = |blocked: &Blocked| {
            blocked
                .sources
                .iter()
                .for_each(|served| at(served.queue, WaitsAs::Taker, WaitKey::new(0, blocked.turn)));
        };
        takes.iter().for_each(places);
    }
    if let Waiting::Asleep { turn } = client.waiting {
        subscriptions().for_each(|served| {
            at(
                served.queue,
                WaitsAs::Sleeper,
                WaitKey::new(served.weight, turn),
            )
        });
    }
    for served in subscriptions().filter(|_| client.has_credit()) {
        let key = WaitKey::new(served.weight, client.credit.turn);
        at(served.queue, WaitsAs::Taker, key);
        if let Some(realm) = served.unclaimed_realm() {
            let waiters = queues.unclaimed_waiters(realm);
            let there = waiters.and_then(|waiters| waiters.get(&key));
            assert_eq!(there, Some(&id), "{id:?} takes unclaimed jobs of {realm:?}");
        }
    }
}
