//! The engine state that comes from the configuration, and its reconciliation: when the daemon starts, and when it
//! reads its configuration again.

use windlass_config::Error;
use windlass_engine::{Bridge, Patterns, QueueCommand, QueueSettings};
use windlass_hub::{Broker, Hub};

use crate::config::Config;
use crate::on_dead;
use crate::policies;
use crate::reconcile::Reconciliation;
use crate::recurring::{self, Recurring};
use crate::rules::{self, Rules};
use crate::throttles::{self, Throttles};

/// The state that the configuration requires.
#[derive(Debug)]
pub(crate) struct Desired {
    schedules: Vec<Recurring>,
    throttles: Throttles,
    rules: Rules,
    patterns: Patterns<QueueSettings>,
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
            patterns: policies::patterns(config)?,
            bridge: rules::bridge(config),
        })
    }

    /// Reconciles the engine with it.
    pub(crate) fn agree(self, broker: &dyn Broker) -> Vec<Reconciliation> {
        // The order matters: first which protocols share a queue and which jobs may start, before any job is handed out;
        // then the rules, because schedules must obey them.
        let _ = broker.ask(QueueCommand::Bridge(Box::new(self.bridge)).into());
        policies::agree(broker, self.patterns);
        let mut done = vec![rules::agree(broker, self.rules)];
        done.extend(self.schedules.into_iter().map(|schedules| recurring::agree(broker, schedules)));
        done.push(throttles::agree(broker, self.throttles));
        done
    }
}

/// Applies the limits and the reports of deaths of a configuration.
pub(crate) fn set_up(config: &Config, hub: &Hub) {
    hub.with_journal(|engine, _| {
        engine.set_limits(config.engine_limits());
        on_dead::set(engine, config);
    });
}

/// Applies the limits of a configuration and the state that it requires to an engine that serves.
pub(crate) fn apply(config: &Config, wanted: Desired, hub: &Hub) {
    set_up(config, hub);
    wanted.agree(hub).iter().for_each(Reconciliation::report);
}
