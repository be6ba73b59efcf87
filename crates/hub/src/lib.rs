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

#![allow(
    clippy::new_without_default,
    clippy::len_without_is_empty,
    reason = "no caller is generic over them"
)]

mod attempts;
mod broker;
mod budget;
mod checkpoints;
pub mod clock;
mod commit;
mod hub;
mod last_words;
pub mod limited;
mod loading;
mod loads;
mod mailbox;
mod names;
mod published;
mod shared;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod view;
mod waker;
mod waking;
mod warnings;

pub use attempts::Attempts;
pub use broker::{Batch, Broker, CommitDuty, Health, Visited};
pub use budget::{Budget, Evictable, Hold, SMALL_BYTES, Share};
pub use checkpoints::{Checkpoints, Requests};
pub use commit::{
    BOUNDS_US, CommitDurations, CommitTimeouts, CommitTimes, Commits, Committer, Pace, TurnCommits,
};
pub use hub::{Cut, Durability, Hub};
pub use last_words::flush_log_with;
pub use loading::Loader;
pub use loads::{LoadFigures, Loading};
pub use mailbox::{Filling, Forwarding, Mail, Mailbox, POSTED_ROOM_BYTES, Pressure, QueuedMail};
pub use names::ProtocolNames;
pub use published::{Publication, Published, SharedBudget};
pub use view::{About, Edge, Reasons, Refused, Role, View};
pub use waker::{ConnectionId, Home, Waker, WithMail};
pub use waking::{Inbox, WakeFlag};
