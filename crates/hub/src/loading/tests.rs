//! Moving bodies out of memory and back, one step of the thread at a time.

use std::collections::VecDeque;

use windlass_engine::{
    BulkCommand, Clash, ClientCommand, ClientId, ClientInfo, Command, Condition, Engine, Event,
    Filter, From, JobCommand, JobRef, JobState, KeySource, LeaseCommand, LeaseTerms, Limits,
    Listen, Mutation, NewJob, Notice, Policy, Proof, Protocol, Query, QueueCommand, QueueSettings,
    Refusal, Reply, Select, Subscription, Tag, Take, TakeCommand, Unique, Wait,
};
use windlass_session::Item;
use windlass_store::{Journal, Log as _, StoreLimits, open_parts};
use windlass_testkit::store::{MemoryLog, MemoryTable};

use super::*;
use crate::broker::{Broker as _, Visited};
use crate::budget::Budget;
use crate::clock;
use crate::hub::{Cut, Durability};
use crate::mailbox::{Mail, Mailbox, QueuedMail};
use crate::testing::nowhere;

mod room;
mod slow_store;
mod unreadable;

const QUEUE: Bytes = Bytes::from_static(b"q");
/// Size of each body.
const BODY: usize = 1_000;

/// A hub with its clients. The test acts as the loading thread.
struct Bench {
    hub: Arc<Hub>,
    work: Work,
    mailboxes: Vec<Arc<Mailbox>>,
}

fn body_file() -> BodyFile {
    BodyFile::create(&std::env::temp_dir()).unwrap()
}

fn filled(number: u8, bytes: usize) -> Bytes {
    vec![number; bytes].into()
}

fn job(number: u8, bytes: usize) -> NewJob {
    NewJob::new(Protocol::GEARMAN, QUEUE, filled(number, bytes))
}

fn push(number: u8) -> Command {
    JobCommand::Push(Box::new(job(number, BODY))).into()
}

fn take() -> Command {
    let from = From::Listed {
        queues: vec![QUEUE],
        lease: LeaseTerms::CONNECTION,
    };
    TakeCommand::Take(Take {
        from,
        select: Select::ListOrder,
        wait: Wait::No,
        worker: Bytes::new(),
    })
    .into()
}

/// Requests delivery of the next job.
fn one_credit() -> [Command; 2] {
    let terms = LeaseTerms::CONNECTION;
    let serve = ClientCommand::Serve(Subscription {
        queue: QUEUE,
        weight: 0,
        lease: terms,
        unclaimed: None,
    });
    [
        serve.into(),
        TakeCommand::Credit {
            credits: 1,
            select: Select::BestPriority,
        }
        .into(),
    ]
}

fn finish(job: u64) -> Command {
    LeaseCommand::Finish {
        job: JobRef::Id(JobId(job)),
        proof: Proof::Connection,
        result: Bytes::new(),
    }
    .into()
}

fn list(conditions: Vec<Condition>) -> Command {
    let filter = Filter {
        conditions,
        ..Filter::default()
    }
    .into();
    Query::Jobs {
        filter,
        after: Default::default(),
        limit: 10,
    }
    .into()
}

/// Changes all jobs.
fn mutate(action: Mutation) -> Command {
    BulkCommand::Mutate {
        filter: Filter::default().into(),
        action,
        after: Default::default(),
        limit: 10,
    }
    .into()
}

fn with_text(number: u8) -> Command {
    list(vec![Condition::Body(filled(number, 2))])
}

fn items<const N: usize>(commands: [Command; N]) -> VecDeque<Item> {
    commands
        .into_iter()
        .zip(1..)
        .map(|(command, tag)| Item::Command(Tag(tag), command))
        .collect()
}

/// The memory of the four clients and the queue.
const BESIDE: u64 = 3_500;

impl Bench {
    /// Four clients, and this much memory for jobs.
    fn new(memory_max: u64) -> Self {
        Self::of(memory_max, Durability::Soon)
    }

    fn of(memory_max: u64, durability: Durability) -> Self {
        let memory_max = memory_max.saturating_add(BESIDE);
        Self::on(
            Engine::new(
                Limits {
                    memory_max,
                    ..Limits::default()
                },
                7,
            ),
            durability,
            None,
        )
    }

    fn on(engine: Engine, durability: Durability, interval: Option<Duration>) -> Self {
        let hub =
            Hub::new(engine, Journal::new(), durability, 7).sharing(Arc::new(Budget::new(1 << 30)));
        let (hub, file) = (Arc::new(hub.within(interval)), body_file());
        hub.loading.reader.set(file.reader()).unwrap();
        hub.loading.thread.set(thread::current()).unwrap();
        let work = Work {
            hub: Arc::clone(&hub),
            file,
            again: Vec::new(),
            given_up: HashSet::default(),
            stuck_until: None,
            stop: Arc::default(),
        };
        let mailboxes = (1..=4).map(|client| {
            let mut home = nowhere();
            home.connection.client = ClientId(client);
            let mailbox = Arc::new(Mailbox::new(usize::MAX, Arc::clone(&hub.budget), home));
            hub.open(ClientId(client), Arc::clone(&mailbox));
            mailbox
        });
        let bench = Self {
            mailboxes: mailboxes.collect(),
            hub,
            work,
        };
        (1..=4).for_each(|client| {
            drop(bench.run(client, ClientCommand::Open(ClientInfo::default()).into()))
        });
        bench
    }

    fn visit(&self, client: u64, items: &mut VecDeque<Item>) -> Visited {
        loop {
            match self
                .hub
                .visit_one(ClientId(client), &clock::read(), items, usize::MAX)
            {
                Visited::Part => {}
                visited @ (Visited::All | Visited::UntilRung) => return visited,
            }
        }
    }

    /// Runs a command that does not wait, and returns its replies.
    fn run(&self, client: u64, command: Command) -> Vec<Event> {
        assert!(self.visit(client, &mut items([command])) == Visited::All);
        self.mail(client)
    }

    fn mail(&self, client: u64) -> Vec<Event> {
        let mut mail = Vec::new();
        self.hub.mail(self.mailbox(client), usize::MAX, &mut mail);
        mail.into_iter()
            .filter_map(|mail| {
                if let Mail::Event(event) = mail {
                    Some(event)
                } else {
                    None
                }
            })
            .collect()
    }

    fn mailbox(&self, client: u64) -> &Arc<Mailbox> {
        &self.mailboxes[usize::try_from(client).unwrap() - 1]
    }

    /// Whether the client was woken since the last call.
    fn is_rung(&self, client: u64) -> bool {
        self.mailbox(client).wake_flag().look()
    }

    /// Moves the bodies of all jobs to disk that can be moved.
    fn cool_all(&mut self) {
        for _ in 0..2 {
            let bodies = self.hub.cool(u64::MAX).bodies;
            let (places, written) = self
                .work
                .file
                .write_all(bodies.iter().map(|(_, body)| &body[..]));
            written.unwrap();
            assert_eq!(self.hub.set_stored(&bodies, &places), []);
        }
    }

    /// Creates this many jobs whose bodies are on disk only.
    fn with_cold_jobs(jobs: u8) -> Self {
        let mut bench = Self::new(u64::MAX);
        (1..=jobs).for_each(|number| drop(bench.run(1, push(number))));
        bench.commit();
        bench.cool_all();
        assert_eq!(bench.stored(), (jobs.into(), u64::from(jobs) * BODY as u64));
        bench
    }

    /// Runs steps until the thread would sleep.
    fn steps(&mut self) {
        while self.work.step() {}
    }

    /// Writes all changes to disk.
    fn commit(&self) {
        commit(&self.hub);
    }

    /// Writes all changes to disk, and runs the thread's steps.
    fn settle(&mut self) {
        self.commit();
        self.steps();
    }

    fn stored(&self) -> (u64, u64) {
        self.hub.with_journal(|engine, _| engine.stored())
    }

    fn resident(&self) -> u64 {
        self.hub.with_journal(|engine, _| engine.resident_bytes())
    }

    /// Replaces the file by one without any bodies.
    fn lose_file(&mut self) -> BodyFile {
        std::mem::replace(&mut self.work.file, body_file())
    }

    /// Makes the thread give up unreadable bodies at the next try.
    fn lose_patience(&mut self) {
        self.work
            .again
            .iter_mut()
            .for_each(|(_, since)| *since = since.checked_sub(TRIED_FOR).unwrap());
    }
}

/// Writes all changes to disk.
fn commit(hub: &Hub) {
    while let Some(Cut { commit, .. }) = hub.cut() {
        hub.committed(commit)
            .iter()
            .for_each(|mailbox| mailbox.ring());
    }
}

/// The bodies of the jobs that these events hand out; `None` for another event.
fn bodies(events: &[Event]) -> Vec<Option<Bytes>> {
    events
        .iter()
        .map(|event| event.handed_out().map(|job| job.body.clone()))
        .collect()
}

fn refusals(events: &[Event]) -> Vec<Option<Refusal>> {
    let refusal = |event: &Event| match event {
        Event::Reply(_, Reply::Refused(why)) => Some(*why),
        Event::Reply(..) | Event::Notice(_) => None,
    };
    events.iter().map(refusal).collect()
}

#[test]
fn mail_waits_for_its_body_and_keeps_its_order() {
    let mut bench = Bench::with_cold_jobs(3);
    assert!(bench.visit(2, &mut items([take(), Query::Stats.into(), take()])) == Visited::All);
    assert_eq!(bench.mail(2).len(), 0, "the first answer waits");
    assert_eq!(
        bench.run(3, Query::Stats.into()).len(),
        1,
        "other clients do not"
    );
    bench.is_rung(2);
    bench.steps();
    assert!(bench.is_rung(2));
    assert_eq!(
        bodies(&bench.mail(2)),
        [Some(filled(1, BODY)), None, Some(filled(2, BODY))]
    );
    assert_eq!(bench.mailbox(2).len(), 0);
    assert_eq!(
        bodies(&bench.run(3, take())),
        [Some(filled(3, BODY))],
        "it was loaded ahead"
    );
    bench.settle();
    assert_eq!((bench.stored(), bench.work.file.bytes()), ((0, 0), 0));
    let figures = &bench.hub.loading.figures;
    let [loads, waited, failed] =
        [&figures.loads, &figures.waited, &figures.failed].map(|it| it.load(Ordering::Relaxed));
    assert!(
        loads >= 3 && (waited, failed) == (2, 0),
        "{loads} {waited} {failed}"
    );
}

#[test]
fn mail_for_another_daemon_waits_for_its_body_too() {
    let mut bench = Bench::with_cold_jobs(1);
    bench.visit(
        2,
        &mut items([Query::Stats.into(), take(), Query::Stats.into()]),
    );
    let early = |bench: &Bench| {
        let mut queued: Vec<QueuedMail> = Vec::new();
        bench.mailbox(2).take_early(&mut queued);
        queued.len()
    };
    assert_eq!((early(&bench), early(&bench)), (1, 0));
    bench.steps();
    assert_eq!((early(&bench), bench.mailbox(2).len()), (2, 0));
}

#[test]
fn a_page_of_jobs_and_a_watched_delivery_get_their_bodies() {
    let mut bench = Bench::with_cold_jobs(3);
    bench.visit(2, &mut items([list(Vec::new())]));
    bench.visit(3, &mut items(one_credit()));
    assert_eq!(bench.mail(2).len(), 0);
    bench.steps();
    let mail = bench.mail(2);
    let [Event::Reply(_, Reply::Jobs { rows, .. })] = &mail[..] else {
        panic!("{mail:?}")
    };
    let found: Vec<&[u8]> = rows.iter().map(|row| row.job.body()).collect();
    assert_eq!(found, [3, 2, 1].map(|number| filled(number, BODY)));
    let mail = bench.mail(3);
    let delivered = mail
        .iter()
        .filter(|event| matches!(event, Event::Notice(Notice::Delivered(_))))
        .cloned();
    assert_eq!(
        bodies(&delivered.collect::<Vec<_>>()),
        [Some(filled(1, BODY))],
        "{mail:?}"
    );
}

#[test]
fn a_place_is_free_after_the_commit_behind_it() {
    let mut bench = Bench::of(u64::MAX, Durability::Durable);
    bench.visit(1, &mut items([push(1)]));
    let commit = |bench: &Bench| drop(bench.hub.committed(bench.hub.cut().unwrap().commit));
    commit(&bench);
    bench.cool_all();
    bench.visit(
        1,
        &mut items([JobCommand::Cancel(JobRef::Id(JobId(1))).into()]),
    );
    bench.steps();
    assert_eq!(
        (bench.stored(), bench.work.file.bytes()),
        ((0, 0), BODY as u64),
        "a commit may read it"
    );
    commit(&bench);
    bench.steps();
    assert_eq!(bench.work.file.bytes(), 0);
}

/// A job becomes durable while its body is not in memory.
#[test]
fn a_commit_reads_the_bodies_that_it_needs() {
    let mut bench = Bench::of(u64::MAX, Durability::Durable);
    let shared = |durable, listen| {
        let unique = Some(Unique {
            key: Bytes::from_static(b"k"),
            clash: Clash::Attach,
            until: Default::default(),
        });
        JobCommand::Push(Box::new(NewJob {
            durable,
            listen,
            unique,
            ..job(1, BODY)
        }))
        .into()
    };
    bench.visit(1, &mut items([shared(false, Listen::Yes)]));
    let mut log = MemoryLog::new();
    let mut commit = |bench: &Bench| {
        while let Some(Cut { commit, .. }) = bench.hub.cut() {
            log.append(&commit).unwrap();
            bench.hub.committed(commit);
        }
    };
    commit(&bench);
    bench.cool_all();
    assert_eq!(bench.stored().0, 1);
    bench.visit(2, &mut items([shared(true, Listen::No)]));
    // Loaded meanwhile, so its place is free, but only after the commit.
    let place = bench
        .hub
        .with_journal(|engine, _| engine.job(JobId(1)).unwrap().payload.stored().unwrap());
    bench.hub.loading.load(vec![Load {
        job: JobId(1),
        from: place,
        who: None,
        is_for_mail: false,
    }]);
    bench.steps();
    assert_eq!(
        (bench.stored(), bench.work.file.bytes()),
        ((0, 0), BODY as u64)
    );
    commit(&bench);
    bench.steps();
    assert_eq!(bench.work.file.bytes(), 0);
    let (table, limits) = (Box::new(MemoryTable::new()), StoreLimits::default());
    let (_, recovered) = open_parts(&log, table, &limits, Limits::default(), 1).unwrap();
    let engine = recovered.engine;
    assert_eq!(
        engine.job(JobId(1)).map(|job| job.body().to_vec()),
        Some(filled(1, BODY).to_vec())
    );
}

#[test]
fn a_command_that_reads_bodies_waits_for_them_with_its_client_alone() {
    let mut bench = Bench::with_cold_jobs(3);
    let mut asked = items([with_text(2), Query::Stats.into()]);
    assert!(bench.visit(2, &mut asked) == Visited::UntilRung && asked.len() == 2);
    assert_eq!(bench.run(3, Query::Stats.into()).len(), 1);
    bench.is_rung(2);
    bench.steps();
    assert!(bench.is_rung(2) && bench.visit(2, &mut asked) == Visited::All);
    let mail = bench.mail(2);
    let [
        Event::Reply(Tag(1), Reply::Jobs { rows, .. }),
        Event::Reply(Tag(2), _),
    ] = &mail[..]
    else {
        panic!("{mail:?}")
    };
    assert_eq!(rows.iter().map(|row| row.job.id.0).collect::<Vec<_>>(), [2]);
}

/// The daemon's own commands have no mailbox to wait with. No body is loaded for its key.
#[test]
fn keys_of_jobs_are_read_in_bodies_that_are_not_in_memory() {
    let mut bench = Bench::new(u64::MAX);
    for key in ["acme|", "umbrella|", "acme|", ""] {
        let body = [key.as_bytes(), &filled(b'x', BODY)].concat();
        bench.run(
            1,
            JobCommand::Push(Box::new(NewJob::new(Protocol::GEARMAN, QUEUE, body.into()))).into(),
        );
    }
    bench.cool_all();
    let policy = Policy {
        key: Some(KeySource::Prefix(b'|')),
        ordered: true,
        ..Policy::default()
    };
    let settings = QueueSettings {
        policy,
        ..QueueSettings::default()
    };
    bench
        .hub
        .ask(QueueCommand::SetPatterns(Box::new([(QUEUE, settings)].into_iter().collect())).into())
        .unwrap();
    let read = BulkCommand::ReadKeys {
        after: Default::default(),
        limit: u32::MAX,
    };
    let done = bench.hub.ask(read.clone().into());
    assert!(
        matches!(
            done,
            Ok(Reply::Mutated {
                changed: 3,
                next: None
            })
        ),
        "{done:?}"
    );
    let keys = bench.hub.ask(
        Query::Keys {
            queue: QUEUE,
            after: Default::default(),
            limit: 10,
        }
        .into(),
    );
    let Ok(Reply::Keys { rows, .. }) = &keys else {
        panic!("{keys:?}")
    };
    let rows: Vec<_> = rows.iter().map(|row| (&*row.key, row.waiting)).collect();
    assert_eq!(
        (rows, bench.stored().0),
        (vec![(&b""[..], 1), (b"acme", 2), (b"umbrella", 1)], 4)
    );
}

#[test]
fn what_is_not_needed_yet_is_not_loaded_while_memory_is_short() {
    let mut bench = Bench::with_cold_jobs(50);
    let memory_max = 14_000 + BESIDE;
    bench.hub.with_journal(|engine, _| {
        engine.set_limits(Limits {
            memory_max,
            ..Limits::default()
        })
    });
    bench.visit(2, &mut items([take()]));
    bench.steps();
    assert_eq!(
        (bodies(&bench.mail(2)), bench.stored().0),
        (vec![Some(filled(1, BODY))], 49)
    );
    assert_eq!(bench.hub.loading.figures.loads.load(Ordering::Relaxed), 1);
}

/// The real thread loads the body that a client waits for, and stops with its handle.
#[test]
fn the_thread_is_woken_and_ends() {
    let hub = Hub::new(
        Engine::new(
            Limits {
                memory_max: 50_000,
                ..Limits::default()
            },
            7,
        ),
        Journal::new(),
        Durability::Soon,
        7,
    );
    let hub = Arc::new(hub);
    let loader = Loader::start(Arc::clone(&hub), body_file()).unwrap();
    let mailbox = Arc::new(Mailbox::new(usize::MAX, Arc::clone(&hub.budget), nowhere()));
    hub.open(ClientId(1), Arc::clone(&mailbox));
    let mut jobs: VecDeque<Item> = items([ClientCommand::Open(ClientInfo::default()).into()]);
    jobs.extend((0..200).map(|number| Item::Command(Tag(1), push(number))));
    jobs.extend((0..200).map(|_| Item::Command(Tag(2), take())));
    let mut found = Vec::new();
    while found.len() < 200 {
        hub.visit_one(ClientId(1), &clock::read(), &mut jobs, usize::MAX);
        commit(&hub);
        let mut mail = Vec::new();
        hub.mail(&mailbox, usize::MAX, &mut mail);
        let events = mail.iter().filter_map(|mail| {
            if let Mail::Event(event) = mail {
                event.handed_out()
            } else {
                None
            }
        });
        found.extend(events.map(|job| job.body[0]));
        thread::yield_now();
    }
    assert_eq!(found, (0..200).collect::<Vec<u8>>());
    assert!(hub.loading.figures.loads.load(Ordering::Relaxed) > 0);
    drop(loader);
    while Arc::strong_count(&hub) > 1 {
        thread::yield_now();
    }
}
