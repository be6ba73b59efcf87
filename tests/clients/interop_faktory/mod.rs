//! Stock Faktory clients against the daemon. `tests/install-clients` installs them.
//!
//! The crate `faktory` runs its own tests (`faktory_suite.rs`). PyPI's `pyfaktory` and `faktory` play scenes of ours
//! (`pyfaktory_peer.py`, `faktory_worker_peer.py`), each with a daemon of its own.
//!
//! A missing client is a failure, never a skip.

mod faktory_suite;
mod faktory_worker;
mod pyfaktory;
mod served;
