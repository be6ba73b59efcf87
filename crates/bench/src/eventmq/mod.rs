//! EventMQ's eMQP over ZeroMQ's transport: load for `windlass` and for the released router, which is in Python.
//!
//! The messages have a codec here, separate from the daemon's. The transport is [`windlass_zmtp`], as in the daemon; its own
//! tests run it against libzmq. The released router and its JobManager use libzmq.
//!
//! Reading order: [`wire`] (messages), [`roles`] (kinds of connections), [`cases`] (the load as data, and its names), [`peers`]
//! (the servers, and how each is started), [`run`] (one run of one case), [`jobmanager`] (the released one at work),
//! [`dealer`] and [`admin`] (the server's own counts), [`comparison`] (all runs).
//!
//! Spec: EventMQ's `protocol.rst`; where the released programs differ in their frames, theirs.

#[cfg(test)]
mod accounting;
pub mod admin;
pub mod cases;
pub mod comparison;
pub mod dealer;
pub mod jobmanager;
pub mod peers;
pub mod roles;
pub mod run;
pub mod wire;

/// The client's software, since figures depend on it.
pub const CLIENT: &str =
    "eMQP over tcp:// by windlass-zmtp, as DEALERs with identities; not libzmq, but in the JobManager";
