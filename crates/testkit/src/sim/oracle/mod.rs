//! The oracle: the engine's rules implemented in the most obvious, slow way, with plain lists searched from end to end.
//!
//! It computes the answer to every command, event by event, and the state afterwards. It shares the engine's vocabulary
//! (commands, events, jobs) and none of its code. Its rules are those in the documentation of [`windlass_engine::Command`],
//! [`windlass_engine::Event`] and [`windlass_engine::Job`].
//!
//! Where a law decides better than a copy of a rule, the oracle predicts nothing: it follows what the engine did, as far as the
//! law permits it at that moment. So it is with the clients that are served (`serving`), with callbacks and the end of batches
//! (`batches`), with the times of retries (bounds), and with everything that queries show (`views`).

mod batch;
mod clients;
mod clocks;
mod compare;
mod dead;
mod end;
mod find;
mod memo;
mod outside;
mod push;
mod recur;
mod rules;
mod serve;
mod take;
mod throttle;
mod workers;

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_engine::{
    Batch, BatchCommand, Bridge, BulkCommand, Capacity, ClientCommand, ClientId, Clock, Command, Cursor, Event,
    JobCommand, JobId, JobState, LeaseCommand, Limits, Member, Notice, Protocol, Protocols, QueueCommand, QueueId,
    QueueKind, QueueRules, Refusal, Reply, Role, Schedule, ScheduleCommand, Tag, TakeCommand, Timestamp, Totals,
    WorkerCommand,
};

pub(crate) use batch::{BatchMemo, Share};
pub(crate) use compare::same_events;
use memo::WorkerMemo;
pub(crate) use memo::{ClientMemo, JobMemo, QueueMemo, Served, Waiting, id_of, plain};
pub(crate) use serve::Hand;

type Answer = Result<(), Refusal>;

/// The oracle's ranks start here, as far from 0 as from the end.
const MIDDLE: u64 = 1 << 62;

/// The oracle's state.
#[derive(Debug)]
pub(crate) struct Oracle {
    /// The queues that all protocols share.
    bridge: Bridge,
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
    /// The engine's hand-outs and wake-ups of this step that the oracle has not followed yet.
    pending: Vec<serve::Hand>,
    /// Whether the engine did some of it before the command, perhaps.
    due: bool,
    /// The engine's batches after this step, and its jobs that are callbacks.
    ahead: Vec<Batch>,
    /// After this step, when its jobs are retried, and whether they still wait for that.
    retries: Vec<(JobId, Timestamp, bool)>,
    callbacks: Vec<(JobId, Member)>,
    /// The last reply of this step.
    answer: Option<Reply>,
    next_queue: u32,
    /// In order of their numbers.
    pub(crate) clients: Vec<ClientMemo>,
    /// In order of their numbers.
    pub(crate) workers: Vec<WorkerMemo>,
    pub(crate) totals: Totals,
    /// The day, and the totals when it began.
    day: (u64, Totals),
    /// By protocol, since its last flush.
    pub(crate) protocols: BTreeMap<Protocol, Totals>,
    pub(crate) next_job: u64,
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
    Key(JobId),
    Wait(ClientId),
    Beat(u64),
    Run(JobId),
    Batch(JobId),
}

impl Oracle {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            bridge: Bridge::default(),
            now: Timestamp(0),
            clock: Clock::default(),
            jobs: Vec::new(),
            queues: Vec::new(),
            schedules: Vec::new(),
            batches: Vec::new(),
            pending: Vec::new(),
            due: false,
            ahead: Vec::new(),
            retries: Vec::new(),
            callbacks: Vec::new(),
            answer: None,
            next_queue: 0,
            clients: Vec::new(),
            workers: Vec::new(),
            totals: Totals::default(),
            day: (0, Totals::default()),
            protocols: BTreeMap::new(),
            next_job: 1,
            boot_count: 0,
            next_worker: 1,
            back: MIDDLE,
            front: MIDDLE,
            waits: 0,
            turn: (Timestamp(0), Clock::default()),
            said: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Begins a turn.
    pub(crate) fn begin(&mut self, now: Timestamp, clock: Clock) {
        self.turn = (now, clock);
    }

    /// The events that must follow this command, including those due before it.
    pub(crate) fn apply(&mut self, client: ClientId, tag: Tag, command: &Command) -> Vec<(ClientId, Event)> {
        self.tick();
        if let Err(why) = self.ask(client, tag, command) {
            self.reply(client, tag, Reply::Refused(why));
        }
        self.settle();
        self.forget_idle_queues();
        self.finish_step()
    }

    /// The events that must follow when only time has passed.
    pub(crate) fn wait(&mut self) -> Vec<(ClientId, Event)> {
        self.tick();
        self.finish_step()
    }

    /// The events that must follow when these jobs, found by a listing that continues at `next`, are changed in this order.
    pub(crate) fn mutate(
        &mut self,
        client: ClientId,
        page: &[JobId],
        action: windlass_engine::Mutation,
        next: Option<Cursor>,
    ) -> Vec<(ClientId, Event)> {
        let changed = page.iter().filter(|id| self.mutate_one(**id, action)).count();
        let changed = u32::try_from(changed).unwrap_or(u32::MAX);
        self.reply(client, Tag(2), Reply::Mutated { changed, next });
        self.settle();
        self.forget_idle_queues();
        self.finish_step()
    }

    fn ask(&mut self, client: ClientId, tag: Tag, command: &Command) -> Answer {
        match command {
            Command::Client(ClientCommand::Open(info)) => self.open(client, info),
            Command::Client(ClientCommand::Close) => self.close(client),
            Command::Client(ClientCommand::SetName(label)) => self.label(client, label),
            Command::Client(ClientCommand::Serve(subscription)) => self.serve_queue(client, subscription),
            Command::Client(ClientCommand::Unserve { queue, requeue }) => self.unserve(client, Some(queue), *requeue),
            Command::Client(ClientCommand::UnserveAll { requeue }) => self.unserve(client, None, *requeue),
            Command::Job(JobCommand::Push(new)) => self.push(client, tag, new),
            Command::Take(TakeCommand::Take(take)) => self.take(client, tag, take),
            Command::Take(TakeCommand::WaitForWork) => self.sleep(client),
            Command::Take(TakeCommand::Credit { credits, select }) => self.credit(client, *credits, *select),
            Command::Take(TakeCommand::Unwait) => self.unwait(client),
            Command::Lease(LeaseCommand::Finish { job, proof, result }) => {
                self.finish(client, tag, (job, *proof), result)
            }
            Command::Lease(LeaseCommand::Fail { job, proof, failure }) => {
                self.fail(client, tag, (job, *proof), failure)
            }
            Command::Lease(LeaseCommand::Unconvertible { job, proof, why }) => {
                self.misfit(client, tag, (job, *proof), why)
            }
            Command::Lease(LeaseCommand::Release { job, proof, front }) => {
                self.release(client, tag, (job, *proof), *front)
            }
            Command::Lease(LeaseCommand::Extend { job, proof, until, only_later }) => {
                self.extend(client, tag, (job, *proof), *until, *only_later)
            }
            Command::Lease(LeaseCommand::Repay { job, proof, body, to }) => {
                self.repay(client, tag, (job, *proof), body, *to)
            }
            Command::Lease(LeaseCommand::Progress { job, proof, note }) => self.tell(client, tag, (job, *proof), note),
            Command::Job(JobCommand::Track { job, progress, text, until }) => {
                self.track(client, tag, job, (*progress, text.as_ref()), *until)
            }
            Command::Job(JobCommand::Replace { job, body }) => self.replace(client, tag, job, body),
            Command::Job(JobCommand::Cancel(job)) => self.cancel(client, tag, job),
            Command::Queue(QueueCommand::Create { queue, kind }) => self.create_queue(client, tag, queue, *kind),
            Command::Queue(QueueCommand::Remove { queue, only_idle }) => {
                self.remove_queue(client, tag, queue, *only_idle)
            }
            Command::Queue(QueueCommand::Pause { queue, paused }) => self.pause_queue(client, tag, queue, *paused),
            Command::Queue(QueueCommand::Limit { queue, jobs_max }) => self.limit_queue(client, tag, queue, jobs_max),
            Command::Queue(QueueCommand::Throttle { queue, throttle }) => {
                self.throttle_queue(client, tag, queue, *throttle)
            }
            Command::Queue(QueueCommand::Bridge(bridge)) => self.bridge(client, tag, bridge),
            Command::Queue(QueueCommand::SetRules { queue, rules }) => self.rule_queue(client, tag, queue, *rules),
            Command::Schedule(ScheduleCommand::Set(new)) => self.set_schedule(client, tag, new),
            Command::Schedule(ScheduleCommand::Remove(which)) => self.remove_schedule(client, tag, which),
            Command::Schedule(ScheduleCommand::Run(which)) => self.run_now(client, tag, which),
            Command::Schedule(ScheduleCommand::Pause { schedule, paused }) => {
                self.pause_schedule(client, tag, schedule, *paused)
            }
            Command::Batch(BatchCommand::New(new)) => self.new_batch(client, tag, new),
            Command::Batch(BatchCommand::Open { batch, hold_ms }) => self.open_batch(client, tag, batch, *hold_ms),
            Command::Batch(BatchCommand::Commit { batch }) => self.commit_batch(client, tag, batch),
            Command::Barrier => {
                self.reply(client, tag, Reply::Settled);
                Ok(())
            }
            Command::Worker(WorkerCommand::Register { worker, about }) => self.enlist(client, tag, worker, about),
            Command::Worker(WorkerCommand::Beat { worker, state }) => self.beat(client, tag, worker, *state),
            Command::Worker(WorkerCommand::SetState { worker, state }) => self.signal(client, tag, worker, *state),
            // The laws of views judge the answer.
            Command::Query(_) => {
                let answer = self.answer.take().expect("every query is answered");
                self.reply(client, tag, answer);
                Ok(())
            }
            Command::Client(ClientCommand::Disconnect(_) | ClientCommand::Watch { .. })
            | Command::Worker(WorkerCommand::Drain)
            | Command::Bulk(BulkCommand::Mutate { .. } | BulkCommand::Flush { .. }) => {
                unreachable!("the script has none of these, or the simulator walks through them itself")
            }
        }
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
        if self.due {
            self.follow_with(true);
        }
        while let Some((_, due)) = self.next_due().filter(|(at, _)| *at <= self.now) {
            match due {
                Due::JobState(id) => self.place_due(id),
                Due::Lease(id) => self.lease_due(id),
                Due::Expiry(id) => self.expire(id),
                Due::Key(id) => self.job_mut(id).holds_key = false,
                Due::Wait(client) => self.give_up_waiting(client),
                Due::Beat(worker) => self.miss_beat(worker),
                Due::Run(id) => self.run(id),
                Due::Batch(id) => self.batch_due(id),
            }
            self.settle();
        }
        self.follow_callbacks();
        self.forget_rested();
        self.drop_dead();
        if self.oversleep() {
            self.follow_with(true);
        }
        self.forget_idle_queues();
    }

    /// What the engine did in the step that follows. `due`: some of it, perhaps, before the command.
    pub(crate) fn observe(&mut self, heard: &[(ClientId, Event)], engine: &windlass_engine::Engine, due: bool) {
        self.due = due;
        self.ahead = engine.batches().cloned().collect();
        let retry = |job: &windlass_engine::Job| match job.state {
            JobState::Retrying(at) => Some((job.id, at, true)),
            _ => Some((job.id, self.by_engine(job.extra.as_deref()?.failure.as_deref()?.next_at?), false)),
        };
        self.retries = engine.jobs().filter_map(retry).collect();
        let member = |job: &windlass_engine::Job| job.extra.as_deref().and_then(|extra| extra.member);
        let callbacks = engine.jobs().filter_map(|job| Some((job.id, member(job).filter(|m| m.role != Role::Job)?)));
        self.callbacks = callbacks.filter(|(id, _)| id.0 >= self.next_job).collect();
        self.answer = heard.iter().rev().find_map(|(_, event)| match event {
            Event::Reply(_, reply) => Some(reply.clone()),
            Event::Notice(_) => None,
        });
        let lease = |event: &Event| {
            let taken = event.handed_out()?;
            engine.job(taken.id)?.lease().filter(|lease| lease.token == taken.token).cloned()
        };
        let served = heard.iter().filter(|(_, event)| compare::is_served(event));
        let served = served.map(|(client, event)| Hand { client: *client, event: event.clone(), lease: lease(event) });
        self.pending = served.collect();
    }

    /// The events of a step.
    fn finish_step(&mut self) -> Vec<(ClientId, Event)> {
        self.follow_with(true);
        assert!(self.pending.is_empty(), "a client got what it may not have: {:?}", self.pending);
        std::mem::take(&mut self.said)
    }

    fn next_due(&self) -> Option<(Timestamp, Due)> {
        let jobs = self.jobs.iter().flat_map(|memo| {
            let id = id_of(memo);
            let state = match memo.job.state {
                JobState::Scheduled(at) => (self.by_engine(at), Due::JobState(id)),
                JobState::Retrying(at) | JobState::Dead(at) | JobState::Done(at) => (at, Due::JobState(id)),
                JobState::Leased(_) => (memo.lease_due, Due::Lease(id)),
                JobState::Ready | JobState::Parked => (Timestamp::NEVER, Due::JobState(id)),
            };
            let key_limit = if memo.holds_key { memo.key_limit() } else { Timestamp::NEVER };
            [state, (self.by_engine(memo.expires_at()), Due::Expiry(id)), (key_limit, Due::Key(id))]
        });
        let waits = self.clients.iter().flat_map(|c| c.blocked().iter().map(|take| (take.until, Due::Wait(c.id))));
        let beats = self.workers.iter().map(|w| (w.beat_at.after_ms(self.limits.beat_ms), Due::Beat(w.number)));
        let runs = self.schedules.iter().map(|schedule| (self.run_due(schedule), Due::Run(schedule.id)));
        let batches = self.batches.iter().map(|batch| (Self::batch_deadline(batch), Due::Batch(batch.batch.id)));
        let clients = waits.chain(beats);
        jobs.chain(clients).chain(runs).chain(batches).filter(|(at, _)| *at < Timestamp::NEVER).min()
    }

    /// From now on the queue is in the listings of a protocol, or of all.
    fn make_known(&mut self, queue: QueueId, to: Option<Protocol>) {
        let known = &mut self.queue_mut(queue).known;
        *known = known.and(Protocols::of(to));
    }

    // ---- shared steps ----------------------------------------------------------------------------------------------

    fn reply(&mut self, client: ClientId, tag: Tag, reply: Reply) {
        self.said.push((client, Event::Reply(tag, reply)));
    }

    fn notify(&mut self, client: ClientId, notice: Notice) {
        self.said.push((client, Event::Notice(notice)));
    }

    pub(crate) fn see(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn say_done(&mut self, client: ClientId, tag: Tag) {
        if tag.wants_answer() {
            self.reply(client, tag, Reply::Done);
        }
    }

    /// Counts an event of a job.
    fn count_total(&mut self, id: JobId, add: impl Fn(&mut Totals)) {
        let protocol = self.job_mut(id).job.protocol;
        self.count_protocol(Some(protocol), add);
    }

    fn count_protocol(&mut self, protocol: Option<Protocol>, add: impl Fn(&mut Totals)) {
        add(&mut self.totals);
        if let Some(protocol) = protocol {
            add(self.protocols.entry(protocol).or_default());
        }
    }

    fn check_name(&self, name: &[u8]) -> Answer {
        let limit = self.limits.name_bytes_max;
        let given = u32::try_from(name.len()).unwrap_or(u32::MAX);
        if given > limit { Err(Capacity::NameBytes.exceeded(given, limit)) } else { Ok(()) }
    }

    fn find_or_make_queue(&mut self, name: &Bytes, kind: QueueKind) -> Result<QueueId, Refusal> {
        if let Some(queue) = self.queue_named(name) {
            return if queue.kind == kind { Ok(queue.number) } else { Err(Refusal::WrongKind) };
        }
        let limit = self.limits.queues_max;
        if self.queues.len() >= limit as usize {
            return Err(Capacity::Queues.exceeded(limit, limit));
        }
        let number = QueueId(self.next_queue);
        self.next_queue += 1;
        self.queues.push(QueueMemo {
            number,
            id: None,
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
        Ok(number)
    }

    /// Whether a queue for work has this name, or can be made.
    fn may_make_queue(&self, name: &[u8]) -> bool {
        let there = self.queue_named(name).map(|queue| queue.kind == QueueKind::Work);
        there.unwrap_or(self.queues.len() < self.limits.queues_max as usize)
    }

    /// A queue that was not created explicitly exists only as long as its name is needed.
    fn forget_idle_queues(&mut self) {
        let needed = |queue: &QueueMemo| {
            queue.known != Protocols::NONE
                || queue.throttle.is_some()
                || queue.rules != QueueRules::default()
                || self.jobs.iter().any(|memo| memo.job.queue == queue.number)
                || self.clients.iter().any(|client| client.subscriptions.iter().any(|s| s.queue == queue.number))
                || self.clients.iter().any(|client| match &client.waiting {
                    Waiting::Jobs(takes) => {
                        takes.iter().any(|take| take.from.iter().any(|served| served.queue == queue.number))
                    }
                    Waiting::Nothing | Waiting::Asleep { .. } | Waiting::Awake { .. } => false,
                })
        };
        let kept = self.queues.iter().filter(|queue| needed(queue)).cloned().collect();
        self.queues = kept;
    }

    /// Puts a job in a place; it releases a key that jobs in that place do not hold.
    fn put(&mut self, id: JobId, state: JobState) {
        let now = self.wall();
        let memo = self.job_mut(id);
        memo.job.state = state;
        if memo.connection().is_none() {
            memo.touch(now);
        }
        memo.lease_due = memo.job.lease().map_or(Timestamp::NEVER, |lease| lease.until);
        memo.lease_worker = None;
        memo.holds_key &= memo.wants_key();
    }

    fn remove(&mut self, id: JobId) {
        self.ran(id);
        self.jobs.retain(|memo| memo.job.id != id);
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
