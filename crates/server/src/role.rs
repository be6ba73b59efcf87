//! What a daemon is made of. Alone it has an engine room from its start. One of several has a link to the leader, until it leads and
//! has an engine room, too.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crate::broker::Broker;
use crate::budget::Budget;
use crate::cluster::{Cluster, ClusterBroker, Listening};
use crate::config::Config;
use crate::data::Store;
use crate::engine_room::{EngineRoom, Prepared};
use crate::export::Exports;
use crate::failure::Failure;
use crate::figures::Figures;
use crate::listen::Acceptor;
use crate::logging::limited;
use crate::notify;
use crate::reconcile::Desired;

/// Where the store is when the daemon starts.
pub(crate) enum Place {
    /// This daemon has it.
    Alone(Box<Store>),
    /// One of the cluster's daemons has it. These are the addresses of this daemon's links.
    Cluster(Listening),
}

/// What is there before anything starts.
pub(crate) enum Roles {
    Alone(Box<Prepared>),
    Cluster(Arc<ClusterBroker>, Listening),
}

/// The parts of the daemon that learn of a new engine room.
pub(crate) type Parts<'a> = (&'a Acceptor, &'a Figures, &'a Exports);

impl Roles {
    pub(crate) fn new(place: Place, config: &Config, budget: &Arc<Budget>) -> Self {
        match place {
            Place::Alone(store) => Self::Alone(Box::new(Prepared::new(*store, config, Arc::clone(budget)))),
            Place::Cluster(listening) => Self::Cluster(Arc::new(ClusterBroker::new(Arc::clone(budget))), listening),
        }
    }

    /// The queue, as connections see it.
    pub(crate) fn broker(&self) -> Arc<dyn Broker> {
        match self {
            Self::Alone(prepared) => Arc::<crate::hub::Hub>::clone(prepared.hub()),
            Self::Cluster(broker, _) => Arc::<ClusterBroker>::clone(broker),
        }
    }

    /// Starts the engine room, or the link.
    ///
    /// # Errors
    ///
    /// A thread cannot start, a certificate cannot be used, or the engine refuses what is configured.
    pub(crate) async fn start<'a>(
        self,
        (config, wanted): (&'a Config, Desired),
        parts: Parts<'a>,
    ) -> Result<Running<'a>, Failure> {
        let mut running = Running { config, parts, wanted: None, room: None, cluster: None };
        match self {
            Self::Alone(prepared) => {
                parts.0.enter_room(prepared.hub());
                running.begin(*prepared, wanted).await?;
            }
            Self::Cluster(broker, listening) => {
                let cluster = Cluster::start(config, listening, Arc::clone(broker.edge()))?;
                (running.cluster, running.wanted) = (Some((cluster, broker)), Some(wanted));
            }
        }
        Ok(running)
    }
}

/// A daemon at work.
pub(crate) struct Running<'a> {
    config: &'a Config,
    parts: Parts<'a>,
    /// What the configuration wants of the engine, until there is one.
    wanted: Option<Desired>,
    room: Option<EngineRoom>,
    cluster: Option<(Cluster, Arc<ClusterBroker>)>,
}

impl Running<'_> {
    async fn begin(&mut self, prepared: Prepared, wanted: Desired) -> Result<(), Failure> {
        let (acceptor, figures, exports) = self.parts;
        let room = prepared.start((self.config, wanted), acceptor.thread_slots(), exports).await?;
        figures.enter_room(room.figures());
        self.room = Some(room);
        Ok(())
    }

    /// Returns only if the daemon must end, with the reason.
    pub(crate) async fn watch(&mut self) -> Failure {
        tokio::select! {
            failure = self.watch_room() => failure,
            failure = keep_house() => failure,
        }
    }

    async fn watch_room(&mut self) -> Failure {
        if let Err(failure) = self.lead_when_possible().await {
            return failure;
        }
        match &self.room {
            Some(room) => room.watch().await,
            None => std::future::pending().await,
        }
    }

    /// One of several daemons waits for the lease, and leads then.
    async fn lead_when_possible(&mut self) -> Result<(), Failure> {
        let (Some((cluster, broker)), Some(wanted)) = (&self.cluster, self.wanted.take()) else { return Ok(()) };
        let (acceptor, ..) = self.parts;
        let store = cluster.stand_by(self.config).await?;
        let prepared = Prepared::new(store, self.config, Arc::clone(acceptor.budget()));
        let (hub, broker) = (Arc::clone(prepared.hub()), Arc::clone(broker));
        self.begin(prepared, wanted).await?;
        broker.lead(&hub);
        acceptor.enter_room(&hub);
        if let Some((cluster, _)) = &self.cluster {
            cluster.lead(&hub);
        }
        tracing::info!(epoch = hub.epoch(), "this daemon leads");
        Ok(())
    }

    /// Ends the ticker: nothing is due any more.
    ///
    /// # Errors
    ///
    /// The store does not belong to this daemon now, so the daemon cannot stop in order.
    pub(crate) fn stop_time(&self) -> Result<(), Failure> {
        self.room.as_ref().map_or(Ok(()), EngineRoom::stop_time)
    }

    /// Ends the links, writes everything to the store, and gives the store back. No thread may visit the engine any more.
    ///
    /// # Errors
    ///
    /// The last commit did not reach the store.
    pub(crate) async fn finish(self) -> Result<(), Failure> {
        let Self { room, cluster, .. } = self;
        if let Some((mut cluster, _)) = cluster {
            cluster.finish();
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

/// What every daemon does once a second. Never returns.
async fn keep_house() -> Failure {
    const EVERY: Duration = Duration::from_secs(1);
    loop {
        tokio::time::sleep(EVERY).await;
        notify::watchdog();
        limited::flush();
        give_memory_back();
    }
}

/// The allocator keeps freed memory for a second, and returns it to the system when a large block is freed after that. An idle
/// daemon frees no large blocks, so this function does.
fn give_memory_back() {
    const LARGE: usize = 1 << 20;
    drop(black_box(Vec::<u8>::with_capacity(LARGE)));
}
