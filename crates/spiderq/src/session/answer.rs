//! Turns the engine's events into replies.

use windlass_engine::{Event, JobStateKind, JobView, Notice, Pushed, Taken};
use windlass_session::{Outbox, Reason};
use windlass_zmtp::Envelope;

use super::asked::Ask;
use super::settings::Counted;
use super::{SpiderqSession, refusal};
use crate::wire::{Dialect, Reply};

impl SpiderqSession {
    pub(super) fn event(&mut self, event: Event, out: &mut Outbox) {
        match event {
            Event::Reply(tag, reply) => {
                if let Some((ask, envelope)) = self.asked.take(tag) {
                    self.reply(ask, &reply, &envelope, out);
                }
            }
            Event::Notice(Notice::Dismissed) => self.end(Reason::Dismissed, out),
            // spiderq has neither credit nor listeners.
            Event::Notice(_) => {}
        }
    }

    fn reply(&mut self, ask: Ask, reply: &windlass_engine::Reply, envelope: &Envelope, out: &mut Outbox) {
        use windlass_engine::Reply as Got;
        match (ask, reply) {
            (Ask::Add, Got::Pushed { how, .. }) => {
                let reply = if *how == Pushed::New { Reply::Added } else { Reply::Kept };
                self.answer(Counted::Add, envelope, &reply, out);
            }
            (Ask::Lend | Ask::Poll, Got::Taken(job)) => self.taken(job, envelope, out),
            (Ask::Poll, Got::Empty) => self.answer(Counted::Lend, envelope, &Reply::QueueEmpty, out),
            (Ask::Update, Got::Done) => self.answer(Counted::Update, envelope, &Reply::Updated, out),
            (Ask::Repay, Got::Done) => self.answer(Counted::Repay, envelope, &Reply::Repaid, out),
            (Ask::Heartbeat, Got::Done) => self.answer(Counted::Heartbeat, envelope, &Reply::Heartbeaten, out),
            (Ask::Remove, Got::Done) => self.answer(Counted::Remove, envelope, &Reply::Removed, out),
            (Ask::Flush, Got::Settled) => self.say(envelope, &Reply::Flushed, out),
            (Ask::Lookup, Got::Looked { job, .. }) => self.looked(job.as_deref(), envelope, out),
            (Ask::Count, Got::Queues { rows, .. }) => {
                let ready = rows.first().map_or(0, |row| row.jobs(JobStateKind::Ready));
                self.answer(Counted::Count, envelope, &Reply::Counted(ready), out);
            }
            // The row serves only to keep the reply in its order.
            (Ask::Stats, Got::Queues { .. }) => self.stats(Dialect::V1_3, envelope, out),
            (Ask::StatsNew, Got::Queues { .. }) => self.stats(Dialect::V1_4, envelope, out),
            (ask, Got::Refused(why)) => match (counted(ask), refusal::reply(ask, *why)) {
                (None, reply) | (_, reply @ Reply::Trouble(_)) => self.say(envelope, &reply, out),
                (Some(what), reply) => self.answer(what, envelope, &reply, out),
            },
            _ => {}
        }
    }

    fn taken(&mut self, job: &Taken, envelope: &Envelope, out: &mut Outbox) {
        let reply = Reply::Lent { lend_key: job.token.0, key: &job.key, value: &job.body };
        self.answer(Counted::Lend, envelope, &reply, out);
    }

    fn looked(&mut self, job: Option<&JobView>, envelope: &Envelope, out: &mut Outbox) {
        let reply = job.map_or(Reply::ValueNotFound, |view| Reply::ValueFound(view.job.payload.body()));
        self.answer(Counted::Lookup, envelope, &reply, out);
    }

    fn stats(&mut self, dialect: Dialect, envelope: &Envelope, out: &mut Outbox) {
        let counters = &self.settings.counters;
        counters.count(Counted::Stats);
        let reply = Reply::StatsGot(counters.counts(), dialect);
        self.say(envelope, &reply, out);
    }

    /// Sends a reply, and counts it for `Stats`.
    pub(super) fn answer(&mut self, what: Counted, envelope: &Envelope, reply: &Reply<'_>, out: &mut Outbox) {
        self.settings.counters.count(what);
        self.say(envelope, reply, out);
    }

    /// Sends a reply without counting it.
    pub(super) fn say(&mut self, envelope: &Envelope, reply: &Reply<'_>, out: &mut Outbox) {
        if let Err(reason) = self.transport.say(envelope, reply, out) {
            self.end(reason, out);
        }
    }
}

/// The counter that an answer increments; `None` for `Flush`, which has none.
const fn counted(ask: Ask) -> Option<Counted> {
    match ask {
        Ask::Count => Some(Counted::Count),
        Ask::Add => Some(Counted::Add),
        Ask::Update => Some(Counted::Update),
        Ask::Lend | Ask::Poll => Some(Counted::Lend),
        Ask::Repay => Some(Counted::Repay),
        Ask::Heartbeat => Some(Counted::Heartbeat),
        Ask::Stats | Ask::StatsNew => Some(Counted::Stats),
        Ask::Lookup => Some(Counted::Lookup),
        Ask::Remove => Some(Counted::Remove),
        Ask::Flush => None,
    }
}
