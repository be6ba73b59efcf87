//! Queries a server's own counts, as `emq-cli` does, as a check of the generator's.
//!
//! Not in the specification: `STATUS` and `ROUTER_SHOW_WORKERS` of the released router, answered with JSON in a `REPLY`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::error::Error;
use crate::eventmq::dealer::Dealer;
use crate::eventmq::wire::{self, Said};
use crate::interrupt::Interrupt;
use crate::load::stamp::Random;

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How long a JobManager's start and its registration may take.
const WORKERS_WITHIN: Duration = Duration::from_secs(60);
/// The time between two requests.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// A seed that gives other identities than the load's.
const SEED: u64 = 77;

/// The fields used of the answer to `STATUS`.
#[derive(Debug, Deserialize)]
struct Status {
    #[serde(rename = "waiting_messages_by_queue")]
    waiting: BTreeMap<String, u64>,
    #[serde(rename = "inflight_messages_by_queue")]
    in_flight: BTreeMap<String, u64>,
}

/// The fields used of the answer to `ROUTER_SHOW_WORKERS`.
#[derive(Debug, Deserialize)]
struct Workers {
    #[serde(rename = "connected_workers")]
    workers: BTreeMap<String, Worker>,
}

#[derive(Debug, Deserialize)]
struct Worker {
    available_slots: u64,
}

/// A connection for administrative requests.
#[derive(Debug)]
pub struct Desk {
    dealer: Dealer,
    rng: Random,
}

impl Desk {
    /// Connects to a port for administrators.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Protocol`].
    pub fn open(addr: SocketAddr) -> Result<Self, Error> {
        let mut rng = Random::new(SEED);
        Ok(Self { dealer: Dealer::open(addr, &mut rng)?, rng })
    }

    /// Requests that wait for a worker.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Protocol`].
    pub fn waiting(&mut self) -> Result<u64, Error> {
        Ok(self.ask::<Status>("STATUS")?.waiting.values().sum())
    }

    /// Requests that wait for a worker or its answer. The released router counts every request without a requested reply among
    /// these for ever.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Protocol`].
    pub fn unfinished(&mut self) -> Result<u64, Error> {
        let status: Status = self.ask("STATUS")?;
        Ok(status.waiting.values().chain(status.in_flight.values()).sum())
    }

    /// Waits until workers can take `expected` jobs at once.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if they cannot after a minute; [`Error::Io`], [`Error::Protocol`], [`Error::Interrupted`].
    pub fn await_slots(&mut self, expected: u64, interrupt: &Interrupt) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let found = self.ask::<Workers>("ROUTER_SHOW_WORKERS")?;
            let slots: u64 = found.workers.values().map(|worker| worker.available_slots).sum();
            if slots == expected {
                return Ok(());
            }
            interrupt.check()?;
            if begun.elapsed() > WORKERS_WITHIN {
                return Err(Error::Mismatch(format!(
                    "workers can take {slots} jobs at once, {expected} were expected"
                )));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    fn ask<T: for<'de> Deserialize<'de>>(&mut self, command: &str) -> Result<T, Error> {
        let id = self.rng.unique();
        self.dealer.put(wire::question(&id, command));
        let message = self.dealer.receive(ANSWER_WITHIN)?;
        let message = message.ok_or_else(|| Error::Protocol(format!("no answer to {command}")))?;
        let Said::Reply { text } = Said::read(&message)? else {
            return Err(Error::Protocol(format!("{command} was answered with {:?}", Said::read(&message)?)));
        };
        let strange = |error| Error::Protocol(format!("{command} was answered with {}: {error}", text.escape_ascii()));
        serde_json::from_slice(text).map_err(strange)
    }
}
