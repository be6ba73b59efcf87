//! How a thread learns that one of its connections has mail, without a lost wake-up and with few of them.
//!
//! A mailbox has a [`Bell`], a serving thread an [`Inbox`]. Whoever puts mail into a mailbox rings its bell; if that is
//! the first ring since the owner looked, the mailbox's seat goes into the thread's inbox; if the thread sleeps, it is
//! woken. Each step is taken at most once until the other side has answered it.
//!
//! The two types own all state of that protocol. `tests/waking` compiles these files with loom's atomics and tries all
//! orders in which threads can meet.

mod bell;
mod inbox;

pub(crate) use self::bell::Bell;
pub(crate) use self::inbox::Inbox;

/// What the files here are made of. The model checker has its own.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
}
