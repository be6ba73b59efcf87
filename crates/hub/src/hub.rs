//! The engine, its journal and all mailboxes, behind one lock. A thread holds the lock for one batch of commands.
//!
//! A visit: commands go through the engine, their changes into the pending commit, their events into mailboxes. Under
//! the lock there is no I/O and no encoding for peers. Each acknowledgement carries the number of the commit it waits
//! for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use tokio::sync::Notify;
use windlass_engine::{ClientId, Context, Engine, TICK_MS, Tag, Timestamp};
use windlass_session::Reason;
use windlass_store::{Commit, Journal, Tenure};

use self::core::{Core, Ends};
use self::delivery::Gates;
pub(crate) use self::memory::Cool;
pub use self::store_health::StoreHealth;
use self::unwritten::Unwritten;
use crate::broker::CommitDuty;
use crate::budget::Budget;
use crate::clock;
use crate::loads::Loading;
use crate::names::ProtocolNames;
use crate::published::Publication;
use crate::waking::{Durable, ForRoom, Idle, Waiting};
use crate::warnings;

mod commits;
mod core;
mod delivery;
mod memory;
mod store_health;
mod tenure;
#[cfg(any(test, feature = "testing"))]
mod testing;
#[cfg(test)]
mod tests;
mod unwritten;
mod visit;

/// The daemon's own client number: connections begin at 1.
const OURSELVES: ClientId = ClientId(0);
const ASKED: Tag = Tag(1);

/// Whether acknowledgements wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// OK means on the disk.
    Durable,
    /// OK means it will be on the disk within the commit interval ([`Hub::within`]), as long as the disk keeps up.
    Soon,
}

/// State that all connections share.
#[derive(Debug)]
pub struct Hub {
    core: Mutex<Core>,
    durability: Durability,
    /// The interval of [`Durability::Soon`]; without one, no acknowledgement waits however slow the disk is.
    interval: Option<Duration>,
    /// A client gets its next job when the end of its last one is on the disk, whether or not that end is acknowledged.
    hand_out_after_commit: bool,
    /// The newest commit that is on the disk.
    durable: Durable,
    /// The first commit of this run.
    first: u64,
    /// The limit on the memory of all connections together.
    pub budget: Arc<Budget>,
    /// Whether the store responds and has room.
    pub store: StoreHealth,
    /// The work of the thread that moves bodies out of memory and back.
    pub loading: Loading,
    /// The protocols' names, for log lines.
    pub names: ProtocolNames,
    /// Where the store belongs to this daemon only for a time: its right to act.
    tenure: Option<Arc<dyn Tenure>>,
    /// The tenure's wall clock as it was read last.
    wall_ahead_ms: AtomicI64,
    edges: Mutex<tenure::Edges>,
    /// Clients wait for room: see [`Budget::room`].
    starved: AtomicBool,
    /// The daemon is about to stop.
    stopping: AtomicBool,
    /// Serving threads look after the commits of their visits.
    has_turns: AtomicBool,
    /// Serving threads commit at the end of their turns.
    commit_in_turns: AtomicBool,
    /// Whether the committing thread rests.
    idle: Idle,
    committer: Mutex<Option<Thread>>,
    /// Rung when the engine's next deadline has moved forward.
    pub deadline_moved: Notify,
}

/// A commit to write.
#[derive(Debug)]
pub struct Cut {
    /// What must be written.
    pub commit: Commit,
    /// How many acknowledgements wait for it.
    pub acknowledgements: usize,
}

impl Hub {
    /// A hub over a recovered engine and its journal.
    pub fn new(engine: Engine, journal: Journal, durability: Durability, rng: u64) -> Self {
        // Recovered commits are on the disk; the next commit is not.
        let first = journal.pending_seq();
        let durable = Durable::new(first.saturating_sub(1));
        let core = Core {
            engine,
            journal,
            mailboxes: HashMap::default(),
            ends: Ends::default(),
            polling: HashSet::default(),
            context: Context::new(clock::now(), rng),
            own_bytes: VecDeque::new(),
            publications: Vec::new(),
            waiting: Waiting::new(),
            unwritten: Unwritten::default(),
            for_room: ForRoom::new(),
            acknowledgements: 0,
            awaited: 0,
            gathers: false,
            ticks_at: Timestamp::NEVER,
            loads: Vec::new(),
            waits_for_bodies: false,
            unreadable: HashMap::default(),
            gives_up: false,
            large: false,
            large_until: 0,
        };
        Self {
            core: Mutex::new(core),
            durability,
            interval: None,
            hand_out_after_commit: false,
            durable,
            first,
            budget: Arc::new(Budget::new(usize::MAX)),
            store: StoreHealth::default(),
            loading: Loading::default(),
            names: ProtocolNames::default(),
            tenure: None,
            wall_ahead_ms: AtomicI64::new(i64::MIN),
            edges: Mutex::default(),
            starved: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            has_turns: AtomicBool::new(false),
            commit_in_turns: AtomicBool::new(false),
            idle: Idle::new(),
            committer: Mutex::new(None),
            deadline_moved: Notify::new(),
        }
    }

    /// Gives clients their next job only when the end of their last one is on the disk, even if that end is not
    /// acknowledged. Has no effect without [`Durability::Durable`]: nothing waits for the disk then.
    pub fn hand_out_after_commit(self, yes: bool) -> Self {
        Self {
            hand_out_after_commit: yes && self.durability == Durability::Durable,
            ..self
        }
    }

    /// Sets the interval within which a commit follows. When the disk falls behind by two of them, or by 32 MiB,
    /// acknowledgements wait for it. Has no effect without [`Durability::Soon`].
    pub fn within(self, interval: Option<Duration>) -> Self {
        Self { interval, ..self }
    }

    /// Sets what counts the memory of all connections together.
    pub fn sharing(self, budget: Arc<Budget>) -> Self {
        Self { budget, ..self }
    }

    /// Sets the protocols' names for notices and for the report.
    pub fn naming(self, names: ProtocolNames) -> Self {
        Self { names, ..self }
    }

    /// Leaves the jobs that workers have over connections to the next run of the daemon, a page at a time. Called when
    /// no connection is left.
    pub fn leave_jobs(&self) {
        const PAGE: usize = 1_000;
        let held = self.lock().engine.held_over_connections();
        for page in held.chunks(PAGE) {
            let mut core = self.lock();
            core.begin(&clock::read(), &self.budget);
            let Core {
                engine, context, ..
            } = &mut *core;
            engine.tick(context);
            engine.leave(page, context);
            self.end(core);
        }
    }

    /// Puts bytes that a connection of another daemon has published into the mailboxes of these clients.
    pub fn publish(&self, to: &[ClientId], bytes: bytes::Bytes) {
        let mailboxes: Vec<_> = {
            let core = self.lock();
            to.iter()
                .filter_map(|client| core.mailboxes.get(client))
                .cloned()
                .collect()
        };
        Publication::new(bytes, &self.budget).post(&mailboxes);
    }

    /// Hands out no more jobs, and closes the clients of this daemon: they must begin anew, at another hub. They return
    /// the jobs that they have not got. Clients of edges go on there.
    pub fn give_up(&self) {
        let mut core = self.lock();
        core.gives_up = true;
        let own = core
            .mailboxes
            .iter()
            .filter(|(client, _)| client.daemon() == 0);
        let mut own: Vec<_> = own
            .map(|(client, mailbox)| (*client, Arc::clone(mailbox)))
            .collect();
        drop(core);
        own.sort_unstable_by_key(|(client, _)| *client);
        own.iter()
            .for_each(|(_, mailbox)| mailbox.evict(Reason::ClosedByServer));
        for (client, mailbox) in own {
            let mut core = self.lock();
            core.begin(&clock::read(), &self.budget);
            core.release(client, mailbox.take_unsent_jobs(usize::MAX));
            self.end(core);
        }
    }

    /// Does all that is due and returns the next deadline. Does nothing while the store may not belong to this daemon: no
    /// time passes then.
    pub fn tick(&self) -> Option<Timestamp> {
        if !self.may_act() {
            clock::stand_still();
            return Some(clock::now().after_ms(TICK_MS));
        }
        if self.tenure.is_some() {
            clock::go_on();
        }
        let mut core = self.lock();
        core.begin(&clock::read(), &self.budget);
        let Core {
            engine, context, ..
        } = &mut *core;
        engine.tick(context);
        let (next, now, is_starved) = (engine.next_deadline(), context.now, engine.is_starved());
        let is_starved = is_starved && !core.gives_up;
        core.ticks_at = next.unwrap_or(Timestamp::NEVER);
        self.end(core);
        self.starved.store(is_starved, Ordering::Release);
        if is_starved {
            self.budget.cut_stalled(now);
        }
        next
    }

    /// Ends a visit of no serving thread.
    fn end(&self, core: MutexGuard<'_, Core>) {
        self.finish(core, false);
    }

    /// Ends a visit: appends the changes to the journal and posts the events to the mailboxes. `in_turn`: the calling
    /// thread serves, and does its part of the commit, which the result names.
    fn finish(&self, mut core: MutexGuard<'_, Core>, in_turn: bool) -> CommitDuty {
        let Core {
            engine,
            journal,
            context,
            ..
        } = &mut *core;
        journal.append(engine, &context.changes);
        let pending = !journal.is_empty();
        let to_commit = pending || journal.is_behind();
        // All changes up to now are on the disk when this commit is.
        let barrier = if pending {
            journal.pending_seq()
        } else {
            journal.pending_seq().saturating_sub(1)
        };
        let gate = match self.durability {
            Durability::Soon if self.is_behind(&mut core, pending) => barrier,
            Durability::Soon => 0,
            Durability::Durable => barrier,
        };
        core.ends.pin(gate);
        if std::mem::take(&mut core.large) {
            core.large_until = barrier;
        }
        let durable = self.durable.get();
        // Of the leases that outlive their connections a daemon's successor knows only what the journal has.
        let lease = if self.has_tenure() { gate } else { 0 };
        core.deliver(
            Gates {
                acknowledgement: gate,
                lease,
                ends: gate,
                barrier,
                durable,
            },
            &self.budget,
        );
        self.leave_to_loading(&mut core, barrier);
        let due = core.engine.next_deadline().unwrap_or(Timestamp::NEVER);
        let earlier = due < core.ticks_at;
        if earlier {
            core.ticks_at = due;
        }
        let publications = std::mem::take(&mut core.publications);
        let with_room = self.take_with_room(&mut core);
        let noticed = std::mem::take(&mut core.context.warnings);
        let duty = if to_commit {
            self.duty(&mut core, in_turn)
        } else {
            CommitDuty::None
        };
        drop(core);
        with_room.iter().for_each(|mailbox| mailbox.ring());
        warnings::log(noticed, &self.names);
        publications
            .into_iter()
            .for_each(|(own_bytes, to)| Publication::new(own_bytes, &self.budget).post(&to));
        if earlier {
            self.deadline_moved.notify_one();
        }
        self.budget.relieve();
        duty
    }

    /// Whether the store fails.
    pub fn failed(&self) -> bool {
        self.store.has_failed()
    }

    /// Sets whether the store has failed. When it fails, all clients that wait for a commit learn that the outcome is
    /// unknown.
    pub fn set_failed(&self, failed: bool) {
        self.store.set_failed(failed);
        if failed {
            // They are rung again for their commits: when their threads look, the store may respond again.
            let mut core = self.lock();
            let mut waiting = core.waiting.mailboxes();
            waiting.extend(self.take_with_room(&mut core));
            drop(core);
            waiting.iter().for_each(|mailbox| mailbox.ring());
        }
    }

    /// Whether clients waited for room when the engine was visited last because of the time.
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Acquire)
    }

    /// Whether the daemon is about to stop.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|_| {
            // A panic under this lock is a bug in the engine, and may leave its state half changed. Nothing of that
            // visit was journalled or acknowledged: a restart from the journal is safe, continuing is not.
            tracing::error!("a visit to the engine panicked: exiting to restart from the journal");
            crate::last_words::exit()
        })
    }
}
