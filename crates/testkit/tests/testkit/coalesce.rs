//! Lives of a queue where submits of one identity become one job. The laws look at submits, at what starts and at when
//! it does, and know no algorithm:
//!
//! - never two at once: no job of an identity starts while another one of it runs;
//! - last write wins: a job starts with the body of the last submit that became it, or of the first if so configured;
//! - quiet: no job starts before the quiet time after its last submit, or the longest time after its first one, is over;
//! - no longer than that: a job that may start is ready then, unless an earlier one of its identity is not over;
//! - few: an identity has at most two jobs that are not over;
//! - no submit is lost: in the end each was followed by a start of the job that it became.
//!
//! `WINDLASS_SIM_SEEDS` and `WINDLASS_SIM_SEED` mean what they mean for the simulator.

use std::collections::BTreeMap;

use windlass_engine::{
    Backoff, Clash, ClientCommand, ClientId, ClientInfo, Clock, Coalesce, Command, Context, Engine, Event, Failure,
    From, JobCommand, JobId, JobRef, JobState, KeySource, KeyUntil, LeaseCommand, LeaseTerms, Limits, Listen, NewJob,
    Notice, OnExpiry, Policy, Proof, Protocol, QueueCommand, QueueRules, QueueSettings, Reply, Retry, Select, Tag,
    Take, TakeCommand, Timestamp, Token, Unique, Wait,
};
use windlass_testkit::rng::Rng;
use windlass_testkit::sim::{Tally, live_all, number};

const QUEUE: &[u8] = b"q";
const IDENTITIES: [&str; 3] = ["a", "b", "c"];
const WORKERS: u64 = 3;
const PRODUCER: u64 = 9;

/// What became of one submit.
struct Submit {
    at: u64,
    body: String,
    ran: bool,
}

struct Life {
    rng: Rng,
    rule: Coalesce,
    engine: Engine,
    now: u64,
    skew_ms: i64,
    submits: u64,
    jobs: BTreeMap<JobId, Vec<Submit>>,
    /// All leases that were granted, with their workers.
    leases: Vec<(JobId, Token)>,
    tally: Tally,
}

fn identity_of(body: &[u8]) -> &[u8] {
    body.split(|byte| *byte == b'|').next().unwrap_or_default()
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let quiet_ms = rng.one_of([0, 20, 100]);
        let rule = Coalesce {
            by_key: rng.chance(50),
            latest: rng.chance(75),
            quiet_ms,
            at_most_ms: rng.chance(60).then(|| quiet_ms + rng.below(150)),
            once_more: rng.chance(75),
        };
        let skew_ms = rng.one_of([0, 1_700_000_000_000]);
        let engine = Engine::new(Limits::default(), seed);
        let (jobs, leases, tally) = (BTreeMap::new(), Vec::new(), Tally::default());
        let mut life = Self { rng, rule, engine, now: 1_000, skew_ms, submits: 0, jobs, leases, tally };
        life.begin();
        life
    }

    fn begin(&mut self) {
        for client in (0..WORKERS).chain([PRODUCER]) {
            self.ask(client, ClientCommand::Open(ClientInfo::default()));
        }
        let policy = Policy { key: Some(KeySource::Prefix(b'|')), ..Policy::default() };
        let patterns = [(QUEUE.into(), QueueSettings { policy, ..QueueSettings::default() })];
        self.ask(PRODUCER, QueueCommand::SetPatterns(Box::new(patterns.into_iter().collect())));
        let rules = QueueRules { coalesce: Some(self.rule), ..QueueRules::default() };
        self.ask(PRODUCER, QueueCommand::SetRules { queue: QUEUE.into(), rules: rules.into() });
    }

    fn ask(&mut self, client: u64, command: impl Into<Command>) -> Vec<Event> {
        let mut context = self.context();
        self.engine.apply(ClientId(client), Tag(1), command.into(), &mut context);
        self.judge(&context);
        context.events.into_iter().filter(|(to, _)| to.0 == client).map(|(_, event)| event).collect()
    }

    fn context(&mut self) -> Context {
        let mut context = Context::new(Timestamp(self.now), self.rng.throw());
        context.clock = Clock::skewed(self.skew_ms);
        context
    }

    fn tick(&mut self) {
        let mut context = self.context();
        self.engine.tick(&mut context);
        self.judge(&context);
    }

    // ---- the laws ---------------------------------------------------------------------------------------------------

    fn judge(&mut self, context: &Context) {
        self.engine.check();
        for (_, event) in &context.events {
            if let Event::Reply(_, Reply::Taken(taken)) | Event::Notice(Notice::Delivered(taken)) = event {
                self.leases.push((taken.id, taken.token));
                self.started(taken.id, &taken.body);
            }
        }
    }

    /// How the jobs stand after what happened.
    fn look(&self) {
        let mut live = BTreeMap::<&[u8], Vec<JobId>>::new();
        let over = |state: &JobState| matches!(state, JobState::Dead(_) | JobState::Done(_));
        for job in self.engine.jobs().filter(|job| !over(&job.state)) {
            live.entry(identity_of(job.body())).or_default().push(job.id);
        }
        for (identity, mut jobs) in live {
            jobs.sort();
            assert!(jobs.len() <= 2, "{identity:?} has {jobs:?}");
            let first = self.engine.job(jobs[0]).unwrap();
            if let JobState::Scheduled(_) | JobState::Parked = first.state {
                let due = self.due(first.id).map_or(0, |due| due.max(self.jobs[&first.id][0].at + 1));
                let is_due = self.engine.next_deadline().is_some_and(|at| at.0 <= self.now);
                assert!(self.now < due || is_due, "{first:?} could have started at {due}, now {}", self.now);
            }
        }
    }

    /// When a job may start, if there was a submit since it started last.
    fn due(&self, job: JobId) -> Option<u64> {
        let mut new = self.jobs.get(&job)?.iter().filter(|submit| !submit.ran);
        let first = new.next()?;
        let last = new.next_back().unwrap_or(first);
        let most = self.rule.at_most_ms.map_or(u64::MAX, |ms| first.at + ms);
        Some((last.at + self.rule.quiet_ms).min(most))
    }

    fn started(&mut self, job: JobId, body: &[u8]) {
        self.tally.note("Coalesce::Started");
        let running = self.engine.jobs().filter(|other| other.lease().is_some());
        let same = running.filter(|other| identity_of(other.body()) == identity_of(body));
        assert_eq!(same.map(|job| job.id).collect::<Vec<_>>(), [job], "run at once");
        if let Some(due) = self.due(job) {
            assert!(due <= self.now, "{job:?} starts before {due}, now {}", self.now);
        }
        let submits = self.jobs.get_mut(&job).unwrap();
        let wins = if self.rule.latest { submits.last() } else { submits.first() };
        assert_eq!(wins.map(|submit| submit.body.as_bytes()), Some(body), "the body of {job:?}");
        if submits.iter().filter(|submit| !submit.ran).count() > 1 {
            self.tally.note("Coalesce::Several");
        }
        submits.iter_mut().for_each(|submit| submit.ran = true);
    }

    // ---- what happens -----------------------------------------------------------------------------------------------

    fn happen(&mut self) {
        match self.rng.below(20) {
            0..7 => self.submit(),
            7..11 => self.take(Wait::No),
            11..15 => self.end_one(),
            15..18 => {
                let next = self.engine.next_deadline().filter(|_| self.rng.chance(60));
                let later = self.now + self.rng.below(60);
                self.now = next.map_or(later, |at| at.0).max(self.now);
                self.tick();
            }
            18 => self.disturb(),
            _ if self.rng.chance(20) => self.restart(),
            _ => {}
        }
        self.look();
    }

    fn submit(&mut self) {
        self.submits += 1;
        let identity = self.rng.one_of(IDENTITIES);
        let body = format!("{identity}|{}", self.submits);
        let unique = Unique { key: identity.into(), clash: Clash::Attach, until: KeyUntil::End };
        let backoff = self.rng.one_of([Backoff::None, Backoff::Fixed(30)]);
        let durable = self.rng.chance(70);
        let job = NewJob {
            durable,
            listen: if durable { Listen::No } else { Listen::Yes },
            name: self.rng.chance(50).then(|| format!("jid{}", self.submits).into()),
            unique: (!self.rule.by_key).then_some(unique),
            retry: Retry { failures_max: self.rng.one_of([0, 1, -1]), losses_max: 0, backoff },
            ..NewJob::new(Protocol::GEARMAN, QUEUE.into(), body.clone().into())
        };
        let running = self.engine.jobs().filter(|job| job.lease().is_some()).map(|job| job.id).collect::<Vec<_>>();
        let events = self.ask(PRODUCER, JobCommand::Push(Box::new(job)));
        let Some(Event::Reply(_, Reply::Pushed { job, .. })) = events.first() else { panic!("{events:?}") };
        if running.contains(job) {
            assert!(!self.rule.once_more, "{job:?} runs");
            self.tally.note("Coalesce::Joined");
        } else {
            self.jobs.entry(*job).or_default().push(Submit { at: self.now, body, ran: false });
        }
    }

    fn take(&mut self, wait: Wait) {
        let client = self.rng.below(WORKERS);
        let timed = LeaseTerms {
            connection_bound: false,
            lease_ms: Some(40),
            on_expiry: self.rng.one_of([OnExpiry::Fail, OnExpiry::Requeue]),
            wish: None,
        };
        let lease = if self.rng.chance(50) { LeaseTerms::CONNECTION } else { timed };
        let from = From::Listed { queues: vec![QUEUE.into()], lease };
        self.ask(client, TakeCommand::Take(Take { from, select: Select::ListOrder, wait, worker: "w".into() }));
    }

    fn end_one(&mut self) {
        // A worker may report late, too.
        let Some((id, token)) = self.rng.pick(&self.leases).copied() else { return };
        let (job, proof) = (JobRef::Id(id), Proof::Token(token));
        let command = match self.rng.below(6) {
            0 => LeaseCommand::Release { job, proof, front: false },
            1 => LeaseCommand::Fail { job, proof, failure: Box::new(Failure::default()) },
            _ => LeaseCommand::Finish { job, proof, result: "".into() },
        };
        let events = self.ask(PRODUCER, command);
        if !matches!(events.first(), Some(Event::Reply(_, Reply::Refused(_)))) {
            self.leases.retain(|(other, _)| *other != id);
        }
    }

    /// A worker's connection ends, or an operator removes a job.
    fn disturb(&mut self) {
        if self.rng.chance(60) {
            let client = self.rng.below(WORKERS);
            self.ask(client, ClientCommand::Close);
            self.ask(client, ClientCommand::Open(ClientInfo::default()));
            return;
        }
        let jobs: Vec<JobId> = self.engine.jobs().map(|job| job.id).collect();
        if let Some(job) = self.rng.pick(&jobs).copied() {
            self.tally.note("Coalesce::Cancelled");
            self.jobs.remove(&job);
            self.ask(PRODUCER, JobCommand::Cancel(JobRef::Id(job)));
        }
    }

    /// The daemon ends and begins again, from what its journal has.
    fn restart(&mut self) {
        self.tally.note("Coalesce::Restarted");
        let mut engine = Engine::new(Limits::default(), self.rng.throw());
        engine.recall_meta(self.engine.meta().clone(), true);
        self.engine.queues().for_each(|queue| engine.recall_queue(queue.image().clone()));
        for job in self.engine.jobs() {
            if !job.durable {
                self.jobs.remove(&job.id);
                continue;
            }
            let mut job = job.clone();
            job.extra.iter_mut().for_each(|extra| (extra.taken_back, extra.listeners) = (false, Vec::new()));
            assert!(engine.recall_job(job));
        }
        engine.wake_up();
        self.engine = engine;
        self.begin();
        self.tick();
    }

    /// Every submit is followed by a run, if workers come and time passes.
    fn drain(&mut self) {
        for _ in 0..5_000 {
            self.take(Wait::No);
            self.end_one();
            self.now = self.engine.next_deadline().map_or(self.now + 1, |at| at.0.max(self.now)).min(self.now + 50);
            self.tick();
            if self.engine.jobs().all(|job| matches!(job.state, JobState::Dead(_) | JobState::Done(_))) {
                break;
            }
        }
        for (job, submits) in &self.jobs {
            let lost = submits.iter().find(|submit| !submit.ran);
            assert!(
                lost.is_none(),
                "{:?} became {job:?} and never ran: {:?}",
                lost.unwrap().body,
                self.engine.job(*job)
            );
        }
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
fn submits_that_become_one_job_keep_their_laws() {
    if let Some(seed) = number("WINDLASS_SIM_SEED") {
        return drop(live(seed));
    }
    let seeds = number("WINDLASS_SIM_SEEDS").unwrap_or(300);
    let tally = live_all(seeds, live);
    for what in ["Started", "Several", "Joined", "Cancelled", "Restarted"] {
        let many = tally.counts.get(&*format!("Coalesce::{what}"));
        assert!(many.is_some_and(|many| *many > seeds), "{what}: {many:?}");
    }
}
