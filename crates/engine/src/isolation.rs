//! Which clients may take which jobs of a queue: by default only clients of the job's own protocol, in a bridged queue all
//! clients whose protocol can express the job.
//!
//! A queue that several protocols use under one name is isolated unless the configuration bridges it ([`Bridge`]): the clients
//! of one protocol do not notice those of another. In a bridged queue all protocols share the jobs. If the conversion of a job
//! to a protocol fails, the job is marked ([`Unfit`]), and no worker of that protocol sees it again.
//!
//! The ready queue implements both in one way: each job has an [`Audience`], the jobs of each audience form a queue of their
//! own, and a take looks at the queues that its client sees. Nearly every queue has only one audience.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::consumers::Consumers;
use crate::context::Context;
use crate::engine::Engine;
use crate::ids::{ClientId, Protocol, QueueId, Tag, Timestamp};
use crate::job::{Job, JobState};
use crate::queue::Queue;
use crate::ready::{ReadyQueue, Slot, SortKey};
use crate::request::QueueKind;
use crate::warning::WarningKind;

/// The queues that all protocols share. Not journalled: the caller must set it anew in each engine, before the first take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bridge {
    /// Names in which `*` stands for any bytes (or none) and `?` for one byte.
    pub patterns: Vec<Bytes>,
    /// Queues configured by name, and whether they are shared. Overrides the patterns.
    pub named: BTreeMap<Bytes, bool>,
}

impl Bridge {
    /// All queues.
    #[must_use]
    pub fn all() -> Self {
        Self { patterns: vec![Bytes::from_static(b"*")], named: BTreeMap::new() }
    }

    /// Whether all protocols share the queue of this name.
    #[must_use]
    pub fn includes(&self, queue: &[u8]) -> bool {
        let named = self.named.get(queue).copied();
        named.unwrap_or_else(|| self.patterns.iter().any(|pattern| matches(pattern, queue)))
    }
}

/// Whether `name` matches a pattern in which `*` stands for any bytes (or none) and `?` for one. Takes at most the product of
/// their lengths.
#[must_use]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // The position behind the last `*`, and the end of its current match in the name.
    let mut star = None;
    while let Some(byte) = name.get(from) {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, from));
                at += 1;
            }
            Some(own) if *own == b'?' || own == byte => (at, from) = (at + 1, from + 1),
            Some(_) | None => {
                let Some((behind, end)) = star else { return false };
                star = Some((behind, end + 1));
                (at, from) = (behind, end + 1);
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// Protocols whose workers cannot take a job. Not journalled: after a restart the conversion fails again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Unfit(u8);

impl Unfit {
    /// No protocol.
    pub const NONE: Self = Self(0);

    /// The protocols whose jobs and workers share queues.
    pub const SHARING: [Protocol; 3] = [Protocol::FAKTORY, Protocol::GEARMAN, Protocol::EVENTMQ];

    /// Whether this protocol is among them.
    #[must_use]
    pub const fn has(self, protocol: Protocol) -> bool {
        protocol.0 < 8 && self.0 & (1 << protocol.0) != 0
    }

    /// These and one more; `None` if the engine does not have this protocol's number.
    #[must_use]
    pub const fn and(self, protocol: Protocol) -> Option<Self> {
        if protocol.0 < 8 { Some(Self(self.0 | 1 << protocol.0)) } else { None }
    }
}

/// The clients that may take a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Audience {
    /// Only clients of this protocol: the queue is isolated.
    Only(Protocol),
    /// All clients except those of the unfit protocols: the queue is bridged.
    AllBut(Unfit),
}

impl Audience {
    /// Whether a client of this protocol sees the job. A client without a protocol sees all jobs.
    pub(crate) fn includes(self, own: Option<Protocol>) -> bool {
        own.is_none_or(|own| match self {
            Self::Only(protocol) => protocol == own,
            Self::AllBut(unfit) => !unfit.has(own),
        })
    }
}

impl Job {
    /// Whether no worker of any protocol can take it.
    fn is_nobodys(&self, bridged: bool) -> bool {
        if bridged {
            Unfit::SHARING.iter().all(|protocol| self.unfit.has(*protocol))
        } else {
            self.unfit.has(self.protocol)
        }
    }
}

impl Queue {
    /// The clients that may take this job of the queue.
    pub(crate) const fn audience_of(&self, job: &Job) -> Audience {
        if self.bridged { Audience::AllBut(job.unfit) } else { Audience::Only(job.protocol) }
    }

    /// Whether these consumers see more jobs than the sleepers already woken will take. A sleeper without a protocol may take
    /// any job.
    pub(crate) fn has_unclaimed_for(&self, consumers: &Consumers) -> bool {
        let own = consumers.protocol;
        let beside =
            |other: &&Consumers| self.bridged || own.is_none() || other.protocol.is_none() || other.protocol == own;
        let woken: u32 = self.consumers.iter().filter(beside).map(|other| other.woken).sum();
        self.free_slots() > self.woken() && self.line.len_of(own) > woken
    }

    /// Whether a client that sees these jobs has registered for the queue.
    pub(crate) fn is_served(&self, audience: Audience) -> bool {
        self.consumers.iter().any(|consumers| consumers.workers > 0 && audience.includes(consumers.protocol))
    }

    /// A protocol whose jobs wait although no client that sees them ever asked for them, and the protocols of the queue's
    /// consumers.
    fn unserved_beside_others(&self) -> Option<(Protocol, Vec<Protocol>)> {
        let waiting = self.line.audiences().find_map(|audience| match audience {
            Audience::Only(protocol) => Some(protocol).filter(|protocol| {
                let see = |consumers: &Consumers| consumers.protocol.is_none_or(|own| own == *protocol);
                !self.consumers.iter().any(see)
            }),
            Audience::AllBut(_) => None,
        })?;
        let others = self.consumers.iter().filter(|consumers| consumers.are_there());
        let others: Vec<Protocol> = others.filter_map(|consumers| consumers.protocol).collect();
        if others.is_empty() { None } else { Some((waiting, others)) }
    }
}

/// The shortest interval between two warnings about a queue.
const NOTICE_PAUSE_MS: u64 = 60_000;

/// When a notice about a queue was last given. The next one is due [`NOTICE_PAUSE_MS`] later.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noticed {
    /// The notice that its jobs wait while only workers of other protocols serve it.
    unserved: Option<Timestamp>,
}

/// Whether a notice is due; if so, records it as given.
fn is_news(said_at: &mut Option<Timestamp>, now: Timestamp) -> bool {
    let news = said_at.is_none_or(|at| now >= at.after_ms(NOTICE_PAUSE_MS));
    if news {
        *said_at = Some(now);
    }
    news
}

impl Engine {
    /// The client's protocol, if it gave one.
    pub(crate) fn protocol_of(&self, client: ClientId) -> Option<Protocol> {
        self.clients.get(&client).and_then(|client| client.info.protocol)
    }

    /// Replaces the set of queues that all protocols share. Looks at all queues, and at the ready jobs of each queue that
    /// changes.
    pub(crate) fn bridge(&mut self, client: ClientId, tag: Tag, bridge: Bridge, context: &mut Context) {
        self.queues.bridge = bridge;
        for id in (0..self.queues.numbers()).map(QueueId) {
            let Some(queue) = self.queues.at(id) else { continue };
            let bridged = self.queues.bridges(&queue.image);
            if queue.bridged != bridged {
                self.sort_line_anew(id, |queue| queue.bridged = bridged, |_| {});
                self.serve(id, context);
            }
        }
        self.tell_done(client, tag, context);
    }

    /// Applies a change that decides which clients see the ready jobs of a queue. Looks at all of them. The caller must then
    /// serve the queue.
    pub(crate) fn sort_line_anew(&mut self, id: QueueId, change: impl FnOnce(&mut Queue), each: impl Fn(&mut Job)) {
        self.forget_unclaimed(id);
        let Some(queue) = self.queues.at_mut(id) else { return };
        change(queue);
        let mut line = ReadyQueue::new(queue.image.kind);
        for slot in queue.line.slots() {
            if let Some(job) = self.jobs.at_mut(slot) {
                each(job);
                line.insert(SortKey::of(job), queue.audience_of(job), slot);
            }
        }
        queue.line = line;
        self.note_unclaimed(id);
    }

    /// A worker of this protocol cannot take this leased job. Returns whether a worker of another protocol can.
    pub(crate) fn mark_unfit(&mut self, slot: Slot, own: Option<Protocol>) -> bool {
        let Some(job) = self.jobs.at_mut(slot) else { return false };
        let Some(unfit) = own.and_then(|own| job.unfit.and(own)) else { return false };
        job.unfit = unfit;
        let bridged = self.queues.at(job.queue).is_some_and(|queue| queue.bridged);
        !job.is_nobodys(bridged)
    }

    /// A job has a new body: clears its conversion errors, and serves its queue if the job is ready.
    pub(crate) fn suits_anew(&mut self, slot: Slot, context: &mut Context) {
        let Some(job) = self.jobs.at_mut(slot).filter(|job| job.unfit != Unfit::NONE) else { return };
        if job.state != JobState::Ready {
            job.unfit = Unfit::NONE;
            return;
        }
        let queue = job.queue;
        // While the job is shelved, it is in no ready queue.
        self.move_job(slot, JobState::Parked);
        if let Some(job) = self.jobs.at_mut(slot) {
            job.unfit = Unfit::NONE;
        }
        self.move_job(slot, JobState::Ready);
        self.serve(queue, context);
    }

    /// Gives a notice if jobs of one protocol wait where only workers of others serve: an operator may have meant to bridge the
    /// queue.
    pub(crate) fn notice_unserved(&mut self, id: QueueId, context: &mut Context) {
        let now = self.now;
        let Some(queue) = self.queues.at_mut(id) else { return };
        if queue.bridged || queue.image.kind != QueueKind::Work {
            return;
        }
        let Some((jobs, workers)) = queue.unserved_beside_others() else { return };
        if !self.unclaimed.are_taken(jobs) && is_news(&mut queue.noticed.unserved, now) {
            context.warn(WarningKind::Unserved { jobs, workers }, || {
                (queue.image.name.clone(), Bytes::new(), Bytes::new())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_queue_names() {
        let table = [
            ("resize", "resize", true),
            ("resize", "resize2", false),
            ("thumb-*", "thumb-", true),
            ("thumb-*", "thumb-xl", true),
            ("thumb-*", "humb-xl", false),
            ("*-thumb", "a-thumb-thumb", true),
            ("*-thumb", "thumb", false),
            ("a*b*c", "a--b-b--c", true),
            ("a*b*c", "a--c--b", false),
            ("?", "x", true),
            ("?", "", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
        // No match takes longer than the product of the two lengths.
        assert!(!matches(&b"*a".repeat(2_000), &[b"a".repeat(8_000), b"b".to_vec()].concat()));
    }

    #[test]
    fn a_queue_configured_by_name_overrides_the_patterns() {
        let named = BTreeMap::from([(Bytes::from_static(b"thumb-x"), false), (Bytes::from_static(b"mail"), true)]);
        let bridge = Bridge { patterns: vec![Bytes::from_static(b"thumb-*")], named };
        let table = [("thumb-y", true), ("thumb-x", false), ("mail", true), ("default", false)];
        table.iter().for_each(|(name, expected)| assert_eq!(bridge.includes(name.as_bytes()), *expected, "{name}"));
        assert!(Bridge::all().includes(b""));
    }
}
