//! Connections of a hostile tenant: each writes what its socket accepts and heeds no answer. One that the server closes
//! is opened again.

use std::io::{self, Read as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::error::Error;
use crate::gearman;
use crate::interrupt::Interrupt;
use crate::links::{self, Endpoint};

/// Requests in one write.
const BATCH: u64 = 64;
/// The size of an echo.
const ECHO_BYTES: usize = 64 * 1024;
/// What is sent of a packet that is not finished.
const HALF_BYTES: usize = 1024;
/// Function names in use.
const NAMES: u64 = 100_000;
const READ_BYTES: usize = 64 * 1024;
/// The rest when no connection has accepted or sent anything.
const REST: Duration = Duration::from_millis(1);

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Pushes background jobs for one function.
    Push,
    /// Pushes each for the next of [`NAMES`] functions.
    Name,
    /// Requests echoes, and does not read them.
    Echo,
    /// Sends half a packet, and is opened again when its turn comes.
    Half,
}

/// Connections with a habit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flood {
    connections: usize,
    habit: Habit,
    /// Requests of all connections together.
    per_second: Option<u64>,
}

impl Flood {
    /// As fast as the server accepts requests.
    pub(crate) const fn new(connections: usize, habit: Habit) -> Self {
        Self {
            connections,
            habit,
            per_second: None,
        }
    }

    /// At this rate.
    pub(crate) const fn paced(self, per_second: u64) -> Self {
        Self {
            per_second: Some(per_second),
            ..self
        }
    }

    /// Goes on until it is stopped, and counts answers, requests that are not answered, or connections.
    /// [`Error::Interrupted`].
    pub(crate) fn run(
        &self,
        endpoint: &Endpoint,
        stop: &Interrupt,
        acts: &AtomicU64,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        let mut sent = 0;
        let mut scratch = vec![0; READ_BYTES];
        let mut lanes: Vec<Lane> = Vec::new();
        lanes.resize_with(self.connections, Lane::default);
        loop {
            let before = acts.load(Ordering::Relaxed);
            for lane in &mut lanes {
                stop.check()?;
                if lane.out.is_empty() {
                    let due = self.per_second.map_or(u64::MAX, |rate| {
                        let due = begun.elapsed().as_micros() * u128::from(rate) / 1_000_000;
                        u64::try_from(due).unwrap_or(u64::MAX)
                    });
                    let batch = due.saturating_sub(sent).min(self.batch());
                    for number in sent..sent + batch {
                        self.habit.request(number, &mut lane.out);
                    }
                    sent += batch;
                }
                // A refused or ended connection is opened again at its next turn.
                let done = lane.act(self.habit, endpoint, &mut scratch);
                let done = done.unwrap_or_else(|_| {
                    *lane = Lane::default();
                    0
                });
                acts.fetch_add(done, Ordering::Relaxed);
            }
            if acts.load(Ordering::Relaxed) == before {
                thread::sleep(REST);
            }
        }
    }

    fn batch(&self) -> u64 {
        match self.habit {
            Habit::Push | Habit::Name => BATCH,
            Habit::Echo | Habit::Half => 1,
        }
    }
}

impl Habit {
    fn request(self, number: u64, out: &mut Vec<u8>) {
        match self {
            Self::Push => gearman::submit_to(b"bench", out),
            Self::Name => gearman::submit_to(format!("name-{}", number % NAMES).as_bytes(), out),
            Self::Echo => gearman::echo_of(ECHO_BYTES, out),
            Self::Half => {
                gearman::echo_of(ECHO_BYTES, out);
                out.truncate(HALF_BYTES);
            }
        }
    }
}

/// A connection.
#[derive(Debug, Default)]
struct Lane {
    stream: Option<Socket>,
    out: Vec<u8>,
    sent: usize,
}

impl Lane {
    /// Opens the connection if need be, writes and reads. Returns how much of its habit it did. Fails when the
    /// connection has ended.
    fn act(&mut self, habit: Habit, endpoint: &Endpoint, scratch: &mut [u8]) -> io::Result<u64> {
        let mut stream = match self.stream.take().filter(|_| habit != Habit::Half) {
            Some(stream) => stream,
            None => {
                let stream = links::connect(endpoint)?;
                // Closed connections leave no trace that would use up the ports.
                stream.set_linger(Some(Duration::ZERO))?;
                stream
            }
        };
        let rest = self.out.get(self.sent..).unwrap_or_default();
        self.sent += unless_blocked(stream.write(rest))?;
        let is_sent = self.sent >= self.out.len();
        let requests = u64::from(is_sent && !self.out.is_empty());
        if is_sent {
            self.out.clear();
            self.sent = 0;
        }
        let answers = match habit {
            Habit::Push | Habit::Name => {
                let count = unless_blocked(match stream.read(scratch) {
                    Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                    read => read,
                })?;
                answers(scratch.get(..count).unwrap_or_default())
            }
            Habit::Echo | Habit::Half => requests,
        };
        self.stream = Some(stream);
        Ok(answers)
    }
}

/// The answers that begin in these bytes.
fn answers(bytes: &[u8]) -> u64 {
    bytes.windows(4).filter(|four| *four == b"\0RES").count() as u64
}

fn unless_blocked(done: io::Result<usize>) -> io::Result<usize> {
    match done {
        Err(refusal) if refusal.kind() == io::ErrorKind::WouldBlock => Ok(0),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_request_is_whole_or_half() {
        let request = |habit: Habit| {
            let mut out = Vec::new();
            habit.request(100_001, &mut out);
            let size = out.get(8..12).unwrap().try_into().map(u32::from_be_bytes);
            (out.len() - 12, size.unwrap() as usize)
        };
        assert_eq!(request(Habit::Push), (107, 107));
        assert_eq!(request(Habit::Name), (108, 108), "name-1");
        assert_eq!(request(Habit::Echo), (ECHO_BYTES, ECHO_BYTES));
        assert_eq!(request(Habit::Half), (HALF_BYTES - 12, ECHO_BYTES));
        assert_eq!(answers(b"\0RES\0\0\0\x08\0\0\0\0\0RES\0"), 2);
    }

    #[test]
    fn a_connection_that_the_server_closes_is_opened_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().into();
        let acts = AtomicU64::new(0);
        for habit in [Habit::Push, Habit::Half] {
            let stop = Interrupt::default();
            let ended = thread::scope(|scope| {
                let flooding = scope.spawn(|| Flood::new(1, habit).run(&endpoint, &stop, &acts));
                for _ in 0..2 {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut begin = [0; 100];
                    stream.read_exact(&mut begin).unwrap();
                }
                stop.raise();
                flooding.join().unwrap()
            });
            assert!(matches!(ended, Err(Error::Interrupted)), "{habit:?}");
        }
        assert!(acts.load(Ordering::Relaxed) > 0, "connections");
    }
}
