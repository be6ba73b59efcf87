//! A peer of a listener, with its place in the registry: the transport of every session over ZMTP.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::Timestamp;
use windlass_session::{Reason, Transport};

use crate::{Close, Event, Peer, Registration, Settings};

/// A peer that is silent for so long in the handshake gives way, if there are too many handshakes. Each of its steps
/// takes an honest peer one round trip.
const SILENCE_MS: u64 = 1_000;

/// Its silence counts from a look that comes so long after its last bytes, or later: by then it has our answer to them.
/// A busy daemon sends the answer late, and looks later still.
const ANSWER_MS: u64 = 250;

/// A connection that a listener has accepted.
#[derive(Debug)]
pub struct Link {
    peer: Peer,
    registration: Registration,
    /// When the silent peer was looked at last.
    looked_at: Timestamp,
}

impl Link {
    /// A connection that has just been accepted.
    #[must_use]
    pub fn new(settings: Arc<Settings>, registration: Registration) -> Self {
        Self { peer: Peer::new(settings), registration, looked_at: Timestamp(0) }
    }

    /// See [`Peer::open`].
    pub fn open(&mut self, now: Timestamp, out: &mut BytesMut) {
        self.registration.begin();
        self.peer.open(now, out);
    }

    /// See [`Peer::read`]. The end of the handshake settles the identity.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn read(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Event>, Close> {
        let found = self.peer.read(now, input, out);
        if let Ok(Some(Event::Ready(ready))) = &found {
            self.registration.settle(ready.identity.clone(), now);
        }
        found
    }

    /// The peer, to send to.
    #[must_use]
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The connection's identity, once the handshake is done.
    #[must_use]
    pub const fn identity(&self) -> Option<&Bytes> {
        self.registration.identity()
    }

    /// Whether the peer has been silent since the last look.
    fn is_silent(&self) -> bool {
        self.looked_at > self.peer.received_at()
    }

    /// When the next look at a peer in the handshake is due.
    fn look_at(&self) -> Option<Timestamp> {
        let silent_at = self.looked_at.after_ms(SILENCE_MS);
        let at = if self.is_silent() { silent_at } else { self.peer.received_at().after_ms(ANSWER_MS) };
        self.registration.is_pending().then_some(at)
    }
}

impl Transport for Link {
    fn messages(&self) -> u64 {
        self.peer.messages()
    }

    fn held_bytes(&self) -> usize {
        self.peer.held_bytes()
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.peer.next_deadline().into_iter().chain(self.look_at()).min()
    }

    fn tick(&mut self, now: Timestamp, out: &mut BytesMut) -> Result<(), Reason> {
        if self.look_at().is_some_and(|at| at <= now) {
            if self.is_silent() && self.registration.gives_way() {
                return Err(Close::Evicted.into());
            }
            self.looked_at = now;
        }
        Ok(self.peer.tick(now, out)?)
    }

    fn reset_liveness(&mut self, now: Timestamp) {
        self.peer.reset_liveness(now);
    }

    fn seal(&mut self, bytes: &[u8]) -> Option<BytesMut> {
        self.peer.seal(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectionRegistry, Role};

    /// When a silent peer is looked at after its greeting has begun, in milliseconds, and whether it must leave then.
    type Looks = &'static [(u64, bool)];

    #[test]
    fn silence_in_the_handshake_counts_from_when_the_peer_has_our_answer() {
        let table: [Looks; 3] = [
            &[
                (ANSWER_MS - 1, false),
                (ANSWER_MS, false),
                (ANSWER_MS + SILENCE_MS - 1, false),
                (ANSWER_MS + SILENCE_MS, true),
            ],
            // A busy daemon: it may have answered just before it looks.
            &[(3_000, false), (3_999, false), (4_000, true)],
            &[(300, false), (2_000, true)],
        ];
        for looks in table {
            let at = |ms| Timestamp(1_000_000 + ms);
            let registration = ConnectionRegistry::new(0).enter(Arc::new(|_| ()));
            let mut link = Link::new(Arc::new(Settings::new(Role::Router)), registration);
            let mut out = BytesMut::new();
            link.open(at(0), &mut out);
            assert!(link.read(at(0), &mut BytesMut::from(&b"\xff"[..]), &mut out).is_ok());
            for (ms, leaves) in looks {
                assert_eq!(link.tick(at(*ms), &mut out).is_err(), *leaves, "{ms} ms of {looks:?}");
            }
        }
    }
}
