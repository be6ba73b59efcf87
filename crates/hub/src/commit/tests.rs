//! Writes to the log, their durations, and the handling of a failing log.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use windlass_engine::{ClientCommand, ClientId, Engine, JobCommand, Limits, NewJob, Protocol, Tag};
use windlass_session::{Item, Outbox};
use windlass_store::{Commit, Error, Journal, LogTail};
use windlass_testkit::store::MemoryLog;

use super::room::tests::SmallDisk;
use super::*;
use crate::broker::{Batch, Broker as _, CommitDuty, Visited};
use crate::hub::Durability;
use crate::testing::captured;
use crate::testing::nowhere;

/// A hub with one client.
pub(super) fn hub(durability: Durability) -> Arc<Hub> {
    let hub = Arc::new(Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        durability,
        7,
    ));
    hub.open(
        ClientId(1),
        Arc::new(Mailbox::new(usize::MAX, Arc::clone(&hub.budget), nowhere())),
    );
    let mut outbox = Outbox::default();
    outbox.command(Tag::NONE, ClientCommand::Open(Default::default()));
    assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
    hub
}

/// The commits of a hub without a committing thread. Everything pending is already committed.
pub(super) fn commits(hub: &Arc<Hub>, log: Box<dyn Log>, room: Option<Room>) -> Arc<Commits> {
    let room = room.unwrap_or_else(|| Room::new(Arc::clone(hub), log.tail()));
    let pace = Pace {
        interval: None,
        retry: Duration::ZERO,
    };
    let commits = Commits::new(Arc::clone(hub), log, room, None, pace);
    while commits.commit() {}
    Arc::new(commits)
}

/// The client pushes a job of this size, and waits for its commit.
pub(super) fn push_bytes(hub: &Hub, bytes: usize) {
    let job = NewJob::new(
        Protocol::GEARMAN,
        Bytes::from_static(b"f"),
        Bytes::from(vec![7; bytes]),
    );
    let mut items = [Item::Command(
        Tag(1),
        JobCommand::Push(Box::new(job)).into(),
    )]
    .into();
    while !hub.visit_all(ClientId(1), &clock::read(), &mut items) {}
}

/// A log that rejects its next commits, and records the calls.
struct Recorded {
    log: MemoryLog,
    failures: u32,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Log for Recorded {
    fn append(&mut self, commit: &Commit) -> Result<(), Error> {
        self.calls.lock().unwrap().push("append");
        if let Some(left) = self.failures.checked_sub(1) {
            self.failures = left;
            let why = std::io::Error::other("no room");
            return Err(Error::Io {
                doing: "write",
                place: "the log".to_owned(),
                why,
            });
        }
        self.log.append(commit)
    }
    fn tail(&self) -> Arc<dyn LogTail> {
        self.log.tail()
    }
    fn reopen(&mut self) -> Result<(), Error> {
        self.calls.lock().unwrap().push("reopen");
        self.log.reopen()
    }
    fn close(&mut self) -> Result<(), Error> {
        self.log.close()
    }
}

#[test]
fn a_commit_that_the_store_did_not_take_is_tried_on_a_log_that_was_reopened() {
    let (hub, calls) = (hub(Durability::Durable), Arc::<Mutex<Vec<_>>>::default());
    let mut log = Recorded {
        log: MemoryLog::new(),
        failures: 0,
        calls: Arc::clone(&calls),
    };
    while let Some(cut) = hub.cut() {
        log.append(&cut.commit).unwrap();
        hub.committed(cut.commit);
    }
    log.failures = 3;
    let commits = commits(&hub, Box::new(log), None);
    let commit = || {
        calls.lock().unwrap().clear();
        push_bytes(&hub, 10);
        let logged = captured(|| assert!(commits.commit()));
        (
            calls.lock().unwrap().clone(),
            logged.matches("the store failed").count(),
            hub.failed(),
        )
    };
    let tried_again = ["reopen", "append"].repeat(3);
    assert_eq!(
        commit(),
        ([&["append"][..], &tried_again].concat(), 1, false)
    );
    assert_eq!(commit(), (vec!["append"], 0, false));
}

#[test]
fn the_room_is_measured_after_many_commits_or_many_bytes() {
    let is_full_after = |(commits, bytes): (u32, u64)| {
        let (hub, log) = (hub(Durability::Soon), MemoryLog::new());
        let disk = Arc::new(SmallDisk::new(log.clone(), u64::MAX));
        let room = Room::new(Arc::clone(&hub), Arc::clone(&disk) as Arc<dyn LogTail>);
        let writes = self::commits(&hub, Box::new(log), Some(room));
        writes.writer().unseen = (0, 0);
        disk.resize(0);
        for _ in 0..commits {
            push_bytes(&hub, usize::try_from(bytes).unwrap());
            assert!(writes.commit());
        }
        hub.durable.full.get()
    };
    let few = LOOK_COMMITS - 1;
    let table = [
        (1, 10),
        (few, 10),
        (LOOK_COMMITS, 10),
        (1, LOOK_BYTES - 5000),
        (1, LOOK_BYTES),
        (2, LOOK_BYTES / 2),
    ];
    assert_eq!(
        table.map(is_full_after),
        [false, false, true, false, true, true]
    );
}

#[test]
fn a_thread_that_panicked_while_it_wrote_ends_the_daemon() {
    let hour = Duration::from_secs(3600);
    let pace = Pace {
        interval: Some(hour),
        retry: hour,
    };
    let committer = Committer::start(
        hub(Durability::Soon),
        Box::new(MemoryLog::new()),
        None,
        pace,
    )
    .unwrap();
    let timeouts = CommitTimeouts {
        timeout: hour,
        abort: hour,
    };
    assert_eq!(committer.watch(timeouts), None);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _writer = committer.commits.writer();
        panic!("a bug, as this test has it")
    }));
    assert!(panicked.is_err());
    assert_eq!(
        committer.watch(timeouts),
        Some("a thread that commits has died")
    );
    assert!(committer.finish());
}

#[test]
fn changes_that_gather_are_left_to_serving_threads() {
    let (hub, log) = (hub(Durability::Durable), MemoryLog::new());
    let pace = Pace {
        interval: None,
        retry: Duration::ZERO,
    };
    let committer = Committer::start(Arc::clone(&hub), Box::new(log.clone()), None, pace).unwrap();
    committer.commits().leave_to_turns();
    while hub.durable() == 0
        || hub.with_journal(|_, journal| !journal.is_empty() || journal.is_behind())
    {
        thread::yield_now();
    }
    let (before, mut visited) = (log.commits(), Visited::All);
    let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"f"), Bytes::new());
    let mut items = [Item::Command(
        Tag::NONE,
        JobCommand::Push(Box::new(job)).into(),
    )]
    .into();
    let batch = Batch {
        client: ClientId(1),
        items: &mut items,
        room: usize::MAX,
        visited: &mut visited,
    };
    assert_eq!(
        hub.visit(&clock::read(), &mut std::iter::once(batch)),
        CommitDuty::Later
    );
    // Time for a commit that must not happen.
    (0..1000).for_each(|_| thread::yield_now());
    assert_eq!(log.commits(), before);
    hub.durable.unpark_committer();
    while log.commits() == before {
        thread::yield_now();
    }
    assert!(committer.finish());
}

#[test]
fn all_that_was_gathered_in_an_interval_is_committed_after_it() {
    const BODY_BYTES: usize = 3 << 20;
    let hub = Arc::new(Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Soon,
        7,
    ));
    let mut outbox = Outbox::default();
    outbox.command(Tag::NONE, ClientCommand::Open(Default::default()));
    for _ in 0..8 {
        let body = Bytes::from(vec![7; BODY_BYTES]);
        let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"large"), body);
        outbox.command(Tag(1), JobCommand::Push(Box::new(job)));
        assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
    }
    let (log, hour) = (MemoryLog::new(), Duration::from_secs(3600));
    let pace = Pace {
        interval: Some(hour),
        retry: hour,
    };
    let committer = Committer::start(Arc::clone(&hub), Box::new(log.clone()), None, pace).unwrap();
    let last = hub.with_journal(|_, journal| journal.pending_seq());
    // One more, because the daemon begins it while it writes the first ones.
    while log.seqs().last().is_none_or(|seq| seq + 1 < last) {
        thread::yield_now();
    }
    assert!(log.commits() > 3, "more than one commit: {}", log.commits());
    assert!(committer.finish());
}

#[test]
fn a_complete_commit_does_not_wait_for_the_next_interval() {
    let (hub, log, hour) = (
        hub(Durability::Soon),
        MemoryLog::new(),
        Duration::from_secs(3600),
    );
    let pace = Pace {
        interval: Some(hour),
        retry: hour,
    };
    let committer = Committer::start(Arc::clone(&hub), Box::new(log.clone()), None, pace).unwrap();
    for _ in 0..3 {
        while hub.durable() + 1 < hub.with_journal(|_, journal| journal.pending_seq()) {
            thread::yield_now();
        }
        let before = log.commits();
        push_bytes(&hub, 5 << 20);
        while log.commits() == before {
            thread::yield_now();
        }
    }
    assert!(committer.finish());
}

/// More is unwritten than an interval allows, so acknowledgements wait.
#[test]
fn a_commit_that_clients_wait_for_does_not_wait_for_its_interval() {
    let hour = Duration::from_secs(3600);
    let hub = Arc::new(
        Arc::into_inner(hub(Durability::Soon))
            .unwrap()
            .within(Some(hour)),
    );
    (0..9).for_each(|_| push_bytes(&hub, 4 << 20));
    push_bytes(&hub, 10);
    let waits_for = hub.with_journal(|_, journal| journal.pending_seq());
    let pace = Pace {
        interval: Some(hour),
        retry: hour,
    };
    let committer =
        Committer::start(Arc::clone(&hub), Box::new(MemoryLog::new()), None, pace).unwrap();
    while hub.durable() < waits_for {
        thread::yield_now();
    }
    assert!(committer.finish());
}

#[test]
fn a_commit_that_takes_too_long_fails_the_store_and_then_ends_the_daemon() {
    let hub = Arc::new(Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Soon,
        7,
    ));
    let mut outbox = Outbox::default();
    outbox.command(Tag::NONE, ClientCommand::Open(Default::default()));
    let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"f"), Bytes::new());
    outbox.command(Tag(1), JobCommand::Push(Box::new(job)));
    assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
    let hour = Duration::from_secs(3600);
    let pace = Pace {
        interval: Some(hour),
        retry: hour,
    };
    let committer =
        Committer::start(Arc::clone(&hub), Box::new(MemoryLog::new()), None, pace).unwrap();
    while hub.durable() == 0 || hub.with_journal(|_, journal| journal.is_behind()) {
        thread::yield_now();
    }
    // The committing thread holds the writer until the end of its commit.
    drop(committer.commits.writer());
    let timeouts = CommitTimeouts {
        timeout: Duration::from_secs(100),
        abort: Duration::from_secs(1000),
    };
    let watch = |writes_for_s: Option<u64>| {
        let since = writes_for_s.map_or(0, |seconds| clock::now().0 - 1000 * seconds);
        committer
            .commits
            .writing_since
            .store(since, Ordering::Release);
        (committer.watch(timeouts), hub.failed())
    };
    assert_eq!(watch(None), (None, false));
    assert_eq!(watch(Some(10)), (None, false));
    assert_eq!(watch(Some(500)), (None, true));
    assert_eq!(watch(Some(500)), (None, true));
    hub.set_failed(false);
    assert_eq!(
        watch(Some(5000)),
        (
            Some("the store has not completed a commit for longer than store.commit_abort"),
            false
        )
    );
    assert_eq!(watch(None), (None, false));
    assert!(committer.finish());
}

/// A log during whose first commits a client pushes a job.
struct Busy(MemoryLog, Arc<Hub>);

fn push(hub: &Hub) {
    let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"f"), Bytes::new());
    let mut outbox = Outbox::default();
    outbox.command(Tag(1), JobCommand::Push(Box::new(job)));
    assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
}

impl Log for Busy {
    fn append(&mut self, commit: &windlass_store::Commit) -> Result<(), windlass_store::Error> {
        if self.0.commits() < 5 {
            push(&self.1);
        }
        self.0.append(commit)
    }
    fn tail(&self) -> Arc<dyn windlass_store::LogTail> {
        self.0.tail()
    }
    fn reopen(&mut self) -> Result<(), windlass_store::Error> {
        self.0.reopen()
    }
    fn close(&mut self) -> Result<(), windlass_store::Error> {
        self.0.close()
    }
}

#[test]
fn changes_that_come_during_a_commit_wait_for_the_next_interval() {
    let hub = Arc::new(Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Soon,
        7,
    ));
    let mut outbox = Outbox::default();
    outbox.command(Tag::NONE, ClientCommand::Open(Default::default()));
    assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
    push(&hub);
    let (log, hour) = (MemoryLog::new(), Duration::from_secs(3600));
    let pace = Pace {
        interval: Some(hour),
        retry: hour,
    };
    let busy = Box::new(Busy(log.clone(), Arc::clone(&hub)));
    let committer = Committer::start(Arc::clone(&hub), busy, None, pace).unwrap();
    while hub.durable() == 0 {
        thread::yield_now();
    }
    // Time for a commit that must not happen.
    (0..1000).for_each(|_| thread::yield_now());
    assert_eq!(log.commits(), 1);
    assert!(committer.finish());
}
