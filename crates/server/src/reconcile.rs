//! The engine state that comes from the configuration, and its reconciliation: when the daemon starts, and when it reads its
//! configuration again.

use std::fmt;

use windlass_config::Error;
use windlass_engine::{Bridge, QueueCommand, Refusal};

use crate::broker::Broker as _;
use crate::config::Config;
use crate::hub::Hub;
use crate::recurring::{self, Recurring};
use crate::rules::{self, Rules};
use crate::throttles::{self, Throttles};

/// The state that the configuration requires.
#[derive(Debug)]
pub(crate) struct Desired {
    schedules: Vec<Recurring>,
    throttles: Throttles,
    rules: Rules,
    bridge: Bridge,
}

impl Desired {
    /// Reads it from a configuration.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`].
    pub(crate) fn of(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            schedules: recurring::wanted(config)?,
            throttles: throttles::wanted(config),
            rules: rules::wanted(config),
            bridge: rules::bridge(config),
        })
    }

    /// Reconciles the engine with it.
    pub(crate) fn agree(self, hub: &Hub) -> Vec<Reconciliation> {
        // The order matters: first which protocols share a queue, before any job is handed out; then the rules, because schedules
        // must obey them.
        let _ = hub.ask(QueueCommand::Bridge(Box::new(self.bridge)).into());
        let mut done = vec![rules::agree(hub, self.rules)];
        done.extend(self.schedules.into_iter().map(|schedules| recurring::agree(hub, schedules)));
        done.push(throttles::agree(hub, self.throttles));
        done
    }
}

/// The result of a reconciliation for one key: numbers of its entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reconciliation {
    pub(crate) key: &'static str,
    pub(crate) new: usize,
    pub(crate) changed: usize,
    pub(crate) removed: usize,
    pub(crate) same: usize,
    /// Names of entries that the engine refused, and why.
    pub(crate) refused: Vec<(String, Refusal)>,
}

impl fmt::Display for Reconciliation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, new, changed, removed, same, .. } = self;
        write!(f, "{key}: {new} new, {changed} changed, {removed} removed, {same} unchanged")
    }
}

impl Reconciliation {
    /// An empty result.
    pub(crate) fn new(key: &'static str) -> Self {
        Self { key, ..Self::default() }
    }

    /// Whether there is nothing to report: no entries now, and none before.
    pub(crate) fn is_of_nothing(&self) -> bool {
        *self == Self::new(self.key)
    }

    /// Logs the result, unless it is empty.
    pub(crate) fn report(&self) {
        for (name, why) in &self.refused {
            tracing::error!("{}: {name}: {why}", self.key);
        }
        if !self.is_of_nothing() {
            tracing::info!("{self}");
        }
    }
}
