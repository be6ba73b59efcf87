//! spiderq over ZeroMQ's transport: load for `windlass`.
//!
//! The requests and replies are written here, apart from the daemon's codec. The transport is not: it is
//! [`windlass_zmtp`] on both sides, whose own tests have it talk to libzmq.
//!
//! Reading order: [`wire`] (bytes), [`ledger`] (what must be true of the queue), [`roles`] (who sends what), [`cases`] (the
//! load as data, and its names), [`ground`] (one run of one case), [`admin`] (asking the server for its own count),
//! [`tournament`] (all of it together).
//!
//! Spec: `spiderq-protocol`.

#[cfg(test)]
mod accounting;
pub mod admin;
pub mod cases;
pub mod ground;
pub mod ledger;
pub mod roles;
pub mod tournament;
pub mod wire;
