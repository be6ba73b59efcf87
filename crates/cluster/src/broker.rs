//! The broker of a daemon in a cluster: its own engine room while it leads, otherwise the link to
//! the leader.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwapOption;
use windlass_engine::{ClientId, Command, Reading, Refusal, Reply};
use windlass_session::Item;

use super::edge::{Edge, Handover};
use windlass_hub::{Batch, Broker, Budget, CommitDuty, Health, Hub, Mail, Mailbox, Visited, clock};

/// Where connections send commands: to the local hub or to the leader.
#[derive(Debug)]
pub struct ClusterBroker {
    edge: Arc<Edge>,
    /// Empty while another daemon leads.
    hub: ArcSwapOption<Hub>,
    /// Held while a client is opened, because a client opened at the old broker after the switch
    /// would never be served.
    change: RwLock<()>,
}

impl ClusterBroker {
    /// Creates a broker that has no leader yet.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self {
            edge: Arc::new(Edge::new(budget)),
            hub: ArcSwapOption::empty(),
            change: RwLock::default(),
        }
    }

    /// The edge, which serves clients while another daemon leads.
    pub const fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    /// Switches to the local engine room and moves existing clients there as far as possible.
    pub fn lead(&self, hub: &Arc<Hub>) {
        let _change = self.change.write().unwrap_or_else(PoisonError::into_inner);
        let own = self.edge.known();
        let Handover {
            mailboxes,
            commands,
        } = self.edge.hand_over(hub.epoch(), hub.recovered());
        let rung: Vec<_> = mailboxes
            .iter()
            .map(|(_, mailbox)| Arc::clone(mailbox))
            .collect();
        mailboxes
            .into_iter()
            .for_each(|(client, mailbox)| hub.open(client, mailbox));
        for (client, tag, command) in commands {
            let (mut items, mut visited) =
                (VecDeque::from([Item::Command(tag, command)]), Visited::All);
            // A hub whose daemon was deposed in the meantime ignores visits.
            while !items.is_empty() && visited != Visited::UntilRung && hub.assure() {
                let batch = Batch {
                    client,
                    items: &mut items,
                    room: usize::MAX,
                    visited: &mut visited,
                };
                hub.visit_for_edge(&clock::read(), &mut std::iter::once(batch));
            }
        }
        own.into_iter()
            .for_each(|known| hub.has_claimed(known.edge.number()));
        self.hub.store(Some(Arc::clone(hub)));
        // These clients may have been waiting for a leader.
        Mailbox::ring_all(&rung);
    }

    /// Switches to following another leader. This daemon's own clients are closed; clients of its
    /// edges continue at the next leader.
    pub fn follow(&self) {
        let _change = self.change.write().unwrap_or_else(PoisonError::into_inner);
        self.edge.begin();
        if let Some(hub) = self.hub.swap(None) {
            hub.step_down();
            hub.stop();
        }
    }

    fn at_present<T>(&self, act: impl FnOnce(&(dyn Broker + 'static)) -> T) -> T {
        match &*self.hub.load() {
            Some(hub) => act(&**hub),
            None => act(&*self.edge),
        }
    }
}

impl Broker for ClusterBroker {
    fn open(&self, client: ClientId, mailbox: Arc<Mailbox>) {
        let _change = self.change.read().unwrap_or_else(PoisonError::into_inner);
        self.at_present(|broker| broker.open(client, mailbox));
    }

    fn visit(&self, now: &Reading, batches: &mut dyn Iterator<Item = Batch<'_>>) -> CommitDuty {
        self.at_present(|broker| broker.visit(now, batches))
    }

    fn visit_nonblocking(&self, now: &Reading, batch: Batch<'_>) -> bool {
        self.at_present(|broker| broker.visit_nonblocking(now, batch))
    }

    fn mail(&self, mailbox: &Mailbox, room: usize, into: &mut Vec<Mail>) -> Option<usize> {
        self.at_present(|broker| broker.mail(mailbox, room, into))
    }

    fn mail_nonblocking(&self, mailbox: &Mailbox, into: &mut Vec<Mail>) -> bool {
        self.at_present(|broker| broker.mail_nonblocking(mailbox, into))
    }

    fn sent_jobs(&self, client: ClientId, jobs: u32) {
        self.at_present(|broker| broker.sent_jobs(client, jobs));
    }

    fn close(&self, client: ClientId) -> bool {
        self.at_present(|broker| broker.close(client))
    }

    fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        self.at_present(|broker| broker.ask(command))
    }

    fn health(&self) -> Health {
        self.at_present(Broker::health)
    }

    fn stop(&self) {
        self.at_present(Broker::stop);
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Engine, Limits};
    use windlass_link::{Edge as EdgeNumber, ToLeader};
    use windlass_store::Journal;

    use super::*;
    use crate::leader::EdgeClients;
    use windlass_hub::Durability;
    use windlass_hub::testing::nowhere;

    /// The link task may run once more after the switch.
    #[test]
    fn a_daemon_that_leads_no_more_closes_its_own_clients_and_none_of_its_edges() {
        let broker = ClusterBroker::new(Arc::default());
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Durable,
            7,
        ));
        broker.lead(&hub);
        let own = Arc::new(Mailbox::new(1 << 20, Arc::default(), nowhere()));
        broker.open(ClientId(1), Arc::clone(&own));
        let number = EdgeNumber::new(7).unwrap();
        let mut edge = EdgeClients::new(hub, number, 1 << 20, Arc::default());
        edge.receive(ToLeader::Open {
            client: ClientId(number.first_client().0 | 1),
            room: 1 << 20,
        })
        .unwrap();
        broker.follow();
        assert!(own.close_reason().is_some());
        let mut to_edge = Vec::new();
        edge.turn(&mut to_edge);
        assert!(
            to_edge
                .iter()
                .all(|item| matches!(item, windlass_link::ToEdge::Clock(_))),
            "{to_edge:?}"
        );
    }

    #[test]
    fn a_daemon_that_stops_tells_so_without_a_leader() {
        let broker = ClusterBroker::new(Arc::default());
        assert_eq!(broker.health(), Health::StoreFailed);
        broker.stop();
        assert_eq!(broker.health(), Health::Stopping);
    }
}
