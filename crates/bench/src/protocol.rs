//! What a protocol adds to the common load: its cases, its speakers, and the question for a server's own count.

use std::time::{Duration, Instant};

use crate::cases::{Catalogue, Shape};
use crate::driver::Speaker;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::peers::Peer;
use crate::servers::Ports;

/// The time between two questions.
const ASK_EVERY: Duration = Duration::from_millis(2);

/// One protocol, as data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    /// The daemon's front-end.
    pub(crate) name: &'static str,
    /// The client's software, if figures depend on it.
    pub(crate) client: Option<&'static str>,
    /// The peer, also of the protocol's own work, that comes out of a virtual environment.
    pub(crate) released: Option<&'static str>,
    pub(crate) cases: &'static Catalogue,
    /// The load that fills a queue.
    pub(crate) fill: Shape,
    /// The load that empties it.
    pub(crate) empty: Shape,
    /// Sleeping workers are woken, and count that.
    pub(crate) wakes: bool,
    /// The client's side for a fresh server.
    pub(crate) open: fn(Peer) -> Box<dyn Client>,
}

/// The client's side of one server: the state that all runs on it share.
pub(crate) trait Client {
    /// The speakers of a load, workers first, so that they are connected when jobs arrive.
    fn speakers(&self, shape: &Shape) -> Vec<Box<dyn Speaker>>;

    /// Asks the server for its own counts. Returns what differs if they are not those of `left` unfinished jobs.
    /// [`Error::Io`], [`Error::Protocol`].
    fn difference(&self, ports: &Ports, left: u64) -> Result<Option<String>, Error>;

    /// Whether the server acknowledges every job.
    fn is_acknowledged(&self) -> bool {
        true
    }

    /// Jobs in the queue that the closing phase of a load must take out and check.
    fn remaining(&self) -> u64 {
        0
    }
}

/// The usual difference: one count.
pub(crate) fn differs(found: u64, expected: u64) -> Option<String> {
    (found != expected).then(|| format!("the server counts {found} jobs, {expected} were expected"))
}

/// Waits until there is no difference. Counts agree at once, unless messages at the end of a run were sent without waiting for
/// their answers.
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
