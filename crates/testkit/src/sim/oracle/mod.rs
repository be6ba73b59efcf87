//! The oracle: the engine's rules implemented in the most obvious, slow way, with plain lists searched from end to end.
//!
//! It computes the answer to every command, event by event, and the state afterwards. It shares the engine's vocabulary and
//! none of its code. Its rules are in the documentation of [`windlass_engine::Command`], `Event` and `Job`.

mod ask;
mod batch;
mod clients;
mod clocks;
mod coalesce;
mod collect;
mod compare;
mod dead;
mod dice;
mod end;
mod find;
mod history;
mod memo;
mod outside;
mod progress;
mod push;
mod recur;
mod rules;
mod serve;
mod take;
mod throttle;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use windlass_engine::{
    Bridge, Capacity, ClientId, Clock, Command, Cursor, Event, Expiry, JobId, JobState, Limits,
    NewJob, Notice, Patterns, Protocol, Protocols, QueueId, QueueKind, QueueRules, QueueSettings,
    Refusal, Reply, Schedule, Tag, Timestamp, Totals,
};

pub(crate) use batch::BatchMemo;
pub(crate) use compare::same_events;
pub(crate) use memo::{ClientMemo, JobMemo, QueueMemo, Waiting, id_of, plain};
use memo::{Wakeup, WorkerMemo};

/// What a command answers, if anything.
type Answer = Result<Option<Reply>, Refusal>;
type Checked = Result<(), Refusal>;

/// The oracle's ranks start here, as far from 0 as from the end.
const MIDDLE: u64 = 1 << 62;

/// The oracle's state.
#[derive(Debug)]
pub(crate) struct Oracle {
    /// The queues that all protocols share.
    bridge: Bridge,
    /// Rules of queues without rules of their own, and policies.
    patterns: Patterns<QueueSettings>,
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    /// The clocks at the last detected change of one of them.
    clock: Clock,
    /// In order of creation.
    pub(crate) jobs: Vec<JobMemo>,
    pub(crate) queues: Vec<QueueMemo>,
    /// In order of their numbers.
    pub(crate) schedules: Vec<Schedule>,
    /// In order of their numbers, forgotten ones included.
    pub(crate) batches: Vec<BatchMemo>,
    /// Batches that may have advanced.
    stirred: VecDeque<JobId>,
    /// Reports of deaths in this visit.
    reports: Vec<NewJob>,
    /// Throttled queues in which a lease has ceased to count.
    freed: VecDeque<QueueId>,
    next_queue: u32,
    /// In order of their numbers.
    pub(crate) clients: Vec<ClientMemo>,
    /// In order of their numbers.
    pub(crate) workers: Vec<WorkerMemo>,
    /// The uses of queues so far, and those before this command.
    uses: (u64, u64),
    /// Workers that had reservations before a restart.
    returning: BTreeSet<Box<[u8]>>,
    /// The daemon has recovered, and does not have the time yet.
    begins: bool,
    /// In the order in which they were woken.
    awake: Vec<Wakeup>,
    pub(crate) totals: Totals,
    /// What was counted on each day, in the order in which the days began.
    pub(crate) days: Vec<(u64, Totals)>,
    /// By protocol, since its last flush.
    pub(crate) protocols: BTreeMap<Protocol, Totals>,
    pub(crate) next_job: u64,
    /// Lower numbers are from before the last restart, and when the daemon began by the wall clock.
    first_new: u64,
    began: Timestamp,
    /// The number of restarts.
    pub(crate) boot_count: u64,
    next_worker: u64,
    /// Ranks: behind all others, counting up; before all others, counting down.
    back: u64,
    front: u64,
    /// Numbers waits in their order.
    waits: u64,
    /// The time and the clocks of this turn.
    turn: (Timestamp, Clock),
    /// Until when the engine lets jobs wait that failed, or whose workers were lost. It rolls dice for that.
    chosen: BTreeMap<JobId, dice::Chosen>,
    /// Parts of jobs that ended with the daemon before.
    left_alone: Vec<JobId>,
    said: Vec<(ClientId, Event)>,
    /// Counts of cases that no command or event shows by its name.
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

/// Due events: in this order among those of the same millisecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    JobState(JobId),
    Lease(JobId),
    Expiry(JobId),
    Age(JobId),
    Key(JobId),
    Wait(ClientId),
    Beat(u64),
    /// By the engine's number of the queue.
    Slots(QueueId),
    Awake(u64),
    Run(JobId),
    Batch(JobId),
}

impl Oracle {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            bridge: Bridge::default(),
            patterns: Patterns::default(),
            now: Timestamp(0),
            clock: Clock::default(),
            jobs: Vec::new(),
            queues: Vec::new(),
            schedules: Vec::new(),
            batches: Vec::new(),
            reports: Vec::new(),
            stirred: VecDeque::new(),
            freed: VecDeque::new(),
            next_queue: 0,
            clients: Vec::new(),
            workers: Vec::new(),
            uses: (0, 0),
            returning: BTreeSet::new(),
            begins: false,
            awake: Vec::new(),
            totals: Totals::default(),
            days: vec![(0, Totals::default())],
            protocols: BTreeMap::new(),
            next_job: 1,
            first_new: 0,
            began: Timestamp(0),
            boot_count: 0,
            next_worker: 1,
            back: MIDDLE,
            front: MIDDLE,
            waits: 0,
            turn: (Timestamp(0), Clock::default()),
            chosen: BTreeMap::new(),
            left_alone: Vec::new(),
            said: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Begins a turn.
    pub(crate) const fn begin(&mut self, now: Timestamp, clock: Clock) {
        self.turn = (now, clock);
    }

    /// The events that must follow this command, including those due before it.
    pub(crate) fn apply(
        &mut self,
        client: ClientId,
        tag: Tag,
        command: &Command,
    ) -> Vec<(ClientId, Event)> {
        self.tick();
        self.begin_command();
        let answer = self.ask(client, tag, command);
        match answer.clone() {
            Ok(Some(reply)) if tag.wants_answer() || !is_acknowledgement(&reply) => {
                self.reply(client, tag, reply)
            }
            Ok(_) => {}
            Err(why) => self.reply(client, tag, Reply::Refused(why)),
        }
        self.tell_end_again(client, command, &answer);
        self.settle();
        self.forget_idle_queues();
        std::mem::take(&mut self.said)
    }

    /// The events that must follow when only time has passed.
    pub(crate) fn wait(&mut self) -> Vec<(ClientId, Event)> {
        self.tick();
        std::mem::take(&mut self.said)
    }

    /// The events that must follow when these jobs, found by a listing that continues at `next`, are changed in this
    /// order.
    pub(crate) fn mutate(
        &mut self,
        client: ClientId,
        page: &[JobId],
        action: windlass_engine::Mutation,
        next: Option<Cursor>,
    ) -> Vec<(ClientId, Event)> {
        self.begin_command();
        let mut changed = 0;
        for id in page {
            changed += usize::from(self.mutate_one(*id, action, changed));
        }
        self.end_page(client, changed, next)
    }

    /// What has used a queue until now does not keep its name for this command, or for what is due.
    const fn begin_command(&mut self) {
        self.uses.1 = self.uses.0;
    }

    /// The events that must follow when these dead jobs, found by a listing that continues at `next`, move to this queue.
    pub(crate) fn redrive(
        &mut self,
        client: ClientId,
        page: &[JobId],
        (to, delay_ms, per_second): (&Bytes, u64, u32),
        next: Option<Cursor>,
    ) -> Vec<(ClientId, Event)> {
        self.begin_command();
        let mut changed = 0;
        match self
            .check_name(to)
            .and_then(|()| self.find_or_make_queue(to, QueueKind::Work))
        {
            Err(why) => self.reply(client, Tag(2), Reply::Refused(why)),
            Ok(queue) => {
                for id in page {
                    let at = self
                        .now
                        .after_ms(delay_ms + changed as u64 * 1_000 / u64::from(per_second));
                    changed += usize::from(self.move_dead(*id, (queue, at)));
                }
                return self.end_page(client, changed, next);
            }
        }
        self.settle();
        self.forget_idle_queues();
        std::mem::take(&mut self.said)
    }

    /// A page of a bulk change has changed this many.
    fn end_page(
        &mut self,
        client: ClientId,
        changed: usize,
        next: Option<Cursor>,
    ) -> Vec<(ClientId, Event)> {
        let changed = u32::try_from(changed).unwrap_or(u32::MAX);
        self.reply(client, Tag(2), Reply::Mutated { changed, next });
        self.settle();
        self.forget_idle_queues();
        std::mem::take(&mut self.said)
    }

    // ---- time ------------------------------------------------------------------------------------------------------

    /// The next deadline, if there is one.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.next_due().map(|(at, _)| at)
    }

    fn tick(&mut self) {
        self.now = self.now.max(self.turn.0);
        self.look_at_clocks();
        self.look_at_day();
        self.await_workers();
        self.await_return();
        while let Some((at, due)) = self.next_due().filter(|(at, _)| *at <= self.now) {
            self.begin_command();
            match due {
                Due::JobState(id) => self.place_due(id),
                Due::Lease(id) => self.lease_due(id),
                Due::Expiry(id) | Due::Age(id) => self.expire(id),
                Due::Key(id) => self.job_mut(id).holds_key = false,
                Due::Wait(client) => self.give_up_waiting(client),
                Due::Beat(worker) => self.miss_beat(worker),
                Due::Slots(queue) => self.slots_due(queue, at),
                Due::Awake(since) => self.oversleep(since),
                Due::Run(id) => self.run(id),
                Due::Batch(id) => self.batch_due(id),
            }
            self.settle();
        }
        self.drop_dead();
        self.forget_idle_queues();
    }

    fn next_due(&self) -> Option<(Timestamp, Due)> {
        let jobs = self.jobs.iter().flat_map(|memo| {
            let id = id_of(memo);
            let state = match memo.job.state {
                JobState::Scheduled(at) => (self.by_engine(at), Due::JobState(id)),
                JobState::Retrying(at) | JobState::Dead(at) | JobState::Done(at) => {
                    (at, Due::JobState(id))
                }
                JobState::Leased(_) => (memo.lease_due, Due::Lease(id)),
                JobState::Ready | JobState::Parked => (Timestamp::NEVER, Due::JobState(id)),
            };
            let key_limit = if memo.holds_key {
                memo.key_limit()
            } else {
                Timestamp::NEVER
            };
            let expiry = match memo.expires() {
                Expiry::At(at) => (self.by_engine(at), Due::Expiry(id)),
                Expiry::By(at) => (at, Due::Age(id)),
                Expiry::Never => (Timestamp::NEVER, Due::Age(id)),
            };
            [state, expiry, (key_limit, Due::Key(id))]
        });
        let waits = self
            .clients
            .iter()
            .flat_map(|c| c.blocked().iter().map(|take| (take.until, Due::Wait(c.id))));
        let beats = self
            .workers
            .iter()
            .map(|w| (w.beat_at.after_ms(self.limits.beat_ms), Due::Beat(w.number)));
        let not_come = |wakeup: &&Wakeup| {
            self.client(wakeup.client).is_some_and(
                |c| matches!(c.waiting, Waiting::Awake { since, .. } if since == wakeup.since),
            )
        };
        let awake = self
            .awake
            .iter()
            .filter(not_come)
            .map(|wakeup| (wakeup.until, Due::Awake(wakeup.since)));
        let runs = self
            .schedules
            .iter()
            .map(|schedule| (self.run_due(schedule), Due::Run(schedule.id)));
        let batches = self
            .batches
            .iter()
            .map(|batch| (self.batch_deadline(batch), Due::Batch(batch.id)));
        let slots = self
            .jobs
            .iter()
            .filter(|memo| memo.has_slot)
            .filter_map(|memo| self.slot_due(memo));
        let clients = waits.chain(beats).chain(awake).chain(slots);
        jobs.chain(clients)
            .chain(runs)
            .chain(batches)
            .filter(|(at, _)| *at < Timestamp::NEVER)
            .min()
    }

    fn reply(&mut self, client: ClientId, tag: Tag, reply: Reply) {
        self.said.push((client, Event::Reply(tag, reply)));
    }

    fn notify(&mut self, client: ClientId, notice: Notice) {
        self.said.push((client, Event::Notice(notice)));
    }

    pub(crate) fn see(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// Counts an event of a job.
    fn count_total(&mut self, id: JobId, add: impl Fn(&mut Totals)) {
        let protocol = self.job_mut(id).job.protocol;
        self.count_protocol(Some(protocol), add);
    }

    fn count_protocol(&mut self, protocol: Option<Protocol>, add: impl Fn(&mut Totals)) {
        add(&mut self.totals);
        add(&mut self.days.last_mut().expect("a day has begun").1);
        if let Some(protocol) = protocol {
            add(self.protocols.entry(protocol).or_default());
        }
    }

    fn check_name(&self, name: &[u8]) -> Checked {
        let limit = self.limits.name_bytes_max;
        let given = u32::try_from(name.len()).unwrap_or(u32::MAX);
        if given > limit {
            Err(Capacity::NameBytes.exceeded(given, limit))
        } else {
            Ok(())
        }
    }

    fn find_or_make_queue(&mut self, name: &Bytes, kind: QueueKind) -> Result<QueueId, Refusal> {
        if let Some(queue) = self.queue_named(name) {
            let (is_kind, number) = (queue.kind == kind, queue.number);
            if !is_kind {
                return Err(Refusal::WrongKind);
            }
            self.use_queue(number);
            return Ok(number);
        }
        let limit = self.limits.queues_max;
        if self.queues.len() >= limit as usize && !self.forget_unused() {
            return Err(Capacity::Queues.exceeded(limit, limit));
        }
        let number = QueueId(self.next_queue);
        self.next_queue += 1;
        self.queues.push(QueueMemo {
            number,
            id: None,
            used: 0,
            name: name.clone(),
            kind,
            known: Protocols::NONE,
            paused: Protocols::NONE,
            paused_at: None,
            jobs_max: [None; 9],
            jobs_max_of: None,
            throttle: None,
            rules: QueueRules::default(),
            bridged: kind == QueueKind::Work && self.bridge.includes(name),
            serial: 1,
        });
        self.use_queue(number);
        Ok(number)
    }

    fn use_queue(&mut self, number: QueueId) {
        self.uses.0 += 1;
        self.queue_mut(number).used = self.uses.0;
    }

    /// The queue unused for longest gives its name away, if nothing but its name keeps it.
    fn forget_unused(&mut self) -> bool {
        let is_free = |queue: &&QueueMemo| {
            let is_plain = queue.paused == Protocols::NONE && queue.jobs_max == [None; 9];
            is_plain
                && queue.kind == QueueKind::Work
                && queue.used <= self.uses.1
                && !self.is_needed(queue)
        };
        let unused = self
            .queues
            .iter()
            .filter(is_free)
            .min_by_key(|queue| (queue.used, queue.id));
        let Some(number) = unused.map(|queue| queue.number) else {
            return false;
        };
        self.see("Queue::GivesWay");
        self.queues.retain(|queue| queue.number != number);
        true
    }

    /// A queue that was not created explicitly exists only as long as its name is needed.
    fn forget_idle_queues(&mut self) {
        let needed = |queue: &QueueMemo| queue.known != Protocols::NONE || self.is_needed(queue);
        let kept = self
            .queues
            .iter()
            .filter(|queue| needed(queue))
            .cloned()
            .collect();
        self.queues = kept;
    }

    /// Whether more than its name keeps a queue.
    fn is_needed(&self, queue: &QueueMemo) -> bool {
        queue.throttle.is_some()
            || queue.rules != QueueRules::default()
            || self.jobs.iter().any(|memo| memo.job.queue == queue.number)
            || self
                .clients
                .iter()
                .any(|client| client.subscriptions.iter().any(|s| s.queue == queue.number))
            || self.clients.iter().any(|client| match &client.waiting {
                Waiting::Jobs(takes) => takes
                    .iter()
                    .any(|take| take.from.iter().any(|served| served.queue == queue.number)),
                Waiting::Awake {
                    queue: woken_for, ..
                } => *woken_for == queue.number,
                Waiting::Nothing | Waiting::Asleep { .. } => false,
            })
    }

    /// Puts a job in a place; it releases a key that jobs in that place do not hold.
    fn put(&mut self, id: JobId, state: JobState) {
        self.leave_slot(id);
        let now = self.wall();
        let memo = self.job_mut(id);
        memo.job.state = state;
        if memo.connection().is_none() {
            memo.touch(now);
        }
        memo.lease_due = memo
            .job
            .lease()
            .map_or(Timestamp::NEVER, |lease| lease.until);
        memo.lease_worker = None;
        memo.holds_key &= memo.wants_key();
        let (queue, ahead) = (memo.job.queue, memo.ahead());
        let ends = matches!(memo.job.state, JobState::Dead(_) | JobState::Done(_));
        self.use_queue(queue);
        self.enter_slot(id);
        if ends {
            self.is_over(id, ahead);
        }
    }

    fn remove(&mut self, id: JobId) {
        self.leave_slot(id);
        self.ran(id);
        let memo = self.job_mut(id);
        let (ahead, ended) = (
            memo.ahead(),
            matches!(memo.job.state, JobState::Dead(_) | JobState::Done(_)),
        );
        self.jobs.retain(|memo| memo.job.id != id);
        // A job that has ended let others go then.
        if !ended {
            self.is_over(id, ahead);
        }
    }

    const fn rank(&mut self, front: bool) -> u64 {
        if front {
            self.front -= 1;
            return self.front;
        }
        self.back += 1;
        self.back
    }

    const fn next_wait(&mut self) -> u64 {
        self.waits += 1;
        self.waits
    }
}

/// Whether a reply only acknowledges the command. A client can do without it.
const fn is_acknowledgement(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Done
            | Reply::Pushed { .. }
            | Reply::Finished(_)
            | Reply::Failed { .. }
            | Reply::ScheduleSet { .. }
    )
}
