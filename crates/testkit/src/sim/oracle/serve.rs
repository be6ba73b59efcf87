//! The three kinds of waiting. The engine decides which client is served when work arrives: the oracle follows, and the laws in
//! `serving` judge each step.

use std::cmp::Reverse;

use windlass_engine::{ClientId, Event, JobId, JobState, Lease, Notice, Refusal, Reply, Select, Tag};

use super::memo::{Blocked, Served};
use super::{Answer, Oracle, Waiting};

/// A hand-out or a wake-up that the oracle has not followed yet.
#[derive(Clone, Debug)]
pub(crate) struct Hand {
    pub(super) client: ClientId,
    pub(super) event: Event,
    /// The lease, if the job still has it.
    pub(super) lease: Option<Lease>,
}

impl Oracle {
    pub(super) fn sleep(&mut self, id: ClientId) -> Answer {
        self.stop_waking(id)?;
        let since = self.next_wait();
        self.open_client(id)?.waiting = Waiting::Asleep { since };
        if self.pending.iter().any(|hand| hand.client == id && hand.event == Event::Notice(Notice::WorkAvailable)) {
            let has_work = |served: &Served| self.first(id, served, &[]).is_some();
            let subscriptions = self.client(id).map_or_else(Vec::new, |client| client.subscriptions.clone());
            assert!(!self.is_quiet(id) && subscriptions.iter().any(has_work), "{id:?} is woken without work");
            self.pending.retain(|hand| hand.client != id || hand.event.handed_out().is_some());
            self.wake(id);
        }
        self.follow();
        Ok(())
    }

    pub(super) fn credit(&mut self, id: ClientId, credits: u32, select: Select) -> Answer {
        let since = self.next_wait();
        let client = self.open_client(id)?;
        if client.credits == 0 {
            client.credit_since = since;
        }
        client.credits = client.credits.saturating_add(credits);
        client.select = select;
        // It chooses among what is there.
        while let Some(at) = self.pending.iter().position(|hand| hand.client == id) {
            let hand = self.pending[at].clone();
            let Some((job, _, None)) = self.offer(&hand, true) else { break };
            let served = self.judge_credit(id, select, job);
            if self.job_mut(job).job.queue != served.queue {
                self.see("Stray::Given");
            }
            self.pending.remove(at);
            self.give(id, &served, job);
        }
        self.follow();
        Ok(())
    }

    /// Gives a job to a client with credits: one credit less, and to the end of the line.
    fn give(&mut self, id: ClientId, served: &Served, job: JobId) {
        let since = self.next_wait();
        if let Ok(client) = self.open_client(id) {
            client.credits -= 1;
            client.credit_since = since;
        }
        self.hand_out(id, Tag::NONE, job, served, &bytes::Bytes::new());
    }

    pub(super) fn unwait(&mut self, id: ClientId) -> Answer {
        self.stop_waiting(id);
        self.follow();
        Ok(())
    }

    /// Ends every kind of wait.
    pub(super) fn stop_waiting(&mut self, id: ClientId) {
        if let Ok(client) = self.open_client(id) {
            (client.credits, client.waiting) = (0, Waiting::Nothing);
        }
    }

    /// A client that asks for work is no longer asleep.
    pub(super) fn stop_waking(&mut self, id: ClientId) -> Answer {
        let client = self.open_client(id)?;
        if !client.blocked().is_empty() {
            return Err(Refusal::OutOfPlace);
        }
        client.waiting = Waiting::Nothing;
        Ok(())
    }

    // ---- following -------------------------------------------------------------------------------------------------

    /// Follows the engine as far as the laws permit it by now: hand-outs and wake-ups in their order.
    pub(super) fn follow(&mut self) {
        self.follow_with(false);
    }

    /// The same, strays included: their turn comes after all other work.
    pub(super) fn follow_with(&mut self, strays: bool) {
        let mut at = 0;
        while let Some(hand) = self.pending.get(at).cloned() {
            let is_first = !self.pending.iter().take(at).any(|other| other.client == hand.client);
            if is_first && self.follow_one(&hand, strays) {
                self.pending.remove(at);
                at = 0;
            } else {
                at += 1;
            }
        }
    }

    fn follow_one(&mut self, hand: &Hand, strays: bool) -> bool {
        if hand.event.handed_out().is_none() {
            let may_wake = self.may_wake(hand.client);
            if may_wake {
                self.wake(hand.client);
            }
            return may_wake;
        }
        match self.offer(hand, strays) {
            Some((job, served, Some(take))) => {
                self.judge_turn(hand.client, (0, take.since), job);
                self.unblock(hand.client, take.since);
                self.hand_out(hand.client, take.tag, job, &served, &take.worker);
            }
            Some((job, served, None)) => {
                self.judge_credit_turn(hand.client, &served, job);
                self.give(hand.client, &served, job);
            }
            None => return false,
        }
        true
    }

    /// The job that was handed out and the terms, if the client may have it now: for a blocked take, or on credit.
    pub(super) fn offer(&self, hand: &Hand, strays: bool) -> Option<(JobId, Served, Option<Blocked>)> {
        let taken = hand.event.handed_out()?;
        let (client, memo) = (self.client(hand.client)?, self.job(taken.id)?);
        let is_ready = |memo: &&super::JobMemo| memo.job.state == JobState::Ready;
        let queue = Some(memo).filter(is_ready)?.job.queue;
        let at_queue = |served: &&Served| served.queue == queue;
        if let Event::Reply(tag, Reply::Taken(_)) = &hand.event {
            let take = client.blocked().iter().find(|take| take.tag == *tag)?;
            let served = take.from.iter().find(at_queue)?;
            return Some((self.visible(hand.client, served, &take.worker, taken.id)?, *served, Some(take.clone())));
        }
        if client.credits == 0 || self.is_quiet(client.id) {
            return None;
        }
        if let Some(served) = client.subscriptions.iter().find(at_queue)
            && let Some(job) = self.visible(hand.client, served, &[], taken.id)
        {
            return Some((job, *served, None));
        }
        let takes_them = |served: &&Served| strays && served.unclaimed == Some(memo.job.protocol);
        let terms = |served: &&Served| {
            let lease = self.lease(hand.client, memo, served.lease, &[]);
            let same = |kept: &Lease| kept.holder == lease.holder && kept.on_expiry == lease.on_expiry;
            lease.until == taken.until && hand.lease.as_ref().is_none_or(same)
        };
        let mut fits: Vec<_> = client.subscriptions.iter().filter(takes_them).filter(terms).collect();
        fits.sort_by_key(|served| Reverse(served.weight));
        let is_stray = |served: &&Served| self.stray_for(hand.client, served, queue) == Some(taken.id);
        fits.into_iter().find(is_stray).map(|served| (taken.id, *served, None))
    }

    fn wake(&mut self, id: ClientId) {
        let until = self.now.after_ms(self.limits.wake_ms);
        if let Ok(client) = self.open_client(id) {
            client.waiting = Waiting::Awake { until };
        }
        self.notify(id, Notice::WorkAvailable);
    }

    /// Woken clients that have not asked for work in time have lost their claim. Returns whether there were any.
    pub(super) fn oversleep(&mut self) -> bool {
        let now = self.now;
        let late = |waiting: &Waiting| matches!(waiting, Waiting::Awake { until } if *until <= now);
        let late = self.clients.iter_mut().filter(|client| late(&client.waiting));
        late.map(|client| client.waiting = Waiting::Nothing).count() > 0
    }

    /// Ends one blocked take.
    fn unblock(&mut self, id: ClientId, since: u64) -> Option<Blocked> {
        let client = self.open_client(id).ok()?;
        let Waiting::Jobs(takes) = &mut client.waiting else { return None };
        let at = takes.iter().position(|take| take.since == since)?;
        let take = takes.remove(at);
        if takes.is_empty() {
            client.waiting = Waiting::Nothing;
        }
        Some(take)
    }

    pub(super) fn give_up_waiting(&mut self, id: ClientId) {
        let now = self.now;
        let Some(client) = self.client(id) else { return };
        let over = client.blocked().iter().find(|take| take.until <= now).map(|take| take.since);
        if let Some(take) = over.and_then(|since| self.unblock(id, since)) {
            self.reply(id, take.tag, Reply::Empty);
        }
    }

    /// Their worker was asked to take no more: these clients keep waiting without effect.
    pub(super) fn fall_quiet(&mut self, clients: &[ClientId]) {
        for id in clients {
            let Ok(client) = self.open_client(*id) else { continue };
            match &mut client.waiting {
                Waiting::Jobs(takes) => takes.iter_mut().for_each(|take| take.from.clear()),
                Waiting::Awake { .. } => client.waiting = Waiting::Nothing,
                Waiting::Nothing | Waiting::Asleep { .. } => {}
            }
        }
        self.follow();
    }
}
