//! The network between daemons: connections with bytes in flight in both directions. A connection
//! may be cut; each end notices later, or never.

use std::collections::{BTreeMap, VecDeque};

use bytes::BytesMut;
use windlass_testkit::rng::Rng;

use super::as_ms;
use super::database::Run;
use windlass_cluster::link::UNANSWERED_MAX;

/// How long an end waits for the other machine to acknowledge bytes, in milliseconds.
const UNANSWERED_MS: u64 = as_ms(UNANSWERED_MAX);

/// The end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The daemon that has connected.
    Edge,
    Leader,
}

/// Bytes on their way to one end.
#[derive(Debug, Default)]
struct Pipe {
    /// Each with its arrival.
    pieces: VecDeque<(u64, Vec<u8>)>,
    /// When the reader notices that the connection has closed, after the bytes.
    ends_at: Option<u64>,
    last_at: u64,
}

#[derive(Debug)]
struct Link {
    edge: Run,
    leader: Run,
    to_edge: Pipe,
    to_leader: Pipe,
    is_cut: bool,
    is_accepted: bool,
}

/// How often the network is slow, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delays {
    pub(super) slow: u64,
}

#[derive(Debug, Default)]
pub(super) struct Links {
    links: BTreeMap<u64, Link>,
    next: u64,
    pub(super) delays: Delays,
}

impl Links {
    /// A daemon connects to another one.
    pub(super) fn connect(&mut self, edge: Run, leader: Run) -> u64 {
        self.next += 1;
        let (to_edge, to_leader) = Default::default();
        let link = Link {
            edge,
            leader,
            to_edge,
            to_leader,
            is_cut: false,
            is_accepted: false,
        };
        self.links.insert(self.next, link);
        self.next
    }

    /// Whether both ends are open, and the leader's is at this daemon.
    pub(super) fn is_whole(&self, number: u64, leader: Run) -> bool {
        let pipes = |link: &Link| link.to_edge.ends_at.or(link.to_leader.ends_at);
        let mut link = self.links.get(&number).into_iter();
        link.any(|link| link.leader == leader && !link.is_cut && pipes(link).is_none())
    }

    /// Whether something is in flight between two connected daemons. A piece sent while links were
    /// slow may be delayed by seconds.
    pub(super) fn carry_any(&self) -> bool {
        let is_whole =
            |link: &&Link| !link.is_cut && link.pipes().iter().all(|pipe| pipe.ends_at.is_none());
        let mut whole = self.links.values().filter(is_whole);
        whole.any(|link| link.pipes().iter().any(|pipe| !pipe.pieces.is_empty()))
    }

    /// A connection that a daemon has not accepted yet.
    pub(super) fn accept(&mut self, leader: Run) -> Option<(u64, Run)> {
        let mut new = self
            .links
            .iter_mut()
            .filter(|(_, link)| link.leader == leader && !link.is_accepted);
        new.next().map(|(number, link)| {
            link.is_accepted = true;
            (*number, link.edge)
        })
    }

    pub(super) fn send(&mut self, number: u64, from: End, bytes: Vec<u8>, now: u64, rng: &mut Rng) {
        let slow = rng.chance(self.delays.slow);
        let Some(link) = self
            .links
            .get_mut(&number)
            .filter(|link| !link.is_cut && !bytes.is_empty())
        else {
            return;
        };
        let pipe = link.pipe_from(from);
        let delay = if slow {
            rng.between(20, 3_000)
        } else {
            rng.between(0, 3)
        };
        pipe.last_at = pipe.last_at.max(now + delay);
        // Bytes arrive in pieces.
        let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
        let (one, other) = bytes.split_at(at);
        pipe.pieces.push_back((pipe.last_at, one.to_vec()));
        pipe.last_at += u64::from(rng.chance(10)) * rng.below(50);
        pipe.pieces.push_back((pipe.last_at, other.to_vec()));
    }

    /// Receives what has arrived. Returns whether the connection has closed after that; `None` if
    /// nothing has arrived.
    pub(super) fn read(
        &mut self,
        number: u64,
        at: End,
        now: u64,
        into: &mut BytesMut,
    ) -> Option<bool> {
        let Some(link) = self.links.get_mut(&number) else {
            return Some(true);
        };
        let pipe = link.pipe_to(at);
        let (mut any, had) = (false, into.len());
        while let Some((_, bytes)) = pipe.pieces.pop_front_if(|(arrives, _)| *arrives <= now) {
            into.extend_from_slice(&bytes);
            any = true;
        }
        let ends = pipe.pieces.is_empty() && pipe.ends_at.is_some_and(|ends_at| ends_at <= now);
        (ends || any && into.len() > had).then_some(ends)
    }

    /// Closes one end. The other notices after the bytes in flight.
    pub(super) fn close(&mut self, number: u64, from: End, now: u64) {
        if let Some(link) = self.links.get_mut(&number) {
            let pipe = link.pipe_from(from);
            let at = pipe.last_at.max(now);
            pipe.ends_at.get_or_insert(at);
        }
    }

    /// A daemon is gone. Its machine notifies the others, unless it is gone too.
    pub(super) fn forget(&mut self, run: Run, now: u64, silently: bool) {
        for link in self.links.values_mut() {
            for (whose, from) in [(link.edge, End::Edge), (link.leader, End::Leader)] {
                if whose == run {
                    let at = if silently {
                        now + UNANSWERED_MS
                    } else {
                        now + 1
                    };
                    let pipe = link.pipe_from(from);
                    if silently {
                        pipe.pieces.clear();
                    }
                    pipe.ends_at.get_or_insert(at);
                    link.is_cut = true;
                }
            }
        }
    }

    /// Cuts a connection somewhere in between. Some bytes in flight are lost.
    pub(super) fn cut_one(&mut self, now: u64, rng: &mut Rng) -> bool {
        let mut whole = self
            .links
            .values_mut()
            .filter(|link| !link.is_cut && link.is_accepted);
        let Some(link) = whole.nth(usize::try_from(rng.below(3)).unwrap()) else {
            return false;
        };
        link.is_cut = true;
        for from in [End::Edge, End::Leader] {
            let pipe = link.pipe_from(from);
            pipe.pieces.truncate(usize::try_from(rng.below(4)).unwrap());
            let at = if rng.chance(50) {
                now + rng.below(100)
            } else {
                now + UNANSWERED_MS
            };
            pipe.ends_at.get_or_insert(at);
        }
        true
    }
}

impl Link {
    const fn pipes(&self) -> [&Pipe; 2] {
        [&self.to_edge, &self.to_leader]
    }

    const fn pipe_from(&mut self, end: End) -> &mut Pipe {
        match end {
            End::Edge => &mut self.to_leader,
            End::Leader => &mut self.to_edge,
        }
    }

    const fn pipe_to(&mut self, end: End) -> &mut Pipe {
        match end {
            End::Edge => &mut self.to_edge,
            End::Leader => &mut self.to_leader,
        }
    }
}
