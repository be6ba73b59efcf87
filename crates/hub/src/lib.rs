//! The engine and its journal behind one lock, and everything between that lock and the owners of connections.
//!
//! Reading order: `broker` (how connections reach the engine) · `hub` (the engine behind its lock, and visits to it) ·
//! `mailbox` (mail for one client) and `published` (bytes that one connection publishes to others) · `waker` and
//! `waking` (how the owner of a mailbox learns of mail) · `budget` (memory for buffers) · `commit` (which thread commits,
//! and when) · `checkpoints` (the thread that shortens the log) ·
//! `loads` and `loading` (the thread that moves bodies out of memory and back) · `clock` · `warnings` and `limited` (log lines for the
//! operator).
//!
//! # Invariants
//!
//! * A thread holds the hub's lock for one visit. Under the lock it does no I/O and encodes nothing for peers.
//! * An acknowledgement leaves when its commit is on the disk. Everything behind it on its connection waits with it.

#![allow(clippy::new_without_default, clippy::len_without_is_empty, reason = "no caller is generic over them")]

pub mod attempts;
pub mod broker;
pub mod budget;
pub mod checkpoints;
pub mod clock;
pub mod commit;
pub mod hub;
pub mod limited;
pub mod loading;
pub mod loads;
pub mod mailbox;
pub mod names;
pub mod published;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod view;
pub mod waker;
pub mod waking;
pub mod warnings;
