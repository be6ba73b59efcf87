//! Lives of queues with policies. The laws look at what starts and ends and at when it does, and know no algorithm:
//!
//! - rate: no window has more starts than its length allows, and a burst; the first begins with nothing saved up;
//! - overlap: no key has more jobs running than it may;
//! - order: no job of an ordered key starts before an earlier one is over;
//! - pauses: no job of a paused key starts, also after a restart;
//! - turns: while a key could start a job, no other key of its weight starts two;
//! - no starvation: a client never waits beside a job that may start, and at the end every job has run.
//!
//! `WINDLASS_SIM_SEEDS` and `WINDLASS_SIM_SEED` mean what they mean for the simulator.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use windlass_engine::{
    Backoff, BulkCommand, ClientCommand, ClientId, ClientInfo, Command, Context, Cursor, Engine, Event, Failure, From,
    JobCommand, JobId, JobRef, JobStateKind, KeySource, LeaseCommand, LeaseTerms, Limits, NewJob, Notice, OnExpiry,
    Policy, Proof, Protocol, QueueCommand, QueueSettings, Rate, Reply, Retry, Select, Stored, Subscription, Tag, Take,
    TakeCommand, Timestamp, Wait,
};
use windlass_testkit::rng::Rng;
use windlass_testkit::sim::{Tally, live_all, number};

const QUEUE: &[u8] = b"q";
const KEYS: [&str; 4] = ["", "a", "b", "c"];
const WORKERS: u64 = 5;
const PRODUCER: u64 = 9;
const WAKE_MS: u64 = 50;

struct Life {
    rng: Rng,
    policy: Policy,
    engine: Engine,
    now: u64,
    began: u64,
    /// Starts: when, which key.
    starts: Vec<(u64, usize)>,
    /// What was leased after the last command.
    running: BTreeSet<JobId>,
    /// The key of each job.
    keys: BTreeMap<JobId, usize>,
    /// Starts of other keys since a key could start a job first.
    passed: [[u32; KEYS.len()]; KEYS.len()],
    /// Clients that wait.
    waiting: BTreeSet<u64>,
    /// A job is left to a sleeper that was woken, until it comes or this time.
    left_until: u64,
    /// Paused keys.
    paused: BTreeSet<usize>,
    /// Bodies that left memory, by place.
    stored: Vec<Bytes>,
    tally: Tally,
}

fn key_of(body: &[u8]) -> usize {
    let text = body.split(|byte| *byte == b'|').next().unwrap_or_default();
    KEYS.iter().position(|key| key.as_bytes() == text).unwrap_or_default()
}

fn rate(rng: &mut Rng) -> Option<Rate> {
    rng.chance(40).then(|| Rate {
        jobs: u32::try_from(rng.between(1, 5)).unwrap_or(1),
        per_ms: u32::try_from(rng.between(7, 300)).unwrap_or(1),
        burst: u32::try_from(rng.between(1, 4)).unwrap_or(1),
    })
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let policy = Policy {
            rate: rate(&mut rng),
            key: Some(KeySource::Prefix(b'|')),
            key_running_max: rng.chance(40).then(|| u32::try_from(rng.between(1, 2)).unwrap_or(1)),
            key_rate: rate(&mut rng),
            key_waiting_max: None,
            fair: rng.chance(60),
            weights: BTreeMap::new(),
            ordered: rng.chance(40),
            ..Policy::default()
        };
        let engine = Engine::new(Limits { wake_ms: WAKE_MS, ..Limits::default() }, seed);
        let mut life = Self {
            rng,
            policy,
            engine,
            now: 1_000,
            began: 1_000,
            starts: Vec::new(),
            running: BTreeSet::new(),
            keys: BTreeMap::new(),
            passed: [[0; KEYS.len()]; KEYS.len()],
            waiting: BTreeSet::new(),
            left_until: 0,
            paused: BTreeSet::new(),
            stored: Vec::new(),
            tally: Tally::default(),
        };
        life.begin();
        life
    }

    /// The clients come, and the policy is set.
    fn begin(&mut self) {
        (self.began, self.starts, self.passed) = (self.now, Vec::new(), Default::default());
        self.waiting.clear();
        for client in (0..WORKERS).chain([PRODUCER]) {
            self.ask(client, ClientCommand::Open(ClientInfo::default()));
        }
        let settings = QueueSettings { policy: self.policy.clone(), ..QueueSettings::default() };
        self.ask(PRODUCER, QueueCommand::SetPatterns(Box::new([(QUEUE.into(), settings)].into_iter().collect())));
        let mut after = Some(Cursor::default());
        while let Some(page) = after {
            after = self.read_keys(page);
        }
        for client in 0..WORKERS {
            let lease = self.terms(client);
            let serve = Subscription { queue: QUEUE.into(), weight: 0, lease, unclaimed: None };
            self.ask(client, ClientCommand::Serve(serve));
        }
    }

    /// Has a page of keys read, some of them in bodies that are not in memory.
    fn read_keys(&mut self, page: Cursor) -> Option<Cursor> {
        let mut lent = BTreeMap::new();
        loop {
            let mut context = Context::new(Timestamp(self.now), self.rng.throw());
            context.lent = lent;
            let read = BulkCommand::ReadKeys { after: page, limit: 3 };
            self.engine.apply(ClientId(PRODUCER), Tag(1), read, &mut context);
            self.judge(&context);
            if let [(_, Event::Reply(_, Reply::Mutated { next, .. }))] = context.events.as_slice() {
                return *next;
            }
            assert!(!context.missing.is_empty(), "no answer");
            self.tally.note("Policy::Lent");
            let with_body =
                |(job, from): (JobId, Stored)| (job, (from, self.stored[usize::try_from(from.at).unwrap()].clone()));
            lent = context.missing.into_iter().map(with_body).collect();
        }
    }

    /// Some bodies leave memory.
    fn store(&mut self) {
        for (job, body) in self.engine.cool(self.rng.below(300)) {
            let at = self.stored.len() as u64;
            self.engine.set_stored(job, &body, at);
            self.stored.push(body);
        }
    }

    /// The key of a job: the first that is pushed is judged before it is known.
    fn key_of(&self, job: JobId, body: &[u8]) -> usize {
        self.keys.get(&job).copied().unwrap_or_else(|| key_of(body))
    }

    /// A client of even number holds jobs by its connection, the others for a time.
    fn terms(&self, client: u64) -> LeaseTerms {
        let timed =
            LeaseTerms { connection_bound: false, lease_ms: Some(400), on_expiry: OnExpiry::Requeue, wish: None };
        if client.is_multiple_of(2) { LeaseTerms::CONNECTION } else { timed }
    }

    fn ask(&mut self, client: u64, command: impl Into<Command>) -> Vec<Event> {
        let mut context = Context::new(Timestamp(self.now), self.rng.throw());
        self.engine.apply(ClientId(client), Tag(1), command.into(), &mut context);
        self.judge(&context);
        context.events.into_iter().filter(|(to, _)| to.0 == client).map(|(_, event)| event).collect()
    }

    fn tick(&mut self) {
        let mut context = Context::new(Timestamp(self.now), self.rng.throw());
        self.engine.tick(&mut context);
        self.judge(&context);
    }

    // ---- the laws ---------------------------------------------------------------------------------------------------

    fn judge(&mut self, context: &Context) {
        for (client, event) in &context.events {
            let taken = match event {
                Event::Reply(_, Reply::Taken(taken)) | Event::Notice(Notice::Delivered(taken)) => taken,
                Event::Reply(_, Reply::Empty) => {
                    self.waiting.remove(&client.0);
                    continue;
                }
                Event::Notice(Notice::WorkAvailable) => {
                    self.tally.note("Policy::Woken");
                    self.left_until = self.now + WAKE_MS;
                    self.waiting.remove(&client.0);
                    continue;
                }
                Event::Reply(..) | Event::Notice(_) => continue,
            };
            self.waiting.remove(&client.0);
            self.started(taken.id, self.key_of(taken.id, &taken.body));
        }
        self.engine.check();
        self.overlap_and_waits();
    }

    fn started(&mut self, job: JobId, key: usize) {
        self.tally.note("Policy::Started");
        self.starts.push((self.now, key));
        assert!(!self.paused.contains(&key), "{:?} is paused", KEYS[key]);
        if let Some(rate) = self.policy.rate {
            self.within(rate, |_| true);
        }
        if let Some(rate) = self.policy.key_rate {
            self.within(rate, |other| other == key);
        }
        if self.policy.ordered {
            let earlier = self.keys.range(..job).filter(|(_, other)| **other == key);
            for (other, _) in earlier {
                let state = self.engine.job(*other).map(|job| job.state.kind());
                let over = matches!(state, None | Some(JobStateKind::Dead | JobStateKind::Done));
                assert!(over, "{job:?} starts before {other:?}, which is {state:?}");
            }
        }
        for other in 0..KEYS.len() {
            self.passed[other][key] += 1;
            self.passed[key][other] = 0;
        }
    }

    /// No window that ends now has more starts of these keys than the rate allows.
    fn within(&self, rate: Rate, counts: impl Fn(usize) -> bool) {
        let allowed = |ms: u64| ms * u64::from(rate.jobs) / u64::from(rate.per_ms);
        let mut many = 0;
        for (at, _) in self.starts.iter().rev().filter(|(_, key)| counts(*key)) {
            many += 1;
            assert!(
                many <= u64::from(rate.burst) + allowed(self.now - at),
                "{many} starts since {at}, now {}",
                self.now
            );
        }
        assert!(many <= allowed(self.now - self.began), "{many} starts since the beginning, now {}", self.now);
    }

    fn overlap_and_waits(&mut self) {
        let (mut running, mut retrying, mut ready) = ([0; KEYS.len()], [0; KEYS.len()], [0; KEYS.len()]);
        for job in self.engine.jobs() {
            let count = match job.state.kind() {
                JobStateKind::Leased => &mut running,
                JobStateKind::Retrying => &mut retrying,
                JobStateKind::Ready => &mut ready,
                JobStateKind::Scheduled | JobStateKind::Dead | JobStateKind::Parked | JobStateKind::Done => continue,
            };
            let body = if job.payload.stored().is_none() { job.body() } else { &[] };
            count[self.key_of(job.id, body)] += 1;
        }
        let most = if self.policy.ordered { 1 } else { self.policy.key_running_max.unwrap_or(u32::MAX) };
        assert!(running.iter().all(|many| *many <= most), "{running:?} run");
        let is_held = |key: usize| self.paused.contains(&key) || (self.policy.ordered && retrying[key] > 0);
        let is_free = |key: usize| ready[key] > 0 && running[key] < most && !is_held(key);
        let limited = self.policy.rate.is_some() || self.policy.key_rate.is_some();
        let may_start = (0..KEYS.len()).any(is_free);
        let waits = self.waiting.iter().any(|client| client % 2 == 1);
        let is_left = self.now <= self.left_until;
        assert!(limited || !waits || !may_start || is_left, "{:?} wait, and there is a job", self.waiting);
        for (key, waits) in KEYS.iter().enumerate() {
            for (other, starts) in KEYS.iter().enumerate() {
                if self.policy.fair && self.policy.key_rate.is_none() && is_free(key) {
                    assert!(
                        self.passed[key][other] <= 2,
                        "{waits:?} waits, {starts:?} starts: {:?}, {:?}, {running:?} run, {ready:?} are ready",
                        self.policy,
                        self.starts.iter().rev().take(9).collect::<Vec<_>>()
                    );
                } else {
                    self.passed[key][other] = 0;
                }
            }
        }
        self.running = self.engine.jobs().filter(|job| job.lease().is_some()).map(|job| job.id).collect();
    }

    // ---- what happens -----------------------------------------------------------------------------------------------

    fn happen(&mut self) {
        match self.rng.below(20) {
            0..6 => self.push(),
            6..10 => self.take(),
            10..15 => self.end_one(),
            15..18 => {
                let next = self.engine.next_deadline().filter(|_| self.rng.chance(60));
                let later = self.now + self.rng.below(60);
                self.now = next.map_or(later, |at| at.0).max(self.now);
                self.tick();
            }
            18 => {
                let client = self.rng.below(WORKERS);
                self.ask(client, ClientCommand::Close);
                self.waiting.remove(&client);
                self.ask(client, ClientCommand::Open(ClientInfo::default()));
                let serve = Subscription { queue: QUEUE.into(), weight: 0, lease: self.terms(client), unclaimed: None };
                self.ask(client, ClientCommand::Serve(serve));
            }
            _ if self.rng.chance(10) => self.restart(),
            _ if self.rng.chance(40) => self.store(),
            _ if self.policy.has_keys() => {
                let key = self.rng.one_of([0, 1, 2, 3]);
                self.pause(key, !self.paused.contains(&key));
            }
            _ => {}
        }
    }

    fn push(&mut self) {
        let key = self.rng.one_of([0, 1, 1, 1, 2, 3]);
        // Short bodies stay in memory.
        let rest = "x".repeat(self.rng.one_of([1, 60]));
        let body = if key == 0 { rest } else { format!("{}|{rest}", KEYS[key]) };
        let backoff = self.rng.one_of([Backoff::None, Backoff::Fixed(30)]);
        let retry = Retry { failures_max: 1, losses_max: 0, backoff };
        let job = NewJob { retry, ..NewJob::new(Protocol::GEARMAN, QUEUE.into(), body.into()) };
        // The laws that judge what the push starts know the job.
        let next = JobId(self.keys.last_key_value().map_or(0, |(job, _)| job.0) + 1);
        let events = self.ask(PRODUCER, JobCommand::Push(Box::new(job)));
        let Some(Event::Reply(_, Reply::Pushed { job, .. })) = events.first() else { panic!("{events:?}") };
        assert!(*job >= next);
        self.keys.insert(*job, key);
    }

    fn take(&mut self) {
        let client = self.rng.below(WORKERS);
        if self.waiting.contains(&client) {
            return;
        }
        let worker = if client.is_multiple_of(2) { String::new() } else { format!("w{client}") };
        let take =
            |from, wait| TakeCommand::Take(Take { from, select: Select::ListOrder, wait, worker: worker.into() });
        let command = match client {
            0 => TakeCommand::WaitForWork,
            2 => TakeCommand::Credit { credits: 1, select: Select::BestPriority },
            4 => take(From::Subscriptions, Wait::No),
            _ => take(From::Listed { queues: vec![QUEUE.into()], lease: self.terms(client) }, Wait::Forever),
        };
        if client != 4 {
            self.waiting.insert(client);
        }
        self.ask(client, command);
        // A woken sleeper comes, unless it has gone to sleep for good.
        if client == 0 && !self.waiting.contains(&0) && self.rng.chance(80) {
            self.left_until = 0;
            let wish = Take { from: From::Subscriptions, select: Select::ListOrder, wait: Wait::No, worker: "".into() };
            self.ask(0, TakeCommand::Take(wish));
        }
    }

    fn pause(&mut self, key: usize, paused: bool) {
        self.tally.note("Policy::Paused");
        // What is due starts before the key is paused.
        self.tick();
        let _ = if paused { self.paused.insert(key) } else { self.paused.remove(&key) };
        self.ask(PRODUCER, QueueCommand::PauseKey { queue: QUEUE.into(), key: KEYS[key].into(), paused });
    }

    fn end_one(&mut self) {
        let running: Vec<JobId> = self.running.iter().copied().collect();
        let Some(id) = self.rng.pick(&running).copied() else { return };
        let (job, proof) = (JobRef::Id(id), Proof::AnyLease);
        let command = match self.rng.below(6) {
            0 => LeaseCommand::Release { job, proof, front: false },
            1 => LeaseCommand::Fail { job, proof, failure: Box::new(Failure::default()) },
            _ => LeaseCommand::Finish { job, proof, result: "".into() },
        };
        self.ask(PRODUCER, command);
    }

    /// The daemon ends and begins again, from what its journal has.
    fn restart(&mut self) {
        self.tally.note("Policy::Restarted");
        let mut engine = Engine::new(Limits { wake_ms: WAKE_MS, ..Limits::default() }, self.rng.throw());
        engine.recall_meta(self.engine.meta().clone(), true);
        self.engine.queues().for_each(|queue| engine.recall_queue(queue.image().clone()));
        for job in self.engine.jobs() {
            assert!(engine.recall_job(job.clone()));
        }
        engine.wake_up();
        self.engine = engine;
        self.begin();
    }

    /// Every job runs, if workers come for it and time passes.
    fn drain(&mut self) {
        self.paused.clone().into_iter().for_each(|key| self.pause(key, false));
        for _ in 0..20_000 {
            if self.engine.jobs().all(|job| matches!(job.state.kind(), JobStateKind::Dead | JobStateKind::Done)) {
                return;
            }
            for client in [1, 3] {
                if !self.waiting.contains(&client) {
                    let from = From::Listed { queues: vec![QUEUE.into()], lease: self.terms(client) };
                    let worker = format!("w{client}").into();
                    self.waiting.insert(client);
                    self.ask(
                        client,
                        TakeCommand::Take(Take { from, select: Select::ListOrder, wait: Wait::Forever, worker }),
                    );
                }
            }
            for job in self.running.clone() {
                let finish = LeaseCommand::Finish { job: JobRef::Id(job), proof: Proof::AnyLease, result: "".into() };
                self.ask(PRODUCER, finish);
            }
            self.now = self.engine.next_deadline().map_or(self.now + 1, |at| at.0).max(self.now);
            self.tick();
        }
        panic!("jobs are left: {:?}", self.engine.jobs().map(|job| (job.id, job.state.kind())).collect::<Vec<_>>());
    }
}

fn live(seed: u64) -> Tally {
    let result = std::panic::catch_unwind(|| {
        let mut life = Life::new(seed);
        (0..400).for_each(|_| life.happen());
        life.drain();
        std::mem::take(&mut life.tally)
    });
    result.unwrap_or_else(|panic| {
        eprintln!("replay: WINDLASS_SIM_SEED={seed}");
        std::panic::resume_unwind(panic)
    })
}

#[test]
fn every_policy_keeps_its_laws() {
    if let Some(seed) = number("WINDLASS_SIM_SEED") {
        return drop(live(seed));
    }
    let seeds = number("WINDLASS_SIM_SEEDS").unwrap_or(300);
    let tally = live_all(seeds, live);
    for what in ["Policy::Started", "Policy::Woken", "Policy::Restarted", "Policy::Paused", "Policy::Lent"] {
        assert!(tally.counts.get(what).is_some_and(|many| *many > seeds), "{what}: {:?}", tally.counts.get(what));
    }
}
