//! The queue as connections use it: a small interface to the engine, its journal and its commits,
//! which may be in this process or in another.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use windlass_engine::{ClientId, Command, Reading, Refusal, Reply};
use windlass_session::Item;

use crate::mailbox::{Mail, Mailbox};

/// The operations of connections, and of the daemon itself, on the queue.
pub trait Broker: Send + Sync + fmt::Debug {
    /// Registers a client whose mail goes to this mailbox.
    fn open(&self, client: ClientId, mailbox: Arc<Mailbox>);

    /// Executes the items of all these clients, each client's in order. Returns what the calling
    /// thread must do about the commit.
    fn visit(&self, now: &Reading, batches: &mut dyn Iterator<Item = Batch<'_>>) -> CommitDuty;

    /// Executes the items of one client on a thread that serves no connections and must not block.
    /// The committing thread commits. Returns `false` if this daemon may not hold the store;
    /// nothing was executed then.
    #[must_use]
    fn visit_nonblocking(&self, now: &Reading, batch: Batch<'_>) -> bool;

    /// Takes the readable mail, up to this much `room`: see [`Mailbox::take`].
    fn mail(&self, mailbox: &Mailbox, room: usize, into: &mut Vec<Mail>) -> Option<usize>;

    /// Takes all readable mail on such a thread. Returns `false` if this daemon may not hold the
    /// store.
    #[must_use]
    fn mail_nonblocking(&self, mailbox: &Mailbox, into: &mut Vec<Mail>) -> bool;

    /// Called when the client's peer has received this many more of the jobs that the budget
    /// counts.
    fn sent_jobs(&self, _client: ClientId, _jobs: u32) {}

    /// Closes a client and releases what it holds, as far as one visit allows. Returns whether that
    /// is complete. If not, the caller must call it again after other clients had their turn.
    fn close(&self, client: ClientId) -> bool;

    /// Executes a command for the daemon itself and returns the reply.
    ///
    /// # Errors
    ///
    /// The command is refused.
    fn ask(&self, command: Command) -> Result<Reply, Refusal>;

    /// The health of the broker.
    fn health(&self) -> Health;

    /// Notifies every connection that the daemon is about to stop.
    fn stop(&self);
}

/// The pending items of one client in a visit.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The client.
    pub client: ClientId,
    /// Items that the visit does not reach remain here.
    pub items: &'a mut VecDeque<Item>,
    /// The visit of this client ends when its replies have this many bytes.
    pub room: usize,
    /// The result of the visit.
    pub visited: &'a mut Visited,
}

/// What a thread must do about the changes of its visit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CommitDuty {
    /// Nothing, because another thread commits them, or there is nothing to commit.
    None,
    /// Check again shortly whether there is a reason to commit.
    Later,
    /// Commit at the end of the turn.
    Now {
        /// How many acknowledgements wait for the commit; `usize::MAX` if the commit is full.
        acknowledgements: usize,
    },
}

/// The result of a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visited {
    /// Everything was executed.
    All,
    /// There is more to execute, once other clients had their turn and the peer has space for
    /// replies.
    Part,
    /// The next item must wait for another client's large job, or for a connection to the queue.
    /// The broker wakes the client's mailbox when it can continue.
    UntilRung,
}

/// Whether a broker serves its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// It does.
    Serving,
    /// It does, but the disk is full: new jobs are refused; existing jobs continue.
    DiskFull,
    /// It does, but the store does not respond, or may belong to another daemon, so nothing is
    /// acknowledged.
    StoreFailed,
    /// It is about to stop: connections send their pending output, and close.
    Stopping,
}
