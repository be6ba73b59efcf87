//! EventMQ's eMQP over ZeroMQ's transport: load for `windlass` and for the released router, which is in Python.
//!
//! The messages are written here, apart from the daemon's codec. The transport is not: it is [`windlass_zmtp`], whose own
//! tests have it talk to libzmq. The released router and its JobManager speak by libzmq.
//!
//! Reading order: [`wire`] (messages), [`roles`] (who sends what), [`cases`] (the load as data, and its names), [`peers`] (who
//! takes part, and how it is started), [`ground`] (one run of one case), [`jobmanager`] (the released one at work), [`dealer`] and
//! [`admin`] (asking the server for its own counts), [`tournament`] (all runs).
//!
//! Spec: EventMQ's `protocol.rst`; where the released programs have other frames, theirs.

#[cfg(test)]
mod accounting;
pub mod admin;
pub mod cases;
pub mod dealer;
pub mod ground;
pub mod jobmanager;
pub mod peers;
pub mod roles;
pub mod tournament;
pub mod wire;

/// Who speaks to the server, since figures depend on it.
pub const CLIENT: &str =
    "eMQP over tcp:// by windlass-zmtp, as DEALERs with identities; not libzmq, but in the JobManager";
