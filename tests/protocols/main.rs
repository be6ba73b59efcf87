//! Protocols, and the command lines of the servers that Windlass replaces, on the real daemon.
#![cfg(test)]
#![allow(unreachable_pub, reason = "a test program is its own and only user")]

#[path = "../common/mod.rs"]
mod common;
mod eventmq;
mod faktory;
mod fleets;
mod gearmand;
mod namespaces;
mod policies;
mod spiderq;
mod tls;
