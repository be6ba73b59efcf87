//! What the configuration wants the engine to keep, and bringing the two into agreement: when the daemon starts, and when it
//! is told to read its configuration again.

use std::fmt;

use windlass_engine::{Bridge, Command, Event, NewSchedule, Refusal};

use crate::config::{Config, Error};
use crate::hub::Hub;
use crate::recurring;
use crate::rules::{self, Rules};
use crate::throttles::{self, Throttles};

/// All that is wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    schedules: Vec<NewSchedule>,
    throttles: Throttles,
    rules: Rules,
    bridge: Bridge,
}

impl Wanted {
    /// What a configuration wants.
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

    /// Brings the engine into agreement with it.
    pub(crate) fn agree(self, hub: &Hub) -> [Agreement; 3] {
        // Who takes whose jobs is known before anybody does; then rules: what the others bring is to be under them.
        hub.ask(Command::Bridge(Box::new(self.bridge)));
        let rules = rules::agree(hub, self.rules);
        [rules, recurring::agree(hub, self.schedules), throttles::agree(hub, self.throttles)]
    }
}

/// What was done to come to an agreement about one key, in numbers of its entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) key: &'static str,
    pub(crate) new: usize,
    pub(crate) changed: usize,
    pub(crate) removed: usize,
    pub(crate) same: usize,
    /// Names of those that cannot be, and why.
    pub(crate) refused: Vec<(String, Refusal)>,
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, new, changed, removed, same, .. } = self;
        write!(f, "{key}: {new} new, {changed} changed, {removed} removed, {same} as before")
    }
}

impl Agreement {
    /// Nothing done so far.
    pub(crate) fn new(key: &'static str) -> Self {
        Self { key, ..Self::default() }
    }

    /// Whether anything is there, or was.
    pub(crate) fn is_of_nothing(&self) -> bool {
        *self == Self::new(self.key)
    }

    /// Says what was done, if anything was there to be done.
    pub(crate) fn report(&self) {
        for (name, why) in &self.refused {
            tracing::error!("{}: {name}: {why}", self.key);
        }
        if !self.is_of_nothing() {
            tracing::info!("{self}");
        }
    }
}

/// Why something was not done.
pub(crate) fn refusal(event: Event) -> Option<Refusal> {
    if let Event::Refused { why, .. } = event { Some(why) } else { None }
}
