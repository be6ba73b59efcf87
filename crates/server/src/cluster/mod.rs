//! Several daemons, one queue. One of them at a time leads: it has the engine room. The others are edges: they send the leader what
//! their clients ask, over one link each, and tell their clients what the leader says.
//!
//! Reading order: `edge` (the broker of a daemon that does not lead) · `leader` (an edge's clients at the leader) · `link` (the socket
//! between both) · `broker` (which of the two a connection talks to) · `roles` (who leads) · `tls`. What travels: `windlass_link`.
//!
//! Who leads is a lease in the database that has the store. Clients of an edge keep their connections for as long as its leader
//! leads. When the leader changes, every connection that has said anything to the old one is closed, as at a restart.

mod broker;
mod edge;
mod leader;
mod link;
mod roles;
mod tls;
mod view;

pub(crate) use broker::ClusterBroker;
pub(crate) use roles::{Cluster, Listening};
pub(crate) use view::View;
pub use view::{Edge, Role};
