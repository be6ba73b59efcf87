//! The released Python programs of EventMQ against the daemon, unmodified. `tests/install-clients` installs them.
//!
//! The stock JobManager works on `tasks.py`; the stock client and scheduler request jobs. pyzmq, which is libzmq, sends
//! messages that the stock programs never send, and acts as workers where a test must see details. All programs are
//! child processes that a scene directs.
//!
//! A missing program is a failure, never a skip.
#![cfg(test)]
#![allow(unreachable_pub, reason = "the modules are this program's own")]

#[path = "interop/client.rs"]
mod client;
mod common;
#[path = "interop/eventmq/mod.rs"]
mod eventmq;
#[path = "faktory/fake_redis.rs"]
mod fake_redis;
