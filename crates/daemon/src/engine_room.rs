//! The engine room: the hub (the engine with its journal behind one lock), the threads for commits
//! and checkpoints, and the task that advances the engine's time. A single daemon has one from the
//! start; a daemon of a cluster has one while it leads.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::JoinHandle;
use windlass_config::{Error as ConfigError, Failure};
use windlass_engine::{Context, TICK_MS};
use windlass_history::Keeper;
use windlass_store::{BodyFile, Checkpointer, Guard, Log, Recovered};

use crate::config::{self, Config};
use crate::data::Store;
use crate::dead_drops::DropsLogged;
use crate::desired::Desired;
use crate::export::Exports;
use crate::figures::RoomFigures;
use crate::history;
use crate::log_growth::LogGrowth;
use crate::protocols;
use crate::random::random_seed;
use crate::reconcile::Reconciliation;
use crate::{namespaces, on_dead, recurring};
use windlass_hub::{
    Budget, Checkpoints, CommitTimeouts, Committer, Durability, Hub, Loader, Pace, clock,
};
use windlass_net::ThreadSlots;

/// How soon the committing thread retries a failed commit.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// The same for a store on other machines, which fails over within moments.
const REMOTE_RETRY: Duration = Duration::from_millis(100);

/// How often the main thread checks on commits.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// An engine room whose threads are not started. Connections can already use its hub.
pub(crate) struct Prepared {
    hub: Arc<Hub>,
    log: Box<dyn Log>,
    checkpointer: Checkpointer,
    guard: Option<Guard>,
    pace: Pace,
    bodies: Option<BodyFile>,
}

impl Prepared {
    pub(crate) fn new(store: Store, config: &Config, budget: Arc<Budget>) -> Self {
        let Store {
            log,
            checkpointer,
            recovered:
                Recovered {
                    mut engine,
                    journal,
                    bodies,
                    ..
                },
            guard,
        } = store;
        engine.hold_due();
        engine.set_reader(Arc::new(protocols::bridge(config)));
        engine.keep_history(history::is_kept(config));
        on_dead::set(&mut engine, config);
        recurring::set_missed(&mut engine, config);
        let (durability, pace) = pace(config);
        let hub = Hub::new(engine, journal, durability, random_seed())
            .sharing(budget)
            .naming(protocols::names(config))
            .within(pace.interval);
        let tenure = guard.as_ref().and_then(Guard::tenure);
        let hub = Arc::new(
            hub.hand_out_after_commit(config.server.hand_out_after_commit)
                .under(tenure),
        );
        Self {
            hub,
            log,
            checkpointer,
            guard,
            pace,
            bodies,
        }
    }

    /// Prepares it for a daemon of a cluster, where clients of the previous leader may reconnect.
    /// It hands out no jobs until [`Hub::begin_grace`], and then for the length of a lease, unless
    /// there was no previous leader.
    pub(crate) fn succeeding(mut store: Store, config: &Config, budget: Arc<Budget>) -> Self {
        const FIRST_EPOCH: u64 = 1;
        if store
            .guard
            .as_ref()
            .and_then(Guard::tenure)
            .is_some_and(|tenure| tenure.epoch() > FIRST_EPOCH)
        {
            let Recovered {
                engine, journal, ..
            } = &mut store.recovered;
            let mut context = Context::new(clock::now(), random_seed());
            engine.succeed(&mut context);
            journal.append(engine, &context.changes);
        }
        Self::new(store, config, budget)
    }

    pub(crate) const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Starts the threads, and reconciles the store with the configuration. With `slots`, serving
    /// threads commit at the end of their turns.
    ///
    /// # Errors
    ///
    /// A thread cannot be started, or the engine refuses a configured entry.
    pub(crate) async fn start(
        self,
        config: &Config,
        wanted: Desired,
        slots: Option<&ThreadSlots>,
        exports: &Exports,
    ) -> Result<EngineRoom, Failure> {
        let Self {
            hub,
            log,
            checkpointer,
            guard,
            pace,
            bodies,
        } = self;
        let (tail, store) = (log.tail(), checkpointer.figures());
        let tenure = guard.as_ref().and_then(Guard::tenure);
        // A commit may need bodies that only this thread can read.
        let loader = start_loader(&hub, bodies, config)?;
        let committer =
            Committer::start(Arc::clone(&hub), log, guard, pace).map_err(Failure::no_threads)?;
        let quiet = config.store.checkpoint_quiet.into();
        let engine = Arc::clone(&hub);
        let living =
            move || engine.with_journal(|engine, _| engine.resident_bytes() + engine.stored().1);
        let mut checkpointer = checkpointer.estimated_by(living);
        let history = history::start(&mut checkpointer, tenure.as_deref(), config)?;
        let (checkpoints, requests) =
            Checkpoints::start(checkpointer, quiet).map_err(Failure::no_threads)?;
        exports.come_from(requests);
        // Lend keys contain the number of starts, so the new number must be durable before the
        // first key is issued.
        hub.first_commit().await;
        if let Some(slots) = slots.filter(|_| pace.interval.is_none()) {
            slots.commit_in_turns(committer.commits());
        }
        // Queues of listeners are in them.
        agreed(namespaces::agree(&*hub, config))?;
        protocols::make_queues(&hub, config)?;
        // Must precede the first due work: policies apply to jobs that became due while no daemon
        // ran, and schedules removed from the configuration must not run.
        agree(&hub, wanted).await?;
        hub.with_journal(|engine, _| engine.release_due());
        let ticker = tokio::spawn(tick(Arc::clone(&hub)));
        let figures = RoomFigures {
            hub: Arc::clone(&hub),
            commits: committer.times(),
            store,
            tail,
            history: history.as_ref().map(Keeper::watch),
        };
        Ok(EngineRoom {
            hub,
            committer,
            checkpoints,
            loader,
            history,
            ticker,
            figures,
        })
    }
}

/// A running engine room.
pub(crate) struct EngineRoom {
    hub: Arc<Hub>,
    committer: Committer,
    checkpoints: Checkpoints,
    loader: Option<Loader>,
    history: Option<Keeper>,
    ticker: JoinHandle<()>,
    figures: RoomFigures,
}

impl EngineRoom {
    /// Lets another daemon of the cluster prepare to lead, while this one still serves.
    pub(crate) async fn hand_over(&self) {
        self.checkpoints.hold();
        let hub = Arc::clone(&self.hub);
        let _ = tokio::task::spawn_blocking(move || hub.hand_over()).await;
    }

    /// The figures for metrics.
    pub(crate) fn figures(&self) -> RoomFigures {
        self.figures.clone()
    }

    /// Returns the reason when the daemon must exit, and not before.
    pub(crate) async fn watch(&self, in_force: &ArcSwap<Config>) -> Failure {
        tokio::select! {
            why = self.watch_commits(in_force) => Failure::Runtime(why.to_owned()),
            why = self.deposed() => Failure::Deposed(why),
        }
    }

    async fn watch_commits(&self, in_force: &ArcSwap<Config>) -> &'static str {
        let (mut drops, mut growth) = (DropsLogged::default(), LogGrowth::default());
        loop {
            tokio::time::sleep(WATCH_EVERY).await;
            if let Some(history) = &self.history {
                history.set_limits(history::limits(&in_force.load()));
            }
            let config::Store {
                commit_timeout,
                commit_abort,
                ..
            } = in_force.load().store;
            let timeouts = CommitTimeouts {
                timeout: commit_timeout.into(),
                abort: commit_abort.into(),
            };
            if let Some(why) = self.committer.watch(timeouts) {
                return why;
            }
            growth.log(&self.figures.log_sizes());
            drops.log(self.hub.with_journal(|engine, _| engine.dead_dropped()));
        }
    }

    /// Returns when another daemon has taken the store over, and not before.
    async fn deposed(&self) -> String {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        if !self.hub.has_tenure() {
            std::future::pending::<()>().await;
        }
        loop {
            if let Some(error) = self.hub.deposed() {
                return error.to_string();
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Stops the ticker, so that nothing becomes due. In a cluster, jobs not yet received by
    /// workers become ready for the next leader.
    ///
    /// # Errors
    ///
    /// This daemon does not hold the store now, so it cannot stop cleanly.
    pub(crate) fn stop_time(&self) -> Result<(), Failure> {
        self.ticker.abort();
        if self.hub.may_act() {
            if self.hub.has_tenure() {
                self.hub.step_down();
            }
            return Ok(());
        }
        Err(match self.hub.deposed() {
            Some(error) => Failure::Deposed(error.to_string()),
            None => Failure::Runtime("stopped without a valid lease of the store".to_owned()),
        })
    }

    /// Keeps jobs held over connections for their workers until the daemon has restarted.
    pub(crate) fn leave_jobs(&self) {
        self.hub.leave_jobs();
    }

    /// Writes everything and releases the store. No thread may visit the engine afterwards.
    ///
    /// # Errors
    ///
    /// The last commit was not written to the store.
    pub(crate) async fn finish(self) -> Result<(), Failure> {
        let Self {
            hub,
            committer,
            checkpoints,
            loader,
            history,
            ..
        } = self;
        drop(loader);
        // A checkpoint of many jobs takes seconds while another daemon may wait for the lease, and
        // the next daemon can read the log instead. The last commit blocks, so this thread only
        // keeps the time meanwhile.
        let ended = tokio::task::spawn_blocking(move || {
            let has_tenure = hub.has_tenure();
            if has_tenure {
                checkpoints.abandon();
            } else {
                checkpoints.finish();
            }
            let is_written = committer.finish();
            if let Some(history) = history {
                history::finish(history, has_tenure);
            }
            is_written
        });
        match while_looking(ended, || _ = clock::read()).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Failure::Runtime(
                "the last commit was not written to the store".to_owned(),
            )),
        }
    }
}

/// Waits for `what`, and reads the clock as often as the ticker did, so that time spent here is not
/// taken for a suspension.
async fn while_looking<T>(what: impl Future<Output = T>, mut look: impl FnMut()) -> T {
    let mut what = std::pin::pin!(what);
    loop {
        look();
        tokio::select! {
            done = &mut what => return done,
            () = tokio::time::sleep(Duration::from_millis(TICK_MS)) => {}
        }
    }
}

/// Starts the thread that moves bodies out of memory and back. Without a file, as in an ephemeral
/// daemon, all bodies stay in memory.
fn start_loader(
    hub: &Arc<Hub>,
    bodies: Option<BodyFile>,
    config: &Config,
) -> Result<Option<Loader>, Failure> {
    if config.ephemeral {
        return Ok(None);
    }
    let file = match bodies.map_or_else(|| BodyFile::create(&config.data_dir), Ok) {
        Ok(file) => file,
        Err(error) => {
            let data_dir = config.data_dir.display();
            tracing::warn!(%error, %data_dir, "cannot create the scratch file: all bodies stay in memory");
            return Ok(None);
        }
    };
    Loader::start(Arc::clone(hub), file)
        .map(Some)
        .map_err(Failure::no_threads)
}

/// If the engine refuses a configured entry, the configuration is invalid.
async fn agree(hub: &Arc<Hub>, wanted: Desired) -> Result<(), Failure> {
    let parts = wanted.agree(hub).await.parts;
    parts.into_iter().try_for_each(agreed)
}

/// The same for one part of the configuration.
fn agreed(part: Reconciliation) -> Result<(), Failure> {
    if let Some((name, why)) = part.refused.first() {
        let reason = format!("{name}: {why}");
        return Err(ConfigError::senseless(part.key, reason).into());
    }
    part.report();
    Ok(())
}

/// Wakes the engine when something is due, and often enough to notice that a clock was set or the
/// daemon was suspended.
///
/// Deadlines are met a few milliseconds late and in groups, because a thousand expiring waits per
/// second would otherwise cause a thousand wake-ups of this thread and of the serving ones.
async fn tick(hub: Arc<Hub>) {
    const EVERY: Duration = Duration::from_millis(TICK_MS);
    const LATE: Duration = Duration::from_millis(4);
    loop {
        let due = hub.tick().map_or(EVERY, clock::until);
        let due = if due.is_zero() {
            due
        } else {
            due.clamp(LATE, EVERY)
        };
        tokio::select! {
            () = hub.deadline_moved.notified() => {}
            () = tokio::time::sleep(due) => {}
        }
        // The due work may be one step of a long operation, so other tasks run first.
        tokio::task::yield_now().await;
    }
}

fn pace(config: &Config) -> (Durability, Pace) {
    let (durability, interval) = match config.durability {
        config::Durability::Sync => (Durability::Durable, None),
        config::Durability::Interval => (Durability::Soon, Some(config.commit_interval.into())),
    };
    let pace = Pace {
        interval,
        retry: if config.remote.is_some() {
            REMOTE_RETRY
        } else {
            STORE_RETRY
        },
    };
    (durability, pace)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn the_clock_is_looked_at_while_a_stop_waits_for_a_checkpoint() {
        let (looks, enough) = (AtomicU32::new(0), tokio::sync::Notify::new());
        // It returns only because the clock is read meanwhile.
        let stop = async {
            enough.notified().await;
            7
        };
        let look = || {
            if looks.fetch_add(1, Ordering::Relaxed) == 2 {
                enough.notify_one();
            }
        };
        assert_eq!(while_looking(stop, look).await, 7);
    }
}
