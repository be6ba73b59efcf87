//! Faktory's work protocol (FWP): wire format and sessions.
//!
//! **Contract.** Bytes of one connection in, bytes for that connection out. This crate opens no socket, reads no clock
//! and touches no disk, except that [`config`] reads a file with a password. No byte from a peer makes it panic or hold
//! more memory than its limits allow. The caller supplies the random numbers.
//!
//! **Reading order.** [`wire`], the codec: [`wire::Lines`] cuts a stream into lines, [`wire::Request`] parses a line
//! into a command, [`wire::Unit`] is a job, [`wire::reply`] writes replies. Then [`session`], one connection: it turns
//! each verb into engine commands and each event of the engine into a reply. [`config`], the section of the
//! configuration: it makes the sessions.
//!
//! Spec: the Faktory project's `protocol-specification.md`. Where it is silent: the behaviour of deployed servers.

pub mod bridge;
pub mod config;
pub mod session;
pub mod wire;
