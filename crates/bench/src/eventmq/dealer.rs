//! A connection that is not measured: messages one after the other, blocking.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Message, Peer, Role, Settings};

use crate::error::Error;
use crate::load::stamp::Random;

/// How long a handshake, or a write, may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The codec's deadlines are not used here.
const NOW: Timestamp = Timestamp(0);
const READ_BYTES: usize = 64 * 1024;

/// See the module.
#[derive(Debug)]
pub struct Dealer {
    stream: TcpStream,
    peer: Peer,
    input: BytesMut,
    output: BytesMut,
    scratch: Vec<u8>,
}

impl Dealer {
    /// Connects, with a random identity from `rng`.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Protocol`].
    pub fn open(addr: SocketAddr, rng: &mut Random) -> Result<Self, Error> {
        let stream = TcpStream::connect(addr).map_err(Error::io("connect"))?;
        stream.set_nodelay(true).map_err(Error::io("set no delay"))?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(Error::io("set a timeout"))?;
        let peer = Peer::new(Arc::new(Settings::new(Role::Dealer)));
        let (input, output, scratch) = (BytesMut::new(), BytesMut::new(), vec![0; READ_BYTES]);
        let mut dealer = Self { stream, peer, input, output, scratch };
        dealer.peer.open_as(Bytes::copy_from_slice(&rng.unique()), NOW, &mut dealer.output);
        match dealer.event(PATIENCE)? {
            Some(Event::Ready(_)) => Ok(dealer),
            other => Err(Error::Protocol(format!("{other:?} instead of a handshake"))),
        }
    }

    /// Sets a message aside, to leave with the next call of [`Dealer::flush`] or [`Dealer::receive`].
    pub fn put<const N: usize>(&mut self, parts: [&[u8]; N]) {
        let unsent = self.peer.send(parts, &mut self.output);
        debug_assert_eq!(unsent, Ok(()));
    }

    /// Writes what was set aside.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.stream.write_all(&self.output).map_err(Error::io("write"))?;
        self.output.clear();
        Ok(())
    }

    /// The next message, if one arrives within this time, which must not be zero.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Protocol`], also if the server hangs up.
    pub fn receive(&mut self, within: Duration) -> Result<Option<Message>, Error> {
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
            let closed = |close| Error::Protocol(format!("ZMTP: {close}"));
            let event = self.peer.read(NOW, &mut self.input, &mut self.output).map_err(closed)?;
            self.flush()?;
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
