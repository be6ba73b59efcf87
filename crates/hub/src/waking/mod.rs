//! Tells a thread that one of its connections has mail, or that it must commit, without losing
//! wake-ups and with few of them.
//!
//! A mailbox has an `Owner` with a wake flag, a serving thread an `Inbox`. A thread that adds mail
//! to a mailbox sets its flag; if that is the first time since the owner checked, the mailbox's
//! slot goes into the thread's inbox; if the thread is asleep, it is woken. Each step happens at
//! most once until the other side has responded.
//!
//! Mailboxes that wait for a commit are in `Waiting` until it is durable, clients that wait for
//! memory are in `ForRoom`. Committing threads pass work on through a `HandOver`, and the
//! committing thread parks according to `Idle`.
//!
//! These types own all state of that protocol. `tests/waking` compiles these files with loom's
//! atomics and explores the interleavings of the threads.

mod for_room;
mod hand_over;
mod inbox;
mod owner;
mod sync;
#[cfg(test)]
mod tests;
mod waiting;
mod wake_flag;

pub(crate) use self::for_room::ForRoom;
pub(crate) use self::hand_over::{Asked, HandOver, Idle, NoThread};
pub use self::inbox::Inbox;
pub(crate) use self::owner::Owner;
pub(crate) use self::waiting::{OnDisk, Waiting};
pub use self::wake_flag::WakeFlag;
