//! The queue as connections see it: one small interface, behind which the engine, its journal and its commits may stand
//! in this process or in another.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use windlass_engine::{ClientId, Command, Reading, Refusal, Reply};
use windlass_session::Item;

use crate::mailbox::{Mail, Mailbox};

/// What connections, and the daemon itself, may do with the queue.
pub trait Broker: Send + Sync + fmt::Debug {
    /// Opens a client: its mail goes to this mailbox.
    fn open(&self, client: ClientId, mailbox: Arc<Mailbox>);

    /// Does the items of all these clients, each client's in order. Returns what the calling thread must do about the
    /// commit.
    fn visit(&self, now: &Reading, batches: &mut dyn Iterator<Item = Batch<'_>>) -> CommitDuty;

    /// Does the items of one client, on a thread that serves no connections and must not wait: the committing thread
    /// commits. `false`: the store may not belong to this daemon now, and nothing was done.
    #[must_use]
    fn visit_apart(&self, now: &Reading, batch: Batch<'_>) -> bool;

    /// Takes the mail that may be read now, with this much `room`: see [`Mailbox::take`].
    fn mail(&self, mailbox: &Mailbox, room: usize, into: &mut Vec<Mail>) -> Option<usize>;

    /// Takes all mail that may be read now, on such a thread. `false`: the store may not belong to this daemon now.
    #[must_use]
    fn mail_apart(&self, mailbox: &Mailbox, into: &mut Vec<Mail>) -> bool;

    /// The client's peer has taken this many more of the jobs that the budget counts.
    fn sent_jobs(&self, _client: ClientId, _jobs: u32) {}

    /// Closes a client: releases all that it held and waited for, as far as one visit goes. Returns whether that was
    /// all. If not, the caller must call it again after other clients had a turn.
    fn close(&self, client: ClientId) -> bool;

    /// Applies a command on the daemon's own behalf and returns the reply.
    ///
    /// # Errors
    ///
    /// The command is refused.
    fn ask(&self, command: Command) -> Result<Reply, Refusal>;

    /// Whether the broker serves.
    fn health(&self) -> Health;

    /// Notifies every connection that the daemon is about to stop.
    fn stop(&self);
}

/// The outstanding items of one client in a visit.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The client.
    pub client: ClientId,
    /// Items that the visit does not reach stay here.
    pub items: &'a mut VecDeque<Item>,
    /// The visit of this client ends when its answers have this many bytes.
    pub room: usize,
    /// How far the visit went.
    pub visited: &'a mut Visited,
}

/// What a thread must do about the changes of its visit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CommitDuty {
    /// Nothing: another thread commits them, or they wait for no commit.
    None,
    /// Check a little later whether another reason for a commit has come.
    Later,
    /// Commit at the end of its turn. This many acknowledgements wait for that; `usize::MAX` if the commit is full.
    Now {
        /// How many clients' acknowledgements wait for it.
        acknowledgements: usize,
    },
}

/// How far a visit went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visited {
    /// Everything is done.
    All,
    /// There is more to do, once other clients had a turn and the peer has room for the answers.
    Part,
    /// The next item has to wait: for another client's large job, or for the way to the queue. The broker rings the
    /// client's mailbox when it may continue.
    UntilRung,
}

/// Whether a broker serves its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// It does.
    Serving,
    /// It does, but the disk is full: new jobs are refused, and existing jobs go on.
    DiskFull,
    /// It does, but the store does not respond, or may not belong to this daemon now: nothing is acknowledged.
    StoreFailed,
    /// It is about to stop: connections send what they still owe, and close.
    Stopping,
}
