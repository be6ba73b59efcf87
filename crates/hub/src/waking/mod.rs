//! How a thread learns that one of its connections has mail, or that it must commit, without a lost wake-up and with few
//! of them.
//!
//! A mailbox has a `Owner` with a bell, a serving thread an `Inbox`. A thread that puts mail into a mailbox rings its bell; if that is
//! the first ring since the owner looked, the mailbox's seat goes into the thread's inbox; if the thread sleeps, it is
//! woken. Each step is taken at most once until the other side has answered it.
//!
//! Mail that waits for a commit is in `Waiting` until that is durable, a client that waits for room in memory is in
//! `ForRoom`. Threads that commit pass the rest on by a
//! `HandOver`, and the committing thread rests as `Idle` lets it.
//!
//! These types own all state of that protocol. `tests/waking` compiles these files with loom's atomics and tries all
//! orders in which threads can meet.

mod bell;
mod for_room;
mod hand_over;
mod inbox;
mod owner;
mod sync;
#[cfg(test)]
mod tests;
mod waiting;

pub use self::bell::Bell;
pub(crate) use self::for_room::ForRoom;
pub(crate) use self::hand_over::{Asked, HandOver, Idle, NoThread};
pub use self::inbox::Inbox;
pub(crate) use self::owner::Owner;
pub(crate) use self::waiting::{Durable, Waiting};
