//! The state of the engine, by owner.
//!
//! Each owner has private fields. A command that needs several of them is a function over the state. The
//! modules of this folder call each other in one direction only: `place` (a job's state, and every owner that
//! depends on it) · `deliver`, `serve` (delivery to clients) · `requeue`, `ends`, `failures` (the end of a
//! delivery) · `push` · the commands · `due` · [`super::Engine`].

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::beginning::Beginning;
use super::followers::Followers;
use crate::batches::Batches;
use crate::clients::{Clients, Waiters, Watchers, Workers};
use crate::condition::JobReader;
use crate::context::Context;
use crate::days::Days;
use crate::deferred::Deferred;
use crate::held::Held;
use crate::ids::{ClientId, JobId, Namespace, Protocol, QueueId, Timestamp};
use crate::jobs::Jobs;
use crate::kinds::Kinds;
use crate::limits::Limits;
use crate::meta::Meta;
use crate::on_dead::OnDead;
use crate::queues::Queues;
use crate::refusal::{Capacity, Outcome};
use crate::request::{NewJob, QueueKind};
use crate::residency::Residency;
use crate::schedules::Schedules;
use crate::starved::Starved;
use crate::succession::Succession;
use crate::timers::Timers;
use crate::work::Work;

/// Clients and names together may take this part of memory.
const BESIDE_PART: u64 = 2;

/// Clients may always use this fraction of the memory (1/n), and so may names.
const BESIDE_LEAST_PART: u64 = 16;

/// This many queues to serve, waits, or requests of a client are included in the cost of a connection, and
/// are never rejected.
pub(super) const FEW: usize = 16;

/// Names of a client up to this size are included in the cost of a connection.
pub(super) const SMALL_BYTES: u64 = 2_048;

/// The owners.
#[derive(Debug)]
pub(super) struct State {
    pub(super) limits: Limits,
    /// The engine's time.
    pub(super) now: Timestamp,
    /// The wall clock minus `now`.
    pub(super) skew_ms: i64,
    pub(super) jobs: Jobs,
    pub(super) residency: Residency,
    pub(super) queues: Queues,
    pub(super) kinds: Kinds,
    pub(super) clients: Clients,
    pub(super) workers: Workers,
    pub(super) watchers: Watchers,
    pub(super) schedules: Schedules,
    pub(super) batches: Batches,
    pub(super) timers: Timers,
    pub(super) meta: Meta,
    /// Set if this engine has a predecessor.
    pub(super) succession: Option<Succession>,
    pub(super) deferred: Deferred,
    pub(super) starved: Starved,
    pub(super) days: Days,
    pub(super) work: Work,
    /// Whether rows of ended jobs are wanted.
    pub(super) keeps_history: bool,
    /// What protocols read in their jobs, if the engine may ask.
    pub(super) reader: Option<Arc<dyn JobReader>>,
    pub(super) beginning: Beginning,
    pub(super) followers: Followers,
    pub(super) dead_dropped: DeadDropped,
    /// Decides which jobs are pushed when a job dies, if set.
    pub(super) on_dead: Option<Arc<dyn OnDead>>,
    /// Jobs that deaths in this visit have caused and that are not pushed yet, with the names of the dead.
    pub(super) caused: Vec<(Bytes, NewJob)>,
    /// Jobs with bodies that are unavailable to this command ([`Context::unreadable`]).
    pub(super) unreadable: BTreeSet<JobId>,
    /// Bytes of clients.
    pub(super) beside: Held,
    /// Bytes of queues.
    pub(super) names: Held,
    /// Memory of jobs that is not attributed to each job: keys, listeners, collectors, names in leases.
    pub(super) with_jobs: Held,
}

impl State {
    /// An empty state. `seed` protects the hash tables against crafted keys and does not affect any output.
    pub(super) fn new(limits: Limits, seed: u64) -> Self {
        let beside = Held::default();
        let names = Held::default();
        let with_jobs = Held::default();
        Self {
            limits,
            now: Timestamp(0),
            skew_ms: 0,
            jobs: Jobs::new(seed, &with_jobs),
            residency: Residency::default(),
            queues: Queues::new(seed, names.clone(), with_jobs.clone()),
            kinds: Kinds::new(seed, &names),
            clients: Clients::new(seed, beside.clone()),
            workers: Workers::new(seed, beside.clone()),
            watchers: Watchers::new(beside.clone()),
            schedules: Schedules::default(),
            batches: Batches::default(),
            timers: Timers::default(),
            meta: Meta::new(),
            succession: None,
            deferred: Deferred::new(&beside),
            starved: Starved::default(),
            days: Days::new(),
            work: Work::default(),
            keeps_history: false,
            reader: None,
            beginning: Beginning::default(),
            followers: Followers::default(),
            dead_dropped: DeadDropped::default(),
            on_dead: None,
            caused: Vec::new(),
            unreadable: BTreeSet::new(),
            beside,
            names,
            with_jobs,
        }
    }

    /// The wall clock's time.
    pub(super) const fn wall(&self) -> Timestamp {
        self.now.shifted(self.skew_ms)
    }

    /// Returns true if a worker may have the job since a previous engine, and has not claimed it
    /// yet.
    pub(super) fn may_run_since_before(&self, job: JobId) -> bool {
        self.deferred.is_held(self.now)
            && self
                .succession
                .as_ref()
                .is_some_and(|it| it.may_be_of_before(job))
    }

    /// Allows another client to restore a removed job.
    pub(super) fn may_return(&mut self, job: JobId) {
        if let Some(succession) = &mut self.succession {
            succession.may_return(job);
        }
    }

    /// Removes the blocked requests and unresolved claims of a client.
    pub(super) fn forget_waiting(&mut self, client: ClientId) {
        self.deferred.forget(client);
        if let Some(succession) = &mut self.succession {
            succession.forget(client);
        }
    }

    /// Returns true if the context has a later time than the engine, or different clocks.
    pub(super) fn is_behind(&self, context: &Context) -> bool {
        let clock = &context.clock;
        context.now > self.now
            || clock.skew_ms != self.skew_ms
            || clock.differs(&self.meta.kept().clock)
    }

    /// Bytes counted for jobs, schedules and batches.
    pub(super) const fn bytes(&self) -> u64 {
        self.jobs.bytes() + self.schedules.bytes() + self.batches.bytes()
    }

    /// Bytes in memory of jobs, schedules and batches, and of the parts that are counted
    /// separately.
    pub(super) fn resident_bytes(&self) -> u64 {
        let counted = self.jobs.resident_bytes() + self.schedules.bytes() + self.batches.bytes();
        counted + self.beside.bytes() + self.names.bytes() + self.with_jobs.bytes()
    }

    /// The limit for clients, or for names: together they may use up to a half of the memory while jobs leave
    /// space, and each has a reserved part, so that workers can connect to drain a memory that is full of
    /// jobs.
    fn held_max(&self, own: &Held) -> u64 {
        let max = self.limits.memory_max;
        let together = self.beside.bytes() + self.names.bytes();
        let left = max.saturating_sub(self.resident_bytes() - together);
        let others = together - own.bytes();
        left.min(max / BESIDE_PART)
            .saturating_sub(others)
            .max(max / BESIDE_LEAST_PART)
    }

    /// Checks that clients may use `bytes` more.
    ///
    /// # Errors
    ///
    /// The memory of clients would exceed the limit.
    pub(super) fn check_beside(&self, bytes: u64) -> Outcome {
        let held = self.beside.bytes();
        let limit = self.held_max(&self.beside);
        if held.saturating_add(bytes) > limit {
            Err(Capacity::JobBytes.exceeded(held, limit))
        } else {
            Ok(())
        }
    }

    /// The same for the names of a client, which are checked only if they are large.
    pub(super) fn check_large(&self, bytes: u64) -> Outcome {
        if bytes > SMALL_BYTES {
            self.check_beside(bytes)
        } else {
            Ok(())
        }
    }

    /// The queue with this name in a namespace, which is created (not yet listed) for a protocol if it does not
    /// exist.
    pub(super) fn find_or_make(
        &mut self,
        namespace: Namespace,
        name: &Bytes,
        kind: QueueKind,
        maker: Option<Protocol>,
    ) -> Outcome<QueueId> {
        match self.queues.find(namespace, name, kind)? {
            Some(id) => Ok(id),
            None => self.make_queue(namespace, name, kind, maker),
        }
    }

    /// The namespace of the names in a client's commands.
    #[inline]
    pub(super) fn home(&self, client: ClientId) -> Namespace {
        if self.queues.namespaces().is_empty() {
            Namespace::UNNAMED
        } else {
            self.clients.namespace_of(client)
        }
    }

    #[cold]
    #[inline(never)]
    fn make_queue(
        &mut self,
        namespace: Namespace,
        name: &Bytes,
        kind: QueueKind,
        maker: Option<Protocol>,
    ) -> Outcome<QueueId> {
        let bytes_max = self.held_max(&self.names);
        let limit = self.limits.queues_max;
        self.queues
            .make(namespace, name, kind, maker, limit, bytes_max)
    }

    /// The waits of clients.
    pub(super) const fn waiters(&mut self) -> Waiters<'_> {
        Waiters::new(
            &mut self.clients,
            &self.workers,
            &mut self.queues,
            &mut self.timers,
        )
    }

    /// Returns true if a client, or the worker with the name given in the take, is quiet.
    pub(super) fn is_quiet(&self, client: ClientId, worker: &[u8]) -> bool {
        self.workers.may_be_quiet()
            && self
                .workers
                .is_quiet(client, self.clients.get(client), worker)
    }

    /// The number of rows of a page for which a client requested `limit`.
    pub(super) fn page(&self, limit: u32) -> usize {
        limit.clamp(1, self.limits.page_max.max(1)) as usize
    }

    pub(super) fn check_name(&self, name: &[u8]) -> Outcome {
        let limit = self.limits.name_bytes_max;
        let given = u32::try_from(name.len()).unwrap_or(u32::MAX);
        if given > limit {
            Err(Capacity::NameBytes.exceeded(given, limit))
        } else {
            Ok(())
        }
    }
}

/// Dead jobs dropped before the end of retention, since the engine was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadDropped {
    /// Because the dead-letter queue was full.
    pub full: u64,
    /// Because all jobs together had reached the limit of number or bytes.
    pub made_way: u64,
}

impl DeadDropped {
    /// Both together.
    pub const fn total(self) -> u64 {
        self.full + self.made_way
    }
}

/// Copies a name into separate memory. Otherwise a job would keep the complete read buffer of the command
/// allocated.
pub(super) fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
