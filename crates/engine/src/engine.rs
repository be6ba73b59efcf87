//! The engine's state, and the dispatch of commands.
//!
//! One `match` maps each command to its method. Each method is in the file named after its topic.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::alarm::{Alarms, Sets};
use crate::batch::{Batch, Batches};
use crate::client::{Client, Worker};
use crate::clock::Clock;
use crate::command::Command;
use crate::context::{Change, Context};
use crate::dead::DeadDropped;
use crate::event::Reply;
use crate::figures::Census;
use crate::ids::{ClientId, JobId, Protocol, QueueId, Tag, Timestamp};
use crate::job::Job;
use crate::limits::Limits;
use crate::query::Totals;
use crate::queue::{Queue, QueueImage, Queues};
use crate::refusal::Refusal;
use crate::request::WorkerState;
use crate::schedule::{Schedule, ScheduleRef, Schedules};
use crate::table::Jobs;
use crate::unclaimed::Unclaimed;

/// Job numbers are reserved in the journal in blocks of this size. After a crash, numbering continues after the block.
pub(crate) const ID_BLOCK: u64 = 1 << 16;

/// Sort keys start in the middle: jobs put to the front count down from here, others up.
pub(crate) const RANK_MIDDLE: u64 = 1 << 62;

/// The queue engine.
#[derive(Debug)]
pub struct Engine {
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    /// The wall clock minus `now`.
    pub(crate) skew_ms: i64,
    pub(crate) jobs: Jobs,
    pub(crate) queues: Queues,
    pub(crate) schedules: Schedules,
    pub(crate) batches: Batches,
    /// Batches that may have progressed, to advance at the end of the visit.
    pub(crate) stirred: VecDeque<JobId>,
    /// Throttled queues with newly free slots, to serve at the end of the visit.
    pub(crate) freed: VecDeque<QueueId>,
    pub(crate) unclaimed: Unclaimed,
    pub(crate) clients: HashMap<ClientId, Client, FixedState>,
    /// The keys of `clients`, in order.
    pub(crate) client_ids: BTreeSet<ClientId>,
    pub(crate) workers: BTreeMap<u64, Worker>,
    pub(crate) worker_names: HashMap<Box<[u8]>, u64, FixedState>,
    pub(crate) alarms: Alarms,
    pub(crate) sets: Sets,
    /// Woken clients, with the time by which they must request work. In order of that time, because all get the same period.
    pub(crate) awake: VecDeque<(Timestamp, ClientId, u64)>,
    /// Removed queues whose removal is not yet in the context's changes.
    pub(crate) dropped: Vec<QueueId>,
    pub(crate) dropped_dead: DeadDropped,
    pub(crate) head: Head,
    pub(crate) census: Census,
    /// See [`Engine::work`].
    pub(crate) work: Cell<u64>,
    pub(crate) next_worker: u64,
    pub(crate) next_wait: u64,
    pub(crate) rank_back: u64,
    pub(crate) rank_front: u64,
    #[cfg(debug_assertions)]
    pub(crate) checks: crate::check::Pace,
}

/// The engine's own values in the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The next job's number.
    pub next_job: u64,
    /// Jobs that the journal does not keep may use numbers below this one.
    pub reserved: u64,
    /// How many times a daemon has opened this journal. It distinguishes the tokens of `cycle` queues between runs, because
    /// tokens are sent before they are journalled.
    pub starts: u64,
    /// How the engine's time relates to other clocks.
    pub clock: Clock,
    /// The counters of all protocols together.
    pub totals: Totals,
    /// The counters of each protocol since its last flush, in order of protocol.
    pub protocols: Vec<(Protocol, Totals)>,
}

impl Engine {
    /// Creates an empty engine. `seed` protects the hash tables against crafted keys and does not affect any output.
    #[must_use]
    pub fn new(limits: Limits, seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            limits,
            now: Timestamp(0),
            skew_ms: 0,
            jobs: Jobs::new(seed),
            queues: Queues::new(seed),
            schedules: Schedules::default(),
            batches: Batches::default(),
            stirred: VecDeque::new(),
            freed: VecDeque::new(),
            unclaimed: Unclaimed::default(),
            clients: HashMap::with_hasher(hasher.clone()),
            client_ids: BTreeSet::new(),
            workers: BTreeMap::new(),
            worker_names: HashMap::with_hasher(hasher.clone()),
            alarms: Alarms::default(),
            sets: Sets::default(),
            awake: VecDeque::new(),
            dropped: Vec::new(),
            dropped_dead: DeadDropped::default(),
            head: Head { next_job: 1, reserved: 1, ..Head::default() },
            census: Census::default(),
            work: Cell::new(0),
            next_worker: 1,
            next_wait: 1,
            rank_back: RANK_MIDDLE,
            rank_front: RANK_MIDDLE - 1,
            #[cfg(debug_assertions)]
            checks: crate::check::Pace::default(),
        }
    }

    /// Does all due work, then the client's command. The direct answer repeats `tag`.
    pub fn apply(&mut self, client: ClientId, tag: Tag, command: impl Into<Command>, context: &mut Context) {
        self.apply_command(client, tag, command.into(), context);
    }

    fn apply_command(&mut self, client: ClientId, tag: Tag, command: Command, context: &mut Context) {
        self.spend_command();
        self.catch_up(context);
        if let Err(why) = self.dispatch(client, tag, command, context) {
            context.reply(client, tag, Reply::Refused(why));
        }
        self.settle(context);
        self.tell_dropped(context);
        self.check_now_and_then();
    }

    /// Does all work due at `context.now`. Call it at [`Engine::next_deadline`]. Optional, because `apply` does the same.
    pub fn tick(&mut self, context: &mut Context) {
        self.catch_up(context);
        self.check_now_and_then();
    }

    // ---- what can be read ------------------------------------------------------------------------------------------

    /// The next time at which work is due (engine's time), if any. A change of the wall clock may move it.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let set = self.sets.next(self.skew_ms).map(|(at, _)| at);
        let awake = self.awake.front().map(|(at, ..)| *at);
        let schedule = self.schedules.next(self.skew_ms).map(|(at, _)| at);
        let batch = self.batches.next().map(|(at, _)| at);
        let dead = self.has_dead_to_drop().then_some(self.now);
        let alarm = self.alarms.next(self.skew_ms).map(|(at, _)| at);
        [alarm, set, awake, schedule, batch, dead].into_iter().flatten().min()
    }

    /// A job by its number, in any state.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.at(self.jobs.slot(id)?)
    }

    /// A job by its producer's public name: the one leased first, else the oldest that is neither dead nor done, else
    /// the youngest.
    #[must_use]
    pub fn job_named(&self, name: &[u8]) -> Option<&Job> {
        self.jobs.at(self.jobs.named(name)?)
    }

    /// All jobs, in arbitrary order.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.slots_from(0).map(|(_, job)| job)
    }

    /// The number of jobs in all states.
    #[must_use]
    pub fn job_count(&self) -> usize {
        self.jobs.len()
    }

    /// A queue by its number.
    #[must_use]
    pub fn queue(&self, id: QueueId) -> Option<&Queue> {
        self.queues.at(id)
    }

    /// All queues, by number.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter()
    }

    /// The queues with a throttle or rules, by number.
    pub fn special_queues(&self) -> impl Iterator<Item = &Queue> {
        self.queues.special()
    }

    /// A schedule by its number.
    #[must_use]
    pub fn schedule(&self, id: JobId) -> Option<&Schedule> {
        self.schedules.at(id)
    }

    /// All schedules, by number.
    pub fn schedules(&self) -> impl Iterator<Item = &Schedule> {
        self.schedules.from(JobId(0))
    }

    /// A batch by its number.
    #[must_use]
    pub fn batch(&self, id: JobId) -> Option<&Batch> {
        self.batches.at(id)
    }

    /// All batches, by number.
    pub fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.batches.from(JobId(0))
    }

    /// The engine's own values for the journal.
    #[must_use]
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// Whether no connection holds a job or listens to one, so that stopping interrupts no work. Jobs that wait do not count.
    /// Time-bound leases outlive the daemon, and jobs that are not durable have listeners.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.clients.values().all(|client| client.held.is_empty() && client.hears.is_empty())
    }

    /// The requested state of a named worker.
    #[must_use]
    pub fn worker_state(&self, name: &[u8]) -> Option<WorkerState> {
        self.workers.get(self.worker_names.get(name)?).map(|worker| worker.state)
    }

    // ---- recovery: head, queues, batches by number, jobs and schedules, `wake_up` ----------------------------------

    /// Restores the journal's head. `clean` means that the daemon stopped in order, so the journal has every job number in use.
    pub fn recall_head(&mut self, head: Head, clean: bool) {
        let next_job = if clean { head.next_job } else { head.next_job.max(head.reserved) };
        self.skew_ms = head.clock.skew_ms;
        self.head = Head { next_job, reserved: next_job, starts: head.starts.saturating_add(1), ..head };
    }

    /// Restores a queue from the journal.
    pub fn recall_queue(&mut self, image: QueueImage) {
        self.queues.recall(image);
    }

    /// Restores a job from the journal. Its queue must already be restored and its number unused; returns whether both hold. The
    /// journal does not keep connection-bound leases: such a job is ready.
    pub fn recall_job(&mut self, job: Job) -> bool {
        if self.queues.at(job.queue).is_none() || self.is_used(job.id) {
            return false;
        }
        self.recall_number(job.id);
        self.rank_back = self.rank_back.max(job.rank + 1);
        self.rank_front = self.rank_front.min(job.rank.saturating_sub(1));
        self.settle_recalled(job);
        true
    }

    /// Restores a schedule from the journal. Returns `false` if its number or its name is already used.
    pub fn recall_schedule(&mut self, schedule: Schedule) -> bool {
        let named = schedule.key.as_ref().and_then(|key| {
            self.schedules.find(&ScheduleRef::Key { protocol: schedule.job.protocol, key: key.clone() })
        });
        if self.is_used(schedule.id) || named.is_some() {
            return false;
        }
        self.recall_number(schedule.id);
        self.schedules.put(schedule);
        true
    }

    /// Restores a batch from the journal. Returns `false` if its number or its name is already used.
    pub fn recall_batch(&mut self, batch: Batch) -> bool {
        if self.is_used(batch.id) || self.batches.named(&batch.name).is_some() {
            return false;
        }
        self.recall_number(batch.id);
        self.batches.insert(batch);
        true
    }

    fn is_used(&self, id: JobId) -> bool {
        self.jobs.slot(id).is_some() || self.schedules.at(id).is_some() || self.batches.at(id).is_some()
    }

    fn recall_number(&mut self, id: JobId) {
        self.head.next_job = self.head.next_job.max(id.0 + 1);
        self.head.reserved = self.head.reserved.max(self.head.next_job);
    }

    /// Bytes counted for jobs, schedules and batches.
    pub(crate) fn bytes(&self) -> u64 {
        self.jobs.bytes() + self.schedules.bytes() + self.batches.bytes()
    }

    /// The last step of recovery: drops unused queues and sets the timers of batches.
    pub fn wake_up(&mut self) {
        let unknown: Vec<QueueId> =
            self.queues.iter().filter(|queue| !queue.image.known).map(|queue| queue.image.id).collect();
        unknown.into_iter().for_each(|queue| self.drop_if_unknown(queue));
        self.stirred.clear();
        let batches: Vec<JobId> = self.batches().map(|batch| batch.id).collect();
        // The youngest first: a batch may be part of an older one.
        for id in batches.into_iter().rev() {
            self.batches.set_due(id, self.limits.batch_keep_ms, None);
        }
        self.check_now_and_then();
    }

    /// Called before an orderly stop: releases the reserved job numbers and records the time in the head.
    pub fn settle_head(&mut self) {
        self.head.reserved = self.head.next_job;
        if self.head.clock != Clock::default() {
            self.head.clock.at = self.now;
        }
    }

    /// Copies a name into its own memory. Otherwise a job would keep the whole read buffer of its command alive.
    pub(crate) fn own(bytes: &Bytes) -> Bytes {
        Bytes::copy_from_slice(bytes)
    }

    pub(crate) fn new_job_id(&mut self, context: &mut Context) -> JobId {
        let id = self.head.next_job;
        self.head.next_job += 1;
        if self.head.next_job > self.head.reserved {
            self.head.reserved = self.head.next_job + ID_BLOCK;
            context.remember(Change::Head);
        }
        JobId(id)
    }

    pub(crate) const fn rank(&mut self, front: bool) -> u64 {
        if front {
            self.rank_front -= 1;
            self.rank_front + 1
        } else {
            self.rank_back += 1;
            self.rank_back - 1
        }
    }

    pub(crate) const fn wait_seq(&mut self) -> u64 {
        self.next_wait += 1;
        self.next_wait - 1
    }

    pub(crate) fn client(&mut self, client: ClientId) -> Result<&mut Client, Refusal> {
        self.clients.get_mut(&client).ok_or(Refusal::OutOfPlace)
    }
}
