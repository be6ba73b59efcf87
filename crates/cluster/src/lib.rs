//! Several daemons that act as one broker. One of them is the leader and runs the engine room. The
//! others are edges: each forwards its clients' commands to the leader over one link, and the
//! replies back.
//!
//! Reading order: `edge` (the broker of a daemon that is not the leader) · `leader` (an edge's
//! clients at the leader) · `link` (the socket between both; its sides are `link/serve` and
//! `link/follow`) · `broker` (which of the two a connection uses) · `roles` (when a daemon leads) ·
//! `relay` (messages of protocols) · `tls`. The messages on the wire are in `windlass_link`.
//!
//! The leader is the daemon that holds the lease of the database with the store.
//!
//! **States.** *Standby*: a daemon tries to acquire the lease and acts as an edge meanwhile.
//! *Grace*: it holds the lease, and its engine is recovered from the journal. It accepts edges,
//! pushes, reports, look-ups and claims, but hands out no jobs for the length of a lease, because
//! clients of edges that it does not know yet may hold them. Requests for work wait in the engine
//! in order. *Leading*: it does everything. The first leader of a store has no grace.
//!
//! An edge is *linked*, and its requests are answered under the leader's epoch; or *adrift*: its
//! clients keep their connections, the outcome of their unanswered requests is unknown, and new
//! requests wait. After reconnecting, it first sends the claims of its ledger: connections,
//! subscriptions, held jobs, listeners, foreground jobs, then waits in order. A daemon that becomes
//! leader makes the same claims for its own clients before it accepts links. An edge that
//! reconnects in the same epoch does so too: the leader keeps its clients under their old numbers
//! until the claims under the new ones are executed. A leader that is not certain of its lease only
//! sends heartbeats; its edges stay connected, and check the database for another leader.
//!
//! **Invariants.** If a client has two numbers, the leader's engine gives work only to the newer
//! one. During the grace, no job that a client of a linked edge may hold is handed to another
//! client; of two claims of a job, the one with the higher token wins. After the grace, a late
//! claim succeeds only for a waiting job, under a token that neither this engine nor the journal
//! has issued. Numbers of foreground jobs are never reused: a new leader's numbers start above all
//! that its predecessor can have issued. An edge's ledger matches the engine, because `Applied`
//! precedes the replies of the commands that it counts; and the edge processes the items of one
//! leader turn as a unit, so that its own bytes follow those replies. A client whose connection
//! closes while its edge is adrift is not claimed. Items in flight when the leader stopped are not
//! resent: if one was the end of a job, that end is lost and the job runs again.

pub mod broker;
pub mod edge;
pub mod leader;
pub mod link;
pub mod relay;
pub mod roles;
pub mod tls;

pub use broker::ClusterBroker;
pub use relay::Relay;
/// The version of the format of the links between daemons.
pub use windlass_link::VERSION as LINK_VERSION;

pub use roles::{Cluster, Listening, Settings};
