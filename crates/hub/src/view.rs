//! The role of this daemon in the cluster, for operators.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use windlass_engine::Timestamp;
use windlass_store::Holder;

use crate::clock;
use crate::shared::lock;

/// The role of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Without a cluster.
    Alone,
    /// It has the engine, and edges connect to it.
    Leading {
        /// The epoch of its lease.
        epoch: u64,
        /// Since when (wall clock).
        since: Timestamp,
        /// The connected edges.
        edges: Vec<Edge>,
    },
    /// It is connected to the leader.
    Following {
        /// The leader's name.
        leader: String,
        /// The address of the leader's link.
        link: String,
        /// Epoch of the leader's lease.
        epoch: u64,
        /// Since when (wall clock).
        since: Timestamp,
        /// All edges of the leader, as last received; this daemon is one of them.
        edges: Vec<Edge>,
    },
    /// It looks for a leader, or is about to lead.
    Seeking {
        /// Since when (wall clock).
        since: Timestamp,
    },
}

/// A daemon connected to the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The link address that it would have as a leader.
    pub link: String,
    /// Since when it has been connected (wall clock).
    pub since: Timestamp,
    /// Information about it.
    pub about: About,
}

/// Information about a daemon. Empty: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The version of its program.
    pub version: String,
    /// Why it could not lead; empty if it could.
    pub cannot_lead: String,
}

/// A daemon that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The address that it connected from, without the port.
    pub from: String,
    /// The reason.
    pub why: String,
    /// When it was last rejected (wall clock).
    pub at: Timestamp,
}

/// The versions of daemons, and why they cannot lead or connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// Information about this daemon.
    pub own: About,
    /// Why the last link to a leader closed or was rejected; empty while there is one.
    pub cannot_follow: String,
    /// The leader's version, if another daemon leads.
    pub leader: About,
    /// Daemons that this leader has rejected, the newest last.
    pub refused: Vec<Refused>,
}

/// Maximum number of rejected daemons that are listed.
const REFUSED_MAX: usize = 8;

/// The current role, which the parts of a cluster update.
#[derive(Debug)]
pub struct View {
    role: Mutex<Role>,
    edges: Mutex<BTreeMap<u32, Edge>>,
    reasons: Mutex<Reasons>,
    changes: AtomicU64,
}

impl View {
    /// The view of a daemon without a cluster.
    pub fn alone() -> Self {
        let own = About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..About::default()
        };
        Self {
            role: Mutex::new(Role::Alone),
            edges: Mutex::default(),
            reasons: Mutex::new(Reasons {
                own,
                ..Reasons::default()
            }),
            changes: AtomicU64::new(0),
        }
    }

    /// The versions of daemons, and why they cannot lead or connect.
    pub fn reasons(&self) -> Reasons {
        self.known().clone()
    }

    fn known(&self) -> MutexGuard<'_, Reasons> {
        lock(&self.reasons)
    }

    /// Sets why this daemon could not lead; empty if it could.
    pub fn cannot_lead(&self, why: &str) {
        let mut known = self.known();
        if known.own.cannot_lead != why {
            why.clone_into(&mut known.own.cannot_lead);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Sets why the link to the leader closed or was rejected.
    pub fn cannot_follow(&self, why: &str) {
        why.clone_into(&mut self.known().cannot_follow);
    }

    /// Records that a daemon at this address was rejected.
    pub fn has_refused(&self, from: &str, why: &str) {
        let refused = &mut self.known().refused;
        refused.retain(|it| it.from != from);
        if refused.len() == REFUSED_MAX {
            refused.remove(0);
        }
        refused.push(Refused {
            from: from.to_owned(),
            why: why.to_owned(),
            at: wall(),
        });
    }

    /// Sets the information about an edge.
    pub fn edge_is(&self, number: u32, about: About) {
        let mut linked = self.linked();
        if let Some(edge) = linked.get_mut(&number).filter(|edge| edge.about != about) {
            edge.about = about;
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Sets the information about the leader and then its edges, as received from the leader.
    pub fn leader_knows(&self, abouts: impl IntoIterator<Item = About>) {
        let mut abouts = abouts.into_iter();
        self.known().leader = abouts.next().unwrap_or_default();
        let role = lock(&self.role);
        if matches!(*role, Role::Following { .. }) {
            for (edge, about) in self.linked().values_mut().zip(abouts) {
                edge.about = about;
            }
        }
    }

    /// The role, with the connected edges.
    pub fn read(&self) -> Role {
        let mut role = lock(&self.role).clone();
        if let Role::Leading { edges, .. } | Role::Following { edges, .. } = &mut role {
            *edges = self.edges();
        }
        role
    }

    /// The daemons connected to the leader.
    pub fn edges(&self) -> Vec<Edge> {
        self.linked().values().cloned().collect()
    }

    /// A counter that changes with the set of connected edges.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Sets the edges as received from the leader. Ignored if this daemon has become leader.
    pub fn leader_has(&self, edges: impl Iterator<Item = Edge>) {
        let role = lock(&self.role);
        if matches!(*role, Role::Following { .. }) {
            *self.linked() = (0..).zip(edges).collect();
        }
    }

    fn linked(&self) -> MutexGuard<'_, BTreeMap<u32, Edge>> {
        lock(&self.edges)
    }

    /// Records that the daemon looks for a leader, after startup or after losing leadership.
    pub fn seeks(&self) {
        self.set(Role::Seeking { since: wall() });
    }

    /// Records that the daemon has become leader.
    pub fn leads(&self, epoch: u64) {
        self.set(Role::Leading {
            epoch,
            since: wall(),
            edges: Vec::new(),
        });
        let own = About {
            cannot_lead: String::new(),
            ..self.reasons().own
        };
        *self.known() = Reasons {
            own,
            ..Reasons::default()
        };
        self.linked().clear();
    }

    /// Records that the link to the leader is up. The link thread may be late, and this daemon may
    /// already lead.
    pub fn follows(&self, leader: &Holder) {
        let Holder {
            name, link, epoch, ..
        } = leader.clone();
        let since = wall();
        self.known().cannot_follow.clear();
        self.set_unless_leading(Role::Following {
            leader: name,
            link,
            epoch,
            since,
            edges: Vec::new(),
        });
    }

    /// Records that the link to the leader is down, with the same caveat.
    pub fn lost_link(&self) {
        self.set_unless_leading(Role::Seeking { since: wall() });
    }

    /// Records that an edge has connected.
    pub fn has_edge(&self, number: u32, link: &str) {
        let edge = Edge {
            link: link.to_owned(),
            since: wall(),
            about: About::default(),
        };
        self.linked().insert(number, edge);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether the edge with this number is connected.
    pub fn is_linked(&self, number: u32) -> bool {
        self.linked().contains_key(&number)
    }

    /// Records that an edge has disconnected.
    pub fn lost_edge(&self, number: u32) {
        self.linked().remove(&number);
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn set(&self, role: Role) {
        *lock(&self.role) = role;
    }

    fn set_unless_leading(&self, role: Role) {
        let mut present = lock(&self.role);
        if !matches!(*present, Role::Leading { .. }) {
            *present = role;
        }
    }
}

fn wall() -> Timestamp {
    clock::read().wall()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_ends_late_does_not_hide_that_the_daemon_leads() {
        let (view, leader) = (
            View::alone(),
            Holder {
                name: "one".into(),
                link: "one:1".into(),
                epoch: 1,
            },
        );
        view.seeks();
        view.follows(&leader);
        assert!(matches!(view.read(), Role::Following { .. }));
        let edge = |link: &str| Edge {
            link: link.to_owned(),
            since: Timestamp(1),
            about: About::default(),
        };
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
        assert!(
            matches!(view.read(), Role::Leading { epoch: 2, .. }),
            "{:?}",
            view.read()
        );
        assert_eq!(edges(&view), []);
        view.seeks();
        view.follows(&leader);
        view.lost_link();
        assert!(matches!(view.read(), Role::Seeking { .. }));
    }

    #[test]
    fn what_daemons_are_is_shown_in_the_order_in_which_the_leader_has_sent_them() {
        let (view, leader) = (
            View::alone(),
            Holder {
                name: "one".into(),
                link: "one:1".into(),
                epoch: 1,
            },
        );
        let about = |version: &str| About {
            version: version.into(),
            cannot_lead: String::new(),
        };
        view.cannot_follow("refused");
        assert_eq!(view.reasons().cannot_follow, "refused");
        view.follows(&leader);
        let edge = |link: &str| Edge {
            link: link.to_owned(),
            since: Timestamp(1),
            about: About::default(),
        };
        view.leader_has([edge("two:1"), edge("three:1")].into_iter());
        view.leader_knows(["1", "2", "3"].map(about));
        assert_eq!(
            view.edges()
                .into_iter()
                .map(|it| it.about.version)
                .collect::<Vec<_>>(),
            ["2", "3"]
        );
        assert_eq!(
            (view.reasons().leader, view.reasons().cannot_follow),
            (about("1"), String::new())
        );
        view.leads(2);
        assert_eq!(view.reasons().leader, About::default());
    }

    #[test]
    fn a_bounded_number_of_refused_daemons_is_shown_and_each_once() {
        let view = View::alone();
        for number in 0..20 {
            view.has_refused(&format!("10.0.0.{number}"), "why");
            view.has_refused("10.0.0.99", &number.to_string());
        }
        let refused = view.reasons().refused;
        assert_eq!(refused.len(), REFUSED_MAX);
        assert_eq!(
            refused.last().map(|it| (&*it.from, &*it.why)),
            Some(("10.0.0.99", "19"))
        );
    }

    #[test]
    fn a_reason_that_stays_is_no_change() {
        let view = View::alone();
        let changes =
            ["", "no table", "no table", ""].map(|why| (view.cannot_lead(why), view.changes()).1);
        assert_eq!(changes, [0, 1, 1, 2]);
    }
}
