//! Turns the engine's replies into spiderq's.

use windlass_engine::{JobStateKind, Pushed, Refusal, Reply as Got};
use windlass_zmtp::Envelope;

use super::ask::{Ask, What};
use super::{SpiderqSpeaker, Talk, refusal};
use crate::wire::{Dialect, Reply};

impl SpiderqSpeaker {
    pub(super) fn replied(&mut self, Ask { what, envelope }: &Ask, got: &Got, talk: &mut Talk<'_>) {
        self.lends -= usize::from(*what == What::Lend);
        let counters = &self.settings.counters;
        let stats = |dialect| {
            counters.count(*what);
            Reply::StatsGot(counters.counts(), dialect)
        };
        let reply = match (what, got) {
            (
                What::Add,
                Got::Pushed {
                    how: Pushed::New, ..
                },
            ) => Reply::Added,
            (What::Add, Got::Pushed { .. }) => Reply::Kept,
            (What::Lend | What::Poll, Got::Taken(job)) => Reply::Lent {
                lend_key: job.token.0,
                key: &job.key,
                value: &job.body,
            },
            (What::Poll, Got::Empty) => Reply::QueueEmpty,
            // The entry's value cannot be read: no client waits for ever because of that.
            (What::Lend, Got::Empty) => refusal::reply(*what, Refusal::Unavailable),
            (What::Update, Got::Done) => Reply::Updated,
            (What::Repay, Got::Done) => Reply::Repaid,
            (What::Heartbeat, Got::Done) => Reply::Heartbeaten,
            (What::Remove, Got::Done) => Reply::Removed,
            (What::Flush, Got::Settled) => Reply::Flushed,
            (
                What::Lookup,
                Got::Looked {
                    job: Some(view), ..
                },
            ) => Reply::ValueFound(view.job.payload.body()),
            (What::Lookup, Got::Looked { .. }) => Reply::ValueNotFound,
            (What::Count, Got::Queues { rows, .. }) => {
                Reply::Counted(rows.first().map_or(0, |row| row.jobs(JobStateKind::Ready)))
            }
            // The row serves only to keep the reply in its order.
            (What::Stats, Got::Queues { .. }) => stats(Dialect::V1_3),
            (What::StatsNew, Got::Queues { .. }) => stats(Dialect::V1_4),
            (what, Got::Refused(why)) => refusal::reply(*what, *why),
            _ => return,
        };
        if !matches!(reply, Reply::Trouble(_) | Reply::StatsGot(..)) {
            counters.count(*what);
        }
        self.send(envelope, &reply, talk);
    }

    /// Sends a reply without counting it.
    pub(super) fn send(&mut self, envelope: &Envelope, reply: &Reply<'_>, talk: &mut Talk<'_>) {
        if let Err(reason) = self.transport.write(envelope, reply, talk) {
            talk.end(reason);
        }
    }
}
