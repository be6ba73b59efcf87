//! One client of the ledger, with its state and its commands that are on their way.

use std::collections::VecDeque;

use windlass_engine::{Claim, ClientId, Command, Event, JobRef, Tag, TakeCommand, Token};

use super::effect::{Effect, FIXED_BYTES};
use super::has::{Granted, Has};
use super::waits::Waits;
use crate::to_leader::ToLeader;

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    /// Bytes of answers that have room.
    room: u64,
    has: Has,
    /// Commands that take effect later, in order.
    on_their_way: VecDeque<Effect>,
    /// Commands with an answer that has not come, in order. Takes are not among them.
    unanswered: VecDeque<Tag>,
    /// Bytes of both.
    bytes: usize,
}

impl Client {
    pub(super) fn new(room: u64) -> Self {
        let (has, on_their_way, unanswered) = (Has::default(), VecDeque::new(), VecDeque::new());
        Self {
            room,
            has,
            on_their_way,
            unanswered,
            bytes: FIXED_BYTES,
        }
    }

    /// Bytes that it counts as.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes + self.has.bytes()
    }

    pub(super) const fn add_room(&mut self, bytes: u64) {
        self.room = self.room.saturating_add(bytes);
    }

    /// The token of the lease that the client knows, if it holds the job.
    pub(super) fn token_of(&self, job: &JobRef) -> Option<Token> {
        self.has.token_of(job)
    }

    // ---- from the client -------------------------------------------------------------------------------------------

    pub(super) fn asked(&mut self, tag: Tag, command: &Command) {
        let effect = Effect::of(tag, command);
        if command.is_answered(tag) && !matches!(effect, Effect::Take(_, TakeCommand::Take(_))) {
            self.expect(tag);
        }
        self.bytes += effect.weight();
        self.on_their_way.push_back(effect);
    }

    pub(super) fn forbidden(&mut self, tag: Tag) {
        self.expect(tag);
        self.bytes += Effect::None.weight();
        self.on_their_way.push_back(Effect::None);
    }

    fn expect(&mut self, tag: Tag) {
        self.unanswered.push_back(tag);
        self.bytes += size_of::<Tag>();
    }

    /// A claim takes effect at once.
    pub(super) fn claim(&mut self, claim: &Claim) {
        match claim {
            Claim::Holds { job, held } => self.has.hold(*job, held.clone()),
            Claim::Hears { job } => self.has.listen(*job, None),
            Claim::Pushed { job, new } => self.has.listen(*job, Some(new.clone())),
        }
    }

    // ---- from the leader -------------------------------------------------------------------------------------------

    /// This many commands take effect.
    pub(super) fn applied(&mut self, count: u32, turn: &mut u64, durable: u64) {
        self.has.settle(durable);
        for _ in 0..count {
            let Some(effect) = self.on_their_way.pop_front() else {
                return;
            };
            self.bytes = self.bytes.saturating_sub(effect.weight());
            self.has.apply(effect, turn);
        }
    }

    /// `gate`: the commit that the event waits for; 0 = none.
    pub(super) fn event(&mut self, event: &Event, gate: u64, turn: &mut u64) {
        self.room = self.room.saturating_sub(event.bytes() as u64);
        match event {
            Event::Reply(tag, reply) => {
                // Answers come in the order of their commands, but for a few.
                if let Some(at) = self
                    .unanswered
                    .iter()
                    .position(|unanswered| unanswered == tag)
                {
                    self.unanswered.remove(at);
                    self.bytes = self.bytes.saturating_sub(size_of::<Tag>());
                }
                self.has.reply(*tag, reply, gate);
            }
            Event::Notice(notice) => self.has.notice(notice, turn),
        }
    }

    // ---- leases by time that are not in the store -------------------------------------------------------------------

    pub(super) fn lose_grants(&mut self, reached: u64) {
        self.has.lose_grants(reached);
    }

    pub(super) fn take_grants(&mut self) -> Vec<Granted> {
        self.has.take_grants()
    }

    pub(super) fn keep_grants(&mut self, granted: Vec<Granted>) {
        self.has.keep_grants(granted);
    }

    // ---- a new leader ----------------------------------------------------------------------------------------------

    pub(super) fn take_unanswered(&mut self) -> impl Iterator<Item = Tag> + '_ {
        self.bytes = self
            .bytes
            .saturating_sub(self.unanswered.len() * size_of::<Tag>());
        self.unanswered.drain(..)
    }

    /// Everything that it has, as items for the leader; its waits apart.
    pub(super) fn claims(
        self,
        client: ClientId,
        turn: &mut u64,
        to_leader: &mut Vec<ToLeader>,
        waits: &mut Waits,
    ) {
        let Self {
            room,
            mut has,
            on_their_way,
            ..
        } = self;
        has.settle(0);
        on_their_way
            .into_iter()
            .for_each(|effect| has.apply(effect, turn));
        to_leader.push(ToLeader::Open { client, room });
        has.claims(client, to_leader, waits);
    }
}
