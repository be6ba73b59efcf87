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

use super::durable::Pending;
use crate::budget::Budget;
use crate::clock;
use crate::loads::Load;
use crate::mailbox::Mailbox;
use crate::waking::ForRoom;

#[derive(Debug)]
pub(super) struct Core {
    pub(super) engine: Engine,
    pub(super) journal: Journal,
    pub(super) mailboxes: HashMap<ClientId, Arc<Mailbox>>,
    pub(super) context: Context,
    pub(super) visit: Visit,
    /// The commits that are not on disk, and what waits for them.
    pub(super) pending: Pending,
    /// Clients with a poll that waits for buffer space.
    pub(super) polling: HashSet<ClientId>,
    /// Clients with a job that does not fit into memory.
    pub(super) for_room: ForRoom<Arc<Mailbox>>,
    /// Jobs with unreadable bodies, and the clients whose commands wait for them.
    pub(super) unreadable: HashMap<ClientId, BTreeSet<JobId>>,
    /// When the ticker visits next, if it has a deadline.
    pub(super) ticks_at: Option<Timestamp>,
    /// Whether another daemon is about to lead, so that no jobs are handed out.
    pub(super) steps_down: bool,
}

/// What a visit gathers until its end, in addition to the context's events and changes.
#[derive(Debug, Default)]
pub(super) struct Visit {
    /// Bytes for peers, each with its index among the context's events.
    pub(super) own_bytes: VecDeque<(usize, ClientId, Bytes)>,
    /// Publications, with the mailboxes of their recipients.
    pub(super) publications: Vec<(Bytes, Vec<Arc<Mailbox>>)>,
    /// Bodies that mail and commands wait for.
    pub(super) loads: Vec<Load>,
    /// Clients that have ended a job without a reply.
    pub(super) ended_by: Vec<ClientId>,
    /// Whether it contains a large job.
    pub(super) is_large: bool,
    /// The engine's work when it began.
    pub(super) begun: u64,
}

impl Core {
    pub(super) fn new(engine: Engine, journal: Journal, rng: u64) -> Self {
        Self {
            engine,
            journal,
            mailboxes: HashMap::default(),
            context: Context::new(clock::now(), rng),
            visit: Visit::default(),
            pending: Pending::default(),
            polling: HashSet::default(),
            for_room: ForRoom::new(),
            unreadable: HashMap::default(),
            ticks_at: None,
            steps_down: false,
        }
    }

    /// A thread that waited for the lock may have an earlier time than the previous holder, but the
    /// engine's time never goes back.
    pub(super) fn begin(&mut self, reading: &Reading, budget: &Budget) {
        self.context.room = if self.steps_down { 0 } else { budget.room() };
        if !reading.is_older_than(self.context.now, &self.context.clock) {
            self.context.now = reading.now;
            self.context.clock = reading.clock;
        }
        self.context.changes.clear();
        self.context.missing.clear();
        self.context.exclusive.clear();
        self.visit.begun = self.engine.work();
    }

    /// Assigns what the visit has changed to this commit.
    pub(super) fn note_commit(&mut self, commit: u64) {
        if std::mem::take(&mut self.visit.is_large) {
            self.pending.large_until = Some(commit);
        }
        let ends = self.visit.ended_by.drain(..).map(|client| (client, commit));
        self.pending.ends.extend(ends);
    }

    pub(super) fn mailboxes_of(&self, clients: &[ClientId]) -> Vec<Arc<Mailbox>> {
        let mailboxes = clients.iter().filter_map(|it| self.mailboxes.get(it));
        mailboxes.cloned().collect()
    }

    /// Whether a client waits for the pending commit, or a full commit is ready to be written.
    pub(super) fn is_urgent(&self) -> bool {
        self.pending.awaited >= Some(self.journal.pending_seq()) || self.journal.is_behind()
    }

    /// Passes the changes of the visit to the journal.
    pub(super) fn append(&mut self) {
        self.journal.append(&self.engine, &self.context.changes);
    }

    pub(super) fn apply(&mut self, client: ClientId, tag: Tag, command: impl Into<Command>) {
        self.engine.apply(client, tag, command, &mut self.context);
    }

    /// Requeues jobs that the client has not received.
    pub(super) fn release(&mut self, client: ClientId, unsent: Vec<(JobId, Token)>) {
        for (job, token) in unsent {
            let release = LeaseCommand::Release {
                job: JobRef::Id(job),
                proof: Proof::Token(token),
                front: false,
            };
            self.apply(client, Tag::NONE, release);
        }
    }
}
