//! Waiting for work in three ways: a blocked take, a sleep until woken, and credits. Also which client is served when work
//! arrives.
//!
//! First come, first served; weights order the clients of one protocol among themselves. A queue wakes as many sleepers as it
//! has jobs that no sleeper is woken for yet. A woken sleeper that does not come for its job in time is replaced by the next.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::alarm::Alarm;
use crate::client::{Blocked, Client, Served, Waiting, turn_of};
use crate::consumers::{Consumers, WaitKey};
use crate::context::Context;
use crate::engine::Engine;
use crate::event::{Notice, Reply};
use crate::ids::{ClientId, QueueId, Tag, Timestamp};
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::request::{Select, Wait};

/// How many takes of one client may be blocked at once.
const BLOCKED_MAX: usize = 1 << 16;

impl Engine {
    /// A take found no job.
    pub(crate) fn wait_for_job(
        &mut self,
        client: ClientId,
        tag: Tag,
        sources: Vec<Served>,
        (wait, worker): (Wait, Bytes),
        context: &mut Context,
    ) {
        let until = match wait {
            Wait::No => None,
            Wait::Until(at) => Some(at).filter(|at| *at > self.now),
            Wait::Forever => Some(Timestamp::NEVER),
        };
        let Some(until) = until else {
            return context.reply(client, tag, Reply::Empty);
        };
        let (seq, own) = (self.wait_seq(), self.protocol_of(client));
        for served in &sources {
            if let Some(queue) = self.queues.at_mut(served.queue) {
                queue.change_consumers(own, |consumers| consumers.takers.insert(WaitKey::new(0, seq), client));
            }
            self.notice_unserved(served.queue, context);
        }
        self.alarms.set(until, Alarm::Wait(client));
        let blocked = Blocked { tag, sources, worker, until, seq };
        if let Some(client) = self.clients.get_mut(&client) {
            match &mut client.waiting {
                Waiting::Jobs(takes) => takes.push_back(blocked),
                waiting @ (Waiting::Nothing | Waiting::Wake { .. } | Waiting::Awake { .. }) => {
                    let mut takes = VecDeque::with_capacity(1);
                    takes.push_back(blocked);
                    *waiting = Waiting::Jobs(takes);
                }
            }
        }
    }

    /// A client is about to sleep. If there is work, it is woken at once, every time it asks.
    pub(crate) fn sleep(&mut self, id: ClientId, context: &mut Context) -> Result<(), Refusal> {
        let woken_for = self.stop_waking(id)?;
        let subscriptions = &self.clients.get(&id).ok_or(Refusal::OutOfPlace)?.subscriptions;
        let (quiet, own) = (self.is_quiet(id, &[]), self.protocol_of(id));
        let has_work = |served: &&Served| self.first((id, own), served, &[]).is_some();
        let work = subscriptions.iter().find(has_work).map(|served| served.queue).filter(|_| !quiet);
        match work {
            Some(queue) => self.wake(id, queue, context),
            None => self.fall_asleep(id)?,
        }
        if let Some(queue) = woken_for {
            self.serve(queue, context);
        }
        Ok(())
    }

    fn fall_asleep(&mut self, id: ClientId) -> Result<(), Refusal> {
        let (seq, quiet) = (self.wait_seq(), self.is_quiet(id, &[]));
        let client = self.client(id)?;
        client.waiting = Waiting::Wake { seq };
        let own = client.info.protocol;
        for served in client.subscriptions.clone().into_iter().filter(|_| !quiet) {
            if let Some(queue) = self.queues.at_mut(served.queue) {
                queue.change_consumers(own, |those| those.sleepers.insert(WaitKey::new(served.weight, seq), id));
            }
        }
        Ok(())
    }

    pub(crate) fn credit(
        &mut self,
        id: ClientId,
        credits: u32,
        select: Select,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let seq = self.wait_seq();
        let client = self.client(id)?;
        let had = client.credit.left;
        client.credit.left = had.saturating_add(credits);
        client.credit.select = Some(select);
        if had == 0 {
            client.credit.seq = seq;
        }
        if had == 0 && credits > 0 {
            self.queue_creditor(id);
        }
        self.spend_credits(id, context);
        Ok(())
    }

    /// Gives a client with credits the jobs that are ready, in the order of its own selection.
    fn spend_credits(&mut self, id: ClientId, context: &mut Context) {
        while let Some(client) = self.clients.get(&id).filter(|client| client.credit.left > 0) {
            if self.is_quiet(id, &[]) {
                return;
            }
            let select = client.credit.select.unwrap_or(Select::BestPriority);
            let own = client.info.protocol;
            let first = |served: &Served| {
                let unclaimed = self.first_unclaimed((id, own), served);
                [self.first((id, own), served, &[]), unclaimed]
                    .into_iter()
                    .flatten()
                    .min_by_key(|(standing, _)| *standing)
            };
            let Some((served, slot)) = self.choose(id, &client.subscriptions, select, first) else { return };
            self.use_credit(id);
            self.hand_out(id, Tag::NONE, slot, served, &[], context);
        }
    }

    /// Ends all waits of a client without a notification.
    pub(crate) fn unwait(&mut self, id: ClientId, context: &mut Context) {
        if let Some(queue) = self.stop_waiting(id) {
            self.serve(queue, context);
        }
    }

    /// The same, but returns the queue for which the client was woken, if any. The caller must serve that queue.
    pub(crate) fn stop_waiting(&mut self, id: ClientId) -> Option<QueueId> {
        self.unqueue_creditor(id);
        let client = self.clients.get_mut(&id)?;
        client.credit.left = 0;
        let waiting = std::mem::take(&mut client.waiting);
        let woken_for = if let Waiting::Awake { queue, .. } = &waiting { Some(*queue) } else { None };
        self.leave_wait(id, waiting);
        woken_for
    }

    /// A client that asks for work is no longer asleep or newly woken. Returns the queue for which it was woken: the caller
    /// must serve that queue once the client has chosen. Refused if the client has a blocked take, unless both takes have no
    /// deadline.
    pub(crate) fn stop_waking_to_take(&mut self, id: ClientId, wait: Wait) -> Result<Option<QueueId>, Refusal> {
        match self.client(id)?.blocked() {
            Some(takes) if takes.len() < BLOCKED_MAX && is_endless(takes) && !matches!(wait, Wait::Until(_)) => {
                Ok(None)
            }
            Some(_) => Err(Refusal::OutOfPlace),
            None => self.stop_waking(id),
        }
    }

    /// The same for requests that are refused to a client with a blocked take.
    pub(crate) fn stop_waking(&mut self, id: ClientId) -> Result<Option<QueueId>, Refusal> {
        let client = self.client(id)?;
        let woken_for = match &client.waiting {
            Waiting::Nothing => return Ok(None),
            Waiting::Jobs(_) => return Err(Refusal::OutOfPlace),
            Waiting::Wake { .. } => None,
            Waiting::Awake { queue, .. } => Some(*queue),
        };
        let waiting = std::mem::take(&mut client.waiting);
        self.leave_wait(id, waiting);
        Ok(woken_for)
    }

    fn leave_wait(&mut self, id: ClientId, waiting: Waiting) {
        match waiting {
            Waiting::Nothing => {}
            Waiting::Jobs(takes) => takes.iter().for_each(|blocked| self.unblock(id, blocked)),
            Waiting::Wake { seq } => self.leave_sleepers(id, seq),
            Waiting::Awake { queue, .. } => {
                let protocol = self.protocol_of(id);
                if let Some(queue) = self.queues.at_mut(queue) {
                    queue.count_woken(protocol, -1);
                }
            }
        }
    }

    /// Ends the wait of a take.
    pub(crate) fn unblock(&mut self, id: ClientId, blocked: &Blocked) {
        self.alarms.forget(blocked.until);
        self.leave_takers(id, blocked.seq, &blocked.sources);
    }

    fn leave_takers(&mut self, id: ClientId, seq: u64, sources: &[Served]) {
        let own = self.protocol_of(id);
        for served in sources {
            if let Some(queue) = self.queues.at_mut(served.queue) {
                queue.change_consumers(own, |those| those.takers.remove(&WaitKey::new(0, seq)));
            }
            self.drop_if_unknown(served.queue);
        }
    }

    /// A client was asked to take no more: it goes on waiting, but at no queue. Returns the queue for which it was woken, if
    /// any. The caller must serve that queue.
    pub(crate) fn wait_at_nothing(&mut self, id: ClientId) -> Option<QueueId> {
        self.unqueue_creditor(id);
        let client = self.clients.get_mut(&id)?;
        match std::mem::take(&mut client.waiting) {
            Waiting::Nothing => None,
            Waiting::Jobs(mut takes) => {
                let left: Vec<(u64, Vec<Served>)> =
                    takes.iter_mut().map(|blocked| (blocked.seq, std::mem::take(&mut blocked.sources))).collect();
                client.waiting = Waiting::Jobs(takes);
                left.iter().for_each(|(seq, sources)| self.leave_takers(id, *seq, sources));
                None
            }
            Waiting::Wake { seq } => {
                client.waiting = Waiting::Wake { seq };
                self.leave_sleepers(id, seq);
                None
            }
            Waiting::Awake { queue, seq } => {
                self.leave_wait(id, Waiting::Awake { queue, seq });
                Some(queue)
            }
        }
    }

    fn leave_sleepers(&mut self, id: ClientId, seq: u64) {
        let Some(client) = self.clients.get(&id) else { return };
        for served in &client.subscriptions {
            if let Some(queue) = self.queues.at_mut(served.queue) {
                let key = WaitKey::new(served.weight, seq);
                queue.change_consumers(client.info.protocol, |those| those.sleepers.remove(&key));
            }
        }
    }

    /// A waiting client gained an ability.
    pub(crate) fn wait_also_at(&mut self, id: ClientId, served: Served) {
        if self.is_quiet(id, &[]) {
            return;
        }
        let Some(client) = self.clients.get(&id) else { return };
        let Some(queue) = self.queues.at_mut(served.queue) else { return };
        let own = client.info.protocol;
        if let Waiting::Wake { seq } = client.waiting {
            queue.change_consumers(own, |those| those.sleepers.insert(WaitKey::new(served.weight, seq), id));
        }
        if client.credit.left > 0 {
            let key = WaitKey::new(served.weight, client.credit.seq);
            queue.change_consumers(own, |those| those.takers.insert(key, id));
            self.unclaimed.wait(id, client.credit.seq, served);
        }
    }

    /// A waiting client lost an ability, and still has the others.
    pub(crate) fn wait_no_more_at(&mut self, id: ClientId, served: Served) {
        let Some(client) = self.clients.get(&id) else { return };
        let Some(queue) = self.queues.at_mut(served.queue) else { return };
        let own = client.info.protocol;
        if let Waiting::Wake { seq } = client.waiting {
            queue.change_consumers(own, |those| those.sleepers.remove(&WaitKey::new(served.weight, seq)));
        }
        if client.credit.left > 0 {
            let key = WaitKey::new(served.weight, client.credit.seq);
            queue.change_consumers(own, |those| those.takers.remove(&key));
        }
        self.take_unclaimed_no_more(id, served);
    }

    /// Stops its wait for strays, unless another of its abilities takes them.
    pub(crate) fn take_unclaimed_no_more(&mut self, id: ClientId, served: Served) {
        let Some(client) = self.clients.get(&id).filter(|client| client.credit.left > 0) else { return };
        let still = served.unclaimed.and_then(|protocol| client.takes_unclaimed(protocol, served.weight).next());
        if still.is_none() {
            self.unclaimed.leave(client.credit.seq, served);
        }
    }

    /// A client woken for this queue can no longer serve it: serves the queue again.
    pub(crate) fn wake_in_stead(&mut self, id: ClientId, queue: QueueId, context: &mut Context) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if matches!(client.waiting, Waiting::Awake { queue: woken_for, .. } if woken_for == queue) {
            let waiting = std::mem::take(&mut client.waiting);
            self.leave_wait(id, waiting);
            self.serve(queue, context);
        }
    }

    fn queue_creditor(&mut self, id: ClientId) {
        if self.is_quiet(id, &[]) {
            return;
        }
        let Some(client) = self.clients.get(&id) else { return };
        for served in &client.subscriptions {
            if let Some(queue) = self.queues.at_mut(served.queue) {
                let key = WaitKey::new(served.weight, client.credit.seq);
                queue.change_consumers(client.info.protocol, |those| those.takers.insert(key, id));
            }
            self.unclaimed.wait(id, client.credit.seq, *served);
        }
    }

    fn unqueue_creditor(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(&id).filter(|client| client.credit.left > 0) else { return };
        for served in &client.subscriptions {
            if let Some(queue) = self.queues.at_mut(served.queue) {
                let key = WaitKey::new(served.weight, client.credit.seq);
                queue.change_consumers(client.info.protocol, |those| those.takers.remove(&key));
            }
            self.unclaimed.leave(client.credit.seq, *served);
        }
    }

    /// Spends one credit. The client goes behind its equals, or leaves the queues with its last credit.
    pub(crate) fn use_credit(&mut self, id: ClientId) {
        self.unqueue_creditor(id);
        let seq = self.wait_seq();
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.credit.left = client.credit.left.saturating_sub(1);
        client.credit.seq = seq;
        if client.credit.left > 0 {
            self.queue_creditor(id);
        }
    }

    // ---- serving ---------------------------------------------------------------------------------------------------

    /// Serves a queue after work arrived or a woken client gave up: hands out and wakes until jobs or clients run out.
    pub(crate) fn serve(&mut self, queue: QueueId, context: &mut Context) {
        while let Some(next) = self.next_served(queue) {
            match next {
                Next::Wake(client) => self.wake(client, queue, context),
                Next::HandTo(client, key) => self.hand_to_waiting(client, key, queue, context),
            }
        }
        self.notice_unserved(queue, context);
    }

    /// The next client to serve at a queue: the one of all protocols' candidates that has waited longest.
    pub(crate) fn next_served(&self, id: QueueId) -> Option<Next> {
        let queue = self.queues.at(id).filter(|queue| queue.has_work())?;
        let candidates = queue.consumers.iter().filter_map(|consumers| self.next_of(queue, consumers));
        candidates.min_by_key(|(key, _)| key.seq).map(|(_, next)| next)
    }

    /// The candidate of one protocol: the heaviest, and among equals the one that has waited longest. Other sleepers leave a
    /// job to the sleeper that was woken for it. A direct taker does not wait for a woken sleeper that may never come.
    fn next_of(&self, queue: &Queue, consumers: &Consumers) -> Option<(WaitKey, Next)> {
        if (consumers.takers.is_empty() && consumers.sleepers.is_empty())
            || queue.line.first_of(consumers.protocol).is_none()
        {
            return None;
        }
        let admitted = |(key, client): &(&WaitKey, &ClientId)| self.admits_waiter(queue, **client, **key);
        let taker = consumers.takers.iter().find(admitted);
        let unclaimed = !consumers.sleepers.is_empty() && queue.has_unclaimed_for(consumers);
        let sleeper = if unclaimed { consumers.sleepers.iter().find(admitted) } else { None };
        match (taker, sleeper) {
            (Some((taken, client)), Some((slept, _))) if taken < slept => Some((*taken, Next::HandTo(*client, *taken))),
            (_, Some((slept, client))) => Some((*slept, Next::Wake(*client))),
            (Some((taken, client)), None) => Some((*taken, Next::HandTo(*client, *taken))),
            (None, None) => None,
        }
    }

    fn wake(&mut self, id: ClientId, queue: QueueId, context: &mut Context) {
        let seq = self.wait_seq();
        let deadline = self.now.after_ms(self.limits.wake_ms);
        let Some(client) = self.clients.get_mut(&id) else { return };
        let protocol = client.info.protocol;
        if let Waiting::Wake { seq } = std::mem::replace(&mut client.waiting, Waiting::Awake { queue, seq }) {
            self.leave_sleepers(id, seq);
        }
        if let Some(queue) = self.queues.at_mut(queue) {
            queue.count_woken(protocol, 1);
        }
        self.awake.push_back((deadline, id, seq));
        context.notify(id, Notice::WorkAvailable);
    }

    /// Hands the first job to the client whose turn it is. The key decides whether its blocked take or its credit is used.
    fn hand_to_waiting(&mut self, id: ClientId, key: WaitKey, queue: QueueId, context: &mut Context) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let own = client.info.protocol;
        let Some((_, slot)) = self.queues.at(queue).and_then(|queue| queue.line.first_of(own)) else { return };
        if let Some(blocked) = client.take_blocked(key.seq) {
            self.unblock(id, &blocked);
            if let Some(served) = blocked.sources.iter().find(|served| served.queue == queue) {
                self.hand_out(id, blocked.tag, slot, *served, &blocked.worker, context);
            }
            return;
        }
        let served = client.subscriptions.iter().find(|served| served.queue == queue).copied();
        self.use_credit(id);
        if let Some(served) = served {
            self.hand_out(id, Tag::NONE, slot, served, &[], context);
        }
    }

    /// A woken sleeper has not come in time: serves its queue again. The client stays awake, and gets work when it asks.
    pub(crate) fn overslept(&mut self, id: ClientId, seq: u64, context: &mut Context) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.is_awake(seq) {
            let Waiting::Awake { queue, .. } = std::mem::take(&mut client.waiting) else { return };
            let protocol = client.info.protocol;
            if let Some(queue) = self.queues.at_mut(queue) {
                queue.count_woken(protocol, -1);
            }
            self.serve(queue, context);
        }
    }

    /// A blocked take has reached its deadline.
    pub(crate) fn give_up_waiting(&mut self, id: ClientId, context: &mut Context) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        // A client with a deadline has only one blocked take.
        let over = client.blocked().and_then(VecDeque::front).filter(|blocked| blocked.until <= self.now);
        if let Some(seq) = over.map(|blocked| blocked.seq)
            && let Some(blocked) = client.take_blocked(seq)
        {
            self.unblock(id, &blocked);
            context.reply(id, blocked.tag, Reply::Empty);
        }
    }
}

impl Client {
    /// Removes the blocked take that has this turn.
    fn take_blocked(&mut self, seq: u64) -> Option<Blocked> {
        let Waiting::Jobs(takes) = &mut self.waiting else { return None };
        let blocked = takes.remove(turn_of(seq, takes)?);
        if takes.is_empty() {
            self.waiting = Waiting::Nothing;
        }
        blocked
    }
}

/// Whether these takes have no deadline.
fn is_endless(takes: &VecDeque<Blocked>) -> bool {
    takes.front().is_none_or(|blocked| blocked.until == Timestamp::NEVER)
}

/// The next step at a queue.
#[derive(Debug)]
pub(crate) enum Next {
    Wake(ClientId),
    HandTo(ClientId, WaitKey),
}
