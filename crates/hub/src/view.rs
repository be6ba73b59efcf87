//! What this daemon is among the others, for operators.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_engine::Timestamp;
use windlass_store::Holder;

use crate::clock;

/// What a daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The only one.
    Alone,
    /// It has the engine, and others link to it.
    Leading {
        /// The number of its right to lead.
        epoch: u64,
        /// Since when (wall clock).
        since: Timestamp,
        /// The daemons that are linked to it.
        edges: Vec<Edge>,
    },
    /// It is linked to the leader.
    Following {
        /// The leader's name.
        leader: String,
        /// The address of the leader's link.
        link: String,
        /// The number of the leader's right to lead.
        epoch: u64,
        /// Since when (wall clock).
        since: Timestamp,
        /// All daemons that are linked to the leader, as it last sent them; this daemon is one of them.
        edges: Vec<Edge>,
    },
    /// It looks for a leader, or is about to lead.
    Seeking {
        /// Since when (wall clock).
        since: Timestamp,
    },
}

/// A daemon that is linked to the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The address of its own link, which it would have as a leader.
    pub link: String,
    /// Since when it is linked (wall clock).
    pub since: Timestamp,
}

/// The present role, which the parts of a cluster change.
#[derive(Debug)]
pub struct View {
    role: Mutex<Role>,
    edges: Mutex<BTreeMap<u32, Edge>>,
    changes: AtomicU64,
}

impl View {
    /// The view of a daemon that is alone.
    pub const fn alone() -> Self {
        Self { role: Mutex::new(Role::Alone), edges: Mutex::new(BTreeMap::new()), changes: AtomicU64::new(0) }
    }

    /// The role, with the linked daemons.
    pub fn read(&self) -> Role {
        let mut role = self.role.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Role::Leading { edges, .. } | Role::Following { edges, .. } = &mut role {
            *edges = self.edges();
        }
        role
    }

    /// The daemons that are linked to the leader.
    pub fn edges(&self) -> Vec<Edge> {
        self.linked().values().cloned().collect()
    }

    /// Changes whenever the linked daemons do.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The leader has sent who is linked to it. If this daemon leads by now, it knows better.
    pub fn leader_has(&self, edges: impl Iterator<Item = Edge>) {
        let role = self.role.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*role, Role::Following { .. }) {
            *self.linked() = (0..).zip(edges).collect();
        }
    }

    fn linked(&self) -> MutexGuard<'_, BTreeMap<u32, Edge>> {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The daemon looks for a leader: it has just started, or it leads no more.
    pub fn seeks(&self) {
        self.set(Role::Seeking { since: clock::read().wall() });
    }

    /// The daemon leads from now on.
    pub fn leads(&self, epoch: u64) {
        self.set(Role::Leading { epoch, since: clock::read().wall(), edges: Vec::new() });
        self.linked().clear();
    }

    /// The link to the leader is open. The link's thread may learn a moment late that this daemon leads by now.
    pub fn follows(&self, leader: &Holder) {
        let Holder { name, link, epoch, .. } = leader.clone();
        let since = clock::read().wall();
        self.set_unless_leading(Role::Following { leader: name, link, epoch, since, edges: Vec::new() });
    }

    /// The link to the leader has ended, with the same reservation.
    pub fn lost_link(&self) {
        self.set_unless_leading(Role::Seeking { since: clock::read().wall() });
    }

    /// Another daemon is linked to this one.
    pub fn has_edge(&self, number: u32, link: &str) {
        let edge = Edge { link: link.to_owned(), since: clock::read().wall() };
        self.linked().insert(number, edge);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether the edge of this number is linked.
    pub fn is_linked(&self, number: u32) -> bool {
        self.linked().contains_key(&number)
    }

    /// The link of that daemon has ended.
    pub fn lost_edge(&self, number: u32) {
        self.linked().remove(&number);
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn set(&self, role: Role) {
        *self.role.lock().unwrap_or_else(PoisonError::into_inner) = role;
    }

    fn set_unless_leading(&self, role: Role) {
        let mut present = self.role.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*present, Role::Leading { .. }) {
            *present = role;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_ends_late_does_not_hide_that_the_daemon_leads() {
        let (view, leader) =
            (View::alone(), Holder { name: "one".into(), link: "one:1".into(), epoch: 1, speaks: None });
        view.seeks();
        view.follows(&leader);
        assert!(matches!(view.read(), Role::Following { .. }));
        let edge = |link: &str| Edge { link: link.to_owned(), since: Timestamp(1) };
        let edges = |view: &View| match view.read() {
            Role::Leading { edges, .. } | Role::Following { edges, .. } => edges,
            Role::Alone | Role::Seeking { .. } => panic!("it has a leader"),
        };
        view.leader_has([edge("two:1"), edge("three:1")].into_iter());
        assert_eq!(edges(&view), [edge("two:1"), edge("three:1")]);
        view.leads(2);
        view.lost_link();
        view.follows(&leader);
        view.leader_has([edge("two:1")].into_iter());
        assert!(matches!(view.read(), Role::Leading { epoch: 2, .. }), "{:?}", view.read());
        assert_eq!(edges(&view), []);
        view.seeks();
        view.follows(&leader);
        view.lost_link();
        assert!(matches!(view.read(), Role::Seeking { .. }));
    }
}
