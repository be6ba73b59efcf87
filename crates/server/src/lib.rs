//! The daemon: everything that knows sockets, threads and the real clock.
//!
//! [`run`] is all of it: open the store, recover, listen, serve, drain. Reading order: `run` (start to stop) · `listen` and
//! `connection` (sockets, no protocol) · `hub` (the engine behind its lock, and what a visit is) · `mailbox` (what waits to
//! be told), `ringer` (many mailboxes rung at once), `parcel` (what one connection has posted to others) and `output` (words on
//! their way out) · `budget`, `places`, `patience` (what all may hold, how many there may be, how long they may take) and `alarm` (one timer for a connection) · `commit`
//! (who writes, and when) · `protocols` (which session greets where) · `notices` (what an operator is to know of) · `agreement`,
//! `recurring`, `rules`, `throttles` (what the engine keeps because it is configured) · `tls` · `control` (signals) and `describe`
//! (what SIGTTIN logs) · [`config`].
//!
//! [`import`] stands beside it: taking jobs over while no daemon runs.
//!
//! # Invariants
//!
//! * The hub's lock is held for a batch of commands and nothing else: no I/O, no words for peers.
//! * An acknowledgement leaves when its commit is on the disk; what stands behind it on its connection waits with it.
//! * No task waits for a peer: what a peer does not read is bounded, and then the peer is hung up on.

mod agreement;
mod alarm;
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
mod notices;
mod output;
mod parcel;
mod patience;
mod places;
mod protocols;
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

pub use failure::Failure;
pub use run::{allow_open_files, run};
pub use salvage::{accept_loss, compact, salvage, verify};
