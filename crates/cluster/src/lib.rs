//! Several daemons, one queue. One of them at a time leads: it has the engine room. The others are edges: over one link
//! each, they forward their clients' commands to the leader, and the leader's answers to their clients.
//!
//! Reading order: `edge` (the broker of a daemon that does not lead) · `leader` (an edge's clients at the leader) ·
//! `link` (the socket between both; its sides are `link/serve` and `link/follow`) · `broker` (which of the two a connection talks to) · `roles` (when a daemon leads)
//! · `relay` (messages of protocols) · `tls`. What travels: `windlass_link`.
//!
//! The leader is the daemon with the lease of the database that has the store.
//!
//! **States.** *Standby*: a daemon looks for the lease, and is an edge meanwhile. *Grace*: it has the lease, and its
//! engine has what the journal has. It accepts edges, pushes, reports, look-ups and claims, and hands out nothing for
//! the length of the lease, because it does not know which edges its predecessor had. Requests for work wait in the
//! engine, in their order. *Leading*: it does everything. The first leader of a store has no grace. An edge is *linked*
//! (what it asks is answered under the leader's epoch) or *adrift*: its clients keep their connections, what they asked
//! and got no answer to is unknown, and what they ask next waits. When it is linked again, it sends the claims of its
//! ledger before anything else: connections, subscriptions, held jobs, listeners, foreground jobs, then waits in their
//! order. A daemon that begins to lead claims the same for its own clients before it accepts a link. So does an edge
//! whose link is made again in one epoch: the leader has kept its clients, under their old numbers, until the claims are
//! done under the new ones. A leader whose lease is uncertain only sends that it lives; its edges stay, and look in the
//! database whether another daemon leads.
//!
//! **Invariants.** Of two numbers of one client the leader's engine gives work to the newer one only. During the grace no job that a client of a linked edge may hold is given to another client, and of
//! two claims of a job the higher token counts. After the grace a late claim counts only for a job that waits, under a
//! token that this engine and the journal have not given. A number of a foreground job is given to no other job: a new
//! leader's numbers begin above all that its predecessor can have given. An edge's ledger has what the engine has,
//! because `Applied` precedes the answers of the commands that it counts; and the edge takes the items of one turn of
//! the leader at once, so that its own bytes follow those answers. A client whose connection ends while its edge is
//! adrift is not claimed. Items on their way when the leader ended are not sent again: an end of a job among them is
//! lost, and the job runs again.

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
