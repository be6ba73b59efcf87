//! The engine, its journal and all mailboxes, behind one lock. A thread holds the lock for one
//! batch of commands.
//!
//! In a visit, commands go through the engine, their changes into the pending commit, and their
//! events into mailboxes. Under the lock there is no I/O and no encoding for peers. Each
//! acknowledgement carries the number of the commit that it waits for.

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

/// The daemon's own client number; connections start at 1.
const DAEMON: ClientId = ClientId(0);
const ASKED: Tag = Tag(1);

/// Whether acknowledgements wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// An acknowledged change is on disk.
    Durable,
    /// An acknowledged change will be on disk within the commit interval ([`Hub::within`]), as long
    /// as the disk keeps up.
    Soon,
}

/// State shared by all connections.
#[derive(Debug)]
pub struct Hub {
    core: Mutex<Core>,
    durability: Durability,
    /// The interval of [`Durability::Soon`]; without one, no acknowledgement waits however slow the
    /// disk is.
    interval: Option<Duration>,
    /// Whether a client's next job waits until the end of its last one is on disk, even if that end
    /// is not acknowledged.
    hand_out_after_commit: bool,
    /// The newest commit on disk.
    durable: Durable,
    /// The first commit of this run.
    first: u64,
    /// The memory budget of all connections.
    pub budget: Arc<Budget>,
    /// Whether the store responds and has space.
    pub store: StoreHealth,
    /// The work of the thread that moves bodies out of memory and back.
    pub loading: Loading,
    /// The protocols' names, for log lines.
    pub names: ProtocolNames,
    /// The lease under which this daemon holds the store, if there is one.
    tenure: Option<Arc<dyn Tenure>>,
    /// The wall clock of the lease as last read.
    wall_ahead_ms: AtomicI64,
    edges: Mutex<tenure::Edges>,
    /// Whether workers wait for buffer space: see [`Budget::room`].
    starved: AtomicBool,
    /// Whether the daemon is about to stop.
    stopping: AtomicBool,
    /// Whether serving threads handle the commits of their visits.
    has_turns: AtomicBool,
    /// Whether serving threads commit at the end of their turns.
    commit_in_turns: AtomicBool,
    /// Whether the committing thread is parked.
    idle: Idle,
    committer: Mutex<Option<Thread>>,
    /// Notified when the engine's next deadline has moved forward.
    pub deadline_moved: Notify,
}

/// A commit to write.
#[derive(Debug)]
pub struct Cut {
    /// The data to write.
    pub commit: Commit,
    /// The number of acknowledgements that wait for it.
    pub acknowledgements: usize,
}

impl Hub {
    /// Creates a hub from a recovered engine and its journal.
    pub fn new(engine: Engine, journal: Journal, durability: Durability, rng: u64) -> Self {
        // Recovered commits are on disk; the next commit is not.
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
            steps_down: false,
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

    /// Holds clients' next jobs until the end of their last one is on disk, even if that end is not
    /// acknowledged. Has no effect without [`Durability::Durable`], because nothing waits for the
    /// disk then.
    pub fn hand_out_after_commit(self, yes: bool) -> Self {
        Self {
            hand_out_after_commit: yes && self.durability == Durability::Durable,
            ..self
        }
    }

    /// Sets the interval within which changes are committed. When the disk falls behind by two
    /// intervals, or by 32 MiB, acknowledgements wait for it. Has no effect without
    /// [`Durability::Soon`].
    pub fn within(self, interval: Option<Duration>) -> Self {
        Self { interval, ..self }
    }

    /// Sets the memory budget of all connections.
    pub fn sharing(self, budget: Arc<Budget>) -> Self {
        Self { budget, ..self }
    }

    /// Sets the protocols' names for log lines and reports.
    pub fn naming(self, names: ProtocolNames) -> Self {
        Self { names, ..self }
    }

    /// Keeps the jobs that workers hold over connections for the next run of the daemon, a page at
    /// a time. Called when no connections are left.
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

    /// Delivers bytes published on another daemon to these clients' mailboxes.
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

    /// Stops handing out jobs, and disconnects this daemon's clients, which must reconnect
    /// elsewhere. Jobs that they have not received are requeued. Clients of edges continue at the
    /// next leader.
    pub fn step_down(&self) {
        let mut core = self.lock();
        core.steps_down = true;
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

    /// Executes everything due and returns the next deadline. Does nothing while this daemon may
    /// not hold the store, because no time passes then.
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
        let is_starved = is_starved && !core.steps_down;
        core.ticks_at = next.unwrap_or(Timestamp::NEVER);
        self.end(core);
        self.starved.store(is_starved, Ordering::Release);
        if is_starved {
            self.budget.cut_stalled(now);
        }
        next
    }

    /// Ends a visit by a thread that does not serve connections.
    fn end(&self, core: MutexGuard<'_, Core>) {
        self.finish(core, false);
    }

    /// Ends a visit: appends the changes to the journal and delivers the events to the mailboxes.
    /// With `in_turn`, the calling thread serves connections and must do the part of the commit
    /// that is returned.
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
        // All changes up to now are on disk when this commit is.
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
        // A successor knows only those time-bound leases that are in the journal.
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

    /// Sets whether the store has failed. When it fails, all clients that wait for a commit learn
    /// that the outcome is unknown.
    pub fn set_failed(&self, failed: bool) {
        self.store.set_failed(failed);
        if failed {
            // They are woken again for their commits, because the store may respond again by the
            // time their threads check.
            let mut core = self.lock();
            let mut waiting = core.waiting.mailboxes();
            waiting.extend(self.take_with_room(&mut core));
            drop(core);
            waiting.iter().for_each(|mailbox| mailbox.ring());
        }
    }

    /// Whether workers waited for buffer space at the last tick.
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Acquire)
    }

    /// Whether the daemon is about to stop.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|_| {
            // A panic under this lock is a bug in the engine, and may leave its state half changed.
            // Nothing of that visit was journalled or acknowledged, so restarting from the journal
            // is safe, and continuing is not.
            tracing::error!("a visit to the engine panicked: exiting to restart from the journal");
            crate::last_words::exit()
        })
    }
}
