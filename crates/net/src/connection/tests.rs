//! A connection as its peer sees it.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use bytes::Bytes;
use windlass_engine::{ClientCommand, Engine, Event, Limits, Tag};
use windlass_store::Journal;

use super::*;
use crate::places::{PlaceLimits, Places};
use crate::serving::tests::ByHand;
pub(crate) use crate::testing::{BOUNDS, shared};
use windlass_hub::{Budget, Durability, Hub, Publication};

/// The most that the kernel buffers for a connection.
const SOCKET_BYTES: usize = 32 * 1024;

/// More than can be pending when the kernel accepts no more.
const ANSWER_BYTES: usize = WRITE_HIGH_BYTES + SOCKET_BYTES;

/// The session's calls, in order.
type Told = Arc<Mutex<Vec<&'static str>>>;

/// Replies to the first byte with this many bytes, and requires an immediate tick until it gets
/// one.
#[derive(Debug)]
struct Talkative {
    answer_bytes: usize,
    told: Told,
    ticks_at: Option<Timestamp>,
}

impl Session for Talkative {
    fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
        out.command(
            Tag::NONE,
            ClientCommand::Open(windlass_engine::ClientInfo::default()),
        );
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

/// A place that no other connection uses.
pub(crate) fn admission() -> Admission {
    let limits = PlaceLimits {
        connections_limit: "connections_max",
        connections_max: 1,
        reserved: 0,
        per_address_max: 0,
        rate: None,
        failures: None,
        silence_min: Duration::ZERO,
    };
    Places::new(limits).take("any", "", |_| false).unwrap()
}

/// Maximum published bytes in all mailboxes.
const PUBLISHED_BYTES: usize = 1 << 20;

/// A connection with such a session on a separate thread, the peer's end, the session's calls, and
/// the mailbox.
fn connection(answer_bytes: usize) -> (ByHand, UnixStream, Told, Arc<Mailbox>) {
    let hub = Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Soon,
        7,
    );
    let hub = Arc::new(hub.sharing(Arc::new(Budget::new(2 * PUBLISHED_BYTES))));
    let told = Told::default();
    let session_told = Arc::clone(&told);
    let mut thread = ByHand::new(shared(&hub));
    let peer = thread.connect(move |_| {
        Box::new(Talkative {
            answer_bytes,
            told: session_told,
            ticks_at: None,
        })
    });
    thread.turns(1);
    (thread, peer, told, hub.mailboxes().pop().unwrap())
}

#[test]
fn liveness_is_reset_while_the_peer_is_not_read() {
    let (mut thread, mut peer, told, _) = connection(ANSWER_BYTES);
    peer.write_all(b"1").unwrap();
    thread.until(|| told.lock().unwrap().len() == 3);
    assert_eq!(*told.lock().unwrap(), ["bytes", "excused", "tick"]);
    peer.write_all(b"2").unwrap();
    thread.turns(9);
    assert_eq!(told.lock().unwrap().len(), 3, "nothing is read from it");
    thread.read(&mut peer, ANSWER_BYTES);
    thread.until(|| told.lock().unwrap().len() == 5);
    assert_eq!(told.lock().unwrap()[3..], ["excused", "bytes"]);
    drop(peer);
    thread.until_closed();
}

#[test]
fn a_closed_connection_ends_at_once_even_with_unsent_answers() {
    let (mut thread, mut peer, told, mailbox) = connection(ANSWER_BYTES);
    peer.write_all(b"1").unwrap();
    thread.until(|| told.lock().unwrap().len() == 3);
    mailbox.close(Reason::ClosedByServer);
    mailbox.close(Reason::Ended);
    thread.until_closed();
}

#[test]
fn a_peer_that_does_not_read_misses_posts_but_stays_connected() {
    const WORDS: usize = 4096;
    let (mut thread, mut peer, told, mailbox) = connection(1);
    let budget = Arc::new(Budget::new(2 * PUBLISHED_BYTES));
    let post = |words| mailbox.post(&Publication::new(words, &budget));
    let words = |number: usize| Bytes::from(vec![u8::try_from(number % 256).unwrap(); WORDS]);
    let mut posted = 0;
    while post(words(posted)) {
        posted += 1;
        thread.turns(1);
    }
    // A mailbox's share of the free bytes, the copy to be written, and the bytes being written.
    let held_max = PUBLISHED_BYTES / 8
        + (WRITE_HIGH_BYTES - windlass_hub::POSTED_ROOM_BYTES)
        + WORDS
        + SOCKET_BYTES;
    assert!(
        (BOUNDS.unacknowledged_max + 1..=held_max / WORDS).contains(&posted),
        "{posted}"
    );
    // More posts than the limit on commands that wait for the disk: posts must not count as
    // commands.
    peer.write_all(b"1").unwrap();
    thread.until(|| told.lock().unwrap().len() == 3);
    assert_eq!(*told.lock().unwrap(), ["bytes", "excused", "tick"]);
    for number in 0..posted {
        assert_eq!(thread.read(&mut peer, WORDS), words(number), "{number}");
    }
    assert_eq!(thread.read(&mut peer, 1), [0], "its answer is behind them");
    assert!(post(words(0)), "there is room again");
    drop(peer);
    thread.until_closed();
}

/// Panics at its second byte.
#[derive(Debug)]
struct Faulty(usize);

impl Session for Faulty {
    fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
        out.command(
            Tag::NONE,
            ClientCommand::Open(windlass_engine::ClientInfo::default()),
        );
    }

    fn on_bytes(&mut self, _: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        self.0 += input.len();
        assert!(self.0 < 2, "a bug");
        out.bytes().extend_from_slice(&input.split());
    }

    fn on_event(&mut self, _: Timestamp, _: Event, _: &mut Outbox) {}
}

#[test]
fn a_connection_that_panics_ends_and_others_go_on() {
    let hub = Arc::new(Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Soon,
        7,
    ));
    let mut thread = ByHand::new(shared(&hub));
    let mut peers = [(); 2].map(|()| thread.connect(|_| Box::new(Faulty(0))));
    for peer in &mut peers {
        peer.write_all(b"1").unwrap();
        assert_eq!(thread.read(peer, 1), *b"1");
    }
    peers[0].write_all(b"2").unwrap();
    thread.until_open(1);
    assert_eq!(hub.mailboxes().len(), 1, "the engine has been told");
}

/// The end of the stream arrives together with the last bytes.
#[test]
fn bytes_and_their_end_in_one_go() {
    for bytes in [1, 64 * 1024, 64 * 1024 + 1] {
        let (mut thread, mut peer, told, _) = connection(0);
        peer.set_nonblocking(false).unwrap();
        peer.write_all(&vec![7; bytes]).unwrap();
        peer.shutdown(std::net::Shutdown::Both).unwrap();
        thread.until_closed();
        assert_eq!(told.lock().unwrap().first(), Some(&"bytes"), "{bytes}");
    }
}
