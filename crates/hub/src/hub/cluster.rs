//! What the hub of a leader does for other daemons. A daemon that is alone calls nothing here.
//!
//! The clients of an edge are clients of this hub: the edge forwards their commands, and their
//! mailboxes forward its replies. When this daemon succeeds another leader, they may still hold
//! what the journal does not contain, so no job is handed out until their edges have claimed it, or
//! a grace is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::{ClientId, Reading, Timestamp};
use windlass_session::Reason;
use windlass_store::Tenure;

use super::Hub;
use super::lease::Lease;
use crate::broker::Batch;
use crate::clock;
use crate::mailbox::Mailbox;
use crate::published::Publication;
use crate::shared::lock;

/// The edges whose clients may hold something at the engine, by number. The grace ends early when
/// all edges of the previous leader have claimed their state.
#[derive(Debug, Default)]
pub(super) struct Edges {
    /// The number of links of each edge.
    linked: BTreeMap<u32, u32>,
    /// Edges of the previous leader that have not claimed. `None`: unknown.
    awaited: Option<BTreeSet<u32>>,
    /// The end of the grace; `None`: it has not begun.
    grace_until: Option<Timestamp>,
}

impl Edges {
    /// The edges that a successor must wait for.
    fn all(&self) -> Vec<u32> {
        let is_over = self.grace_until.is_some_and(|until| until <= clock::now());
        let awaited = self.awaited.iter().flatten().filter(|_| !is_over);
        let all: BTreeSet<u32> = self.linked.keys().chain(awaited).copied().collect();
        all.into_iter().collect()
    }

    fn all_have_claimed(&self) -> bool {
        self.awaited.as_ref().is_some_and(BTreeSet::is_empty)
    }
}

impl Hub {
    /// Makes the hub serve only while this daemon holds the store.
    pub fn under(self, tenure: Option<Arc<dyn Tenure>>) -> Self {
        let before = tenure.as_ref().and_then(|tenure| tenure.edges_before());
        let awaited = before.map(BTreeSet::from_iter);
        Self {
            lease: Lease::new(tenure),
            edges: Edges {
                awaited,
                ..Edges::default()
            }
            .into(),
            ..self
        }
    }

    /// Visits with clients of another daemon, on a thread that does not commit and must not block:
    /// its caller has checked that this daemon holds the store ([`Hub::may_act`]).
    pub fn visit_for_edge(&self, now: &Reading, batches: &mut dyn Iterator<Item = Batch<'_>>) {
        self.visit_all_of(now, batches, false);
    }

    /// Delivers bytes published on another daemon to these clients' mailboxes.
    pub fn publish(&self, to: &[ClientId], bytes: bytes::Bytes) {
        let mailboxes = self.lock().mailboxes_of(to);
        Publication::new(bytes, &self.budget).post(&mailboxes);
    }

    /// Wakes a mailbox when a commit is durable.
    pub fn ring_when_durable(&self, commit: u64, mailbox: &Arc<Mailbox>) {
        let mut core = self.lock();
        let waiting = &mut core.pending.waiting;
        if self.failed() || !waiting.add_unless(&self.durable.newest, commit, mailbox) {
            mailbox.ring();
        }
    }

    /// Starts the grace: clients of the previous leader have the length of the lease to reconnect.
    /// Jobs are handed out after that, or as soon as all edges of that leader have claimed.
    pub fn begin_grace(&self) {
        let Some(tenure) = &self.lease.tenure else {
            return;
        };
        let mut edges = lock(&self.edges);
        let length = if edges.all_have_claimed() {
            Duration::ZERO
        } else {
            tenure.length()
        };
        self.end_grace_at(&mut edges, clock::after(clock::now(), length));
    }

    /// Whether jobs wait for claims of the previous leader's edges.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_in_grace(&self) -> bool {
        lock(&self.edges)
            .grace_until
            .is_none_or(|until| until > clock::now())
    }

    fn end_grace_at(&self, edges: &mut Edges, until: Timestamp) {
        edges.grace_until = Some(until);
        self.lock().engine.end_grace_at(until);
        self.deadline_moved.notify_one();
    }

    /// Called when an edge of the previous leader has claimed its state, or this daemon was that
    /// edge.
    pub fn has_claimed(&self, edge: u32) {
        let mut edges = lock(&self.edges);
        let was_awaited = edges
            .awaited
            .as_mut()
            .is_some_and(|awaited| awaited.remove(&edge));
        if was_awaited
            && edges.all_have_claimed()
            && edges.grace_until.is_some_and(|until| until > clock::now())
        {
            self.end_grace_at(&mut edges, clock::now());
        }
    }

    /// Registers a link of an edge. The edge may be accepted once [`Hub::knows_edges`] is true for
    /// the returned number, because a successor of this daemon must know which edges to wait for
    /// before they hold anything.
    #[must_use]
    pub fn add_edge(&self, edge: u32) -> u64 {
        let mut edges = lock(&self.edges);
        *edges.linked.entry(edge).or_default() += 1;
        self.record(&edges)
    }

    /// Called when a link of an edge, and its clients' state, is gone.
    pub fn remove_edge(&self, edge: u32) {
        let mut edges = lock(&self.edges);
        // A daemon that steps down closes the links itself, and its successor waits for their
        // edges.
        if self.lock().steps_down {
            return;
        }
        if let Some(links) = edges.linked.get_mut(&edge) {
            *links -= 1;
        }
        edges.linked.retain(|_, links| *links > 0);
        let _ = self.record(&edges);
    }

    fn record(&self, edges: &Edges) -> u64 {
        self.lease
            .tenure
            .as_ref()
            .map_or(0, |tenure| tenure.record(edges.all()))
    }

    /// Whether a successor of this daemon would know the edges up to this addition.
    pub fn knows_edges(&self, added: u64) -> bool {
        self.lease
            .tenure
            .as_ref()
            .is_none_or(|tenure| tenure.recorded() >= added)
    }

    /// Lets another daemon prepare to succeed this one, and waits for that.
    pub fn hand_over(&self) {
        if let Some(tenure) = &self.lease.tenure {
            tenure.hand_over();
        }
    }

    /// Stops handing out jobs, and disconnects this daemon's clients, which must reconnect
    /// elsewhere. Jobs that they have not received are requeued. Clients of edges continue at the
    /// next leader.
    pub fn step_down(&self) {
        let mut core = self.lock();
        core.steps_down = true;
        let mut own: Vec<_> = core
            .mailboxes
            .iter()
            .filter(|(client, _)| client.daemon() == 0)
            .map(|(client, mailbox)| (*client, Arc::clone(mailbox)))
            .collect();
        drop(core);
        own.sort_unstable_by_key(|(client, _)| *client);
        for (_, mailbox) in &own {
            mailbox.evict(Reason::ClosedByServer);
        }
        for (client, mailbox) in own {
            self.act(|core| core.release(client, mailbox.take_unsent_jobs(usize::MAX)));
        }
    }
}
