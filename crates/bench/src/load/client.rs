//! Many connections in one thread: reads the available bytes, passes them to the load, writes the load's output. Independent
//! of packets and jobs.
//!
//! Cheap on purpose, since server and generator share the machine: edge-triggered readiness, one read buffer for all
//! connections, one write per connection and batch, no allocation per packet.

use std::io::{self, Read as _, Write as _};
use std::iter::repeat_n;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::load::socket::Socket;

/// The largest single read; with pipelining a thousand answers arrive at once.
const READ_BYTES: usize = 256 * 1024;
/// Connections handled per wait.
const EVENTS_MAX: usize = 1024;
/// How often clock and interrupt are checked when nothing arrives.
const WAIT: Duration = Duration::from_millis(20);
/// Without a packet for this long, a job or a wake-up is lost.
const STALL: Duration = Duration::from_secs(20);

/// How the generator waits for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Sleeps, as clients do. The wake-up counts as latency.
    Sleep,
    /// Polls all the time: no latency is added, but a core is used.
    Spin,
}

/// The logic behind the connections of a [`Links`].
pub trait Load {
    /// Sets the current time, ns since the links were opened.
    fn at(&mut self, now_nanos: u64);
    /// A chance to write: once at the start, and on every connection after [`Next::Wake`].
    fn on_wake(&mut self, link: usize, out: &mut Vec<u8>);
    /// Handles `bytes` of connection `link`, which begin where the last call ended. Appends replies to `out`. Returns the number
    /// of bytes consumed, in whole packets; the rest comes again with the bytes that follow.
    ///
    /// # Errors
    /// Any error ends the run.
    fn on_bytes(&mut self, link: usize, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Error>;
    /// Called when all available bytes have been handled.
    ///
    /// # Errors
    /// Any error ends the run.
    fn on_batch(&mut self) -> Result<Next, Error>;
    /// What is outstanding, for the message about a stalled run.
    fn state(&self) -> String;
}

/// What to do after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Wait for more.
    Wait,
    /// Call [`Load::on_wake`] on every connection, then wait.
    Wake,
    /// The run is over.
    Done,
}

/// Open connections to one server.
#[derive(Debug)]
pub struct Links {
    poll: Poll,
    wait: Duration,
    stall: Duration,
    links: Vec<Link>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Link {
    stream: Socket,
    /// The beginning of an incomplete packet.
    carry: Vec<u8>,
    out: Vec<u8>,
    /// How much of `out` the socket has accepted.
    sent: usize,
}

impl Links {
    /// Opens `count` connections, one after the other.
    ///
    /// # Errors
    /// [`Error::Io`] if one is refused.
    pub fn open(addr: SocketAddr, count: usize, idle: Idle) -> Result<Self, Error> {
        Self::open_to(repeat_n(addr, count), idle)
    }

    /// Opens a connection to each of `addrs`, one after the other, for a server with several ports.
    ///
    /// # Errors
    /// [`Error::Io`] if one is refused.
    pub fn open_to(addrs: impl IntoIterator<Item = SocketAddr>, idle: Idle) -> Result<Self, Error> {
        Self::open_with(addrs, idle, |_, _| Ok(()))
    }

    /// Opens a connection to each of `addrs`, one after the other. `greet` does a protocol's handshake on each (its index, the
    /// stream still blocking) and must not read beyond it.
    ///
    /// # Errors
    /// [`Error::Io`] if one is refused; the errors of `greet`.
    pub fn open_with(
        addrs: impl IntoIterator<Item = SocketAddr>,
        idle: Idle,
        mut greet: impl FnMut(usize, &mut std::net::TcpStream) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let sockets = addrs.into_iter().enumerate().map(|(at, addr)| {
            let mut stream = Socket::tcp(addr).map_err(Error::io(format!("open connection {at}")))?;
            greet(at, &mut stream)?;
            stream.try_into().map_err(Error::io(format!("open connection {at}")))
        });
        Self::of(sockets, idle)
    }

    /// Opens `count` connections to the Unix socket at `path`, one after the other.
    ///
    /// # Errors
    /// [`Error::Io`] if one is refused.
    pub fn open_unix(path: &Path, count: usize, idle: Idle) -> Result<Self, Error> {
        let open = |at| Socket::unix(path).map_err(Error::io(format!("open connection {at} to {}", path.display())));
        Self::of((0..count).map(open), idle)
    }

    fn of(sockets: impl Iterator<Item = Result<Socket, Error>>, idle: Idle) -> Result<Self, Error> {
        let wait = if idle == Idle::Spin { Duration::ZERO } else { WAIT };
        let poll = Poll::new().map_err(Error::io("make a poll"))?;
        let links = sockets
            .enumerate()
            .map(|(at, socket)| Link::new(socket?, &poll, Token(at)).map_err(Error::io("wait for a connection")))
            .collect::<Result<_, _>>()?;
        Ok(Self { poll, wait, stall: STALL, links, scratch: vec![0; READ_BYTES] })
    }

    /// Sets how long the links may stall.
    pub fn stalling_after(self, stall: Duration) -> Self {
        Self { stall, ..self }
    }

    /// Runs the load until it is done.
    ///
    /// # Errors
    /// The load's errors, [`Error::Closed`], [`Error::Stalled`], [`Error::Interrupted`], [`Error::Io`].
    pub fn drive(&mut self, load: &mut impl Load, interrupt: &Interrupt) -> Result<(), Error> {
        let clock = Clock::start();
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut last_event = Instant::now();
        load.at(clock.nanos());
        // A load without warm-up opens its window here, before the first byte is sent.
        load.on_batch()?;
        let mut next = Next::Wake;
        while next != Next::Done {
            if next == Next::Wake {
                self.wake_all(load)?;
            }
            self.wait(&mut events)?;
            for event in &events {
                load.at(clock.nanos());
                self.serve(event.token().0, event.is_read_closed(), load)?;
            }
            interrupt.check()?;
            if !events.is_empty() {
                last_event = Instant::now();
            } else if last_event.elapsed() > self.stall {
                return Err(Error::Stalled { waited: self.stall, state: load.state() });
            }
            load.at(clock.nanos());
            next = load.on_batch()?;
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> Result<(), Error> {
        match self.poll.poll(events, Some(self.wait)) {
            Err(refusal) if refusal.kind() != io::ErrorKind::Interrupted => Err(Error::io("wait")(refusal)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn wake_all(&mut self, load: &mut impl Load) -> Result<(), Error> {
        for (at, link) in self.links.iter_mut().enumerate() {
            load.on_wake(at, &mut link.out);
            link.flush().map_err(Error::io("write"))?;
        }
        Ok(())
    }

    /// Reads and handles all available bytes of one connection, then writes its output. `ends`: the peer has closed its side.
    fn serve(&mut self, at: usize, ends: bool, load: &mut impl Load) -> Result<(), Error> {
        let Some(link) = self.links.get_mut(at) else {
            return Ok(());
        };
        loop {
            let count = match link.stream.read(&mut self.scratch) {
                Ok(0) => return Err(Error::Closed { connection: at }),
                Ok(count) => count,
                Err(refusal) if refusal.kind() == io::ErrorKind::WouldBlock => break,
                Err(refusal) if refusal.kind() == io::ErrorKind::Interrupted => continue,
                Err(refusal) => return Err(Error::io(format!("read connection {at}"))(refusal)),
            };
            link.take_in(self.scratch.get(..count).unwrap_or_default(), at, load)?;
            // A short read of a stream means that no more bytes are there; the next edge will come (see epoll(7), question 9).
            // The edge of the end has come already.
            if count < self.scratch.len() && !ends {
                break;
            }
        }
        link.flush().map_err(Error::io(format!("write connection {at}")))
    }
}

impl Link {
    fn new(mut stream: Socket, poll: &Poll, token: Token) -> io::Result<Self> {
        poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { stream, carry: Vec::new(), out: Vec::new(), sent: 0 })
    }

    fn take_in(&mut self, bytes: &[u8], at: usize, load: &mut impl Load) -> Result<(), Error> {
        if self.carry.is_empty() {
            let used = load.on_bytes(at, bytes, &mut self.out)?;
            self.carry.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            self.carry.extend_from_slice(bytes);
            let used = load.on_bytes(at, &self.carry, &mut self.out)?;
            self.carry.drain(..used.min(self.carry.len()));
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(count) => self.sent += count,
                Err(refusal) if refusal.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(refusal) if refusal.kind() == io::ErrorKind::Interrupted => {}
                Err(refusal) => return Err(refusal),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Nanoseconds since its start.
#[derive(Debug, Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn nanos(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
