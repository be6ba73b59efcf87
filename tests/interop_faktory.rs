//! Stock Faktory clients against the daemon. `tests/install-clients` installs them.
//!
//! The crate `faktory` runs its own tests (`faktory_suite.rs`). PyPI's `pyfaktory` and `faktory` play scenes of ours
//! (`pyfaktory_peer.py`, `faktory_worker_peer.py`), each with a daemon of its own.
//!
//! A missing client is a failure, never a skip.
#![cfg(test)]
#![allow(unreachable_pub, reason = "the modules are this program's own")]

#[path = "interop/client.rs"]
mod client;
mod common;
#[path = "interop/faktory_suite.rs"]
mod faktory_suite;
#[path = "interop/faktory_worker.rs"]
mod faktory_worker;
#[path = "faktory/peer.rs"]
mod peer;
#[path = "interop/pyfaktory.rs"]
mod pyfaktory;
#[path = "interop/served.rs"]
mod served;
