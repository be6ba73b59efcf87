//! The roles of a daemon. A single daemon has an engine room from the start. A daemon of a cluster
//! has a link to the leader, and an engine room while it leads.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc::UnboundedReceiver;

use windlass_config::Failure;
use windlass_hub::{Broker, Budget, Health, View, clock, limited, warn_limited};

use crate::cluster::{Joining, Listening, Member, YIELD};
use crate::config::Config;
use crate::data::Store;
use crate::desired::{self, Desired};
use crate::engine_room::{EngineRoom, Prepared};
use crate::export::Exports;
use crate::figures::Figures;
use crate::notify;
use windlass_net::{Acceptor, Served};

/// The location of the store at startup.
pub(crate) enum Place {
    /// This daemon has it.
    Alone(Box<Store>),
    /// A daemon of the cluster has it. Contains the sockets for links.
    Cluster(Listening),
}

/// The parts that exist before anything is started.
pub(crate) enum Roles {
    Alone(Box<Prepared>),
    Cluster(Joining),
}

/// The parts of the daemon that use a new engine room.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) acceptor: &'a Acceptor,
    pub(crate) figures: &'a Figures,
    pub(crate) exports: &'a Exports,
}

impl Roles {
    pub(crate) fn new(
        place: Place,
        config: &Config,
        budget: &Arc<Budget>,
        served: &[Served],
    ) -> Self {
        match place {
            Place::Alone(store) => {
                Self::Alone(Box::new(Prepared::new(*store, config, Arc::clone(budget))))
            }
            Place::Cluster(listening) => {
                let publications = served
                    .iter()
                    .filter_map(|it| it.endpoint.publications.clone());
                Self::Cluster(Joining::new(listening, budget, publications))
            }
        }
    }

    /// The broker that connections use.
    pub(crate) fn broker(&self) -> Arc<dyn Broker> {
        match self {
            Self::Alone(prepared) => Arc::<windlass_hub::Hub>::clone(prepared.hub()),
            Self::Cluster(joining) => joining.broker(),
        }
    }

    /// Starts the engine room, or the link.
    ///
    /// # Errors
    ///
    /// A thread cannot be started, a certificate cannot be used, or the engine refuses a configured
    /// entry.
    pub(crate) async fn start<'a>(
        self,
        config: &'a Config,
        in_force: &'a ArcSwap<Config>,
        wanted: Desired,
        parts: Parts<'a>,
        view: Arc<View>,
        yields: UnboundedReceiver<()>,
    ) -> Result<Running<'a>, Failure> {
        let mut running = Running {
            config,
            in_force,
            parts,
            room: None,
            cluster: None,
            view,
            yields,
        };
        match self {
            Self::Alone(prepared) => {
                parts.acceptor.enter_room(prepared.hub());
                running.begin(*prepared, wanted).await?;
            }
            Self::Cluster(joining) => {
                running.view.seeks();
                running.cluster = Some(joining.start(config, Arc::clone(&running.view))?);
            }
        }
        Ok(running)
    }
}

/// A running daemon.
pub(crate) struct Running<'a> {
    config: &'a Config,
    /// The configuration as last read.
    in_force: &'a ArcSwap<Config>,
    parts: Parts<'a>,
    room: Option<EngineRoom>,
    cluster: Option<Member>,
    view: Arc<View>,
    /// Operators' requests to hand leadership over.
    yields: UnboundedReceiver<()>,
}

impl Running<'_> {
    async fn begin(&mut self, prepared: Prepared, wanted: Desired) -> Result<(), Failure> {
        let Parts {
            acceptor,
            figures,
            exports,
        } = self.parts;
        // A leader's commits go over a network, so serving threads must not wait for them.
        let slots = self.cluster.is_none().then(|| acceptor.thread_slots());
        let room = prepared.start(self.config, wanted, slots, exports).await?;
        figures.enter_room(room.figures());
        self.room = Some(room);
        Ok(())
    }

    /// Returns the reason when the daemon must exit, and not before.
    pub(crate) async fn watch(&mut self) -> Failure {
        let Parts { acceptor, .. } = self.parts;
        tokio::select! {
            failure = self.watch_room() => failure,
            failure = keep_house(acceptor) => failure,
        }
    }

    async fn watch_room(&mut self) -> Failure {
        loop {
            if let Err(failure) = self.lead_when_possible().await {
                return failure;
            }
            let (Some(room), yields) = (&self.room, &mut self.yields) else {
                return std::future::pending().await;
            };
            let why = tokio::select! {
                failure = room.watch(self.in_force) => Some(failure),
                Some(()) = yields.recv() => None,
            };
            match why {
                None | Some(Failure::Deposed(_)) if self.cluster.is_some() => {
                    if why.is_none() {
                        self.hand_over().await;
                    }
                    self.step_down(why).await;
                }
                Some(failure) => return failure,
                // A single daemon has no one to yield to.
                None => {}
            }
        }
    }

    /// Waits for the lease as a daemon of a cluster, then leads.
    async fn lead_when_possible(&mut self) -> Result<(), Failure> {
        let Some(cluster) = self.cluster.as_ref().filter(|_| self.room.is_none()) else {
            return Ok(());
        };
        let Parts { acceptor, .. } = self.parts;
        let store = cluster.stand_by(self.config).await?;
        let prepared = Prepared::succeeding(store, self.config, Arc::clone(acceptor.budget()));
        let hub = Arc::clone(prepared.hub());
        // A reload applied to the previous leader applies to this one too.
        let begun_with = self.in_force.load_full();
        desired::set_up(&begun_with, &hub);
        self.begin(prepared, Desired::of(&begun_with)?).await?;
        self.cluster
            .iter()
            .for_each(|cluster| cluster.take_over(&hub));
        acceptor.enter_room(&hub);
        let in_force = self.in_force.load_full();
        if !Arc::ptr_eq(&begun_with, &in_force) {
            desired::apply(&in_force, Desired::of(&in_force)?, &hub).await;
        }
        self.cluster.iter().for_each(|cluster| cluster.accept(&hub));
        hub.begin_grace();
        // A repeated request to yield was meant for the previous term.
        while self.yields.try_recv().is_ok() {}
        self.view.leads(hub.epoch());
        tracing::info!(epoch = hub.epoch(), "became leader");
        Ok(())
    }

    /// Gives up leadership and becomes an edge again. Its clients are disconnected.
    async fn step_down(&mut self, why: Option<Failure>) {
        let (Some(room), Some(cluster)) = (self.room.take(), &self.cluster) else {
            return;
        };
        let Parts {
            acceptor,
            figures,
            exports,
        } = self.parts;
        match &why {
            Some(Failure::Deposed(why)) => {
                tracing::warn!(why, "lost leadership; now following")
            }
            Some(failure) => tracing::error!(%failure, "lost leadership"),
            None => tracing::info!("leadership yielded on request"),
        }
        acceptor.leave_room();
        figures.leave_room();
        exports.end();
        self.view.seeks();
        cluster.follow();
        let _ = room.stop_time();
        if let Err(error) = room.finish().await
            && why.is_none()
        {
            tracing::error!(%error, "the store was not released cleanly");
        }
        // Other daemons try to acquire the lease now. A daemon that has yielded it waits before it
        // tries again.
        if why.is_none() {
            tokio::time::sleep(YIELD).await;
        }
    }

    /// Called before a leader stops cleanly, to let another daemon prepare to lead.
    pub(crate) async fn hand_over(&self) {
        if let (Some(room), Some(_)) = (&self.room, &self.cluster) {
            room.hand_over().await;
        }
    }

    /// Stops the ticker, so that nothing becomes due.
    ///
    /// # Errors
    ///
    /// This daemon does not hold the store now, so it cannot stop cleanly.
    pub(crate) fn stop_time(&self) -> Result<(), Failure> {
        self.room.as_ref().map_or(Ok(()), EngineRoom::stop_time)
    }

    /// Closes the links, writes everything and releases the store. No thread may visit the engine
    /// afterwards.
    ///
    /// # Errors
    ///
    /// The last commit was not written to the store.
    pub(crate) async fn finish(self) -> Result<(), Failure> {
        let Self {
            room,
            cluster,
            in_force,
            ..
        } = self;
        match (cluster, &room) {
            // In a cluster, workers claim their jobs at the next leader.
            (Some(cluster), _) => cluster.finish(),
            (None, Some(room))
                if !Duration::from(in_force.load().server.return_grace).is_zero() =>
            {
                room.leave_jobs()
            }
            (None, _) => {}
        }
        limited::finish();
        match room {
            Some(room) => {
                room.finish().await?;
                tracing::info!("stopped: everything is on the disk");
            }
            None => tracing::info!("stopped"),
        }
        Ok(())
    }
}

/// Performs the periodic checks of every daemon, once a second. Never returns.
async fn keep_house(acceptor: &Acceptor) -> Failure {
    const EVERY: Duration = Duration::from_secs(1);
    let pulse = acceptor.thread_slots().pulse();
    let mut is_wrong = false;
    loop {
        tokio::time::sleep(EVERY).await;
        log_clock(clock::machine_ahead_ms(), &mut is_wrong);
        pulse.ask(acceptor.broker().health() == Health::StoreFailed);
        match pulse.stuck() {
            None => notify::watchdog(),
            // The service manager kills the daemon if it is configured to.
            Some(why) => warn_limited!("stuck", why, "the main thread is stuck: a bug"),
        }
        limited::flush();
        give_memory_back();
    }
}

/// Logs once that the machine's wall clock differs from the authoritative one, and once that it
/// agrees again.
fn log_clock(ahead_ms: Option<i64>, is_wrong: &mut bool) {
    const FAR_MS: u64 = 5_000;
    let Some(ahead_ms) = ahead_ms else { return };
    let is_far = ahead_ms.unsigned_abs() > FAR_MS;
    match (is_far, std::mem::replace(is_wrong, is_far)) {
        (true, false) => {
            let why = "the wall clock differs from the database's, which scheduled times follow";
            tracing::warn!(ahead_ms, "{why}");
        }
        (false, true) => {
            tracing::info!(ahead_ms, "the wall clock agrees with the database's again")
        }
        (true, true) | (false, false) => {}
    }
}

/// Returns freed memory to the system. The allocator does so by itself only when a large block is
/// freed, which an idle daemon never does.
fn give_memory_back() {
    const LARGE: usize = 1 << 20;
    drop(black_box(Vec::<u8>::with_capacity(LARGE)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_hub::testing::captured;

    #[test]
    fn a_wall_clock_that_is_wrong_is_logged_once() {
        let mut is_wrong = false;
        for (ahead_ms, expected) in [
            (Some(5_000), ""),
            (Some(3_600_000), "differs from"),
            (None, ""),
            (Some(3_600_000), ""),
            (Some(0), "agrees with"),
            (Some(-5_001), "differs from"),
        ] {
            let said = captured(|| log_clock(ahead_ms, &mut is_wrong));
            assert_eq!(
                (said.is_empty(), said.contains(expected)),
                (expected.is_empty(), true),
                "{ahead_ms:?}: {said}"
            );
        }
    }
}
