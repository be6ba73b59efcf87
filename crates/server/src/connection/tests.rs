//! A connection at the end of a pipe.

use std::sync::Mutex;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use windlass_engine::{ClientCommand, Engine, Event, Limits, Tag};
use windlass_store::Journal;

use super::*;
use crate::hub::{Durability, Hub};
use crate::places::{PlaceLimits, Places};

/// More than may wait when the pipe is full.
const ANSWER_BYTES: usize = WRITE_HIGH_BYTES + 4096;

/// The session's calls, in order.
type Told = Arc<Mutex<Vec<&'static str>>>;

/// Answers the first byte with this many bytes, and requires a tick at once until it got one.
#[derive(Debug)]
struct Talkative {
    answer_bytes: usize,
    told: Told,
    ticks_at: Option<Timestamp>,
}

impl Session for Talkative {
    fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, ClientCommand::Open(windlass_engine::ClientInfo::default()));
    }

    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        if self.told.lock().unwrap().is_empty() {
            out.bytes().resize(self.answer_bytes, 0);
            self.ticks_at = Some(now);
        }
        self.told.lock().unwrap().push("bytes");
        input.clear();
    }

    fn on_event(&mut self, _: Timestamp, _: Event, _: &mut Outbox) {}

    fn on_tick(&mut self, _: Timestamp, _: &mut Outbox) {
        self.told.lock().unwrap().push("tick");
        self.ticks_at = None;
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.ticks_at
    }

    fn reset_liveness(&mut self, _: Timestamp) {
        self.told.lock().unwrap().push("excused");
    }
}

pub(crate) const BOUNDS: Bounds = Bounds {
    read_bytes_max: 1 << 20,
    outbound_bytes_max: 1 << 20,
    unacknowledged_max: 9,
    idle_max: None,
    patience: Patience { timeout_ms: 0, bytes_per_s: 0 },
};

/// The shared state of connections on this hub.
pub(crate) fn shared(hub: &Arc<Hub>) -> Shared {
    let broker = Arc::<Hub>::clone(hub);
    let shared_budget = Arc::new(SharedBudget::new(DEPOT_BYTES));
    Shared { broker, budget: Arc::clone(&hub.budget), shared_budget, stops: Arc::default() }
}

/// A place that no other connection uses.
pub(crate) fn guest() -> Guest {
    let limits = PlaceLimits { connections_max: 1, reserved: 0, per_address_max: 0 };
    Places::new(limits).take("any", "", |_| false).unwrap()
}

/// How many posted bytes all mailboxes may hold.
const DEPOT_BYTES: usize = 1 << 20;

/// A connection with such a session, the session's calls, and a handle to the mailbox.
fn connection<S: Stream>(stream: S, answer_bytes: usize) -> (Connection<S>, Told, Arc<dyn Post>) {
    let journal = Journal::new();
    let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), journal, Durability::Soon, 7));
    let (told, mut handle) = (Told::default(), None);
    let greet = |line| {
        handle = Some(line);
        Box::new(Talkative { answer_bytes, told: Arc::clone(&told), ticks_at: None }) as Box<dyn Session>
    };
    let connection = Connection::new(stream, greet, ClientId(1), Arc::default(), shared(&hub), BOUNDS, guest());
    (connection, told, handle.unwrap())
}

#[tokio::test]
async fn liveness_is_reset_while_the_peer_is_not_read() {
    let (ours, mut theirs) = duplex(1024);
    let (connection, told, _) = connection(ours, ANSWER_BYTES);
    let served = tokio::spawn(connection.serve());
    theirs.write_all(b"1").await.unwrap();
    while told.lock().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*told.lock().unwrap(), ["bytes", "excused", "tick"]);
    theirs.write_all(b"2").await.unwrap();
    let mut answer = vec![0; ANSWER_BYTES];
    theirs.read_exact(&mut answer).await.unwrap();
    while told.lock().unwrap().len() < 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(told.lock().unwrap()[3..], ["excused", "bytes"]);
    drop(theirs);
    assert_eq!(served.await.unwrap(), Reason::PeerClosed);
}

#[tokio::test]
async fn a_dismissed_connection_ends_at_once_even_with_unsent_answers() {
    let (ours, mut theirs) = duplex(1024);
    let (connection, told, handle) = connection(ours, ANSWER_BYTES);
    let served = tokio::spawn(connection.serve());
    theirs.write_all(b"1").await.unwrap();
    while told.lock().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    handle.dismiss(Reason::Dismissed);
    handle.dismiss(Reason::Ended);
    assert_eq!(served.await.unwrap(), Reason::Dismissed);
}

#[tokio::test]
async fn a_peer_that_does_not_read_misses_posts_but_stays_connected() {
    const WORDS: usize = 4096;
    let (ours, mut theirs) = duplex(1024);
    let (connection, told, line) = connection(ours, 1);
    let served = tokio::spawn(connection.serve());
    let words = |number: usize| Bytes::from(vec![u8::try_from(number % 256).unwrap(); WORDS]);
    let mut posted = 0;
    while line.post(words(posted)) {
        posted += 1;
        tokio::task::yield_now().await;
    }
    // A mailbox's part of the free bytes, the bytes copied to be written, and the bytes that are written.
    let held_max = DEPOT_BYTES / 8 + POSTED_HIGH_BYTES + WORDS + 1024;
    assert!((BOUNDS.unacknowledged_max + 1..=held_max / WORDS).contains(&posted), "{posted}");
    // More posts wait than commands may wait for the disk: posts must not count as commands.
    theirs.write_all(b"1").await.unwrap();
    while told.lock().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*told.lock().unwrap(), ["bytes", "excused", "tick"]);
    let mut heard = vec![0; WORDS];
    for number in 0..posted {
        theirs.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, words(number), "{number}");
    }
    assert_eq!(theirs.read_u8().await.unwrap(), 0, "its answer is behind them");
    assert!(line.post(words(0)), "there is room again");
    drop(theirs);
    assert_eq!(served.await.unwrap(), Reason::PeerClosed);
}
