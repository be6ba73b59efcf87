//! ZeroMQ's transport, in the role of a DEALER: under a speaker, and on a blocking connection for questions. The codec is
//! [`windlass_zmtp`], as in the daemon; its own tests run it against libzmq.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Message, Peer, Role, Settings};

use crate::driver::Speaker;
use crate::error::Error;
use crate::tally::Tally;

/// How long an answer, a handshake or a write may take.
const PATIENCE: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 * 1024;

/// A speaker above the transport.
pub(crate) trait Talk {
    /// The connection's identity; empty for none.
    fn identity(&self, _tally: &mut Tally) -> Bytes {
        Bytes::new()
    }

    /// Sends as much as is allowed now: after the handshake, and when clients may resume.
    fn begin(&mut self, line: &mut Line<'_>, tally: &mut Tally);

    /// Answers a message. For errors see [`Speaker::on_bytes`].
    fn on_message(&mut self, message: &Message, line: &mut Line<'_>, tally: &mut Tally) -> Result<(), Error>;
}

/// The output of a [`Talk`].
pub(crate) struct Line<'a> {
    peer: &'a Peer,
    output: &'a mut BytesMut,
}

impl Line<'_> {
    /// Fails only before the handshake, or with 128 MiB queued; then no answer comes and the run stalls.
    #[inline]
    pub(crate) fn send<const N: usize>(&mut self, parts: [&[u8]; N]) {
        let unsent = self.peer.send(parts, self.output);
        debug_assert_eq!(unsent, Ok(()));
    }
}

/// A speaker with its side of the transport.
pub(crate) struct Dealer<T> {
    talk: T,
    peer: Peer,
    greeted: bool,
    /// Received bytes of an incomplete message.
    input: BytesMut,
    /// Bytes for the next write.
    output: BytesMut,
}

impl<T: Talk + 'static> Dealer<T> {
    /// The speaker of a new connection.
    pub(crate) fn boxed(talk: T) -> Box<dyn Speaker> {
        let (input, output) = (BytesMut::new(), BytesMut::new());
        Box::new(Self { talk, peer: dealer(), greeted: false, input, output })
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.output);
        self.output.clear();
    }
}

impl<T: Talk + 'static> Speaker for Dealer<T> {
    fn on_wake(&mut self, out: &mut Vec<u8>, tally: &mut Tally) {
        if !self.greeted {
            self.greeted = true;
            let identity = self.talk.identity(tally);
            self.peer.open_as(identity, now(tally), &mut self.output);
        } else if self.peer.is_ready() {
            self.talk.begin(&mut Line { peer: &self.peer, output: &mut self.output }, tally);
        }
        self.drain(out);
    }

    #[inline]
    fn on_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>, tally: &mut Tally) -> Result<usize, Error> {
        self.input.extend_from_slice(bytes);
        let now = now(tally);
        while let Some(event) = self.peer.read(now, &mut self.input, &mut self.output).map_err(closed)? {
            let mut line = Line { peer: &self.peer, output: &mut self.output };
            match event {
                Event::Message(message) => self.talk.on_message(&message, &mut line, tally)?,
                Event::Ready(_) => self.talk.begin(&mut line, tally),
                // Only publishers receive subscriptions.
                Event::Subscribe(_) | Event::Cancel(_) => {}
            }
        }
        self.drain(out);
        Ok(bytes.len())
    }
}

/// A connection that is not measured: messages one after the other, blocking.
pub(crate) struct Desk {
    stream: TcpStream,
    peer: Peer,
    input: BytesMut,
    output: BytesMut,
    scratch: Vec<u8>,
}

impl Desk {
    /// Connects. [`Error::Io`], [`Error::Protocol`].
    pub(crate) fn open(addr: SocketAddr, identity: &[u8]) -> Result<Self, Error> {
        let stream = TcpStream::connect(addr).map_err(Error::io("connect"))?;
        stream.set_nodelay(true).map_err(Error::io("set no delay"))?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(Error::io("set a timeout"))?;
        let (input, output, scratch) = (BytesMut::new(), BytesMut::new(), vec![0; READ_BYTES]);
        let mut desk = Self { stream, peer: dealer(), input, output, scratch };
        desk.peer.open_as(Bytes::copy_from_slice(identity), Timestamp(0), &mut desk.output);
        match desk.event(PATIENCE)? {
            Some(Event::Ready(_)) => Ok(desk),
            other => Err(Error::Protocol(format!("{other:?} instead of a handshake"))),
        }
    }

    /// Sets a message aside, to leave with the next call of any other method.
    pub(crate) fn put<const N: usize>(&mut self, parts: [&[u8]; N]) {
        Line { peer: &self.peer, output: &mut self.output }.send(parts);
    }

    /// The answer to a question, which is named in errors. [`Error::Io`], [`Error::Protocol`].
    pub(crate) fn ask<const N: usize>(&mut self, name: &str, parts: [&[u8]; N]) -> Result<Message, Error> {
        self.put(parts);
        self.receive(PATIENCE)?.ok_or_else(|| Error::Protocol(format!("no answer to {name}")))
    }

    /// The next message, if one arrives within this time, which must not be zero.
    /// [`Error::Io`]; [`Error::Protocol`], also if the server hangs up.
    pub(crate) fn receive(&mut self, within: Duration) -> Result<Option<Message>, Error> {
        match self.event(within)? {
            Some(Event::Message(message)) => Ok(Some(message)),
            None => Ok(None),
            other @ Some(Event::Ready(_) | Event::Subscribe(_) | Event::Cancel(_)) => {
                Err(Error::Protocol(format!("{other:?} instead of a message")))
            }
        }
    }

    fn event(&mut self, within: Duration) -> Result<Option<Event>, Error> {
        let begun = Instant::now();
        loop {
            // The codec's deadlines are not used here.
            let event = self.peer.read(Timestamp(0), &mut self.input, &mut self.output).map_err(closed)?;
            self.stream.write_all(&self.output).map_err(Error::io("write"))?;
            self.output.clear();
            let left = within.saturating_sub(begun.elapsed());
            if event.is_some() || left.is_zero() {
                return Ok(event);
            }
            self.stream.set_read_timeout(Some(left)).map_err(Error::io("set a timeout"))?;
            match self.stream.read(&mut self.scratch) {
                Ok(0) => return Err(Error::Protocol("the server hung up".to_owned())),
                Ok(count) => self.input.extend_from_slice(self.scratch.get(..count).unwrap_or_default()),
                Err(refusal) if is_no_answer(&refusal) => {}
                Err(refusal) => return Err(Error::io("read")(refusal)),
            }
        }
    }
}

fn is_no_answer(refusal: &io::Error) -> bool {
    matches!(refusal.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn dealer() -> Peer {
    Peer::new(Arc::new(Settings::new(Role::Dealer)))
}

fn closed(close: windlass_zmtp::Close) -> Error {
    Error::Protocol(format!("ZMTP: {close}"))
}

fn now(tally: &Tally) -> Timestamp {
    Timestamp(tally.now_nanos / 1_000_000)
}
