//! The store in PostgreSQL, and several daemons on it. The server is Debian's, started by the tests.
#![cfg(test)]
#![allow(unreachable_pub, reason = "a test program is its own and only user")]

mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod postgres;
