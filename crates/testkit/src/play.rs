//! Moves of some peers on a server without sockets: what they send, in any pieces, and what they receive.

use std::collections::BTreeMap;
use std::fmt;

use windlass_engine::ClientId;

use crate::memory::MemoryHub;

/// A step of a test.
#[derive(Clone)]
pub enum Move {
    /// A peer sends bytes.
    Send(usize, Vec<u8>),
    /// A peer disconnects, and another one connects.
    Replace(usize),
    /// A peer closes its side and sends nothing more.
    HalfClose(usize),
    /// Milliseconds pass.
    Wait(u64),
}

impl fmt::Debug for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(peer, bytes) => write!(f, "{peer} sends {}", bytes.escape_ascii()),
            Self::Replace(peer) => write!(f, "{peer} is replaced"),
            Self::HalfClose(peer) => write!(f, "{peer} closes its side"),
            Self::Wait(ms) => write!(f, "{ms} ms"),
        }
    }
}

/// The same moves, with bytes sent one at a time.
#[must_use]
pub fn single_bytes(moves: &[Move]) -> Vec<Move> {
    let bytes = |next: &Move| match next {
        Move::Send(peer, bytes) => bytes
            .iter()
            .map(|byte| Move::Send(*peer, vec![*byte]))
            .collect(),
        other @ (Move::Replace(_) | Move::HalfClose(_) | Move::Wait(_)) => vec![other.clone()],
    };
    moves.iter().flat_map(bytes).collect()
}

/// Bytes in pieces that end at these places, in any order, and at the end.
pub fn pieces(bytes: &[u8], mut ends: Vec<usize>) -> impl Iterator<Item = &[u8]> {
    ends.push(bytes.len());
    ends.sort_unstable();
    let starts = std::iter::once(0).chain(ends.clone());
    starts
        .zip(ends)
        .map(|(start, end)| bytes.get(start..end).unwrap_or_default())
}

/// A server, its peers, and the bytes that peers have received, disconnected ones included.
#[derive(Debug)]
pub struct World<G> {
    hub: MemoryHub,
    greet: G,
    peers: BTreeMap<usize, ClientId>,
    received: Vec<String>,
}

impl<G: FnMut(&mut MemoryHub, usize) -> ClientId> World<G> {
    /// A server with this number of peers. `greet` connects one.
    pub fn new(mut hub: MemoryHub, peers: usize, mut greet: G) -> Self {
        let peers = (0..peers)
            .map(|peer| (peer, greet(&mut hub, peer)))
            .collect();
        Self {
            hub,
            greet,
            peers,
            received: Vec::new(),
        }
    }

    /// Plays the moves in order. `cuts` returns where to split a number of bytes. Returns what each peer has received,
    /// and checks the engine.
    pub fn play(mut self, moves: &[Move], cuts: impl Fn(usize) -> Vec<usize>) -> Vec<String> {
        for next in moves {
            match next {
                Move::Send(peer, bytes) => {
                    let client = self.peer(*peer);
                    pieces(bytes, cuts(bytes.len())).for_each(|piece| self.hub.send(client, piece));
                }
                Move::Replace(peer) => {
                    let gone = self.peer(*peer);
                    self.hub.close(gone);
                    self.receive(gone);
                    let new = (self.greet)(&mut self.hub, *peer);
                    self.peers.insert(*peer, new);
                }
                Move::HalfClose(peer) => {
                    let client = self.peer(*peer);
                    self.hub.half_close(client);
                }
                Move::Wait(ms) => self.hub.advance_ms(*ms),
            }
        }
        self.peers
            .clone()
            .into_values()
            .for_each(|peer| self.receive(peer));
        self.hub.engine().check();
        self.received
    }

    /// A peer that a move names for the first time connects then.
    fn peer(&mut self, peer: usize) -> ClientId {
        let Self {
            hub, greet, peers, ..
        } = self;
        *peers.entry(peer).or_insert_with(|| greet(hub, peer))
    }

    fn receive(&mut self, client: ClientId) {
        let received = self.hub.take_output(client);
        self.received.push(received.escape_ascii().to_string());
    }
}
