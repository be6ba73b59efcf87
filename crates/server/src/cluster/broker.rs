//! The broker of a daemon in a cluster: its own engine room while it leads, the link to another daemon's until then.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use windlass_engine::{ClientId, Command, Reading, Refusal, Reply};

use super::edge::Edge;
use crate::broker::{Batch, Broker, CommitDuty, Health};
use crate::budget::Budget;
use crate::hub::Hub;
use crate::mailbox::{Mail, Mailbox};

/// Where connections find the queue.
#[derive(Debug)]
pub(crate) struct ClusterBroker {
    edge: Arc<Edge>,
    hub: OnceLock<Arc<Hub>>,
    /// Held to open a client, so that none is opened at the edge after the daemon leads.
    change: RwLock<()>,
}

impl ClusterBroker {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { edge: Arc::new(Edge::new(budget)), hub: OnceLock::new(), change: RwLock::default() }
    }

    pub(crate) const fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    /// The engine room is in this daemon from now on. Clients of the leader before are closed.
    pub(crate) fn lead(&self, hub: &Arc<Hub>) {
        let _change = self.change.write().unwrap_or_else(PoisonError::into_inner);
        let _ = self.hub.set(Arc::clone(hub));
        self.edge.end();
    }

    fn present(&self) -> &dyn Broker {
        match self.hub.get() {
            Some(hub) => &**hub,
            None => &*self.edge,
        }
    }
}

impl Broker for ClusterBroker {
    fn open(&self, client: ClientId, mailbox: Arc<Mailbox>) {
        let _change = self.change.read().unwrap_or_else(PoisonError::into_inner);
        self.present().open(client, mailbox);
    }

    fn visit(&self, now: &Reading, batches: &mut dyn Iterator<Item = Batch<'_>>) -> CommitDuty {
        self.present().visit(now, batches)
    }

    fn visit_apart(&self, now: &Reading, batch: Batch<'_>) {
        self.present().visit_apart(now, batch);
    }

    fn mail(&self, mailbox: &Mailbox, room: usize, into: &mut Vec<Mail>) -> Option<usize> {
        self.present().mail(mailbox, room, into)
    }

    fn close(&self, client: ClientId) -> bool {
        self.present().close(client)
    }

    fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        self.present().ask(command)
    }

    fn health(&self) -> Health {
        self.present().health()
    }

    fn is_at_rest(&self) -> bool {
        self.present().is_at_rest()
    }

    fn stop(&self) {
        self.present().stop();
    }
}
