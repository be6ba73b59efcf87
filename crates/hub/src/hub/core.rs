//! The engine with its journal and its clients' mailboxes, guarded by one lock.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::{HashMap, HashSet};
use windlass_engine::{
    ClientId, Command, Context, Engine, JobId, JobRef, LeaseCommand, Proof, Reading, Tag,
    Timestamp, Token,
};
use windlass_store::Journal;

use super::unwritten::Unwritten;
use crate::budget::Budget;
use crate::loads::Load;
use crate::mailbox::Mailbox;
use crate::waking::{ForRoom, Waiting};

#[derive(Debug)]
pub(super) struct Core {
    pub(super) engine: Engine,
    pub(super) journal: Journal,
    pub(super) mailboxes: HashMap<ClientId, Arc<Mailbox>>,
    /// The commits that clients' next jobs wait for.
    pub(super) ends: Ends,
    /// Clients with a poll that waits for buffer space.
    pub(super) polling: HashSet<ClientId>,
    pub(super) context: Context,
    /// Bytes for peers, each with its index among the context's events.
    pub(super) own_bytes: VecDeque<(usize, ClientId, Bytes)>,
    /// Publications of this visit, with the mailboxes of their recipients.
    pub(super) publications: Vec<(Bytes, Vec<Arc<Mailbox>>)>,
    /// Mailboxes to wake for a commit, ordered by commit.
    pub(super) waiting: Waiting<Arc<Mailbox>>,
    /// The age of changes not on disk, if acknowledgements do not wait for each commit.
    pub(super) unwritten: Unwritten,
    /// Clients with a job that does not fit into memory.
    pub(super) for_room: ForRoom<Arc<Mailbox>>,
    /// The number of acknowledgements that wait for the pending commit.
    pub(super) acknowledgements: usize,
    /// The newest commit that an acknowledgement waits for.
    pub(super) awaited: u64,
    /// Whether the pending commit began without acknowledgements, and a serving thread was notified
    /// of it.
    pub(super) gathers: bool,
    /// When the ticker visits next; `NEVER` if it has no deadline.
    pub(super) ticks_at: Timestamp,
    /// Bodies that this visit's mail and commands wait for.
    pub(super) loads: Vec<Load>,
    /// Whether the last command waits for some of them.
    pub(super) waits_for_bodies: bool,
    /// Jobs with unreadable bodies, and the clients whose commands wait for them.
    pub(super) unreadable: HashMap<ClientId, BTreeSet<JobId>>,
    /// Whether another daemon is about to lead, so that no jobs are handed out.
    pub(super) steps_down: bool,
    /// Whether this visit contains a large job.
    pub(super) large: bool,
    /// The commit with the newest large job. Once it is durable, no large job is in flight.
    pub(super) large_until: u64,
}

/// Per client: the commit that contains the end of its last job. Its next job is held until that
/// commit is durable.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// The clients that have ended a job in this visit.
    pub(super) ended_by: Vec<ClientId>,
    pub(super) gates: HashMap<ClientId, u64>,
}

impl Ends {
    /// Assigns the ends of this visit to this commit.
    pub(super) fn pin(&mut self, commit: u64) {
        self.gates
            .extend(self.ended_by.drain(..).map(|client| (client, commit)));
    }

    pub(super) fn gate(&self, client: ClientId) -> u64 {
        self.gates.get(&client).copied().unwrap_or_default()
    }

    pub(super) fn forget(&mut self, client: ClientId) {
        self.gates.remove(&client);
    }
}

impl Core {
    /// A thread that waited for the lock may have an earlier time than the previous holder, but the
    /// engine's time never goes back.
    pub(super) fn begin(&mut self, reading: &Reading, budget: &Budget) {
        self.context.room = if self.steps_down { 0 } else { budget.room() };
        if !reading.is_older_than(self.context.now, &self.context.clock) {
            (self.context.now, self.context.clock) = (reading.now, reading.clock);
        }
        self.context.changes.clear();
        self.context.missing.clear();
        self.context.exclusive.clear();
    }

    /// Whether a client waits for the pending commit, or a full commit is ready to be written.
    pub(super) fn is_urgent(&self) -> bool {
        self.awaited >= self.journal.pending_seq() || self.journal.is_behind()
    }

    pub(super) fn apply(&mut self, client: ClientId, tag: Tag, command: impl Into<Command>) {
        self.engine.apply(client, tag, command, &mut self.context);
    }

    /// Requeues jobs that the client has not received.
    pub(super) fn release(&mut self, client: ClientId, unsent: Vec<(JobId, Token)>) {
        for (job, token) in unsent {
            let (job, proof) = (JobRef::Id(job), Proof::Token(token));
            self.apply(
                client,
                Tag::NONE,
                LeaseCommand::Release {
                    job,
                    proof,
                    front: false,
                },
            );
        }
    }
}
