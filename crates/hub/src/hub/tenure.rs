//! A hub whose daemon holds the store under a lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_engine::{Reading, Timestamp};
use windlass_store::{Error as StoreError, Tenure};

use super::Hub;
use crate::clock;

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
        let awaited = tenure
            .as_ref()
            .and_then(|tenure| Some(tenure.edges_before()?.into_iter().collect()));
        Self {
            tenure,
            edges: Edges {
                awaited,
                ..Edges::default()
            }
            .into(),
            ..self
        }
    }

    /// Whether this daemon holds the store under a lease.
    pub const fn has_tenure(&self) -> bool {
        self.tenure.is_some()
    }

    /// The epoch of this daemon's lease; 0 without a lease.
    pub fn epoch(&self) -> u64 {
        self.tenure.as_ref().map_or(0, |tenure| tenure.epoch())
    }

    /// Starts the grace: clients of the previous leader have the length of the lease to reconnect.
    /// Jobs are handed out after that, or as soon as all edges of that leader have claimed.
    pub fn begin_grace(&self) {
        let Some(tenure) = self.tenure.as_ref() else {
            return;
        };
        let mut edges = self.edges();
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
        self.edges()
            .grace_until
            .is_none_or(|until| until > clock::now())
    }

    fn end_grace_at(&self, edges: &mut Edges, until: Timestamp) {
        edges.grace_until = Some(until);
        self.lock().engine.end_grace_at(until);
        self.deadline_moved.notify_one();
    }

    fn edges(&self) -> MutexGuard<'_, Edges> {
        // No holder of this lock can panic halfway through a change.
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called when an edge of the previous leader has claimed its state, or this daemon was that
    /// edge.
    pub fn has_claimed(&self, edge: u32) {
        let mut edges = self.edges();
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
        let mut edges = self.edges();
        *edges.linked.entry(edge).or_default() += 1;
        self.record(&edges)
    }

    /// Called when a link of an edge, and its clients' state, is gone.
    pub fn remove_edge(&self, edge: u32) {
        let mut edges = self.edges();
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
        self.tenure
            .as_ref()
            .map_or(0, |tenure| tenure.record(edges.all()))
    }

    /// Whether a successor of this daemon would know the edges up to this addition.
    pub fn knows_edges(&self, added: u64) -> bool {
        self.tenure
            .as_ref()
            .is_none_or(|tenure| tenure.recorded() >= added)
    }

    /// Lets another daemon prepare to succeed this one, and waits for that.
    pub fn hand_over(&self) {
        if let Some(tenure) = &self.tenure {
            tenure.hand_over();
        }
    }

    /// Whether this daemon holds the store now. If so, the thread's wall clock is set to that of
    /// the store's host as of the last renewal: the machine may have been suspended before, and
    /// jobs that are not due must not be released until the next tick corrects the clock.
    pub fn may_act(&self) -> bool {
        let Some(tenure) = &self.tenure else {
            return true;
        };
        let holds = tenure.holds();
        if holds
            && let Some(ahead_ms) = tenure.wall_ahead_ms()
            && self.wall_ahead_ms.load(Ordering::Acquire) != ahead_ms
        {
            self.wall_ahead_ms.store(ahead_ms, Ordering::Release);
            clock::keep_wall(ahead_ms);
        }
        holds
    }

    /// The time of a visit whose thread read the clocks before it checked whether it [may
    /// act](Self::may_act).
    pub(super) fn time_of_visit(&self, read_before: &Reading) -> Reading {
        if self.tenure.is_some() {
            clock::read()
        } else {
            *read_before
        }
    }

    /// Why this daemon no longer holds the store.
    pub fn deposed(&self) -> Option<StoreError> {
        self.tenure.as_ref()?.lost()
    }

    /// Blocks a thread that is about to visit, or to read mail, while the lease is uncertain.
    /// Returns `false` if another daemon has the store, in which case this hub decides and sends
    /// nothing.
    #[must_use]
    pub fn assure(&self) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(100);
        let Some(tenure) = &self.tenure else {
            return true;
        };
        while !self.may_act() {
            if tenure.lost().is_some() {
                return false;
            }
            tenure.wait(LOOK_EVERY);
        }
        true
    }
}
