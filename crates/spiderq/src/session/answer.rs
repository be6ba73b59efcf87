//! Turns the engine's replies into spiderq's.

use windlass_engine::{JobStateKind, JobView, Pushed, Taken};
use windlass_zmtp::Envelope;

use super::ask::{Ask, What};
use super::settings::Counted;
use super::{SpiderqSpeaker, Talk, refusal};
use crate::wire::{Dialect, Reply};

impl SpiderqSpeaker {
    pub(super) fn replied(&mut self, ask: Ask, reply: &windlass_engine::Reply, talk: &mut Talk<'_>) {
        use windlass_engine::Reply as Got;
        self.lends -= usize::from(ask.what == What::Lend);
        let envelope = &ask.envelope;
        match (ask.what, reply) {
            (What::Add, Got::Pushed { how, .. }) => {
                let reply = if *how == Pushed::New { Reply::Added } else { Reply::Kept };
                self.answer(Counted::Add, envelope, &reply, talk);
            }
            (What::Lend | What::Poll, Got::Taken(job)) => self.taken(job, envelope, talk),
            (What::Poll, Got::Empty) => self.answer(Counted::Lend, envelope, &Reply::QueueEmpty, talk),
            (What::Update, Got::Done) => self.answer(Counted::Update, envelope, &Reply::Updated, talk),
            (What::Repay, Got::Done) => self.answer(Counted::Repay, envelope, &Reply::Repaid, talk),
            (What::Heartbeat, Got::Done) => self.answer(Counted::Heartbeat, envelope, &Reply::Heartbeaten, talk),
            (What::Remove, Got::Done) => self.answer(Counted::Remove, envelope, &Reply::Removed, talk),
            (What::Flush, Got::Settled) => self.say(envelope, &Reply::Flushed, talk),
            (What::Lookup, Got::Looked { job, .. }) => self.looked(job.as_deref(), envelope, talk),
            (What::Count, Got::Queues { rows, .. }) => {
                let ready = rows.first().map_or(0, |row| row.jobs(JobStateKind::Ready));
                self.answer(Counted::Count, envelope, &Reply::Counted(ready), talk);
            }
            // The row serves only to keep the reply in its order.
            (What::Stats, Got::Queues { .. }) => self.stats(Dialect::V1_3, envelope, talk),
            (What::StatsNew, Got::Queues { .. }) => self.stats(Dialect::V1_4, envelope, talk),
            (what, Got::Refused(why)) => match (counted(what), refusal::reply(what, *why)) {
                (None, reply) | (_, reply @ Reply::Trouble(_)) => self.say(envelope, &reply, talk),
                (Some(what), reply) => self.answer(what, envelope, &reply, talk),
            },
            _ => {}
        }
    }

    fn taken(&mut self, job: &Taken, envelope: &Envelope, talk: &mut Talk<'_>) {
        let reply = Reply::Lent { lend_key: job.token.0, key: &job.key, value: &job.body };
        self.answer(Counted::Lend, envelope, &reply, talk);
    }

    fn looked(&mut self, job: Option<&JobView>, envelope: &Envelope, talk: &mut Talk<'_>) {
        let reply = job.map_or(Reply::ValueNotFound, |view| Reply::ValueFound(view.job.payload.body()));
        self.answer(Counted::Lookup, envelope, &reply, talk);
    }

    fn stats(&mut self, dialect: Dialect, envelope: &Envelope, talk: &mut Talk<'_>) {
        let counters = &self.settings.counters;
        counters.count(Counted::Stats);
        let reply = Reply::StatsGot(counters.counts(), dialect);
        self.say(envelope, &reply, talk);
    }

    /// Sends a reply, and counts it for `Stats`.
    pub(super) fn answer(&mut self, what: Counted, envelope: &Envelope, reply: &Reply<'_>, talk: &mut Talk<'_>) {
        self.settings.counters.count(what);
        self.say(envelope, reply, talk);
    }

    /// Sends a reply without counting it.
    pub(super) fn say(&mut self, envelope: &Envelope, reply: &Reply<'_>, talk: &mut Talk<'_>) {
        if let Err(reason) = self.transport.write(envelope, reply, talk) {
            talk.end(reason);
        }
    }
}

/// The counter that a reply increments; `None` for `Flush`, which has none.
const fn counted(what: What) -> Option<Counted> {
    match what {
        What::Count => Some(Counted::Count),
        What::Add => Some(Counted::Add),
        What::Update => Some(Counted::Update),
        What::Lend | What::Poll => Some(Counted::Lend),
        What::Repay => Some(Counted::Repay),
        What::Heartbeat => Some(Counted::Heartbeat),
        What::Stats | What::StatsNew => Some(Counted::Stats),
        What::Lookup => Some(Counted::Lookup),
        What::Remove => Some(Counted::Remove),
        What::Flush => None,
    }
}
