//! Chooses the next command: a client sends something that, most of the time, makes sense.

use bytes::Bytes;
use windlass_engine::{
    BatchCommand, BulkCommand, ClientCommand, ClientId, ClientInfo, Command, Condition, Cursor,
    Failure, Filter, Holder, JobCommand, JobId, JobRef, JobStateKind, LeaseCommand, Mutation, Note,
    Priority, Proof, Protocol, Query, QueueCommand, QueueKind, RepayTo, ScheduleCommand,
    TakeCommand, Throttle, Timestamp, Token, WorkerCommand, WorkerState,
};

use crate::rng::Rng;

use super::kind::Kind;
use super::oracle::{ClientMemo, JobMemo, Oracle, id_of};
use super::world::World;

/// Generates the next command.
pub(crate) struct Script<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) world: &'a World,
    pub(crate) oracle: &'a Oracle,
}

impl Script<'_> {
    /// A client's command of this kind.
    pub(crate) fn command(&mut self, kind: Kind) -> (ClientId, Command) {
        let client = match kind {
            Kind::Take | Kind::Sleep => self.somebody_free(),
            _ => self.somebody(),
        };
        let command = match kind {
            Kind::Open => {
                return (
                    self.newcomer(client),
                    Command::Client(ClientCommand::Open(self.info())),
                );
            }
            Kind::Close
            | Kind::Crash
            | Kind::Label
            | Kind::Serve
            | Kind::Unserve
            | Kind::UnserveAll => Command::Client(self.client_command(kind)),
            Kind::Take | Kind::Sleep | Kind::Credit | Kind::Unwait => {
                Command::Take(self.take_command(kind))
            }
            Kind::Finish
            | Kind::Fail
            | Kind::Unconvertible
            | Kind::Release
            | Kind::Extend
            | Kind::Repay
            | Kind::Tell => {
                return self.work(kind, client);
            }
            Kind::FinishLate => {
                let job = self.left();
                let (job, proof) = (
                    self.ref_to(job),
                    self.rng.one_of([Proof::Late, Proof::AnyLease]),
                );
                if self.rng.chance(40) {
                    return (
                        client,
                        Command::Lease(LeaseCommand::Fail {
                            job,
                            proof,
                            failure: Box::default(),
                        }),
                    );
                }
                Command::Lease(LeaseCommand::Finish {
                    job,
                    proof,
                    result: self.bytes(10),
                })
            }
            Kind::Push | Kind::Track | Kind::Replace | Kind::Cancel | Kind::Collect => {
                Command::Job(self.job_command(kind))
            }
            Kind::CreateQueue | Kind::RemoveQueue | Kind::PauseQueue | Kind::LimitQueue => {
                self.queue_command(kind)
            }
            Kind::ThrottleQueue => Command::Queue(QueueCommand::Throttle {
                queue: self.queue(),
                throttle: self.throttle(),
            }),
            Kind::Bridge => Command::Queue(QueueCommand::Bridge(Box::new(self.bridge()))),
            Kind::RuleQueue => Command::Queue(QueueCommand::SetRules {
                queue: self.queue(),
                rules: self.rules().into(),
            }),
            Kind::RulePatterns => {
                Command::Queue(QueueCommand::SetPatterns(Box::new(self.patterns())))
            }
            Kind::SetSchedule | Kind::RemoveSchedule | Kind::RunSchedule | Kind::PauseSchedule => {
                Command::Schedule(self.schedule_command(kind))
            }
            Kind::BatchNew | Kind::BatchOpen | Kind::BatchCommit => {
                Command::Batch(self.batch_command(kind))
            }
            Kind::Flush | Kind::Mutate | Kind::Redrive => Command::Bulk(self.bulk_command(kind)),
            Kind::Days
            | Kind::ListClients
            | Kind::ListJobs
            | Kind::ListQueues
            | Kind::ListSchedules
            | Kind::ListWorkers
            | Kind::Look
            | Kind::LookBatch
            | Kind::LookQueue
            | Kind::Stats => Command::Query(self.query(kind)),
            Kind::Barrier => Command::Barrier,
            Kind::RegisterWorker | Kind::Beat | Kind::Signal => {
                Command::Worker(self.worker_command(kind))
            }
        };
        (client, command)
    }

    fn client_command(&mut self, kind: Kind) -> ClientCommand {
        match kind {
            Kind::Label => ClientCommand::SetName(self.bytes(10)),
            Kind::Serve => ClientCommand::Serve(self.subscription()),
            Kind::Unserve => ClientCommand::Unserve {
                queue: self.queue(),
                requeue: self.rng.chance(50),
            },
            Kind::UnserveAll => ClientCommand::UnserveAll {
                requeue: self.rng.chance(50),
            },
            _ => ClientCommand::Close,
        }
    }

    fn take_command(&mut self, kind: Kind) -> TakeCommand {
        match kind {
            Kind::Take => TakeCommand::Take(self.wish()),
            Kind::Credit => TakeCommand::Credit {
                credits: self.number(4),
                select: self.select(),
            },
            Kind::Unwait => TakeCommand::Unwait,
            _ => TakeCommand::WaitForWork,
        }
    }

    fn job_command(&mut self, kind: Kind) -> JobCommand {
        match kind {
            Kind::Push => JobCommand::Push(Box::new(self.job())),
            Kind::Track => JobCommand::Track {
                job: self.job_ref(),
                progress: if self.rng.chance(60) {
                    Some((self.number(9), self.number(9)))
                } else {
                    None
                },
                text: if self.rng.chance(60) {
                    Some(self.bytes(5))
                } else {
                    None
                },
                until: if self.rng.chance(40) {
                    Some(self.time())
                } else {
                    None
                },
            },
            Kind::Replace => JobCommand::Replace {
                job: self.job_ref(),
                body: self.bytes(20),
            },
            Kind::Cancel if self.rng.chance(70) => JobCommand::Cancel(self.job_ref()),
            Kind::Cancel => JobCommand::Cancel(self.follower()),
            _ => self.collect(),
        }
    }

    fn schedule_command(&mut self, kind: Kind) -> ScheduleCommand {
        match kind {
            Kind::SetSchedule => ScheduleCommand::Set(Box::new(self.schedule())),
            Kind::RemoveSchedule => ScheduleCommand::Remove(self.schedule_ref()),
            Kind::RunSchedule => ScheduleCommand::Run(self.schedule_ref()),
            _ => {
                let (schedule, paused) = (self.schedule_ref(), self.rng.chance(40));
                ScheduleCommand::Pause { schedule, paused }
            }
        }
    }

    fn batch_command(&mut self, kind: Kind) -> BatchCommand {
        match kind {
            Kind::BatchNew => BatchCommand::New(Box::new(self.new_batch())),
            Kind::BatchOpen => {
                let hold_ms = self.rng.below(self.world.pace_ms * 8);
                BatchCommand::Open {
                    batch: self.batch(),
                    hold_ms,
                }
            }
            _ => BatchCommand::Commit {
                batch: self.batch(),
            },
        }
    }

    fn bulk_command(&mut self, kind: Kind) -> BulkCommand {
        if kind == Kind::Flush {
            let (protocol, limit) = (self.protocol(), self.number(5));
            return BulkCommand::Flush {
                protocol,
                after: Cursor::default(),
                limit,
            };
        }
        if kind == Kind::Redrive {
            let filter = Filter {
                state: Some(JobStateKind::Dead).filter(|_| self.rng.chance(90)),
                ..self.filter()
            };
            let (delay_ms, per_second) = (self.rng.below(self.world.pace_ms), 1 + self.number(500));
            let (to, after, limit) = (self.queue(), Cursor::default(), self.number(5));
            return BulkCommand::Redrive {
                filter: filter.into(),
                to,
                delay_ms,
                per_second,
                after,
                limit,
            };
        }
        let (filter, action) = (self.filter(), self.mutation());
        BulkCommand::Mutate {
            filter: filter.into(),
            action,
            after: Cursor::default(),
            limit: self.number(5),
        }
    }

    fn worker_command(&mut self, kind: Kind) -> WorkerCommand {
        match kind {
            Kind::RegisterWorker => WorkerCommand::Register {
                worker: self.worker(),
                about: self.bytes(4),
            },
            Kind::Beat => {
                let (worker, state) = (self.worker(), self.state_if_any());
                // Some beats have a figure, and some have none.
                WorkerCommand::Beat {
                    worker,
                    state,
                    memory_bytes: state.map(|_| 1 << 20),
                }
            }
            _ => WorkerCommand::SetState {
                worker: self.worker(),
                state: self.state(),
            },
        }
    }

    fn query(&mut self, kind: Kind) -> Query {
        match kind {
            Kind::Look if self.rng.chance(30) => Query::Attempts(self.job_ref()),
            Kind::Look => Query::Job(if self.rng.chance(40) {
                self.key_anywhere()
            } else {
                self.job_ref()
            }),
            Kind::ListSchedules => {
                let protocol = self.rng.one_of([None, None, Some(Protocol::GEARMAN)]);
                Query::Schedules {
                    protocol,
                    after: self.cursor(),
                    limit: self.number(4),
                }
            }
            Kind::LookBatch => Query::Batch {
                batch: self.batch(),
            },
            Kind::LookQueue => Query::Queue {
                queue: self.queue(),
            },
            Kind::ListQueues => Query::Queues {
                after: self.cursor(),
                limit: self.number(4),
            },
            Kind::ListWorkers => Query::Workers {
                after: self.cursor(),
                limit: self.number(4),
            },
            Kind::ListClients => Query::Clients {
                after: self.cursor(),
                limit: self.number(4),
            },
            Kind::ListJobs => Query::Jobs {
                filter: self.filter().into(),
                after: Cursor::default(),
                limit: self.number(5),
            },
            Kind::Stats => Query::Stats,
            Kind::Days => Query::Days,
            _ => unreachable!("{kind:?} is no query"),
        }
    }

    // ---- clients ---------------------------------------------------------------------------------------------------

    fn somebody(&mut self) -> ClientId {
        let stranger = self.rng.chance(2);
        match self.rng.pick(&self.oracle.clients) {
            Some(client) if !stranger => client.id,
            Some(_) | None => ClientId(self.rng.below(1_000)),
        }
    }

    /// A client that is not waiting for a job, if there is one.
    fn somebody_free(&mut self) -> ClientId {
        let free = |client: &&ClientMemo| client.blocked().is_empty();
        let free: Vec<ClientId> = self
            .oracle
            .clients
            .iter()
            .filter(free)
            .map(|client| client.id)
            .collect();
        let anybody = self.rng.chance(15);
        let client = self.rng.pick(&free).copied();
        client
            .filter(|_| !anybody)
            .unwrap_or_else(|| self.somebody())
    }

    /// A new client number, while there is room; else a client that is open.
    fn newcomer(&mut self, other: ClientId) -> ClientId {
        let open = self.oracle.clients.len();
        if open < self.world.clients_max {
            ClientId(1_000 + self.rng.below(1 << 40))
        } else {
            other
        }
    }

    fn info(&mut self) -> ClientInfo {
        let number = self.number(100);
        let protocol = if self.rng.chance(80) {
            Some(self.protocol())
        } else {
            None
        };
        ClientInfo {
            namespace: None,
            address: format!("10.0.0.{number}").into(),
            protocol,
            number,
        }
    }

    // ---- work on a leased job --------------------------------------------------------------------------------------

    fn work(&mut self, kind: Kind, client: ClientId) -> (ClientId, Command) {
        let id = self.leased(kind == Kind::Repay);
        let memo = id.and_then(|id| self.oracle.job(id));
        let holder = memo.and_then(|memo| memo.connection().or_else(|| self.returned(memo)));
        let holder = holder.filter(|_| self.rng.chance(85));
        let proof = self.proof(memo);
        let (client, job) = (holder.unwrap_or(client), self.ref_to(id));
        let command = match kind {
            Kind::Fail => {
                let failure = Failure {
                    kind: self.bytes(4),
                    message: self.bytes(1),
                    backtrace: self.lines(),
                    ..Failure::default()
                };
                Command::Lease(LeaseCommand::Fail {
                    job,
                    proof,
                    failure: Box::new(failure),
                })
            }
            Kind::Unconvertible => Command::Lease(LeaseCommand::Unconvertible {
                job,
                proof,
                why: self.bytes(8),
            }),
            Kind::Release => Command::Lease(LeaseCommand::Release {
                job,
                proof,
                front: self.rng.chance(40),
            }),
            Kind::Extend => {
                let (until, only_later) = (self.time(), self.rng.chance(50));
                Command::Lease(LeaseCommand::Extend {
                    job,
                    proof,
                    until,
                    only_later,
                })
            }
            Kind::Repay => {
                let rewarded = id.and_then(|id| self.oracle.job(id)?.job.cycle());
                let to = self.rng.one_of([
                    RepayTo::Penalty,
                    RepayTo::Reward,
                    RepayTo::Reward,
                    RepayTo::Front,
                    // Few entries are rewarded, and of these few are lent again.
                    if rewarded.is_some_and(|cycle| cycle.boost > 0) {
                        RepayTo::Penalty
                    } else {
                        RepayTo::Drop
                    },
                ]);
                Command::Lease(LeaseCommand::Repay {
                    job,
                    proof,
                    body: self.bytes(20),
                    to,
                })
            }
            Kind::Tell => Command::Lease(LeaseCommand::Progress {
                job,
                proof,
                note: self.note(),
            }),
            _ => Command::Lease(LeaseCommand::Finish {
                job,
                proof,
                result: self.bytes(10),
            }),
        };
        (client, command)
    }

    fn leased(&mut self, cycle: bool) -> Option<JobId> {
        let leased =
            |memo: &&JobMemo| memo.job.lease().is_some() && memo.job.cycle().is_some() == cycle;
        let leased: Vec<JobId> = self.oracle.jobs.iter().filter(leased).map(id_of).collect();
        let away: Vec<JobId> = self
            .oracle
            .jobs
            .iter()
            .filter(|memo| memo.is_away())
            .map(id_of)
            .collect();
        // Their workers have a limited time.
        if !cycle
            && self.rng.chance(50)
            && let Some(away) = self.rng.pick(&away)
        {
            return Some(*away);
        }
        self.rng
            .pick(&leased)
            .copied()
            .filter(|_| !self.rng.chance(5))
    }

    /// A job that was delivered before and is not leased now, if there is one.
    fn left(&mut self) -> Option<JobId> {
        let also_new = self.rng.chance(20);
        let left =
            |memo: &&JobMemo| (also_new || memo.job.attempts > 0) && memo.job.lease().is_none();
        let left: Vec<JobId> = self.oracle.jobs.iter().filter(left).map(id_of).collect();
        self.rng
            .pick(&left)
            .copied()
            .filter(|_| !self.rng.chance(10))
    }

    /// A client that may report on a job whose worker is away.
    fn returned(&self, memo: &JobMemo) -> Option<ClientId> {
        let Holder::Away(protocol) = memo.job.lease()?.holder else {
            return None;
        };
        Some(
            self.oracle
                .clients
                .iter()
                .find(|client| client.info.protocol == Some(protocol))?
                .id,
        )
    }

    fn proof(&mut self, memo: Option<&JobMemo>) -> Proof {
        let token = memo
            .and_then(|memo| memo.job.lease())
            .map_or(Token(1), |lease| lease.token);
        if memo.is_some_and(|memo| memo.connection().is_some() || memo.is_away())
            && self.rng.chance(60)
        {
            return Proof::Connection;
        }
        let stale = Token(token.0.saturating_sub(1));
        let right = Proof::Token(token);
        self.rng.one_of([
            right,
            right,
            right,
            Proof::Token(stale),
            Proof::Connection,
            Proof::AnyLease,
            Proof::Late,
        ])
    }

    fn lines(&mut self) -> Vec<Bytes> {
        (0..self.rng.below(3)).map(|_| self.bytes(1)).collect()
    }

    fn note(&mut self) -> Note {
        let (numerator, denominator) = (self.number(10), self.number(10));
        match self.rng.below(3) {
            0 => Note::Progress {
                numerator,
                denominator,
                raw: self.bytes(5),
            },
            1 => Note::Data(self.bytes(5)),
            _ => Note::Warning(self.bytes(5)),
        }
    }

    // ---- which job -------------------------------------------------------------------------------------------------

    fn job_ref(&mut self) -> JobRef {
        let any = self.rng.pick(&self.oracle.jobs).map(id_of);
        self.ref_to(any)
    }

    /// A job that waits for another one of its identity, if there is one.
    fn follower(&mut self) -> JobRef {
        let followers = self
            .oracle
            .jobs
            .iter()
            .filter(|memo| memo.ahead().is_some())
            .map(id_of);
        let followers: Vec<JobId> = followers.collect();
        let any = self.rng.pick(&followers).copied();
        self.ref_to(any)
    }

    fn key_anywhere(&mut self) -> JobRef {
        let key = self.rng.pick(&self.world.keys).cloned().unwrap_or_default();
        JobRef::KeyAnywhere {
            protocol: self.protocol(),
            key,
        }
    }

    fn ref_to(&mut self, id: Option<JobId>) -> JobRef {
        let Some(memo) = id
            .and_then(|id| self.oracle.job(id))
            .filter(|_| !self.rng.chance(5))
        else {
            return JobRef::Id(JobId(self.rng.below(self.oracle.next_job + 5)));
        };
        match (self.rng.below(6), memo.job.key()) {
            (0, _) => JobRef::Name(Bytes::copy_from_slice(memo.job.name())),
            (1, Some(key)) => {
                let queue = self.oracle.queue(memo.job.queue).name.clone();
                JobRef::key(queue, memo.job.protocol, Bytes::copy_from_slice(key))
            }
            _ => JobRef::Id(memo.job.id),
        }
    }

    pub(crate) fn filter(&mut self) -> Filter {
        let names = (0..self.rng.between(1, 3)).map(|_| self.name()).collect();
        let kind = self.rng.pick(&JobStateKind::ALL).copied();
        Filter {
            state: kind.filter(|_| self.rng.chance(60)),
            queue: Some(self.queue()).filter(|_| self.rng.chance(50)),
            protocol: Some(self.protocol()).filter(|_| self.rng.chance(20)),
            names: if self.rng.chance(20) {
                names
            } else {
                Vec::new()
            },
            conditions: if self.rng.chance(20) {
                vec![Condition::Body("ab".into())]
            } else {
                Vec::new()
            },
            ..Filter::default()
        }
    }

    fn mutation(&mut self) -> Mutation {
        use Mutation::{Cancel, Discard, Kill, Redrive, Release, Requeue};
        let (delay_ms, per_second) = (self.rng.below(self.world.pace_ms), 1 + self.number(500));
        let redrive = Redrive {
            delay_ms,
            per_second,
        };
        self.rng.one_of([
            Discard, Cancel, Kill, Requeue, Requeue, Release, Release, redrive, redrive,
        ])
    }

    // ---- queues and workers ----------------------------------------------------------------------------------------

    fn queue_command(&mut self, kind: Kind) -> Command {
        let queue = self.queue();
        match kind {
            Kind::CreateQueue => Command::Queue(QueueCommand::Create {
                queue: queue.clone(),
                kind: self.kind_of(&queue),
            }),
            Kind::RemoveQueue => Command::Queue(QueueCommand::Remove {
                queue,
                only_idle: self.rng.chance(50),
            }),
            Kind::PauseQueue => Command::Queue(QueueCommand::Pause {
                queue,
                paused: self.rng.chance(50),
            }),
            _ => {
                let mut jobs_max = [None; Priority::COUNT];
                jobs_max.fill_with(|| self.rng.chance(40).then(|| self.number(12)));
                Command::Queue(QueueCommand::Limit { queue, jobs_max })
            }
        }
    }

    fn throttle(&mut self) -> Option<Throttle> {
        let pace = self.world.pace_ms;
        let throttle = Throttle {
            leased_max: if self.rng.chance(60) {
                Some(self.number(4))
            } else {
                None
            },
            per_worker_max: if self.rng.chance(60) {
                Some(self.number(3))
            } else {
                None
            },
            timeout_ms: if self.rng.chance(50) {
                Some(self.rng.below(pace * 4))
            } else {
                None
            },
            configured: false,
        };
        Some(throttle).filter(|_| self.rng.chance(60))
    }

    pub(crate) fn kind_of(&mut self, queue: &Bytes) -> QueueKind {
        let right = self.world.cycles.contains(queue) == self.rng.chance(97);
        if right {
            QueueKind::Cycle
        } else {
            QueueKind::Work
        }
    }

    /// A queue's name; sometimes one that is too long.
    pub(crate) fn queue(&mut self) -> Bytes {
        let long = self.rng.chance(1);
        self.rng
            .pick(&self.world.queues)
            .filter(|_| !long)
            .cloned()
            .unwrap_or_else(|| Bytes::from_static(b"a-long-name"))
    }

    pub(crate) fn name(&mut self) -> Bytes {
        self.rng
            .pick(&self.world.names)
            .cloned()
            .unwrap_or_default()
    }

    pub(crate) fn worker(&mut self) -> Bytes {
        let nameless = self.rng.chance(4);
        self.rng
            .pick(&self.world.workers)
            .filter(|_| !nameless)
            .cloned()
            .unwrap_or_default()
    }

    /// Mostly an existing batch, if there is one.
    pub(crate) fn batch(&mut self) -> Bytes {
        let there: Vec<Bytes> = self.oracle.live_batches().map(|batch| batch.name).collect();
        let known = self.rng.chance(80);
        match self.rng.pick(&there) {
            Some(name) if known => name.clone(),
            Some(_) | None => self
                .rng
                .pick(&self.world.batches)
                .cloned()
                .unwrap_or_default(),
        }
    }

    fn state(&mut self) -> WorkerState {
        self.rng.one_of([
            WorkerState::Running,
            WorkerState::Quiet,
            WorkerState::Terminate,
        ])
    }

    fn state_if_any(&mut self) -> Option<WorkerState> {
        let state = self.state();
        self.rng.chance(20).then_some(state)
    }

    // ---- small values ----------------------------------------------------------------------------------------------

    pub(crate) fn protocol(&mut self) -> Protocol {
        self.rng.one_of([Protocol::GEARMAN, Protocol::FAKTORY])
    }

    pub(crate) fn bytes(&mut self, most: u64) -> Bytes {
        let many = self.rng.below(most + 1);
        (0..many)
            .map(|_| self.rng.one_of([b'a', b'b', b'c']))
            .collect::<Vec<u8>>()
            .into()
    }

    pub(crate) fn number(&mut self, most: u32) -> u32 {
        u32::try_from(self.rng.below(u64::from(most) + 1)).unwrap_or(most)
    }

    /// A moment near now; sometimes one that never comes.
    pub(crate) fn time(&mut self) -> Timestamp {
        let (now, pace) = (self.oracle.now.0, self.world.pace_ms);
        match self.rng.below(20) {
            0 => Timestamp::NEVER,
            1..5 => Timestamp(now.saturating_sub(self.rng.below(pace))),
            5 => Timestamp(now),
            _ => Timestamp(now + self.rng.below(pace * 4)),
        }
    }

    /// The same by the wall clock.
    pub(crate) fn wall_time(&mut self) -> Timestamp {
        let skew_ms = self.oracle.skew_ms();
        self.time().shifted(skew_ms)
    }

    fn cursor(&mut self) -> Cursor {
        let after = self
            .rng
            .pick(&self.oracle.clients)
            .map_or(0, |client| client.id.0);
        self.rng
            .one_of([Cursor::default(), Cursor(1, 0), Cursor(after, 0)])
    }
}
