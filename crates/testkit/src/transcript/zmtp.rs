//! A conversation over ZMTP: sends a peer's bytes as messages of a DEALER.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Message, Peer, Role, Settings};

use super::{Heard, Wire};

/// How a peer's bytes are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// They are the second and last part, behind the empty part of a REQ.
    Enveloped,
    /// They contain the frames of whole messages.
    Whole,
}

/// A wire whose peers are DEALERs. The inner wire must be immediate.
#[derive(Debug)]
pub struct ZmtpWire<W> {
    inner: W,
    framing: Framing,
    peers: BTreeMap<String, (Peer, BytesMut)>,
}

impl<W> ZmtpWire<W> {
    /// ZMTP messages over `inner`.
    #[must_use]
    pub const fn new(inner: W, framing: Framing) -> Self {
        Self {
            inner,
            framing,
            peers: BTreeMap::new(),
        }
    }

    /// The inner wire.
    #[must_use]
    pub const fn inner(&self) -> &W {
        &self.inner
    }

    fn hear(&self, who: &str, message: &Message, into: &mut BytesMut) {
        match self.framing {
            Framing::Enveloped => {
                let envelope = (message.parts().len(), message.parts().next());
                assert_eq!(envelope, (2, Some(&b""[..])), "{who}: the envelope");
                into.extend_from_slice(message.last());
            }
            Framing::Whole => into.extend_from_slice(message.frames()),
        }
    }
}

impl<W: Wire> Wire for ZmtpWire<W> {
    fn open(&mut self, who: &str) -> Result<(), String> {
        self.inner.open(who)?;
        let mut peer = Peer::new(Arc::new(Settings::new(Role::Dealer)));
        let mut out = BytesMut::new();
        peer.open(Timestamp(0), &mut out);
        self.inner.send(who, &out);
        self.peers.insert(who.to_owned(), (peer, BytesMut::new()));
        self.receive(who, &mut out);
        Ok(())
    }

    fn send(&mut self, who: &str, bytes: &[u8]) {
        let Some((peer, _)) = self.peers.get(who) else {
            return;
        };
        match self.framing {
            Framing::Enveloped => {
                let mut out = BytesMut::new();
                let sent = peer.send([&b""[..], bytes], &mut out);
                assert!(sent.is_ok(), "{who}: {sent:?}");
                self.inner.send(who, &out);
            }
            Framing::Whole => self.inner.send(who, bytes),
        }
    }

    fn receive(&mut self, who: &str, into: &mut BytesMut) -> Heard {
        let Some((mut peer, mut input)) = self.peers.remove(who) else {
            return Heard::Closed;
        };
        let heard = self.inner.receive(who, &mut input);
        let (before, mut out) = (into.len(), BytesMut::new());
        loop {
            let event = peer.read(Timestamp(0), &mut input, &mut out);
            assert!(event.is_ok(), "{who}: {event:?}");
            match event {
                Ok(Some(Event::Message(message))) => self.hear(who, &message, into),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.peers.insert(who.to_owned(), (peer, input));
        // Answers to the transport's own commands.
        self.inner.send(who, &out);
        match heard {
            _ if into.len() > before => Heard::Bytes,
            Heard::Bytes => Heard::Nothing,
            Heard::Nothing | Heard::Closed => heard,
        }
    }

    fn half_close(&mut self, who: &str) {
        self.inner.half_close(who);
    }

    fn close(&mut self, who: &str) {
        self.inner.close(who);
    }

    fn advance_ms(&mut self, ms: u64) -> Result<(), String> {
        self.inner.advance_ms(ms)
    }

    fn stall(&mut self) -> Result<(), String> {
        self.inner.stall()
    }

    fn resume(&mut self) -> Result<(), String> {
        self.inner.resume()
    }

    fn is_immediate(&self) -> bool {
        self.inner.is_immediate()
    }
}
