//! eMQP as transcripts write it: a command, and the frames behind it. Over ZMTP, with an identity.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::Timestamp;
use windlass_session::{Dismiss, Post, Reason};
use windlass_testkit::transcript::{Heard, MemoryWire, Said, Speech, Spoken, Wire};
use windlass_zmtp::wire::Header;
use windlass_zmtp::{Event, Message, Peer, Role, Settings};

/// Messages: the verb is the command, the arguments are the identifier and all frames behind it. `RAW` sends its arguments
/// as they are, without a head.
pub(crate) struct Emqp;

impl Speech for Emqp {
    fn encode(&self, verb: &str, arguments: &[Bytes]) -> Result<Said, String> {
        let arguments = arguments.iter().map(|argument| &argument[..]);
        let message = match verb {
            "RAW" => Message::new(arguments),
            _ => Message::new([b"", &b"eMQP/1.0"[..], verb.as_bytes()].into_iter().chain(arguments)),
        };
        Ok(Said { bytes: message.into_frames(), whole: true })
    }

    fn decode(&self, input: &mut BytesMut) -> Result<Option<Spoken>, String> {
        let mut frames: Vec<Bytes> = Vec::new();
        let mut more = true;
        while more {
            let Some(header) = Header::decode(input).map_err(|why| why.to_string())? else { return Ok(None) };
            more = header.flags.is_more();
            let mut frame = input.split_to(header.header_bytes + usize::try_from(header.body_bytes).unwrap());
            frames.push(frame.split_off(header.header_bytes).freeze());
        }
        let mut frames = frames.into_iter();
        let head = [frames.next(), frames.next()].map(Option::unwrap_or_default);
        assert_eq!((&*head[0], &*head[1]), (&b""[..], &b"eMQP/1.0"[..]), "the head");
        let verb = frames.next().unwrap_or_default();
        Ok(Some(Spoken { verb: String::from_utf8_lossy(&verb).into_owned(), arguments: frames.collect() }))
    }

    fn barrier(&self, _number: u64) -> (Bytes, Spoken) {
        panic!("eMQP has no message that is answered at once and by everybody")
    }
}

/// The way to a connection that takes nothing.
#[derive(Debug)]
pub(crate) struct NoLine;

impl Dismiss for NoLine {
    fn dismiss(&self, _why: Reason) {}
}

impl Post for NoLine {
    fn post(&self, _words: Bytes) -> bool {
        false
    }
}

/// What is said, as messages of a DEALER that is called what the transcript calls it.
pub(crate) struct ZmtpWire<'a> {
    inner: MemoryWire<'a>,
    peers: BTreeMap<String, (Peer, BytesMut)>,
}

impl<'a> ZmtpWire<'a> {
    pub(crate) const fn new(inner: MemoryWire<'a>) -> Self {
        Self { inner, peers: BTreeMap::new() }
    }

    pub(crate) const fn inner(&self) -> &MemoryWire<'a> {
        &self.inner
    }
}

impl Wire for ZmtpWire<'_> {
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
        self.inner.send(who, bytes);
    }

    fn receive(&mut self, who: &str, into: &mut BytesMut) -> Heard {
        let Some((peer, input)) = self.peers.get_mut(who) else { return Heard::Closed };
        let heard = self.inner.receive(who, input);
        let (before, mut out) = (into.len(), BytesMut::new());
        while let Some(event) = peer.read(Timestamp(0), input, &mut out).unwrap_or_else(|why| panic!("{who}: {why}")) {
            if let Event::Message(message) = event {
                into.extend_from_slice(message.frames());
            }
        }
        // What answers the transport's own commands.
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

    fn is_immediate(&self) -> bool {
        self.inner.is_immediate()
    }
}
