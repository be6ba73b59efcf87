//! What a protocol adds to the common load: its connections, and the question for a server's own count.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::driver::Speaker;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::load::Seat;
use crate::shape::Shape;

/// The time between two questions.
const ASK_EVERY: Duration = Duration::from_millis(2);
/// A server that replays or frees a million jobs answers late.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// One protocol, as data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    /// The daemon's front-end.
    pub(crate) name: &'static str,
    /// The client's software, if figures depend on it.
    pub(crate) client: Option<&'static str>,
    /// The load that fills a queue.
    pub(crate) fill: Shape,
    /// The load that empties it.
    pub(crate) empty: Shape,
    /// Sleeping workers are woken, and count that.
    pub(crate) wakes: bool,
    /// Whatever a load leaves in the queue is taken out after it: each job exactly once, with its last value.
    pub(crate) drains: bool,
    /// A connection's side of the protocol.
    pub(crate) speaker: fn(Seat) -> Box<dyn Speaker>,
    /// The server's own count of jobs. `acknowledges`: the server acknowledges every job.
    pub(crate) count: fn(SocketAddr, acknowledges: bool) -> Result<u64, Error>,
    /// The server's own count of replies to loads since its start, if it has one.
    pub(crate) replies: Option<fn(SocketAddr) -> Result<u64, Error>>,
}

impl Protocol {
    /// A protocol whose servers have neither sleeping workers nor a count of replies.
    pub(crate) const fn new(
        name: &'static str,
        fill: Shape,
        empty: Shape,
        speaker: fn(Seat) -> Box<dyn Speaker>,
        count: fn(SocketAddr, acknowledges: bool) -> Result<u64, Error>,
    ) -> Self {
        Self {
            name,
            client: None,
            fill,
            empty,
            wakes: false,
            drains: false,
            speaker,
            count,
            replies: None,
        }
    }

    /// The speakers of a load, workers first, so that they are connected when jobs arrive.
    pub(crate) fn speakers(&self, shape: &Shape, acknowledges: bool) -> Vec<Box<dyn Speaker>> {
        let seat = |index| {
            (self.speaker)(Seat {
                shape: *shape,
                is_worker: index < shape.workers,
                index,
                acknowledges,
            })
        };
        (0..shape.workers + shape.clients).map(seat).collect()
    }
}

/// Waits until there is no difference.
/// [`Error::Mismatch`] if there still is one after `patience`; the errors of `difference`; [`Error::Interrupted`].
pub(crate) fn await_agreement(
    patience: Duration,
    interrupt: &Interrupt,
    mut difference: impl FnMut() -> Result<Option<String>, Error>,
) -> Result<(), Error> {
    let begun = Instant::now();
    while let Some(difference) = difference()? {
        interrupt.check()?;
        if begun.elapsed() >= patience {
            return Err(Error::Mismatch(difference));
        }
        std::thread::sleep(ASK_EVERY);
    }
    Ok(())
}

/// A connection for questions. [`Error::Io`].
pub(crate) fn connect(addr: SocketAddr) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(addr).map_err(Error::io("connect with a question"))?;
    stream
        .set_read_timeout(Some(ANSWER_WITHIN))
        .map_err(Error::io("set a timeout"))?;
    Ok(stream)
}

/// Sends a question, and reads until `read` finds the answer in the received bytes. [`Error::Io`], [`Error::Protocol`].
pub(crate) fn ask<T>(
    stream: &mut TcpStream,
    question: &[u8],
    mut read: impl FnMut(&[u8]) -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    stream.write_all(question).map_err(Error::io("ask"))?;
    let (mut bytes, mut scratch) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(answer) = read(&bytes)? {
            return Ok(answer);
        }
        match stream
            .read(&mut scratch)
            .map_err(Error::io("read an answer"))?
        {
            0 => {
                return Err(Error::Protocol(format!(
                    "no answer to {}",
                    question.escape_ascii()
                )));
            }
            count => bytes.extend_from_slice(scratch.get(..count).unwrap_or_default()),
        }
    }
}
