//! Serving threads that commit.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use windlass_engine::{
    ClientCommand, ClientInfo, Engine, Event, JobCommand, Limits, NewJob, Protocol, Reply, Tag,
    Timestamp,
};
use windlass_session::{Outbox, Session};
use windlass_store::{Commit, Error, Journal, Log, LogTail};
use windlass_testkit::store::MemoryLog;

use crate::connection::tests::shared;
use crate::serving::tests::ByHand;
use windlass_hub::{Committer, Durability, Hub, Pace};

/// A log that records which threads wrote to it.
struct Witness(MemoryLog, Arc<Mutex<Vec<String>>>);

impl Log for Witness {
    fn append(&mut self, commit: &Commit) -> Result<(), Error> {
        self.1
            .lock()
            .unwrap()
            .push(thread::current().name().unwrap_or_default().to_owned());
        self.0.append(commit)
    }
    fn tail(&self) -> Arc<dyn LogTail> {
        self.0.tail()
    }
    fn reopen(&mut self) -> Result<(), Error> {
        self.0.reopen()
    }
    fn close(&mut self) -> Result<(), Error> {
        self.0.close()
    }
}

/// Pushes a job for each byte, and replies `w` once its job is on disk.
#[derive(Debug)]
struct Pushes;

impl Session for Pushes {
    fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, ClientCommand::Open(ClientInfo::default()));
    }

    fn on_bytes(&mut self, _: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        for byte in input.split() {
            let job = NewJob::new(
                Protocol::GEARMAN,
                Bytes::from_static(b"q"),
                Bytes::from_static(b"body"),
            );
            out.command(
                if byte == b'w' { Tag(1) } else { Tag::NONE },
                JobCommand::Push(Box::new(job)),
            );
        }
    }

    fn on_event(&mut self, _: Timestamp, event: Event, out: &mut Outbox) {
        if let Event::Reply(_, Reply::Pushed { .. }) = event {
            out.bytes().extend_from_slice(b"+");
        }
    }
}

/// Runs a closure with a committing serving thread and a client of it. Returns the threads that
/// committed.
fn on_a_serving_thread(run: impl FnOnce(&Hub, &mut ByHand, &mut UnixStream)) -> Vec<String> {
    let (names, hour) = (
        Arc::<Mutex<Vec<String>>>::default(),
        Duration::from_secs(3600),
    );
    let log = Box::new(Witness(MemoryLog::new(), Arc::clone(&names)));
    let hub = Arc::new(Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Durable,
        7,
    ));
    let pace = Pace {
        interval: None,
        retry: hour,
    };
    let committer = Committer::start(Arc::clone(&hub), log, None, pace).unwrap();
    let mut thread = ByHand::committing(shared(&hub), committer.commits());
    let mut peer = thread.connect(|_| Box::new(Pushes));
    run(&hub, &mut thread, &mut peer);
    drop(thread);
    assert!(committer.finish());
    let mut names = names.lock().unwrap();
    assert_eq!(names.pop().as_deref(), Some("commit"), "the last one");
    std::mem::take(&mut *names)
}

#[test]
fn a_serving_thread_commits_what_its_clients_wait_for() {
    let here = thread::current().name().unwrap().to_owned();
    let names = on_a_serving_thread(|hub, thread, peer| {
        // An in-memory log is fast, unless this thread had to wait for a processor.
        let mut in_turns = 0;
        while in_turns < 8 {
            in_turns += u32::from(hub.commits_in_turns());
            peer.write_all(b"w").unwrap();
            assert_eq!(thread.read(peer, 1), *b"+");
        }
    });
    assert!(
        names.contains(&here) && names.contains(&"commit".to_owned()),
        "{names:?}"
    );
}

#[test]
fn requests_of_two_turns_share_a_commit() {
    on_a_serving_thread(|hub, thread, peer| {
        let mut other = thread.connect(|_| Box::new(Pushes));
        // This thread may have to wait for a processor, in which case the committing thread takes
        // over.
        loop {
            peer.write_all(b"w").unwrap();
            assert_eq!(thread.read(peer, 1), *b"+");
            let (begun_in_turns, before) = (hub.commits_in_turns(), hub.durable());
            // In each turn one of them sends something; the second and fourth end with a commit.
            for _ in 0..2 {
                peer.write_all(b"w").unwrap();
                thread.turns(1);
                other.write_all(b"w").unwrap();
                thread.turns(1);
            }
            assert_eq!(
                (thread.read(peer, 2), thread.read(&mut other, 2)),
                (b"++".to_vec(), b"++".to_vec())
            );
            if begun_in_turns && hub.commits_in_turns() {
                break assert_eq!(hub.durable() - before, 2, "commits");
            }
        }
    });
}

#[test]
fn changes_that_no_client_waits_for_are_committed_too() {
    on_a_serving_thread(|hub, thread, peer| {
        for pushed in 1..=3 {
            peer.write_all(b"ss").unwrap();
            thread.until(|| hub.with_journal(|engine, _| engine.job_count() == 2 * pushed));
            let pending = hub.with_journal(|_, journal| journal.pending_seq());
            thread.until(|| {
                hub.durable() >= pending || hub.with_journal(|_, journal| journal.is_empty())
            });
        }
    });
}
