//! The daemon: all code that uses sockets, threads and the real clock.
//!
//! [`run`] is all of it: open the store, recover, listen, serve, drain. Reading order: `run` (start to stop) · `listen` and
//! `connection` (sockets, no protocol) · `hub` (the engine behind its lock; what a visit is) · `mailbox` (mail that waits for one
//! client), `ringer` (rings many mailboxes at once), `published` (bytes that one connection posts to others) and `output` (bytes
//! that wait to be written) · `budget`, `places`, `patience` (limits on memory, connections and time) and `alarm` (one timer for
//! a connection) · `commit` (which thread commits, and when) · `protocols` (what protocols use of the daemon) · `warnings` (log
//! lines for the operator) · `reconcile`, `recurring`, `rules`, `throttles` (engine state that comes from the configuration) ·
//! `tls` · `control` (signals) and `describe` (the report on SIGTTIN) · [`config`].
//!
//! [`import`] stands apart: it takes jobs over while no daemon runs.
//!
//! # Invariants
//!
//! * A thread holds the hub's lock for one batch of commands. Under the lock it does no I/O and encodes nothing for peers.
//! * An acknowledgement leaves when its commit is on the disk. Everything behind it on its connection waits with it.
//! * No task waits for a peer. The bytes that a peer has not read are bounded; beyond the bound the daemon closes the connection.

mod alarm;
mod broker;
mod budget;
mod checkpoints;
mod clock;
mod commit;
pub mod config;
mod connection;
mod control;
mod dead;
mod describe;
mod failure;
mod hub;
pub mod import;
mod listen;
pub mod logging;
mod mailbox;
mod output;
mod patience;
mod places;
mod protocols;
mod published;
mod reconcile;
mod recurring;
mod ringer;
mod rules;
mod run;
mod salvage;
#[cfg(test)]
mod stall_tests;
mod stream;
mod threads;
mod throttles;
mod tls;
mod warnings;

pub use failure::Failure;
pub use protocols::daemon;
pub use run::{allow_open_files, run};
pub use salvage::{accept_loss, compact, salvage, verify};
