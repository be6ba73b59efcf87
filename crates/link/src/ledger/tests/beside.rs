//! An edge with a ledger and a leader with an engine, on a link that delays: the ledger is the leader's list of the
//! edge's clients.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use windlass_engine::{
    Claim, Clash, ClientCommand, ClientInfo, Context, Cursor, Engine, Event, Expiry, Failure, From,
    Holder, Job, JobCommand, JobId, JobRef, KeyUntil, LeaseCommand, LeaseTerms, Limits, Listen,
    NewJob, Proof, Protocol, Query, Reply, Select, Subscription, Take, TakeCommand, Timestamp,
    Unique, Wait,
};

use super::super::waits::command;
use super::super::*;
use super::{BOUNDS, finish, short, subscription, take_of};

const CLIENTS: usize = 4;

/// Numbers that only look random.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

/// An edge with a ledger, a leader with an engine, and a link that delays.
struct Broker {
    rng: Rng,
    ledger: Ledger,
    engine: Engine,
    context: Context,
    to_leader: VecDeque<ToLeader>,
    to_edge: VecDeque<ToEdge>,
    open: BTreeSet<ClientId>,
    next_client: u64,
    tag: u64,
}

impl Broker {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng(seed),
            ledger: Ledger::new(BOUNDS),
            engine: Engine::new(Limits::default(), 1),
            context: Context::new(Timestamp(1_000), 1),
            to_leader: VecDeque::new(),
            to_edge: VecDeque::new(),
            open: BTreeSet::new(),
            next_client: 1,
            tag: 0,
        }
    }

    fn send(&mut self, mut item: ToLeader) {
        if let ToLeader::Command {
            client, command, ..
        } = &mut item
        {
            self.ledger.prove(*client, command);
        }
        self.ledger.sent(&item);
        self.to_leader.push_back(item);
    }

    /// The leader does an item, and reports behind it in the same visit. It counts commands before the events that answer
    /// them.
    fn lead(&mut self) {
        self.context.now = self.context.now.after_ms(3);
        self.context.changes.clear();
        self.engine.tick(&mut self.context);
        self.report();
        let most = usize::try_from(1 + self.rng.below(4)).unwrap();
        for at in 0..most {
            let Some(item) = self
                .to_leader
                .pop_front_if(|item| at == 0 || is_report(item))
            else {
                break;
            };
            match item {
                ToLeader::Command {
                    client,
                    tag,
                    command,
                } => {
                    self.to_edge.push_back(ToEdge::Applied { client, count: 1 });
                    self.engine.apply(client, tag, command, &mut self.context);
                }
                ToLeader::Close { client } => {
                    self.engine
                        .apply(client, Tag::NONE, ClientCommand::Close, &mut self.context)
                }
                _ => {}
            }
        }
        self.report();
    }

    fn report(&mut self) {
        let events = self.context.events.drain(..);
        self.to_edge
            .extend(events.map(|(client, event)| ToEdge::Event {
                client,
                gate: 0,
                event,
            }));
    }

    /// The edge gets one item.
    fn receive(&mut self) {
        if let Some(item) = self.to_edge.pop_front() {
            self.ledger.received(&item);
        }
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0..4 => self.lead(),
            4..7 => self.receive(),
            _ => self.act(),
        }
    }

    fn act(&mut self) {
        if self.open.len() < CLIENTS {
            let client = ClientId(self.next_client);
            self.next_client += 1;
            self.open.insert(client);
            self.send(ToLeader::Open {
                client,
                room: 1 << 20,
            });
            let info = ClientInfo {
                protocol: Some(Protocol::GEARMAN),
                ..ClientInfo::default()
            };
            self.send(command(client, Tag::NONE, ClientCommand::Open(info)));
            return;
        }
        let open: Vec<_> = self.open.iter().copied().collect();
        let client = self.rng.one_of(&open);
        if self.rng.below(40) == 0 {
            self.open.remove(&client);
            return self.send(ToLeader::Close { client });
        }
        let said = self.command();
        self.tag += 1;
        let has_answer =
            self.rng.below(4) > 0 || matches!(said, Command::Take(_) | Command::Job(_));
        let tag = if has_answer {
            Tag(self.tag)
        } else {
            Tag::silent(1)
        };
        self.send(command(client, tag, said));
    }

    fn command(&mut self) -> Command {
        let queue = Bytes::from_static(self.rng.one_of(&[b"a", b"b"]));
        let select = Select::BestPriority;
        match self.rng.below(17) {
            0..3 => ClientCommand::Serve(Subscription {
                queue,
                ..subscription("")
            })
            .into(),
            3 => ClientCommand::Unserve {
                queue,
                requeue: self.rng.below(2) == 0,
            }
            .into(),
            4 => ClientCommand::SetName(queue).into(),
            5..8 => self.push(queue),
            8 => take_of(self.rng.one_of(&[Wait::No, Wait::Forever])).into(),
            9 => {
                let wait = self.rng.one_of(&[
                    Wait::No,
                    Wait::Forever,
                    Wait::Until(self.context.now.after_ms(50)),
                ]);
                let from = From::Listed {
                    queues: vec![queue],
                    lease: LeaseTerms::CONNECTION,
                };
                TakeCommand::Take(Take {
                    from,
                    select,
                    wait,
                    worker: Bytes::new(),
                })
                .into()
            }
            10 => TakeCommand::WaitForWork.into(),
            11 => TakeCommand::Credit {
                credits: u32::try_from(self.rng.below(4)).unwrap(),
                select,
            }
            .into(),
            12 => TakeCommand::Unwait.into(),
            13 => {
                let until = self.context.now.after_ms(self.rng.below(100_000));
                let (job, only_later) = (self.job(), self.rng.below(2) == 0);
                LeaseCommand::Extend {
                    job,
                    proof: Proof::Connection,
                    until,
                    only_later,
                }
                .into()
            }
            14 => finish(self.job()),
            15 => JobCommand::Collect {
                name: self.collector(),
                from: JobId(0),
            }
            .into(),
            _ => {
                let (job, proof) = (self.job(), Proof::Connection);
                match self.rng.below(2) {
                    0 => LeaseCommand::Release {
                        job,
                        proof,
                        front: true,
                    }
                    .into(),
                    _ => LeaseCommand::Fail {
                        job,
                        proof,
                        failure: Box::new(Failure::default()),
                    }
                    .into(),
                }
            }
        }
    }

    /// A job that is probably there.
    fn job(&mut self) -> JobRef {
        let leased: Vec<_> = self
            .engine
            .jobs()
            .filter(|job| job.lease().is_some())
            .map(|job| job.id)
            .collect();
        let id = if leased.is_empty() {
            JobId(self.rng.below(9))
        } else {
            self.rng.one_of(&leased)
        };
        JobRef::Id(id)
    }

    fn collector(&mut self) -> Bytes {
        Bytes::from_static(self.rng.one_of(&[b"me", b"it"]))
    }

    fn push(&mut self, queue: Bytes) -> Command {
        let key = Bytes::from_static(self.rng.one_of(&[b"k", b"l", b"m"]));
        let unique = Unique {
            key,
            clash: self.rng.one_of(&[Clash::Attach, Clash::Keep]),
            until: KeyUntil::End,
        };
        let (durable, listen) = (self.rng.below(2) == 0, self.rng.below(3) > 0);
        let job = NewJob {
            durable,
            listen: match self.rng.below(2) {
                _ if !listen && durable => Listen::No,
                0 => Listen::As(self.collector()),
                _ => Listen::Yes,
            },
            unique: Some(unique).filter(|_| self.rng.below(2) == 0),
            expires: if self.rng.below(10) == 0 {
                Expiry::At(Timestamp(1))
            } else {
                Expiry::Never
            },
            ..NewJob::new(Protocol::GEARMAN, queue, "body".into())
        };
        JobCommand::Push(Box::new(job)).into()
    }

    /// Everything on its way arrives.
    fn quiet(&mut self) {
        while !self.to_leader.is_empty() {
            self.lead();
        }
        while !self.to_edge.is_empty() {
            self.receive();
        }
    }

    fn rows(&mut self) -> Vec<windlass_engine::ClientRow> {
        let (mut rows, mut after) = (Vec::new(), Cursor::default());
        loop {
            self.engine.apply(
                ClientId(0),
                Tag(1),
                Query::Clients { after, limit: 100 },
                &mut self.context,
            );
            let events = std::mem::take(&mut self.context.events);
            let reply = events.into_iter().find_map(|(_, event)| match event {
                Event::Reply(_, Reply::Clients { rows, next }) => Some((rows, next)),
                _ => None,
            });
            let (mut page, next) = reply.unwrap();
            rows.append(&mut page);
            match next {
                Some(next) => after = next,
                None => return rows,
            }
        }
    }

    /// The state of the clients at the engine, as claims of the ledger, without the order of waits and without rooms.
    fn engine_has(&mut self) -> BTreeMap<ClientId, BTreeSet<String>> {
        let mut all: BTreeMap<ClientId, BTreeSet<String>> = BTreeMap::new();
        for row in self.rows() {
            let has = all.entry(row.id).or_default();
            for (at, queue) in row.subscriptions.iter().enumerate() {
                has.insert(format!("{at} serve {}", queue.escape_ascii()));
            }
            if !row.label.is_empty() {
                has.insert(format!("name {}", row.label.escape_ascii()));
            }
            if row.waits {
                has.insert("waits".to_owned());
            }
        }
        for job in self.engine.jobs() {
            if let Some(lease) = job.lease()
                && let Holder::Connection(client) = lease.holder
            {
                let line = format!(
                    "holds {}.{} until {:?}",
                    job.id.0, lease.token.0, lease.until
                );
                all.entry(client).or_default().insert(line);
            }
            let mut times: BTreeMap<ClientId, u32> = BTreeMap::new();
            job.listeners()
                .iter()
                .for_each(|client| *times.entry(*client).or_default() += 1);
            for (client, times) in times {
                all.entry(client)
                    .or_default()
                    .insert(format!("hears {} times {times}", job.id.0));
            }
        }
        all
    }

    /// An engine with what a journal has of this one, and what the clients claim then.
    fn successor(&mut self, to_leader: &[ToLeader]) -> Engine {
        let mut engine = Engine::new(Limits::default(), 2);
        engine.recall_meta(self.engine.meta().clone(), false);
        self.engine
            .queues()
            .for_each(|queue| engine.recall_queue(queue.image().clone()));
        for job in self.engine.jobs().filter(|job| job.durable) {
            let mut job = job.clone();
            job.extra
                .iter_mut()
                .for_each(|extra| extra.listeners.clear());
            assert!(engine.recall_job(job));
        }
        engine.wake_up();
        engine.succeed(&mut self.context);
        for item in to_leader {
            match item.clone() {
                ToLeader::Command {
                    client,
                    tag,
                    command,
                } => engine.apply(client, tag, command, &mut self.context),
                ToLeader::Claim { client, claim } => {
                    engine.apply(
                        client,
                        Tag::NONE,
                        Command::Claim(Box::new(claim)),
                        &mut self.context,
                    );
                }
                _ => {}
            }
        }
        engine.check();
        self.context.events.clear();
        engine
    }

    fn ledger_has(&mut self, to_leader: &[ToLeader]) -> BTreeMap<ClientId, BTreeSet<String>> {
        let mut all: BTreeMap<ClientId, BTreeSet<String>> = BTreeMap::new();
        let mut served: BTreeMap<ClientId, usize> = BTreeMap::new();
        let mut times: BTreeMap<(ClientId, JobId), u32> = BTreeMap::new();
        for item in to_leader {
            let Some(client) = item.client() else {
                continue;
            };
            let has = all.entry(client).or_default();
            match item {
                ToLeader::Open { .. }
                | ToLeader::Command {
                    command: Command::Client(ClientCommand::Open(_)),
                    ..
                } => {}
                ToLeader::Command {
                    command: Command::Client(ClientCommand::Serve(_)),
                    ..
                } => {
                    let at = served.entry(client).or_default();
                    has.insert(format!("{at} {}", short(item)));
                    *at += 1;
                }
                ToLeader::Command {
                    command: Command::Take(_),
                    ..
                } => drop(has.insert("waits".to_owned())),
                ToLeader::Claim {
                    claim: Claim::Holds { held, .. },
                    ..
                } => {
                    has.insert(format!("{} until {:?}", short(item), held.until));
                }
                ToLeader::Claim {
                    claim: Claim::Hears { job } | Claim::Pushed { job, .. },
                    ..
                } => {
                    *times.entry((client, *job)).or_default() += 1;
                }
                other => drop(has.insert(short(other))),
            }
        }
        for ((client, job), times) in times {
            all.entry(client)
                .or_default()
                .insert(format!("hears {} times {times}", job.0));
        }
        all
    }
}

/// Whether a worker reports on a job: the ledger knows what came first, the report or what its client got in the same
/// visit.
const fn is_report(item: &ToLeader) -> bool {
    matches!(
        item,
        ToLeader::Command {
            command: Command::Lease(_),
            ..
        }
    )
}

/// Without waits, and without leases of these jobs.
fn without(
    all: &BTreeMap<ClientId, BTreeSet<String>>,
    gone: &BTreeSet<JobId>,
) -> BTreeMap<ClientId, BTreeSet<String>> {
    let is_kept = |line: &&String| {
        *line != "waits"
            && !gone
                .iter()
                .any(|job| line.starts_with(&format!("holds {}.", job.0)))
    };
    all.iter()
        .map(|(client, has)| (*client, has.iter().filter(is_kept).cloned().collect()))
        .collect()
}

/// When everything has arrived, the ledger is the leader's list of the edge's clients. Changes by others
/// of a client's jobs without a notice are not in this script: only the client itself ends the jobs it holds. An engine
/// that recovers from a journal, and then gets the claims, has the same jobs, leases and listeners as the one before.
#[test]
fn the_ledger_is_what_the_engine_has() {
    for seed in 0..300 {
        let mut broker = Broker::new(seed);
        for round in 0..6 {
            (0..60).for_each(|_| broker.step());
            broker.quiet();
            let to_leader = broker.ledger.claims(Some(u64::MAX));
            let (engine, ledger) = (broker.engine_has(), broker.ledger_has(&to_leader));
            assert_eq!(ledger, engine, "seed {seed}, round {round}");
            let successor = broker.successor(&to_leader);
            // Those whose listeners have left end with their lease, or with the leader.
            let (kept, gone): (Vec<_>, Vec<_>) = broker
                .engine
                .jobs()
                .partition(|job| job.durable || !job.listeners().is_empty());
            let numbers =
                |jobs: Vec<&Job>| jobs.into_iter().map(|job| job.id).collect::<BTreeSet<_>>();
            let (kept, gone) = (numbers(kept), numbers(gone));
            assert_eq!(
                numbers(successor.jobs().collect()),
                kept,
                "seed {seed}, round {round}: jobs"
            );
            let earlier = std::mem::replace(&mut broker.engine, successor);
            let successor = broker.engine_has();
            assert_eq!(
                without(&successor, &gone),
                without(&engine, &gone),
                "seed {seed}, round {round}: successor"
            );
            // After its grace: waits begin anew, and some find a job.
            broker.engine.end_grace_at(broker.context.now);
            broker.engine.tick(&mut broker.context);
            broker.engine.check();
            broker.context.events.clear();
            broker.engine = earlier;
            // The claims are new commands, which the engine has not applied: here they count as applied.
            let clients: Vec<_> = broker.ledger.clients().collect();
            clients.iter().for_each(|client| {
                broker.ledger.received(&ToEdge::Applied {
                    client: *client,
                    count: u32::MAX,
                })
            });
        }
    }
}
