//! Many connections in one thread: reads the available bytes, passes them to the driver, writes the driver's output.
//! Independent of messages and jobs.
//!
//! Cheap on purpose, since server and generator share the machine: edge-triggered readiness, one read buffer for all
//! connections, one write per connection and batch, no allocation per message.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use socket2::{SockAddr, Socket, Type};

use crate::driver::{Driver, Next};
use crate::error::Error;
use crate::interrupt::Interrupt;

/// Without a message for this long, a job or a wake-up is lost.
pub(crate) const STALL: Duration = Duration::from_secs(20);
/// The largest single read; with pipelining a thousand answers arrive at once.
const READ_BYTES: usize = 256 * 1024;
/// Connections handled per wait.
const EVENTS_MAX: usize = 1024;
/// How often clock and interrupt are checked when nothing arrives.
const WAIT: Duration = Duration::from_millis(20);

/// How the generator waits for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Sleeps, as clients do. The wake-up counts as latency.
    Sleep,
    /// Polls all the time: no latency is added, but a core is used.
    Spin,
}

/// Where a server listens: TCP, or a Unix socket.
pub(crate) type Endpoint = SockAddr;

/// Opens a connection that never blocks. The connect itself blocks, so that a thousand of them do not overrun the
/// server's backlog.
pub(crate) fn connect(endpoint: &Endpoint) -> io::Result<Socket> {
    let stream = Socket::new(endpoint.domain(), Type::STREAM, None)?;
    stream.connect(endpoint)?;
    if !endpoint.is_unix() {
        stream.set_tcp_nodelay(true)?;
    }
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Open connections to one server.
pub(crate) struct Links {
    poll: Poll,
    wait: Duration,
    stall: Duration,
    links: Vec<Link>,
    scratch: Vec<u8>,
}

struct Link {
    stream: Socket,
    /// The beginning of an incomplete message.
    carry: Vec<u8>,
    out: Vec<u8>,
    /// How much of `out` the socket has accepted.
    sent: usize,
}

impl Links {
    /// Opens a connection to each of these, one after the other. A run fails when nothing arrives for the time `stall`.
    /// [`Error::Io`] if one is refused.
    pub(crate) fn open<'a>(
        endpoints: impl IntoIterator<Item = &'a Endpoint>,
        idle: Idle,
        stall: Duration,
    ) -> Result<Self, Error> {
        let wait = if idle == Idle::Spin {
            Duration::ZERO
        } else {
            WAIT
        };
        let poll = Poll::new().map_err(Error::io("make a poll"))?;
        let open = |(at, endpoint): (usize, &Endpoint)| {
            let stream = connect(endpoint)?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry()
                .register(&mut SourceFd(&stream.as_raw_fd()), Token(at), interest)?;
            Ok(Link {
                stream,
                carry: Vec::new(),
                out: Vec::new(),
                sent: 0,
            })
        };
        let links = endpoints.into_iter().enumerate();
        let links =
            links.map(|link| open(link).map_err(Error::io(format!("open connection {}", link.0))));
        let links = links.collect::<Result<_, _>>()?;
        Ok(Self {
            poll,
            wait,
            stall,
            links,
            scratch: vec![0; READ_BYTES],
        })
    }

    /// Runs the load until it is done.
    ///
    /// # Errors
    /// The driver's errors, [`Error::Closed`], [`Error::Stalled`], [`Error::Interrupted`], [`Error::Io`].
    pub(crate) fn drive(
        &mut self,
        driver: &mut Driver,
        interrupt: &Interrupt,
    ) -> Result<(), Error> {
        let clock = Clock(Instant::now());
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut last_event = Instant::now();
        driver.at(clock.nanos());
        // A load without warm-up opens its window here, before the first byte is sent.
        driver.on_batch()?;
        let mut next = Next::Wake;
        while next != Next::Done {
            if next == Next::Wake {
                self.wake_all(driver)?;
            }
            self.wait(&mut events)?;
            for event in &events {
                driver.at(clock.nanos());
                self.serve(event.token().0, event.is_read_closed(), driver)?;
            }
            interrupt.check()?;
            if !events.is_empty() {
                last_event = Instant::now();
            } else if last_event.elapsed() > self.stall {
                return Err(Error::Stalled(self.stall, driver.state()));
            }
            driver.at(clock.nanos());
            next = driver.on_batch()?;
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> Result<(), Error> {
        match self.poll.poll(events, Some(self.wait)) {
            Err(refusal) if refusal.kind() != io::ErrorKind::Interrupted => {
                Err(Error::io("wait")(refusal))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn wake_all(&mut self, driver: &mut Driver) -> Result<(), Error> {
        for (at, link) in self.links.iter_mut().enumerate() {
            driver.on_wake(at, &mut link.out);
            link.flush().map_err(Error::io("write"))?;
        }
        Ok(())
    }

    /// Reads and handles all available bytes of one connection, then writes its output. `ends`: the peer has closed its
    /// side.
    fn serve(&mut self, at: usize, ends: bool, driver: &mut Driver) -> Result<(), Error> {
        let Some(link) = self.links.get_mut(at) else {
            return Ok(());
        };
        loop {
            let count = match link.stream.read(&mut self.scratch) {
                Ok(0) => return Err(Error::Closed(at)),
                Ok(count) => count,
                Err(refusal) if refusal.kind() == io::ErrorKind::WouldBlock => break,
                Err(refusal) if refusal.kind() == io::ErrorKind::Interrupted => continue,
                Err(refusal) => return Err(Error::io(format!("read connection {at}"))(refusal)),
            };
            link.take_in(self.scratch.get(..count).unwrap_or_default(), at, driver)?;
            // A short read of a stream means that no more bytes are there; the next edge will come (see epoll(7),
            // question 9). The edge of the end has come already.
            if count < self.scratch.len() && !ends {
                break;
            }
        }
        link.flush()
            .map_err(Error::io(format!("write connection {at}")))
    }
}

impl Link {
    fn take_in(&mut self, bytes: &[u8], at: usize, driver: &mut Driver) -> Result<(), Error> {
        if self.carry.is_empty() {
            let used = driver.on_bytes(at, bytes, &mut self.out)?;
            self.carry
                .extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            self.carry.extend_from_slice(bytes);
            let used = driver.on_bytes(at, &self.carry, &mut self.out)?;
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
    fn nanos(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::driver::Plan;
    use crate::redis::REDIS;
    use crate::shape::{Request, Shape};
    use crate::tally::Tally;

    /// Runs 100 requests on two connections, against a server that answers this number on each.
    fn run<S: Read + Write + Send>(
        endpoint: &Endpoint,
        mut accept: impl FnMut() -> S,
        answers: u64,
    ) -> Result<u64, Error> {
        let shape = Shape::clients(Request::Submit, 2, 1);
        // A busy machine is slow, and does not stall.
        let stall = if answers == 0 {
            Duration::from_millis(100)
        } else {
            STALL
        };
        let mut links = Links::open([endpoint, endpoint], Idle::Sleep, stall)?;
        let tally = Tally::new(&shape, true, 100, 0)?;
        let mut driver = Driver::new(
            REDIS.speakers(&shape, true),
            tally,
            &Plan::counted(100),
            Some(std::process::id()),
        );
        std::thread::scope(|scope| {
            for mut stream in [accept(), accept()] {
                scope.spawn(move || {
                    let mut request = [0; 134];
                    for _ in 0..answers {
                        let _ = stream
                            .read_exact(&mut request)
                            .and_then(|()| stream.write_all(b":1\r\n"));
                    }
                    // Reads the next request, if any, and then hangs up or stays silent until the generator gives up.
                    let _ = stream.read_exact(&mut request);
                    let _ = if answers == 0 {
                        stream.read(&mut [0])
                    } else {
                        Ok(0)
                    };
                });
            }
            let ended = links.drive(&mut driver, &Interrupt::default());
            drop(links);
            ended
        })?;
        Ok(driver.measured()?.jobs)
    }

    #[test]
    fn a_run_over_either_kind_of_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::from(listener.local_addr().unwrap());
        assert_eq!(
            run(&endpoint, || listener.accept().unwrap().0, 100).unwrap(),
            100
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(
            run(
                &Endpoint::unix(path).unwrap(),
                || listener.accept().unwrap().0,
                100
            )
            .unwrap(),
            100
        );
    }

    #[test]
    fn a_server_that_hangs_up_or_stays_silent_ends_the_run() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::from(listener.local_addr().unwrap());
        for (answers, expected) in [
            (10, "the server closed connection"),
            (0, "stalled: nothing arrived for 100ms (sta"),
        ] {
            let error = run(&endpoint, || listener.accept().unwrap().0, answers)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
