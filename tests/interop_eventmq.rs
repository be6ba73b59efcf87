//! The released Python programs of EventMQ against the daemon, unmodified. `tests/install-clients` installs them.
//!
//! The stock JobManager works on `tasks.py`, the stock client and scheduler ask for it. What the stock programs never say, and
//! what no worker of theirs can see, is said by pyzmq, which is libzmq. Everybody is a child process that a scene directs.
//!
//! A program that is not there is a failure, never a skip.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "the modules are this program's own")]

#[path = "interop/client.rs"]
mod client;
mod common;
#[path = "interop/eventmq/mod.rs"]
mod eventmq;
