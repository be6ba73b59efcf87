//! Any commands from any client at any time with any numbers. The engine never panics, its indexes agree after every
//! command ([`Engine::check`]), a closed client receives no events, and the same query twice has the same answer. Not
//! tested here: whether the answer is right; the simulator does.
#![no_main]

use std::collections::BTreeSet;

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use windlass_engine::{
    Backoff, BatchCommand, Bridge, BulkCommand, Clash, ClientCommand, ClientId, ClientInfo, Clock,
    Coalesce, Codec, Command, Condition, Context, Cron, Cursor, Engine, Event, Expiry, Failure,
    Filter, From, JobCommand, JobId, JobRef, JobState, JobStateKind, KeySource, KeyUntil,
    LeaseCommand, LeaseTerms, Limits, Listen, Mutation, NewBatch, NewJob, NewSchedule, Note,
    OnExpiry, Order, Past, Policy, Priority, Proof, Protocol, Query, QueueCommand, QueueKind,
    QueueRules, QueueSettings, Rate, Recurrence, RepayTo, Reply, Retry, ScheduleCommand,
    ScheduleRef, Select, Subscription, Tag, Take, TakeCommand, Throttle, Timestamp, Token, Unique,
    Wait, WorkerCommand, WorkerState, Zone,
};

#[derive(Debug, Arbitrary)]
struct Input {
    limits: Limited,
    asks: Vec<(Step, Ask)>,
}

/// Limits small enough to be reached, or any limits.
#[derive(Debug, Arbitrary)]
struct Limited {
    jobs_max: u8,
    schedules_max: u8,
    batches_max: u8,
    batch_depth_max: u8,
    batch_keep_ms: Span,
    queues_max: u8,
    abilities_max: u8,
    listeners_max: u8,
    name_bytes_max: u8,
    lease_ms_max: Span,
    dead_ms: Span,
    dead_max: u8,
    dead_bytes_max: Span,
    wake_ms: Span,
    beat_ms: Span,
    requeue_dead_workers: bool,
    losses_max: u8,
    loss_pause_ms: Span,
    page_max: u8,
}

/// The client, the time since the previous command, whether a command that one visit does in part is continued to the
/// end, and the new setting of the wall clock.
#[derive(Debug, Arbitrary)]
struct Step {
    client: u8,
    silent: bool,
    to_the_end: bool,
    later: Span,
    skew_ms: Option<i64>,
}

/// Milliseconds: mostly few, sometimes any number.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Span {
    None,
    Few(u8),
    Some(u16),
    Any(u64),
}

/// One of a few names.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Name(u8);

/// A mostly small number, like those in use.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Number {
    Small(u8),
    Any(u64),
}

#[derive(Debug, Arbitrary)]
enum Which {
    Id(Number),
    Name(Name),
    Key(Name, bool, Name),
    Anywhere(bool, Name),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Right {
    Connection,
    Token(Number),
    Any,
    Late,
}

#[derive(Debug, Arbitrary)]
struct Terms {
    connection: bool,
    ms: Option<Span>,
    on_expiry: u8,
    wish: Option<u8>,
}

#[derive(Debug, Arbitrary)]
struct Born {
    queue: Name,
    cycle: bool,
    faktory: bool,
    priority: u8,
    flags: u8,
    body: u8,
    name: Option<Name>,
    unique: Option<(Name, u8, u8, Span)>,
    not_before: Option<Span>,
    expires: Option<Span>,
    failures_max: i8,
    losses_max: u8,
    backoff: (u8, u32),
    keep: Option<Span>,
    lease: Option<Span>,
    track: Option<Span>,
    batch: Option<Name>,
    past: Option<(u8, Span)>,
}

#[derive(Debug, Arbitrary)]
struct Gathered {
    faktory: bool,
    name: Name,
    parent: Option<Name>,
    complete: Option<Box<Born>>,
    success: Option<Box<Born>>,
    /// Whether its callbacks are valid for a batch.
    fit: bool,
    expires: Span,
}

#[derive(Debug, Arbitrary)]
struct Again {
    key: Option<Name>,
    job: Born,
    recurrence: Often,
    at_once: bool,
    keep_grid: bool,
    runs: Option<Number>,
}

/// Every span, every minute except for these bits, or any bits at all.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Often {
    Every(Span),
    Most(u64),
    Any(Bits),
    Zoned(u8, Bits),
    ZonedHourly(u8, u64),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Bits([u64; 3], [u32; 2], u16, bool);

#[derive(Debug, Arbitrary)]
struct Picked {
    place: Option<u8>,
    queue: Option<Name>,
    faktory: Option<bool>,
    names: Vec<Name>,
    ids: Vec<Number>,
    conditions: Vec<(u8, Name)>,
    after: (Number, Number),
    limit: u16,
}

#[derive(Debug, Arbitrary)]
enum Ask {
    Open(Option<bool>),
    Close,
    Label(Name),
    Serve(Name, u8, Terms, Option<bool>),
    Unserve(Name, bool),
    UnserveAll(bool),
    Push(Box<Born>),
    TakeListed(Vec<Name>, Terms, u8, Option<Span>, Name),
    TakeServed(u8, Option<Span>, Name),
    Sleep,
    Credit(u32, u8),
    Unwait,
    Finish(Which, Right),
    Fail(Which, Right),
    Release(Which, Right, bool),
    Extend(Which, Right, Span, bool),
    Repay(Which, Right, u8),
    Tell(Which, Right, u8),
    Track(Which, Option<(u32, u32)>, Option<u8>, Option<Span>),
    Replace(Which, u8),
    Cancel(Which),
    Look(Which),
    Why(Which),
    CreateQueue(Name, bool),
    RemoveQueue(Name, bool),
    PauseQueue(Name, bool),
    LimitQueue(Name, Option<u8>),
    ThrottleQueue(Name, Option<(Option<u8>, Option<u8>, Option<Span>)>),
    Bridge(Vec<u8>, Vec<(Name, bool)>),
    RuleQueue(Name, Ruled),
    Unconvertible(Which, Right),
    SetSchedule(Box<Again>),
    RemoveSchedule(Result<Number, (bool, Name)>),
    ListSchedules(Picked),
    LookQueue(Name),
    ListQueues(Picked),
    ListJobs(Picked),
    ListClients(Picked),
    ListOthers(Picked, u8),
    Stats,
    Barrier,
    BatchNew(Box<Gathered>),
    BatchOpen(Name, Span),
    BatchCommit(Name),
    LookBatch(Name),
    Mutate(Picked, u8),
    Flush(bool, Option<(u8, Number)>, u16),
    RegisterWorker(Name),
    Beat(Name, Option<u8>, Option<u64>),
    Signal(Name, u8),
    Collect,
    SetPolicy(Name, Option<Box<Held>>),
    Patterns(Vec<(u8, Ruled, Held)>),
    PauseKey(Name, Name, bool),
    ReadKeys(Picked),
    ListKeys(Name, Picked),
    Redrive(Picked, Name, Span, u8),
    ListJobsBy(Picked, bool),
    Attempts(Which),
    WorkLeft,
    Drain,
    Watch(Option<Name>, Name, u8),
    Disconnect(u8),
}

/// The rules of a queue.
#[derive(Debug, Arbitrary)]
struct Ruled {
    codec: u8,
    retries: Option<u8>,
    body_bytes_max: Option<u8>,
    ttl: Option<Span>,
    dead: Option<Span>,
    dead_max: Option<u8>,
    dedup: Option<Span>,
    /// Three choices, and two times.
    coalesce: Option<(u8, Span, Option<Span>)>,
}

/// A policy: its rates (jobs, per, burst) and limits.
#[derive(Debug, Arbitrary)]
struct Held {
    rate: Option<(u8, Span, u8)>,
    key: Option<u8>,
    key_running_max: Option<u8>,
    key_rate: Option<(u8, Span, u8)>,
    key_waiting_max: Option<u8>,
    fair: bool,
    weights: Vec<(Name, Number)>,
    ordered: bool,
}

impl Span {
    const fn ms(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Few(ms) => ms as u64,
            Self::Some(ms) => ms as u64,
            Self::Any(ms) => ms,
        }
    }

    /// A moment a little before `now`, or any time after.
    const fn from(self, now: Timestamp) -> Timestamp {
        Timestamp(now.0.saturating_sub(20)).after_ms(self.ms())
    }
}

impl Number {
    const fn value(self) -> u64 {
        match self {
            Self::Small(n) => n as u64,
            Self::Any(n) => n,
        }
    }
}

impl Name {
    fn bytes(self) -> Bytes {
        let names: [&[u8]; 6] = [b"", b"a", b"b", b"c", b"dd", b"a name longer than others"];
        Bytes::from_static(names[usize::from(self.0) % names.len()])
    }
}

impl Which {
    fn job(self) -> JobRef {
        match self {
            Self::Id(n) => JobRef::Id(JobId(n.value())),
            Self::Name(name) => JobRef::Name(name.bytes()),
            Self::Anywhere(faktory, key) => JobRef::KeyAnywhere {
                protocol: protocol(faktory),
                key: key.bytes(),
            },
            Self::Key(queue, faktory, key) => {
                JobRef::key(queue.bytes(), protocol(faktory), key.bytes())
            }
        }
    }
}

impl Right {
    const fn proof(self) -> Proof {
        match self {
            Self::Connection => Proof::Connection,
            Self::Token(n) => Proof::Token(Token(n.value())),
            Self::Any => Proof::AnyLease,
            Self::Late => Proof::Late,
        }
    }
}

impl Terms {
    fn lease(&self) -> LeaseTerms {
        let end = |n: u8| [OnExpiry::Fail, OnExpiry::Requeue, OnExpiry::Front][usize::from(n % 3)];
        LeaseTerms {
            connection_bound: self.connection,
            lease_ms: self.ms.map(Span::ms),
            on_expiry: end(self.on_expiry),
            wish: self.wish.map(end),
        }
    }
}

impl Born {
    fn job(self, now: Timestamp) -> NewJob {
        let until = |n: u8, at: Span| match n % 5 {
            0 => KeyUntil::End,
            4 => KeyUntil::Gone,
            1 => KeyUntil::Start,
            2 => KeyUntil::EndOr(at.from(now)),
            _ => KeyUntil::StartOr(at.from(now)),
        };
        let clash = |n: u8| [Clash::Attach, Clash::Refuse, Clash::Keep][usize::from(n % 3)];
        let unique = self.unique.map(|(key, n, m, at)| Unique {
            key: key.bytes(),
            clash: clash(n),
            until: until(m, at),
        });
        let ms = self.backoff.1;
        let backoffs = [
            Backoff::None,
            Backoff::Fixed(ms),
            Backoff::Doubling(ms),
            Backoff::Faktory,
        ];
        let backoff = backoffs[usize::from(self.backoff.0 % 4)];
        let flag = |bit: u8| self.flags >> bit & 1 == 1;
        NewJob {
            kind: kind(self.cycle),
            priority: Priority::clamped(self.priority),
            durable: flag(0),
            listen: if flag(1) {
                if flag(6) {
                    Listen::As("me".into())
                } else {
                    Listen::Yes
                }
            } else {
                Listen::No
            },
            front: flag(2),
            name: self.name.map(Name::bytes),
            name_unique: flag(3),
            unique,
            not_before: self.not_before.map(|at| at.from(now)),
            expires: self
                .expires
                .map(|at| at.from(now))
                .map_or(Expiry::Never, if flag(5) { Expiry::At } else { Expiry::By }),
            retry: Retry {
                failures_max: self.failures_max.into(),
                losses_max: self.losses_max.into(),
                backoff,
            },
            retry_default: flag(4),
            result_keep_ms: self.keep.map_or(0, Span::ms),
            lease_ms: self.lease.map(Span::ms),
            track_ms: self.track.map_or(0, Span::ms),
            batch: self.batch.map(Name::bytes),
            past: self.past.map(|(n, at)| Box::new(past(n, at.from(now)))),
            ..NewJob::new(protocol(self.faktory), self.queue.bytes(), body(self.body))
        }
    }
}

impl Gathered {
    fn batch(self, now: Timestamp) -> NewBatch {
        let fit = |job: NewJob| match self.fit {
            true => NewJob {
                durable: true,
                listen: Listen::No,
                batch: None,
                kind: QueueKind::Work,
                protocol: Protocol::FAKTORY,
                ..job
            },
            false => job,
        };
        let callback = |born: Option<Box<Born>>| born.map(|born| Box::new(fit(born.job(now))));
        NewBatch {
            protocol: protocol(self.faktory),
            name: self.name.bytes(),
            parent: self.parent.map(Name::bytes),
            about: body(3),
            meta: body(2),
            complete: callback(self.complete),
            success: callback(self.success),
            expires_ms: self.expires.ms(),
        }
    }
}

impl Bits {
    const fn cron(self) -> Cron {
        let Self([seconds, minutes, weekdays], [hours, days], months, either_day) = self;
        Cron {
            seconds,
            minutes,
            hours,
            days,
            months,
            weekdays,
            either_day,
        }
    }
}

impl Again {
    fn schedule(self) -> NewSchedule {
        let recurrence = match self.recurrence {
            Often::Every(span) => Recurrence::Every {
                interval_ms: span.ms(),
            },
            Often::Most(not) => Recurrence::Cron(Cron {
                minutes: !not,
                ..Cron::ALWAYS
            }),
            Often::Any(bits) => Recurrence::Cron(bits.cron()),
            Often::Zoned(n, bits) => Recurrence::Zoned(bits.cron(), zone(n)),
            Often::ZonedHourly(n, not) => Recurrence::Zoned(
                Cron {
                    minutes: !not,
                    ..Cron::ALWAYS
                },
                zone(n),
            ),
        };
        // A template's times are relative to each run.
        let job = self.job.job(Timestamp(20));
        let job = NewJob {
            durable: !self.at_once || job.durable,
            listen: if self.keep_grid {
                job.listen
            } else {
                Listen::No
            },
            ..job
        };
        let (key, runs) = (self.key.map(Name::bytes), self.runs.map(Number::value));
        NewSchedule {
            key,
            job,
            recurrence,
            at_once: self.at_once,
            keep_grid: self.keep_grid,
            runs,
        }
    }
}

impl Ruled {
    fn rules(self) -> QueueRules {
        QueueRules {
            history: None,
            codec: [Codec::Text, Codec::Json, Codec::Base64][usize::from(self.codec % 3)],
            retry: self.retries.map(|n| Retry {
                failures_max: i32::from(n) - 9,
                ..Retry::NONE
            }),
            body_bytes_max: self.body_bytes_max.map(u32::from),
            ttl_ms: self.ttl.map(Span::ms),
            dead_ms: self.dead.map(Span::ms),
            dead_max: self.dead_max.map(u32::from),
            dedup_ms: self.dedup.map(Span::ms),
            coalesce: self.coalesce.map(|(choices, quiet, at_most)| Coalesce {
                by_key: choices & 1 != 0,
                latest: choices & 2 != 0,
                quiet_ms: quiet.ms(),
                at_most_ms: at_most.map(Span::ms),
                once_more: choices & 4 != 0,
            }),
        }
    }
}

impl Held {
    fn policy(self) -> Policy {
        let whole = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let rate = |(jobs, per, burst): (u8, Span, u8)| Rate {
            jobs: jobs.into(),
            per_ms: whole(per.ms()),
            burst: burst.into(),
        };
        let keys = [
            KeySource::Unique(None),
            KeySource::Unique(Some(b'a')),
            KeySource::Prefix(b'x'),
        ];
        Policy {
            rate: self.rate.map(rate),
            key: self.key.map(|n| keys[usize::from(n) % keys.len()].clone()),
            key_running_max: self.key_running_max.map(u32::from),
            key_rate: self.key_rate.map(rate),
            key_waiting_max: self.key_waiting_max.map(u32::from),
            fair: self.fair,
            weights: self
                .weights
                .into_iter()
                .map(|(key, weight)| (key.bytes(), whole(weight.value())))
                .collect(),
            ordered: self.ordered,
        }
    }
}

impl Picked {
    fn filter(&self) -> Filter {
        Filter {
            state: self
                .place
                .map(|n| JobStateKind::ALL[usize::from(n) % JobStateKind::ALL.len()]),
            queue: self.queue.map(Name::bytes),
            protocol: self.faktory.map(protocol),
            ids: self.ids.iter().map(|id| JobId(id.value())).collect(),
            names: self.names.iter().map(|name| name.bytes()).collect(),
            conditions: self
                .conditions
                .iter()
                .map(|(n, text)| condition(*n, *text))
                .collect(),
        }
    }

    const fn after(&self) -> Cursor {
        Cursor(self.after.0.value(), self.after.1.value())
    }
}

fn protocol(faktory: bool) -> Protocol {
    if faktory {
        Protocol::FAKTORY
    } else {
        Protocol::GEARMAN
    }
}

fn kind(cycle: bool) -> QueueKind {
    if cycle {
        QueueKind::Cycle
    } else {
        QueueKind::Work
    }
}

/// Zones with clock changes by an hour, by half an hour, by none, with a skipped day, and unknown zones.
fn zone(n: u8) -> Zone {
    let names = [
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "Asia/Kolkata",
        "Pacific/Apia",
        "Middle/Earth",
    ];
    Zone::named(names[usize::from(n) % names.len()]).unwrap_or(Zone::UNKNOWN)
}

/// A pattern that may match many queues.
fn pattern(n: u8) -> Bytes {
    let patterns: [&[u8]; 5] = [b"*", b"?", b"d*", b"*b", b"a*"];
    Bytes::from_static(patterns[usize::from(n) % patterns.len()])
}

fn body(bytes: u8) -> Bytes {
    Bytes::from(vec![b'x'; bytes.into()])
}

fn condition(n: u8, name: Name) -> Condition {
    let (bytes, text) = (name.bytes(), || {
        String::from_utf8_lossy(&name.bytes()).into()
    });
    match n % 14 {
        0 => Condition::Unnamed,
        1 => Condition::Named(bytes),
        2 => Condition::Keyed(bytes),
        3 => Condition::ReadyUntil(Timestamp(n.into())),
        4 => Condition::ReadyFrom(Timestamp(n.into())),
        5 => Condition::Body(bytes),
        6 => Condition::Failure(bytes),
        7 => Condition::Calls {
            name: text(),
            or_queue: true,
        },
        8 => Condition::Type(text()),
        9 => Condition::HeldBy(bytes),
        10 => Condition::HeldOn(ClientId((n % 5).into())),
        11 => Condition::FailedLike(text()),
        12 => Condition::InBatch(bytes),
        _ => Condition::OfKey(bytes),
    }
}

/// What a job from elsewhere has behind it.
fn past(n: u8, at: Timestamp) -> Past {
    let states = [
        None,
        Some(JobState::Retrying(at)),
        Some(JobState::Dead(at)),
        Some(JobState::Ready),
    ];
    Past {
        ready_at: (n & 4 != 0).then_some(at),
        failures: n.into(),
        state: states[usize::from(n % 4)].clone(),
    }
}

fn select(n: u8) -> Select {
    [
        Select::ListOrder,
        Select::BestPriority,
        Select::RoundRobin,
        Select::Weighted,
    ][usize::from(n % 4)]
}

fn state(n: u8) -> WorkerState {
    [
        WorkerState::Running,
        WorkerState::Quiet,
        WorkerState::Terminate,
    ][usize::from(n % 3)]
}

fn take(from: From, n: u8, wait: Option<Span>, worker: Name, now: Timestamp) -> Command {
    let wait = match wait {
        None => Wait::No,
        Some(Span::None) => Wait::Forever,
        Some(at) => Wait::Until(at.from(now)),
    };
    Command::Take(TakeCommand::Take(Take {
        from,
        select: select(n),
        wait,
        worker: worker.bytes(),
    }))
}

fn note(n: u8) -> Note {
    match n % 3 {
        0 => Note::Progress {
            numerator: n.into(),
            denominator: 100,
            raw: body(n),
        },
        1 => Note::Data(body(n)),
        _ => Note::Warning(body(n)),
    }
}

impl Ask {
    fn command(self, now: Timestamp) -> Command {
        match self {
            Self::Open(faktory) => Command::Client(ClientCommand::Open(ClientInfo {
                protocol: faktory.map(protocol),
                ..ClientInfo::default()
            })),
            Self::Close => Command::Client(ClientCommand::Close),
            Self::Label(name) => Command::Client(ClientCommand::SetName(name.bytes())),
            Self::Serve(queue, weight, terms, unclaimed) => {
                Command::Client(ClientCommand::Serve(Subscription {
                    queue: queue.bytes(),
                    weight: weight.into(),
                    lease: terms.lease(),
                    unclaimed: unclaimed.map(protocol),
                }))
            }
            Self::Unserve(queue, requeue) => Command::Client(ClientCommand::Unserve {
                queue: queue.bytes(),
                requeue,
            }),
            Self::UnserveAll(requeue) => Command::Client(ClientCommand::UnserveAll { requeue }),
            Self::Push(born) => Command::Job(JobCommand::Push(Box::new(born.job(now)))),
            Self::TakeListed(queues, terms, n, wait, worker) => {
                let queues = queues.into_iter().map(Name::bytes).collect();
                take(
                    From::Listed {
                        queues,
                        lease: terms.lease(),
                    },
                    n,
                    wait,
                    worker,
                    now,
                )
            }
            Self::TakeServed(n, wait, worker) => take(From::Subscriptions, n, wait, worker, now),
            Self::Sleep => Command::Take(TakeCommand::WaitForWork),
            Self::Credit(credits, n) => Command::Take(TakeCommand::Credit {
                credits,
                select: select(n),
            }),
            Self::Unwait => Command::Take(TakeCommand::Unwait),
            Self::Finish(job, right) => Command::Lease(LeaseCommand::Finish {
                job: job.job(),
                proof: right.proof(),
                result: body(3),
            }),
            Self::Fail(job, right) => {
                let failure = Box::new(Failure {
                    message: body(4),
                    ..Failure::default()
                });
                Command::Lease(LeaseCommand::Fail {
                    job: job.job(),
                    proof: right.proof(),
                    failure,
                })
            }
            Self::Release(job, right, front) => Command::Lease(LeaseCommand::Release {
                job: job.job(),
                proof: right.proof(),
                front,
            }),
            Self::Extend(job, right, at, only_later) => Command::Lease(LeaseCommand::Extend {
                job: job.job(),
                proof: right.proof(),
                until: at.from(now),
                only_later,
            }),
            Self::Repay(job, right, n) => {
                let to = [
                    RepayTo::Penalty,
                    RepayTo::Reward,
                    RepayTo::Front,
                    RepayTo::Drop,
                ][usize::from(n % 4)];
                Command::Lease(LeaseCommand::Repay {
                    job: job.job(),
                    proof: right.proof(),
                    body: body(n),
                    to,
                })
            }
            Self::Tell(job, right, n) => Command::Lease(LeaseCommand::Progress {
                job: job.job(),
                proof: right.proof(),
                note: note(n),
            }),
            Self::Track(job, progress, text, until) => {
                let (text, until) = (text.map(body), until.map(|at| at.from(now)));
                Command::Job(JobCommand::Track {
                    job: job.job(),
                    progress,
                    text,
                    until,
                })
            }
            Self::Replace(job, n) => Command::Job(JobCommand::Replace {
                job: job.job(),
                body: body(n),
            }),
            Self::Cancel(job) => Command::Job(JobCommand::Cancel(job.job())),
            Self::Collect => Command::Job(JobCommand::Collect {
                name: "me".into(),
                from: JobId(0),
            }),
            Self::Look(job) => Command::Query(Query::Job(job.job())),
            other => other.about_many(now),
        }
    }

    fn about_many(self, now: Timestamp) -> Command {
        match self {
            Self::CreateQueue(queue, cycle) => Command::Queue(QueueCommand::Create {
                queue: queue.bytes(),
                kind: kind(cycle),
            }),
            Self::RemoveQueue(queue, only_idle) => Command::Queue(QueueCommand::Remove {
                queue: queue.bytes(),
                only_idle,
            }),
            Self::PauseQueue(queue, paused) => Command::Queue(QueueCommand::Pause {
                queue: queue.bytes(),
                paused,
            }),
            Self::LimitQueue(queue, max) => Command::Queue(QueueCommand::Limit {
                queue: queue.bytes(),
                jobs_max: [max.map(u32::from); Priority::COUNT],
            }),
            Self::ThrottleQueue(queue, parts) => {
                let throttle = parts.map(|(leased_max, per_worker_max, timeout)| Throttle {
                    leased_max: leased_max.map(u32::from),
                    per_worker_max: per_worker_max.map(u32::from),
                    timeout_ms: timeout.map(Span::ms),
                    configured: false,
                });
                Command::Queue(QueueCommand::Throttle {
                    queue: queue.bytes(),
                    throttle,
                })
            }
            Self::Bridge(patterns, queues) => {
                let named = queues
                    .into_iter()
                    .map(|(queue, shared)| (queue.bytes(), shared))
                    .collect();
                Command::Queue(QueueCommand::Bridge(Box::new(Bridge {
                    patterns: patterns.into_iter().map(pattern).collect(),
                    named,
                })))
            }
            Self::RuleQueue(queue, ruled) => Command::Queue(QueueCommand::SetRules {
                queue: queue.bytes(),
                rules: ruled.rules().into(),
            }),
            Self::SetPolicy(queue, held) => Command::Queue(QueueCommand::SetPolicy {
                queue: queue.bytes(),
                policy: held.map(|held| Box::new(held.policy())),
                by: "me".into(),
            }),
            Self::Patterns(settings) => {
                let settings_of = |ruled: Ruled, held: Held| QueueSettings {
                    rules: ruled.rules(),
                    policy: held.policy(),
                };
                let patterns = settings
                    .into_iter()
                    .map(|(n, ruled, held)| (pattern(n), settings_of(ruled, held)));
                Command::Queue(QueueCommand::SetPatterns(Box::new(patterns.collect())))
            }
            Self::PauseKey(queue, key, paused) => Command::Queue(QueueCommand::PauseKey {
                queue: queue.bytes(),
                key: key.bytes(),
                paused,
            }),
            Self::ReadKeys(picked) => Command::Bulk(BulkCommand::ReadKeys {
                after: picked.after(),
                limit: picked.limit.into(),
            }),
            Self::ListKeys(queue, picked) => Command::Query(Query::Keys {
                queue: queue.bytes(),
                after: picked.after(),
                limit: picked.limit.into(),
            }),
            Self::Unconvertible(job, right) => Command::Lease(LeaseCommand::Unconvertible {
                job: job.job(),
                proof: right.proof(),
                why: body(4),
            }),
            Self::SetSchedule(again) => {
                Command::Schedule(ScheduleCommand::Set(Box::new(again.schedule())))
            }
            Self::RemoveSchedule(Ok(n)) => {
                let schedule = ScheduleRef::Id(JobId(n.value()));
                Command::Schedule(match n.value() % 4 {
                    0 => ScheduleCommand::Run(schedule),
                    1 => ScheduleCommand::Pause {
                        schedule,
                        paused: true,
                    },
                    2 => ScheduleCommand::Pause {
                        schedule,
                        paused: false,
                    },
                    _ => ScheduleCommand::Remove(schedule),
                })
            }
            Self::RemoveSchedule(Err((faktory, key))) => {
                Command::Schedule(ScheduleCommand::Remove(ScheduleRef::Key {
                    protocol: protocol(faktory),
                    key: key.bytes(),
                }))
            }
            Self::ListSchedules(picked) => {
                let (protocol, after, limit) = (
                    picked.faktory.map(protocol),
                    picked.after(),
                    picked.limit.into(),
                );
                Command::Query(Query::Schedules {
                    protocol,
                    after,
                    limit,
                })
            }
            Self::LookQueue(queue) => Command::Query(Query::Queue {
                queue: queue.bytes(),
            }),
            Self::ListQueues(picked) => Command::Query(Query::Queues {
                after: picked.after(),
                limit: picked.limit.into(),
            }),
            Self::ListClients(picked) => Command::Query(Query::Clients {
                after: picked.after(),
                limit: picked.limit.into(),
            }),
            Self::ListJobs(picked) => Command::Query(Query::Jobs {
                filter: picked.filter().into(),
                after: picked.after(),
                limit: picked.limit.into(),
            }),
            Self::Mutate(picked, n) => {
                use Mutation::{Cancel, Discard, Kill, Redrive, Release, Requeue};
                let redrive = Redrive {
                    delay_ms: n.into(),
                    per_second: n.into(),
                };
                let action =
                    [Discard, Cancel, Kill, Requeue, Release, redrive][usize::from(n / 2 % 6)];
                let (filter, after, limit) = (
                    Box::new(picked.filter()),
                    picked.after(),
                    picked.limit.into(),
                );
                match n % 2 {
                    0 => Command::Bulk(BulkCommand::Mutate {
                        filter,
                        action,
                        after,
                        limit,
                    }),
                    _ => Command::Query(Query::Preview {
                        filter,
                        action,
                        after,
                        limit,
                    }),
                }
            }
            Self::Redrive(picked, to, delay, per_second) => Command::Bulk(BulkCommand::Redrive {
                filter: Box::new(picked.filter()),
                to: to.bytes(),
                delay_ms: delay.ms(),
                per_second: per_second.into(),
                after: picked.after(),
                limit: picked.limit.into(),
            }),
            Self::ListJobsBy(picked, newest) => Command::Query(Query::JobsBy {
                order: if newest { Order::Newest } else { Order::Oldest },
                filter: picked.filter().into(),
                after: picked.after(),
                limit: picked.limit.into(),
            }),
            Self::Attempts(job) => Command::Query(Query::Attempts(job.job())),
            Self::WorkLeft => Command::Query(Query::WorkLeft),
            Self::Drain => Command::Worker(WorkerCommand::Drain),
            Self::Watch(queue, text, room) => Command::Client(ClientCommand::Watch {
                queue: queue.map(Name::bytes),
                text: text.bytes(),
                room: room.into(),
            }),
            Self::Disconnect(client) => {
                Command::Client(ClientCommand::Disconnect(ClientId((client % 5).into())))
            }
            Self::BatchNew(gathered) => {
                Command::Batch(BatchCommand::New(Box::new(gathered.batch(now))))
            }
            Self::BatchOpen(batch, hold) => Command::Batch(BatchCommand::Open {
                batch: batch.bytes(),
                hold_ms: hold.ms(),
            }),
            Self::BatchCommit(batch) => Command::Batch(BatchCommand::Commit {
                batch: batch.bytes(),
            }),
            Self::LookBatch(batch) => Command::Query(Query::Batch {
                batch: batch.bytes(),
            }),
            Self::Flush(faktory, at, limit) => {
                // One stage more than exist.
                let after = at.map_or(Cursor::default(), |(stage, at)| {
                    Cursor((stage % 4).into(), at.value())
                });
                Command::Bulk(BulkCommand::Flush {
                    protocol: protocol(faktory),
                    after,
                    limit: limit.into(),
                })
            }
            Self::RegisterWorker(worker) => Command::Worker(WorkerCommand::Register {
                worker: worker.bytes(),
                about: Bytes::new(),
            }),
            Self::Barrier => Command::Barrier,
            Self::Beat(worker, n, memory_bytes) => Command::Worker(WorkerCommand::Beat {
                worker: worker.bytes(),
                state: n.map(state),
                memory_bytes,
            }),
            Self::Signal(worker, n) => Command::Worker(WorkerCommand::SetState {
                worker: worker.bytes(),
                state: state(n),
            }),
            Self::Why(job) => Command::Query(Query::Why(job.job())),
            Self::ListOthers(picked, n) => {
                let (after, limit) = (picked.after(), picked.limit.into());
                Command::Query(match n % 7 {
                    0 => Query::Configured { after, limit },
                    3 => Query::Batches { after, limit },
                    1 => Query::Workers { after, limit },
                    4 => Query::Days,
                    5 => Query::Throttles { after, limit },
                    6 => Query::Kinds { after, limit },
                    _ => Query::Figures { after, limit },
                })
            }
            _ => Command::Query(Query::Stats),
        }
    }
}

impl Limited {
    fn limits(&self) -> Limits {
        Limits {
            jobs_max: self.jobs_max.into(),
            schedules_max: self.schedules_max.into(),
            batches_max: self.batches_max.into(),
            batch_depth_max: self.batch_depth_max.into(),
            batch_keep_ms: self.batch_keep_ms.ms(),
            queues_max: self.queues_max.into(),
            abilities_max: self.abilities_max.into(),
            listeners_max: self.listeners_max.into(),
            name_bytes_max: self.name_bytes_max.into(),
            lease_ms_max: self.lease_ms_max.ms(),
            dead_ms: self.dead_ms.ms(),
            dead_max: self.dead_max.into(),
            dead_bytes_max: match self.dead_bytes_max {
                Span::None => u64::MAX,
                bytes => bytes.ms(),
            },
            wake_ms: self.wake_ms.ms(),
            beat_ms: self.beat_ms.ms(),
            return_ms: 5_000,
            requeue_dead_workers: self.requeue_dead_workers,
            losses_max: self.losses_max.into(),
            loss_pause_ms: self.loss_pause_ms.ms(),
            page_max: self.page_max.into(),
            ..Limits::default()
        }
    }
}

/// The next command, after a part of a command that is done in parts.
fn rest(asked: &Command, events: &[(ClientId, Event)]) -> Option<Command> {
    let Some((
        _,
        Event::Reply(
            _,
            Reply::Mutated {
                next: Some(next), ..
            },
        ),
    )) = events.last()
    else {
        return None;
    };
    match asked {
        Command::Bulk(BulkCommand::Flush {
            protocol, limit, ..
        }) => Some(Command::Bulk(BulkCommand::Flush {
            protocol: *protocol,
            after: *next,
            limit: *limit,
        })),
        Command::Queue(QueueCommand::Remove { .. }) => Some(asked.clone()),
        _ => None,
    }
}

fn begin(now: Timestamp, clock: Clock, seed: u64) -> Context {
    let mut context = Context::new(now, seed);
    context.clock = clock;
    context
}

/// A query changes nothing, so its second answer must be the same.
fn same_twice(engine: &mut Engine, client: ClientId, (now, clock): (Timestamp, Clock)) {
    let mut look = || {
        let mut context = begin(now, clock, 0);
        engine.apply(client, Tag(1), Query::Stats, &mut context);
        context
            .events
            .retain(|(_, event)| matches!(event, Event::Reply(_, Reply::Stats(_))));
        context.events
    };
    assert_eq!(look(), look(), "two answers to the same query");
}

/// A client with many jobs leaves or stops serving in parts. Present clients receive the usual events.
fn in_parts(engine: &mut Engine, client: ClientId, command: &Command, context: &mut Context) {
    engine.tick(context);
    for parts in 0.. {
        assert!(parts < 10_000, "{command:?} never comes to its end");
        if !engine.apply_in_part(client, command, context) {
            return;
        }
        engine.check();
    }
}

fuzz_target!(|input: Input| {
    let mut engine = Engine::new(input.limits.limits(), 1);
    let (mut now, mut clock) = (Timestamp(1_000), Clock::default());
    let mut open: BTreeSet<ClientId> = BTreeSet::new();
    for (seed, (step, ask)) in (1..).zip(input.asks) {
        now = now.after_ms(step.later.ms());
        clock = step.skew_ms.map_or(clock, Clock::skewed);
        let client = ClientId((step.client % 5).into());
        let tag = if step.silent {
            Tag::silent(seed)
        } else {
            Tag(seed)
        };
        let command = ask.command(now);
        let (opens, closes) = (
            matches!(command, Command::Client(ClientCommand::Open(_))),
            matches!(command, Command::Client(ClientCommand::Close)),
        );
        let mut next = Some(command);
        for rounds in 0.. {
            let Some(command) = next else { break };
            assert!(rounds < 10_000, "{command:?} never comes to its end");
            let mut context = begin(now, clock, seed);
            if step.to_the_end {
                in_parts(&mut engine, client, &command, &mut context);
            }
            engine.apply(client, tag, command.clone(), &mut context);
            engine.check();
            for (told, event) in &context.events {
                assert!(
                    *told == client || open.contains(told),
                    "{event:?} for a client that has left"
                );
            }
            next = rest(&command, &context.events).filter(|_| step.to_the_end);
        }
        if opens {
            open.insert(client);
        } else if closes {
            open.remove(&client);
        }
        if seed % 16 == 0 {
            same_twice(&mut engine, client, (now, clock));
        }
    }
});
