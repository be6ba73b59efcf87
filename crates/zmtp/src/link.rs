//! A peer of a listener, with its place in the registry: the transport of every session over ZMTP.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::Timestamp;
use windlass_session::{Reason, Transport};

use crate::{Close, Event, Peer, Registration, Settings};

/// A connection that a listener has accepted.
#[derive(Debug)]
pub struct Link {
    peer: Peer,
    registration: Registration,
}

impl Link {
    /// A connection that has just been accepted.
    pub fn new(settings: Arc<Settings>, registration: Registration) -> Self {
        Self {
            peer: Peer::new(settings),
            registration,
        }
    }

    /// See [`Peer::open`].
    pub fn open(&mut self, now: Timestamp, out: &mut BytesMut) {
        self.peer.open(now, out);
    }

    /// See [`Peer::read`]. The end of the handshake settles the identity.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn read(
        &mut self,
        now: Timestamp,
        input: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<Option<Event>, Close> {
        let found = self.peer.read(now, input, out);
        if let Ok(Some(Event::Ready(ready))) = &found {
            if let Some(namespace) = self.peer.settings().namespace_of(ready) {
                self.registration.move_to(namespace);
            }
            self.registration.settle(ready.identity.clone(), now);
        }
        found
    }

    /// Whether the peer's login can tell its namespace: see [`Settings::namespace_of`].
    pub fn awaits_login(&self) -> bool {
        self.peer.settings().guests.is_some()
    }

    /// The peer, to send to.
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The connection's identity, once the handshake is done.
    pub const fn identity(&self) -> Option<&Bytes> {
        self.registration.identity()
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
        self.peer.next_deadline()
    }

    fn tick(&mut self, now: Timestamp, out: &mut BytesMut) -> Result<(), Reason> {
        Ok(self.peer.tick(now, out)?)
    }

    fn reset_liveness(&mut self, now: Timestamp) {
        self.peer.reset_liveness(now);
    }

    fn seal(&mut self, bytes: &[u8]) -> Option<BytesMut> {
        self.peer.seal(bytes)
    }
}
