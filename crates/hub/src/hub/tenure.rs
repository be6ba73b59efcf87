//! A hub whose store belongs to the daemon only for a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_engine::{Reading, Timestamp};
use windlass_store::{Error as StoreError, Tenure};

use super::Hub;
use crate::clock;

/// The edges that may have something at the engine, by their numbers. Those of the daemon that led before are awaited: the
/// grace ends when all have claimed what they had.
#[derive(Debug, Default)]
pub(super) struct Edges {
    /// The links of each edge.
    linked: BTreeMap<u32, u32>,
    /// Edges of the leader before that have not claimed. `None`: it is unknown which there were.
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
    /// Serves only as long as the store belongs to this daemon.
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

    /// Whether the store belongs to this daemon only for a time.
    pub const fn has_tenure(&self) -> bool {
        self.tenure.is_some()
    }

    /// The number of this daemon's right to the store; 0 where it does not end.
    pub fn epoch(&self) -> u64 {
        self.tenure.as_ref().map_or(0, |tenure| tenure.epoch())
    }

    /// Clients of another daemon's hub, which this one succeeds, have the length of the lease to come back, from now
    /// on. Then jobs are handed out; and before, as soon as all edges of that daemon have claimed.
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

    /// Whether jobs wait for claims of the edges of the daemon before.
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
        // Nothing that holds this lock can panic half way through a change.
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An edge of the daemon that led before has claimed what it had there, or this daemon was that edge.
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

    /// An edge gets a link. It may be welcomed once [`Hub::knows_edges`] of the returned number: a successor of this
    /// daemon must know which edges it waits for before they have anything.
    #[must_use]
    pub fn add_edge(&self, edge: u32) -> u64 {
        let mut edges = self.edges();
        *edges.linked.entry(edge).or_default() += 1;
        self.record(&edges)
    }

    /// A link of an edge, and what its clients had by it, has ended.
    pub fn remove_edge(&self, edge: u32) {
        let mut edges = self.edges();
        // A daemon that leads no more ends the links itself, and its successor waits for their edges.
        if self.lock().gives_up {
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

    /// Whether a successor of this daemon would know of the edges up to this addition.
    pub fn knows_edges(&self, added: u64) -> bool {
        self.tenure
            .as_ref()
            .is_none_or(|tenure| tenure.recorded() >= added)
    }

    /// Lets another daemon prepare to succeed this one. Waits for it.
    pub fn hand_over(&self) {
        if let Some(tenure) = &self.tenure {
            tenure.hand_over();
        }
    }

    /// Whether the store belongs to this daemon now. A thread that acts then goes by the wall clock of the store's place as the
    /// last renewal found it: the machine may have slept before, and what is not due must not be released until the next
    /// tick corrects the clock.
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

    /// The time of a visit whose thread has read the clocks before it asked whether it [may act](Self::may_act).
    pub(super) fn time_of_visit(&self, read_before: &Reading) -> Reading {
        if self.tenure.is_some() {
            clock::read()
        } else {
            *read_before
        }
    }

    /// Why the store belongs to this daemon no more.
    pub fn deposed(&self) -> Option<StoreError> {
        self.tenure.as_ref()?.lost()
    }

    /// Returns once the store belongs to this daemon: a thread that is about to visit, or to read mail, waits here
    /// while that is uncertain. `false`: another daemon has the store, and this hub decides and sends nothing more.
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
