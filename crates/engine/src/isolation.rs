//! Who may take which jobs of a queue: by default each protocol only its own, in a bridged queue whoever has words for them.
//!
//! A queue that several protocols use under one name is isolated unless the configuration bridges it ([`Bridge`]): the
//! clients of one protocol do not notice those of another. In a bridged queue all protocols share the jobs. A job that turned
//! out to have no words in a protocol is marked ([`Unfit`]), and from then on no worker of that protocol sees it.
//!
//! Both are one thing in the queue's line: each job has an [`Audience`], jobs of one audience stand in a line of their own, and
//! whoever takes looks at the lines it sees. Nearly every queue has one audience, and one look.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::command::QueueKind;
use crate::consumers::Consumers;
use crate::engine::Engine;
use crate::ids::{ClientId, Origin, QueueId, Tag, Timestamp};
use crate::job::{Job, Place};
use crate::line::{Line, Slot, Standing};
use crate::notice::NoticeKind;
use crate::queue::Queue;
use crate::turn::Turn;

/// Which queues all protocols share. Not journalled: whoever makes the engine says it anew, before anybody takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bridge {
    /// Names in which `*` stands for any bytes, also none, and `?` for one byte.
    pub patterns: Vec<Bytes>,
    /// Queues of which it is said by their very name, whatever the patterns say.
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

/// Whether bytes match a pattern in which `*` stands for any bytes, also none, and `?` for one; takes at most the product of
/// their lengths.
#[must_use]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Behind the last `*`, and where in the name what it stands for ends as yet.
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

/// Protocols whose workers cannot be given a job. Not journalled: it is found out again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Unfit(u8);

impl Unfit {
    /// None so far.
    pub const NONE: Self = Self(0);

    /// The protocols whose jobs and workers share queues.
    pub const SHARING: [Origin; 3] = [Origin::FAKTORY, Origin::GEARMAN, Origin::EVENTMQ];

    /// Whether this protocol is one of them.
    #[must_use]
    pub const fn has(self, origin: Origin) -> bool {
        origin.0 < 8 && self.0 & (1 << origin.0) != 0
    }

    /// These and one more; none if the engine does not know its number.
    #[must_use]
    pub const fn and(self, origin: Origin) -> Option<Self> {
        if origin.0 < 8 { Some(Self(self.0 | 1 << origin.0)) } else { None }
    }
}

/// Who may take a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Audience {
    /// Those of its own protocol: the queue is isolated.
    Only(Origin),
    /// All but those who have no words for it: the queue is bridged.
    AllBut(Unfit),
}

impl Audience {
    /// Whether one of this protocol sees the job. One that says nothing of its protocol sees all.
    pub(crate) fn includes(self, own: Option<Origin>) -> bool {
        own.is_none_or(|own| match self {
            Self::Only(origin) => origin == own,
            Self::AllBut(unfit) => !unfit.has(own),
        })
    }
}

impl Job {
    /// Whether no worker of any protocol can have it.
    fn is_nobodys(&self, bridged: bool) -> bool {
        if bridged { Unfit::SHARING.iter().all(|origin| self.unfit.has(*origin)) } else { self.unfit.has(self.origin) }
    }
}

impl Queue {
    /// Who may take a job of it.
    pub(crate) const fn audience_of(&self, job: &Job) -> Audience {
        if self.bridged { Audience::AllBut(job.unfit) } else { Audience::Only(job.origin) }
    }

    /// Whether there is more for these than woken sleepers are on their way to. One who sees all jobs is on its way to any.
    pub(crate) fn has_unclaimed_for(&self, consumers: &Consumers) -> bool {
        let own = consumers.origin;
        let beside =
            |other: &&Consumers| self.bridged || own.is_none() || other.origin.is_none() || other.origin == own;
        let woken: u32 = self.consumers.iter().filter(beside).map(|other| other.woken).sum();
        self.free_slots() > self.woken() && self.line.len_of(own) > woken
    }

    /// Whether somebody who registered for it sees these jobs.
    pub(crate) fn is_served(&self, audience: Audience) -> bool {
        self.consumers.iter().any(|consumers| consumers.workers > 0 && audience.includes(consumers.origin))
    }

    /// A protocol whose jobs wait, and of whose workers none has ever asked for them, though those of others do.
    fn unserved_beside_others(&self) -> Option<(Origin, Vec<Origin>)> {
        let waiting = self.line.audiences().find_map(|audience| match audience {
            Audience::Only(origin) => Some(origin).filter(|origin| {
                let see = |consumers: &Consumers| consumers.origin.is_none_or(|own| own == *origin);
                !self.consumers.iter().any(see)
            }),
            Audience::AllBut(_) => None,
        })?;
        let others = self.consumers.iter().filter(|consumers| consumers.are_there());
        let others: Vec<Origin> = others.filter_map(|consumers| consumers.origin).collect();
        if others.is_empty() { None } else { Some((waiting, others)) }
    }
}

/// How long nothing more is said of a queue.
const NOTICE_PAUSE_MS: u64 = 60_000;

/// When somebody was last told of a queue; [`NOTICE_PAUSE_MS`] later it is worth saying again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noticed {
    /// That its jobs wait where only other protocols' workers are.
    unserved: Option<Timestamp>,
}

/// Whether it is time to say something, and from now on it is said.
fn is_news(said_at: &mut Option<Timestamp>, now: Timestamp) -> bool {
    let news = said_at.is_none_or(|at| now >= at.after_ms(NOTICE_PAUSE_MS));
    if news {
        *said_at = Some(now);
    }
    news
}

impl Engine {
    /// The protocol a client speaks, if it said so.
    pub(crate) fn origin_of(&self, client: ClientId) -> Option<Origin> {
        self.clients.get(&client).and_then(|client| client.info.origin)
    }

    /// From now on these are the queues that all protocols share. Looks at all queues, and at the ready jobs of those for which
    /// that is new.
    pub(crate) fn bridge(&mut self, client: ClientId, tag: Tag, bridge: Bridge, turn: &mut Turn) {
        self.queues.bridge = bridge;
        for id in (0..self.queues.numbers()).map(QueueId) {
            let Some(queue) = self.queues.at(id) else { continue };
            let bridged = self.queues.bridges(&queue.image);
            if queue.bridged != bridged {
                self.sort_line_anew(id, |queue| queue.bridged = bridged, |_| {});
                self.serve(id, turn);
            }
        }
        self.tell_done(client, tag, turn);
    }

    /// Something changes that decides who sees the ready jobs of a queue. Looks at all of them. The caller serves it.
    pub(crate) fn sort_line_anew(&mut self, id: QueueId, change: impl FnOnce(&mut Queue), each: impl Fn(&mut Job)) {
        self.forget_stray(id);
        let Some(queue) = self.queues.at_mut(id) else { return };
        change(queue);
        let mut line = Line::new(queue.image.kind);
        for slot in queue.line.slots() {
            if let Some(job) = self.jobs.at_mut(slot) {
                each(job);
                line.insert(Standing::of(job), queue.audience_of(job), slot);
            }
        }
        queue.line = line;
        self.note_stray(id);
    }

    /// A worker of this protocol cannot be given this leased job. Says whether one of another can.
    pub(crate) fn mark_unfit(&mut self, slot: Slot, own: Option<Origin>) -> bool {
        let Some(job) = self.jobs.at_mut(slot) else { return false };
        let Some(unfit) = own.and_then(|own| job.unfit.and(own)) else { return false };
        job.unfit = unfit;
        let bridged = self.queues.at(job.queue).is_some_and(|queue| queue.bridged);
        !job.is_nobodys(bridged)
    }

    /// A job has another body, and may suit those whom it did not suit.
    pub(crate) fn suits_anew(&mut self, slot: Slot, turn: &mut Turn) {
        let Some(job) = self.jobs.at_mut(slot).filter(|job| job.unfit != Unfit::NONE) else { return };
        if job.place != Place::Ready {
            job.unfit = Unfit::NONE;
            return;
        }
        let queue = job.queue;
        // On the shelf it stands in no line.
        self.move_job(slot, Place::Shelved);
        if let Some(job) = self.jobs.at_mut(slot) {
            job.unfit = Unfit::NONE;
        }
        self.move_job(slot, Place::Ready);
        self.serve(queue, turn);
    }

    /// Says so if jobs of one protocol wait where only those of others work: somebody may have meant them to share.
    pub(crate) fn notice_unserved(&mut self, id: QueueId, turn: &mut Turn) {
        let now = self.now;
        let Some(queue) = self.queues.at_mut(id) else { return };
        if queue.bridged || queue.image.kind != QueueKind::Work {
            return;
        }
        let Some((jobs, workers)) = queue.unserved_beside_others() else { return };
        if !self.strays.are_taken(jobs) && is_news(&mut queue.noticed.unserved, now) {
            turn.notice(NoticeKind::Unserved { jobs, workers }, || {
                (queue.image.name.clone(), Bytes::new(), Bytes::new())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
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
        // No pattern takes longer than the product of the two lengths.
        assert!(!matches(&b"*a".repeat(2_000), &[b"a".repeat(8_000), b"b".to_vec()].concat()));
    }

    #[test]
    fn a_queue_named_by_itself_is_what_it_is_said_to_be() {
        let named = BTreeMap::from([(Bytes::from_static(b"thumb-x"), false), (Bytes::from_static(b"mail"), true)]);
        let bridge = Bridge { patterns: vec![Bytes::from_static(b"thumb-*")], named };
        let table = [("thumb-y", true), ("thumb-x", false), ("mail", true), ("default", false)];
        table.iter().for_each(|(name, expected)| assert_eq!(bridge.includes(name.as_bytes()), *expected, "{name}"));
        assert!(Bridge::all().includes(b""));
    }
}
