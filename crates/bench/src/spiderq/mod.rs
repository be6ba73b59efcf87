//! spiderq over ZeroMQ's transport: load for `windlass`.
//!
//! The requests and replies have a codec here, separate from the daemon's. The transport is [`windlass_zmtp`] on both sides; its
//! own tests run it against libzmq.
//!
//! Reading order: [`wire`] (bytes), [`ledger`] (the expected state of the queue), [`roles`] (kinds of connections), [`cases`]
//! (the load as data, and its names), [`run`] (one run of one case), [`admin`] (the server's own count).
//!
//! Spec: `spiderq-protocol`.

#[cfg(test)]
mod accounting;
pub mod admin;
pub mod cases;
pub mod ledger;
pub mod roles;
pub mod run;
pub mod wire;

/// The client's software, since figures depend on it.
pub const CLIENT: &str = "ZMTP over tcp:// by windlass-zmtp, our own codec on both sides, as a DEALER; not libzmq";
