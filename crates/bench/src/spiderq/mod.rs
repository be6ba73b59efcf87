//! spiderq over ZeroMQ's transport: load for `windlass`.
//!
//! The requests and replies are written here, apart from the daemon's codec. The transport is not: it is
//! [`windlass_zmtp`] on both sides, whose own tests have it talk to libzmq.
//!
//! Reading order: [`wire`] (bytes), [`ledger`] (what must be true of the queue), [`roles`] (who sends what), [`cases`] (the
//! load as data, and its names), [`ground`] (one run of one case), [`admin`] (asking the server for its own count).
//!
//! Spec: `spiderq-protocol`.

#[cfg(test)]
mod accounting;
pub mod admin;
pub mod cases;
pub mod ground;
pub mod ledger;
pub mod roles;
pub mod wire;

/// Who speaks to the server, since figures depend on it.
pub const CLIENT: &str = "ZMTP over tcp:// by windlass-zmtp, our own codec on both sides, as a DEALER; not libzmq";
