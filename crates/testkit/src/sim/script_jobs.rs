//! What is pushed and how it is taken: jobs with every option there is, wishes of every shape.

use windlass_engine::{
    Ability, Backoff, Clash, From, KeyUntil, LeaseTerms, NewJob, OnExpiry, Priority, Retry, Select, Take, Unique, Wait,
};

use super::script::Script;

impl Script<'_> {
    pub(crate) fn job(&mut self) -> NewJob {
        let queue = self.queue();
        let (origin, body, kind) = (self.origin(), self.bytes(20), self.kind_of(&queue));
        let durable = self.dice.chance(80);
        let listen = self.dice.chance(if durable { 25 } else { 97 });
        NewJob {
            kind,
            priority: Priority::clamped(self.dice.one_of([0, 1, 5, 5, 5, 6, 9, 200])),
            durable,
            listen,
            front: self.dice.chance(15),
            name: if self.dice.chance(40) { Some(self.name()) } else { None },
            name_unique: self.dice.chance(15),
            meta: if self.dice.chance(20) { self.bytes(6) } else { bytes::Bytes::new() },
            unique: if self.dice.chance(40) { Some(self.unique()) } else { None },
            not_before: if self.dice.chance(20) { Some(self.time()) } else { None },
            expires_at: if self.dice.chance(15) { Some(self.time()) } else { None },
            retry: self.retry(),
            result_keep_ms: self.dice.one_of([0, 0, 0, 30, 5_000]),
            lease_ms: if self.dice.chance(20) { Some(self.dice.below(self.world.pace_ms)) } else { None },
            ..NewJob::new(origin, queue, body)
        }
    }

    fn unique(&mut self) -> Unique {
        let key = self.dice.pick(&self.world.keys).cloned().unwrap_or_default();
        let clash = self.dice.one_of([Clash::Attach, Clash::Attach, Clash::Refuse, Clash::Keep]);
        let until = match self.dice.below(6) {
            0 => KeyUntil::Start,
            1 => KeyUntil::EndOr(self.time()),
            2 => KeyUntil::StartOr(self.time()),
            _ => KeyUntil::End,
        };
        Unique { key, clash, until }
    }

    fn retry(&mut self) -> Retry {
        let ms = self.number(2_000);
        Retry {
            failures_max: self.dice.one_of([0, 0, 1, 3, 25, -1]),
            losses_max: self.dice.one_of([0, 0, 1, 3]),
            backoff: self.dice.one_of([Backoff::None, Backoff::Fixed(ms), Backoff::Doubling(ms), Backoff::Faktory]),
        }
    }

    pub(crate) fn terms(&mut self) -> LeaseTerms {
        LeaseTerms {
            connection_bound: self.dice.chance(50),
            lease_ms: if self.dice.chance(70) { Some(self.dice.below(self.world.pace_ms * 3)) } else { None },
            on_expiry: self.dice.one_of([OnExpiry::Fail, OnExpiry::Requeue, OnExpiry::Front]),
        }
    }

    pub(crate) fn ability(&mut self) -> Ability {
        Ability { queue: self.queue(), weight: self.number(2), lease: self.terms() }
    }

    pub(crate) fn select(&mut self) -> Select {
        self.dice.one_of([Select::ListOrder, Select::BestPriority, Select::RoundRobin, Select::Weighted])
    }

    pub(crate) fn wish(&mut self) -> Take {
        let from = if self.dice.chance(50) {
            From::Abilities
        } else {
            let queues = (0..self.dice.below(4)).map(|_| self.queue()).collect();
            From::Listed { queues, lease: self.terms() }
        };
        let wait = match self.dice.below(4) {
            0 => Wait::Until(self.time()),
            1 => Wait::Forever,
            _ => Wait::No,
        };
        Take { from, select: self.select(), wait, worker: self.worker() }
    }
}
