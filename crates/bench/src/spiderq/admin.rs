//! Queries a server's own counts, as a check of the generator's. Blocking, one request at a time.
//!
//! Spec: `spiderq-protocol`, "Count" and "Stats".

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Message, Peer, Role, Settings};

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::spiderq::ledger::Ledger;
use crate::spiderq::wire::{self, Reply, Stats};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How often counts are read until they agree.
const POLL: Duration = Duration::from_millis(2);
/// The codec's deadlines are not used here.
const NOW: Timestamp = Timestamp(0);

/// Waits until the server's counts are those of the ledger. They agree at once, unless a request at the end of the run was sent
/// without waiting for its answer.
///
/// # Errors
/// [`Error::Mismatch`] if they still differ after `patience`; [`Error::Io`], [`Error::Protocol`], [`Error::Interrupted`].
pub fn await_agreement(
    addr: SocketAddr,
    ledger: &Ledger,
    patience: Duration,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let (begun, mut desk) = (Instant::now(), Desk::open(addr)?);
    loop {
        let (queued, stats) = (desk.count()?, desk.stats()?);
        // 1.3 does not report its number of Pings.
        let expected = Stats { ping: stats.ping.and(ledger.stats().ping), ..ledger.stats() };
        if (queued, stats) == (ledger.queued(), expected) {
            return Ok(());
        }
        interrupt.check()?;
        if begun.elapsed() >= patience {
            let queue = format!("the server counts {queued} tasks, {} were expected", ledger.queued());
            return Err(Error::Mismatch(format!("{queue}; it has answered {stats:?}, {expected:?} was expected")));
        }
        std::thread::sleep(POLL);
    }
}

/// A connection for administrative requests.
struct Desk {
    stream: TcpStream,
    peer: Peer,
    input: BytesMut,
    output: BytesMut,
}

impl Desk {
    fn open(addr: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(addr).map_err(Error::io("connect to ask for counts"))?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(Error::io("set a timeout"))?;
        stream.set_nodelay(true).map_err(Error::io("set no delay"))?;
        let peer = Peer::new(Arc::new(Settings::new(Role::Dealer)));
        let mut desk = Self { stream, peer, input: BytesMut::new(), output: BytesMut::new() };
        desk.peer.open(NOW, &mut desk.output);
        match desk.next()? {
            Event::Ready(_) => Ok(desk),
            other @ (Event::Message(_) | Event::Subscribe(_) | Event::Cancel(_)) => {
                Err(Error::Protocol(format!("{other:?} before the handshake was done")))
            }
        }
    }

    fn count(&mut self) -> Result<u64, Error> {
        let answer = self.ask(wire::COUNT)?;
        let Reply::Counted(count) = Reply::decode(answer.last()) else { return Err(unexpected("Count", &answer)) };
        Ok(u64::from(count))
    }

    fn stats(&mut self) -> Result<Stats, Error> {
        let answer = self.ask(wire::STATS)?;
        let Reply::Stats(stats) = Reply::decode(answer.last()) else { return Err(unexpected("Stats", &answer)) };
        Ok(stats)
    }

    fn ask(&mut self, request: &[u8]) -> Result<Message, Error> {
        let unsent = |unsent| Error::Protocol(format!("a question cannot be sent: {unsent}"));
        self.peer.send([&b""[..], request], &mut self.output).map_err(unsent)?;
        match self.next()? {
            Event::Message(message) => Ok(message),
            other @ (Event::Ready(_) | Event::Subscribe(_) | Event::Cancel(_)) => {
                Err(Error::Protocol(format!("{other:?} instead of an answer")))
            }
        }
    }

    fn next(&mut self) -> Result<Event, Error> {
        let mut scratch = [0; 4096];
        loop {
            let closed = |close| Error::Protocol(format!("ZMTP: {close}"));
            let event = self.peer.read(NOW, &mut self.input, &mut self.output).map_err(closed)?;
            self.stream.write_all(&self.output).map_err(Error::io("ask for counts"))?;
            self.output.clear();
            if let Some(event) = event {
                return Ok(event);
            }
            let count = self.stream.read(&mut scratch).map_err(Error::io("read counts"))?;
            if count == 0 {
                return Err(Error::Protocol("hung up when asked for counts".to_owned()));
            }
            self.input.extend_from_slice(scratch.get(..count).unwrap_or_default());
        }
    }
}

fn unexpected(asked: &str, answer: &Message) -> Error {
    Error::Protocol(format!("{asked} was answered with {:?}", Reply::decode(answer.last())))
}
