//! Turns the engine's events into replies.

use windlass_engine::{Event, JobStateKind, JobView, Pushed, QueueRow, Tag, Taken};
use windlass_session::{Outbox, Reason};
use windlass_zmtp::Envelope;

use super::asked::Ask;
use super::settings::Counted;
use super::{SpiderqSession, refusal};
use crate::wire::{Dialect, Reply};

impl SpiderqSession {
    pub(super) fn event(&mut self, event: &Event, out: &mut Outbox) {
        let Some((ask, envelope)) = event.tag().and_then(|tag: Tag| self.asked.take(tag)) else {
            if *event == Event::Dismissed {
                self.end(Reason::Dismissed, out);
            }
            return;
        };
        match event {
            Event::Pushed { how, .. } => {
                let reply = if *how == Pushed::New { Reply::Added } else { Reply::Kept };
                self.answer(Counted::Add, &envelope, &reply, out);
            }
            Event::Taken { job, .. } => self.taken(job, &envelope, out),
            Event::Empty { .. } => self.answer(Counted::Lend, &envelope, &Reply::QueueEmpty, out),
            Event::Done { .. } | Event::Settled { .. } => self.done(ask, &envelope, out),
            Event::Looked { job, .. } => self.looked(job.as_deref(), &envelope, out),
            Event::Queues { rows, .. } => self.counted(ask, rows.first(), &envelope, out),
            Event::Refused { why, .. } => match (counted(ask), refusal::reply(ask, *why)) {
                (None, reply) | (_, reply @ Reply::Trouble(_)) => self.say(&envelope, &reply, out),
                (Some(what), reply) => self.answer(what, &envelope, &reply, out),
            },
            // Answers to commands that this session never sends.
            Event::Finished { .. }
            | Event::Failed { .. }
            | Event::WorkAvailable
            | Event::Progress { .. }
            | Event::Ended { .. }
            | Event::ScheduleSet { .. }
            | Event::Schedules { .. }
            | Event::BatchLooked { .. }
            | Event::Jobs { .. }
            | Event::Clients { .. }
            | Event::Stats { .. }
            | Event::Mutated { .. }
            | Event::Beaten { .. }
            | Event::Dismissed => {}
        }
    }

    fn taken(&mut self, job: &Taken, envelope: &Envelope, out: &mut Outbox) {
        let reply = Reply::Lent { lend_key: job.token.0, key: &job.key, value: &job.body };
        self.answer(Counted::Lend, envelope, &reply, out);
    }

    fn done(&mut self, ask: Ask, envelope: &Envelope, out: &mut Outbox) {
        let reply = match ask {
            Ask::Update => Reply::Updated,
            Ask::Repay => Reply::Repaid,
            Ask::Heartbeat => Reply::Heartbeaten,
            Ask::Flush => Reply::Flushed,
            Ask::Remove => Reply::Removed,
            Ask::Count | Ask::Add | Ask::Lend | Ask::Poll | Ask::Stats | Ask::StatsNew | Ask::Lookup => return,
        };
        match counted(ask) {
            Some(what) => self.answer(what, envelope, &reply, out),
            None => self.say(envelope, &reply, out),
        }
    }

    fn looked(&mut self, job: Option<&JobView>, envelope: &Envelope, out: &mut Outbox) {
        let reply = job.map_or(Reply::ValueNotFound, |view| Reply::ValueFound(view.job.payload.body()));
        self.answer(Counted::Lookup, envelope, &reply, out);
    }

    /// Answers `Count` from the queue's row. For `Stats` the row serves only to keep the reply in its order.
    fn counted(&mut self, ask: Ask, row: Option<&QueueRow>, envelope: &Envelope, out: &mut Outbox) {
        if ask == Ask::Count {
            let ready = row.map_or(0, |row| row.jobs(JobStateKind::Ready));
            return self.answer(Counted::Count, envelope, &Reply::Counted(ready), out);
        }
        let counters = &self.settings.counters;
        counters.count(Counted::Stats);
        let dialect = if ask == Ask::StatsNew { Dialect::V1_4 } else { Dialect::V1_3 };
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
