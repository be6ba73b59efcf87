//! The daemon: all code that uses sockets, threads and the real clock.
//!
//! [`run`] is all of it: open the store, recover, listen, serve, drain. Reading order: `run` (start to stop) ·
//! `binding` and `inherited` (sockets) · `listen` (accepts) · `serving` (threads and their turns) · `connection` (one
//! socket, no protocol) · `broker` and `hub` (the engine behind its lock, and visits to it) · `mailbox` (mail for
//! one client), `published` (bytes that one connection publishes to others) and `output` (bytes that wait to be
//! written) · `budget`, `places`, [`rates`], `patience` (limits on memory, connections and time) · `commit` (which
//! thread commits, and when) · `protocols` (what protocols use of the daemon) · `warnings` (log lines for the operator)
//! · `reconcile`, `recurring`, `rules`, `throttles`, `on_dead` (engine state that comes from the configuration) · `stream` and
//! `tls` (sockets) · `control` (signals) and `describe` (the report on SIGTTIN) · [`client`] and [`operator_port`] (parts of the
//! daemon that are no connections of protocols) · [`config`].
//!
//! # Invariants
//!
//! * A thread holds the hub's lock for one visit. Under the lock it does no I/O and encodes nothing for peers.
//! * An acknowledgement leaves when its commit is on the disk. Everything behind it on its connection waits with it.
//! * No thread waits for a peer. The bytes that a peer has not read are bounded; beyond the bound the daemon closes the
//!   connection.

mod addresses;
mod admission;
mod binding;
#[cfg_attr(not(feature = "cluster"), path = "no_cluster.rs")]
mod cluster;
pub mod config;
pub mod control;
mod data;
mod dead_drops;
mod describe;
mod desired;
mod engine_room;
pub mod export;
mod failure;
pub mod figures;
pub mod logging;
mod notify;
mod on_dead;
pub mod operator_port;
pub mod progress;
mod protocols;
mod random;
mod reconcile;
mod recurring;
mod retry;
mod role;
mod rules;
mod run;
#[cfg(test)]
mod stall_tests;
mod throttles;
mod warnings;

pub use windlass_hub::clock;
pub use windlass_hub::view::{Edge, Role};
pub use windlass_net::{client, rates};

pub use admission::allow_open_files;
pub use cluster::LINK_VERSION;
pub use data::{accept_loss, compact, look, move_store, open, restore, salvage, verify};
pub use failure::Failure;
pub use protocols::daemon;
pub use random::random_seed;
pub use run::run;
