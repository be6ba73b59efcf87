//! The engine state that the configuration requires, and its reconciliation at startup and on
//! reload.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_config::Error;
use windlass_engine::{Bridge, Patterns, QueueCommand, QueueSettings};
use windlass_hub::{Broker, Hub};

use crate::config::Config;
use crate::namespaces;
use crate::on_dead;
use crate::policies;
use crate::progress::Progress;
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
    data_dir: PathBuf,
    /// The state before a reload. Settings that operators can change are touched only where the
    /// file has changed.
    before: Option<Box<Self>>,
}

/// The result of a reconciliation.
#[derive(Debug, Default)]
pub(crate) struct Agreed {
    pub(crate) parts: Vec<Reconciliation>,
    /// Descriptions of operators' policies and throttles that the configuration has overridden.
    pub(crate) taken_back: BTreeSet<String>,
}

impl Desired {
    /// Reads the state from a configuration.
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
            data_dir: config.data_dir.clone(),
            before: None,
        })
    }

    /// Marks it as the successor of another state, on a reload.
    pub(crate) fn after(self, before: Self) -> Self {
        Self {
            before: Some(Box::new(before)),
            ..self
        }
    }

    /// Discards operators' settings where the configuration has changed.
    fn take_back(&self, broker: &dyn Broker) -> BTreeSet<String> {
        let Some(before) = &self.before else {
            return BTreeSet::new();
        };
        let policies = policies::take_back(broker, &before.patterns, &self.patterns)
            .into_iter()
            .map(|(queue, by)| {
                format!(
                    "the policy of {}, set by {}",
                    queue.escape_ascii(),
                    by.escape_ascii()
                )
            });
        let throttles = throttles::own(
            broker,
            &throttles::changed(&before.throttles, &self.throttles),
        );
        policies
            .chain(
                throttles
                    .iter()
                    .map(|queue| format!("the throttle of {}", queue.escape_ascii())),
            )
            .collect()
    }

    /// Reconciles the engine with this state, on a separate thread because many jobs may have keys
    /// to read.
    pub(crate) async fn agree(self, hub: &Arc<Hub>) -> Agreed {
        let hub = Arc::clone(hub);
        let agree = move || {
            let _progress = Progress::of(&self.data_dir);
            let taken_back = self.take_back(&*hub);
            let changed = self
                .before
                .map(|before| throttles::changed(&before.throttles, &self.throttles));
            // The order matters: sharing and policies must be set before any job is handed out, and
            // rules must be set before the schedules that obey them.
            let _ = hub.ask(QueueCommand::Bridge(Box::new(self.bridge)).into());
            policies::agree(&*hub, self.patterns);
            let mut parts = vec![rules::agree(&*hub, self.rules)];
            parts.extend(
                self.schedules
                    .into_iter()
                    .map(|schedules| recurring::agree(&*hub, schedules)),
            );
            parts.push(throttles::agree(&*hub, self.throttles, changed.as_ref()));
            Agreed { parts, taken_back }
        };
        tokio::task::spawn_blocking(agree)
            .await
            .unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }
}

/// Applies the limits and the `on_dead` rules of a configuration.
pub(crate) fn set_up(config: &Config, hub: &Hub) {
    hub.with_journal(|engine, _| {
        engine.set_limits(config.engine_limits());
        on_dead::set(engine, config);
    });
}

/// Applies a configuration's limits and required state to a running engine. Returns the operators'
/// settings that were discarded.
pub(crate) async fn apply(config: &Config, wanted: Desired, hub: &Arc<Hub>) -> BTreeSet<String> {
    set_up(config, hub);
    namespaces::agree(&**hub, config).report();
    let Agreed { parts, taken_back } = wanted.agree(hub).await;
    parts.iter().for_each(Reconciliation::report);
    taken_back.iter().for_each(|what| {
        tracing::warn!(
            what,
            "discarded: its section of the configuration has changed"
        )
    });
    taken_back
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use windlass_engine::{Engine, Limits};
    use windlass_hub::Durability;
    use windlass_store::Journal;

    use super::*;
    use crate::config::fixture::config;

    #[test]
    fn nothing_else_waits_while_the_engine_is_reconciled() {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let (locked, is_locked) = channel();
        let (timer_runs, timer_ran) = channel();
        let keeper = Arc::clone(&hub);
        let keep_lock = move || {
            keeper.with_journal(|_, _| {
                locked.send(()).unwrap();
                timer_ran.recv_timeout(Duration::from_secs(30)).is_ok()
            })
        };
        let keeps_lock = thread::spawn(keep_lock);
        is_locked.recv().unwrap();
        let wanted = Desired::of(&config("[queues.a]\ncodec = \"json\"\n")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let timer = async { timer_runs.send(()) };
        let (done, _) = runtime.block_on(async { tokio::join!(wanted.agree(&hub), timer) });
        assert!(
            keeps_lock.join().unwrap(),
            "other tasks of the thread have waited for the engine"
        );
        assert!(done.parts.iter().any(|it| it.new == 1), "{done:?}");
    }
}
