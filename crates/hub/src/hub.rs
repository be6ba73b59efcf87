//! The engine, its journal and all mailboxes, behind one lock. A thread holds the lock for one
//! batch of commands.
//!
//! In a visit, commands go through the engine, their changes into the pending commit, and their
//! events into mailboxes. Under the lock there is no I/O and no encoding for peers. Each
//! acknowledgement carries the number of the commit that it waits for.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_engine::{ClientId, Engine, TICK_MS, Tag, Timestamp};
use windlass_store::{Commit, Journal};

use self::cluster::Edges;
use self::core::Core;
use self::delivery::Gates;
pub use self::durable::Durability;
use self::durable::Durable;
use self::lease::Lease;
use crate::broker::CommitDuty;
use crate::budget::Budget;
use crate::clock;
use crate::loads::Loading;
use crate::mailbox::Mailbox;
use crate::names::ProtocolNames;
use crate::published::Publication;
use crate::shared::Flag;
use crate::warnings;

mod cluster;
mod commits;
mod core;
mod delivery;
mod durable;
mod lease;
mod memory;
#[cfg(any(test, feature = "testing"))]
mod testing;
#[cfg(test)]
mod tests;
mod unwritten;
mod visit;

/// The daemon's own client number; connections start at 1.
const DAEMON: ClientId = ClientId(0);
const ASKED: Tag = Tag(1);

/// State shared by all connections.
#[derive(Debug)]
pub struct Hub {
    /// What a visit changes, behind the lock.
    core: Mutex<Core>,
    /// Commits, and the store that takes them.
    pub(crate) durable: Durable,
    /// The right to act on the store.
    lease: Lease,
    /// In a cluster, the other daemons that serve this hub's clients.
    edges: Mutex<Edges>,
    /// The memory budget of all connections.
    pub budget: Arc<Budget>,
    /// The work of the thread that moves bodies out of memory and back.
    pub loading: Loading,
    /// The protocols' names, for log lines.
    pub names: ProtocolNames,
    /// Whether workers wait for buffer space: see [`Budget::room`].
    starved: Flag,
    /// Whether the daemon is about to stop.
    stopping: Flag,
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
        Self {
            durable: Durable::new(durability, journal.pending_seq()),
            core: Mutex::new(Core::new(engine, journal, rng)),
            lease: Lease::new(None),
            edges: Mutex::default(),
            budget: Arc::new(Budget::new(usize::MAX)),
            loading: Loading::default(),
            names: ProtocolNames::default(),
            starved: Flag::default(),
            stopping: Flag::default(),
            deadline_moved: Notify::new(),
        }
    }

    /// Holds clients' next jobs until the end of their last one is on disk, even if that end is not
    /// acknowledged. Has no effect without [`Durability::Durable`], because nothing waits for the
    /// disk then.
    pub fn hand_out_after_commit(mut self, yes: bool) -> Self {
        self.durable.hand_out_after_commit = yes && self.durable.durability == Durability::Durable;
        self
    }

    /// Sets the interval within which changes are committed. When the disk falls behind by two
    /// intervals, or by 32 MiB, acknowledgements wait for it. Has no effect without
    /// [`Durability::Soon`].
    pub fn within(mut self, interval: Option<Duration>) -> Self {
        self.durable.interval = interval;
        self
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
            self.act(|core| {
                core.engine.tick(&mut core.context);
                core.engine.leave(page, &mut core.context);
            });
        }
    }

    /// Executes everything due and returns the next deadline. Does nothing while this daemon may
    /// not hold the store, because no time passes then.
    pub fn tick(&self) -> Option<Timestamp> {
        if !self.may_act() {
            clock::stand_still();
            return Some(clock::now().after_ms(TICK_MS));
        }
        if self.has_tenure() {
            clock::go_on();
        }
        let (next, starved_at) = self.act(|core| {
            core.engine.tick(&mut core.context);
            core.ticks_at = core.engine.next_deadline();
            let is_starved = core.engine.is_starved() && !core.steps_down;
            (core.ticks_at, is_starved.then_some(core.context.now))
        });
        self.starved.set(starved_at.is_some());
        if let Some(now) = starved_at {
            self.budget.cut_stalled(now);
        }
        next
    }

    /// Visits the engine on a thread that does not serve connections.
    fn act<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        core.begin(&clock::read(), &self.budget);
        let done = act(&mut core);
        self.finish(core, false);
        done
    }

    /// Ends a visit: appends the changes to the journal and delivers the events to the mailboxes.
    /// With `in_turn`, the calling thread serves connections and must do the part of the commit
    /// that is returned.
    fn finish(&self, mut core: MutexGuard<'_, Core>, in_turn: bool) -> CommitDuty {
        core.append();
        let has_changes = !core.journal.is_empty();
        // All changes up to now are on disk when this commit is.
        let barrier = if has_changes {
            core.journal.pending_seq()
        } else {
            core.journal.pending_seq().saturating_sub(1)
        };
        let acknowledgement = self
            .acknowledgements_wait(&mut core, has_changes)
            .then_some(barrier);
        core.note_commit(barrier);
        let gates = Gates {
            barrier,
            acknowledgement,
            // A successor knows only those time-bound leases that are in the journal.
            lease: acknowledgement.filter(|_| self.has_tenure()),
            durable: self.durable(),
        };
        core.deliver(gates, &self.budget);
        self.leave_to_loading(&mut core, barrier);
        let due = core.engine.next_deadline();
        let is_earlier = due.is_some_and(|due| core.ticks_at.is_none_or(|at| due < at));
        if is_earlier {
            core.ticks_at = due;
        }
        let publications = std::mem::take(&mut core.visit.publications);
        let with_room = self.take_with_room(&mut core);
        let noticed = std::mem::take(&mut core.context.warnings);
        let duty = if has_changes || core.journal.is_behind() {
            self.duty(&mut core, in_turn)
        } else {
            CommitDuty::None
        };
        drop(core);
        Mailbox::ring_all(&with_room);
        warnings::log(noticed, &self.names);
        for (bytes, to) in publications {
            Publication::new(bytes, &self.budget).post(&to);
        }
        if is_earlier {
            self.deadline_moved.notify_one();
        }
        self.budget.relieve();
        duty
    }

    /// Whether workers waited for buffer space at the last tick.
    pub fn is_starved(&self) -> bool {
        self.starved.get()
    }

    /// Whether the daemon is about to stop.
    pub fn stopping(&self) -> bool {
        self.stopping.get()
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
