//! Short scenarios: functions build commands, and events are compared as lines of text.
//!
//! `broker.says(1, push("mail").priority(9), ["1 new j1"])` runs a command as client 1 and expects exactly these
//! events, in this order, for any client. `j1` is a job, `j1.1` the lease of its first delivery. Times are plain
//! milliseconds.

mod asks;
mod words;

use windlass_engine::{
    Change, ClientCommand, ClientId, ClientInfo, Clock, Command, Context, Ended, Engine, Event,
    JobId, JobState, Lease, Limits, Numbered, Query, Reply, Slab, Slot, Tag, Timestamp, Warning,
};

pub(crate) use asks::*;
pub(crate) use words::words;

/// An engine, a clock that only moves when set, and clients called 1, 2, 3…
pub(crate) struct Broker {
    pub(crate) engine: Engine,
    pub(crate) now: u64,
    /// How far the wall clock is ahead of `now`.
    pub(crate) skew_ms: i64,
    /// Bytes of jobs that may be handed out in each visit.
    pub(crate) room: u64,
    /// All warnings, turn by turn.
    pub(crate) warnings: Vec<Warning>,
    /// The rows of the history that commands have caused.
    pub(crate) rows: Vec<Ended>,
    tags: u64,
    turns: u64,
}

impl Broker {
    /// With clients 1 to 4 open, at 1,000 ms.
    pub(crate) fn new() -> Self {
        Self::limited(|_| {})
    }

    /// The same, with changed limits.
    pub(crate) fn limited(change: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = Limits::default();
        change(&mut limits);
        let engine = Engine::new(limits, 99);
        let (now, skew_ms, room) = (1_000, 0, u64::MAX);
        let mut broker = Self {
            engine,
            now,
            skew_ms,
            room,
            warnings: Vec::new(),
            rows: Vec::new(),
            tags: 0,
            turns: 0,
        };
        for client in 1..=4 {
            broker.open(client);
        }
        broker
    }

    pub(crate) fn open(&mut self, client: u64) {
        self.hear(client, ClientCommand::Open(ClientInfo::default()));
    }

    /// Limits the memory to this many bytes more. Returns the limit.
    pub(crate) fn leave_memory(&mut self, bytes: u64) -> u64 {
        let memory_max = self.engine.resident_bytes() + bytes;
        self.engine.set_limits(Limits {
            memory_max,
            ..self.engine.limits().clone()
        });
        memory_max
    }

    /// Runs a command and returns its events.
    pub(crate) fn hear(
        &mut self,
        client: u64,
        command: impl Into<Command>,
    ) -> Vec<(ClientId, Event)> {
        self.tags += 1;
        let mut context = self.context();
        self.engine.apply(
            ClientId(client),
            Tag(self.tags),
            command.into(),
            &mut context,
        );
        self.warnings.append(&mut context.warnings);
        for change in std::mem::take(&mut context.changes) {
            if let Change::Ended(row) = change {
                self.rows.push(*row);
            }
        }
        context.events
    }

    /// Stops the daemon and starts it again with these limits. Clients 1 to 4 reconnect.
    pub(crate) fn restart(&mut self, limits: Limits) {
        self.recover(limits);
        (1..=4).for_each(|client| self.open(client));
    }

    /// The same, before any client connects.
    pub(crate) fn recover(&mut self, limits: Limits) {
        let mut engine = Engine::new(limits, 1);
        engine.recall_meta(self.engine.meta().clone(), true);
        self.engine
            .namespaces()
            .for_each(|namespace| engine.recall_namespace(namespace.clone()));
        self.engine
            .queues()
            .for_each(|queue| engine.recall_queue(queue.image().clone()));
        let (mut jobs, mut numbers) = (Slab::default(), Numbered::new(Slot::NONE));
        for job in self.engine.jobs() {
            let mut job = job.clone();
            // The journal has neither.
            job.extra
                .iter_mut()
                .for_each(|extra| extra.listeners.clear());
            if job.lease().is_some_and(Lease::connection_bound) {
                job.state = JobState::Ready;
            }
            numbers.set(job.id, jobs.insert(job));
        }
        assert_eq!(engine.recall_jobs(jobs, numbers, |_| Ok(())), Ok(()));
        engine.wake_up();
        engine.check();
        self.engine = engine;
    }

    fn context(&mut self) -> Context {
        self.turns += 1;
        let mut context = Context::new(Timestamp(self.now), self.turns);
        context.clock = Clock::skewed(self.skew_ms);
        context.room = self.room;
        context
    }

    /// Runs a command, and expects exactly these events.
    #[track_caller]
    pub(crate) fn says<const N: usize>(
        &mut self,
        client: u64,
        command: impl Into<Command>,
        expected: [&str; N],
    ) {
        let said = self.hear(client, command);
        self.engine.check();
        assert_eq!(words(&said), expected);
    }

    /// Moves the clock, and expects exactly these events to fall due.
    #[track_caller]
    pub(crate) fn at<const N: usize>(&mut self, now: u64, expected: [&str; N]) {
        self.now = now;
        let mut context = self.context();
        self.engine.tick(&mut context);
        self.warnings.append(&mut context.warnings);
        self.engine.check();
        assert_eq!(words(&context.events), expected);
    }

    /// Expects that nothing is due before `at`, and something then.
    #[track_caller]
    pub(crate) fn is_due_at(&self, at: u64) {
        assert_eq!(self.engine.next_deadline(), Some(Timestamp(at)));
    }

    /// The state of a job: `ready`, `leased`, …, `gone`; with the time if the state has one.
    pub(crate) fn place(&self, job: u64) -> String {
        match self.engine.job(JobId(job)).map(|job| &job.state) {
            None => "gone".into(),
            Some(JobState::Ready) => "ready".into(),
            Some(JobState::Leased(lease)) if lease.until == Timestamp::NEVER => "leased".into(),
            Some(JobState::Leased(lease)) => format!("leased until {}", lease.until.0),
            Some(JobState::Scheduled(at)) => format!("scheduled {}", at.0),
            Some(JobState::Retrying(at)) => format!("retrying {}", at.0),
            Some(JobState::Dead(at)) => format!("dead until {}", at.0),
            Some(JobState::Parked) => "shelved".into(),
            Some(JobState::Done(at)) => format!("done until {}", at.0),
        }
    }

    /// The workers of a queue.
    pub(crate) fn workers(&mut self, queue: &'static str) -> u32 {
        let events = self.hear(
            1,
            Query::Queue {
                queue: queue.into(),
            },
        );
        let [(_, Event::Reply(_, Reply::Queues { rows, .. }))] = events.as_slice() else {
            panic!("{events:?}")
        };
        rows[0].workers
    }

    /// Takes from a queue until it is empty, and finishes each job. Returns the IDs of the jobs, in order.
    pub(crate) fn drain(&mut self, queue: &'static str) -> Vec<u64> {
        self.drain_of(4, queue)
    }

    /// The same, as this client.
    pub(crate) fn drain_of(&mut self, client: u64, queue: &'static str) -> Vec<u64> {
        let mut jobs = Vec::new();
        loop {
            let events = self.hear(client, take([queue]));
            match events.first() {
                Some((_, Event::Reply(_, Reply::Taken(job)))) => {
                    let id = job.id.0;
                    jobs.push(id);
                    self.hear(client, finish(id));
                }
                Some((_, Event::Reply(_, Reply::Empty))) => return jobs,
                other => panic!("{other:?}"),
            }
        }
    }
}
