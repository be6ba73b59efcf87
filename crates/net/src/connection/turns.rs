//! Other connections get their turn while one has much to do.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, Command, Engine, Event, Limits, Query, QueueCommand, Reply, Tag,
};
use windlass_store::Journal;

use super::tests::shared;
use super::*;
use crate::serving::tests::ByHand;
use windlass_hub::{Broker as _, Durability, Hub};

/// The sessions' calls, in order.
type Told = Arc<Mutex<Vec<&'static str>>>;

/// Requests all queues page by page, or the statistics once, and records it.
#[derive(Debug)]
struct Asks {
    everything: bool,
    told: Told,
}

impl Session for Asks {
    fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
        out.command(
            Tag::NONE,
            ClientCommand::Open(windlass_engine::ClientInfo::default()),
        );
    }

    fn on_bytes(&mut self, _: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        input.clear();
        out.command(
            Tag(1),
            if self.everything {
                page(windlass_engine::Cursor::default())
            } else {
                Command::Query(Query::Stats)
            },
        );
    }

    fn on_event(&mut self, _: Timestamp, event: Event, out: &mut Outbox) {
        let Event::Reply(_, Reply::Queues { next, .. }) = event else {
            return self.told.lock().unwrap().push("other");
        };
        self.told.lock().unwrap().push("page");
        out.bytes().resize(PAGE_BYTES, 0);
        next.into_iter()
            .for_each(|after| out.command(Tag(1), page(after)));
    }
}

const PAGES: u32 = 200;
const PAGE_BYTES: usize = 4 * 1024;

fn page(after: windlass_engine::Cursor) -> Command {
    Command::Query(Query::Queues { after, limit: 1 })
}

/// A hub with several pages of queues.
fn hub_of_queues() -> Arc<Hub> {
    let hub = Arc::new(Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Soon,
        7,
    ));
    for n in 0..PAGES {
        let queue = Bytes::from(format!("q{n}"));
        let _ = hub.ask(
            QueueCommand::Create {
                queue,
                kind: windlass_engine::QueueKind::Work,
            }
            .into(),
        );
    }
    hub
}

/// A connection that requests one of these when it receives a byte, which is already there.
fn asking(thread: &mut ByHand, everything: bool, told: &Told) -> UnixStream {
    let told = Arc::clone(told);
    let mut peer = thread.connect(move |_| Box::new(Asks { everything, told }));
    peer.write_all(b"1").unwrap();
    peer
}

#[test]
fn other_connections_have_a_turn_between_two_pages() {
    let (told, mut thread) = (Told::default(), ByHand::new(shared(&hub_of_queues())));
    let mut lists = asking(&mut thread, true, &told);
    let _other = asking(&mut thread, false, &told);
    thread.read(&mut lists, PAGES as usize * PAGE_BYTES);
    let told = told.lock().unwrap();
    assert_eq!(told.len(), PAGES as usize + 1);
    let at = told.iter().position(|what| *what == "other").unwrap();
    assert!(at <= 2, "answered behind {at} pages");
}

#[test]
fn a_peer_that_does_not_read_its_list_is_not_sent_all_of_it() {
    let (told, mut thread) = (Told::default(), ByHand::new(shared(&hub_of_queues())));
    let mut lists = asking(&mut thread, true, &told);
    let pages = || told.lock().unwrap().len();
    thread.until(|| pages() >= WRITE_HIGH_BYTES / PAGE_BYTES);
    thread.turns(300);
    // Some are in the kernel.
    let most = WRITE_HIGH_BYTES / PAGE_BYTES + 10;
    assert!(
        pages() <= most,
        "{} pages wait for a peer that does not read",
        pages()
    );
    thread.read(&mut lists, PAGES as usize * PAGE_BYTES);
    assert_eq!(pages(), PAGES as usize);
}

/// What sessions have read: their namespace, and the bytes.
type Read = Arc<Mutex<Vec<(&'static str, usize)>>>;

/// Enters a namespace, and records what it reads.
#[derive(Debug)]
struct Reads {
    namespace: &'static str,
    read: Read,
}

impl Session for Reads {
    fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
        out.enter(Some(self.namespace.into()));
    }

    fn on_bytes(&mut self, _: Timestamp, input: &mut BytesMut, _: &mut Outbox) {
        let read = (self.namespace, input.split().len());
        self.read.lock().unwrap().push(read);
    }

    fn on_event(&mut self, _: Timestamp, _: Event, _: &mut Outbox) {}
}

#[test]
fn beside_another_namespace_one_flood_of_each_is_read_in_a_turn() {
    const FLOOD_BYTES: usize = 40 << 10;
    let (read, mut thread) = (Read::default(), ByHand::new(shared(&hub_of_queues())));
    let mut connect = |namespace| {
        let read = Arc::clone(&read);
        thread.connect(move |_| Box::new(Reads { namespace, read }))
    };
    let mut quiet = connect("quiet");
    let mut floods = [(); 3].map(|()| connect("hostile"));
    thread.turns(2);
    quiet.write_all(b"1").unwrap();
    thread.turns(1);
    for flood in &mut floods {
        flood.write_all(&[b'x'; FLOOD_BYTES]).unwrap();
    }
    // Whether one has much to do is known after its first turn.
    thread.turns(1);
    let mut left = 3 * FLOOD_BYTES;
    let mut rounds = 0;
    while left > 0 {
        let before = std::mem::take(&mut *read.lock().unwrap());
        let of = |wanted| {
            let all = before.iter().filter(move |(name, _)| *name == wanted);
            all.map(|(_, bytes)| *bytes).collect::<Vec<_>>()
        };
        let hostile = of("hostile");
        left -= hostile.iter().sum::<usize>();
        if rounds > 0 {
            assert_eq!(of("quiet"), [1], "round {rounds}");
            assert!(hostile.len() <= 1, "round {rounds}: {hostile:?}");
            assert!(hostile.iter().all(|bytes| *bytes <= 1 << 10));
        }
        rounds += 1;
        quiet.write_all(b"1").unwrap();
        thread.turns(1);
    }
    assert_eq!(rounds, 118, "all three had the first one");
}

/// Pipelined commands are executed in parts too.
#[test]
fn a_visit_ends_when_it_has_lasted_long_enough() {
    let hub = hub_of_queues();
    let mut items = VecDeque::new();
    items.push_back(Item::Command(
        Tag::NONE,
        Command::Client(ClientCommand::Open(Default::default())),
    ));
    items.extend((0..10_000).map(|_| Item::Command(Tag::NONE, Command::Query(Query::Stats))));
    let mut visits = 1;
    while !hub.visit_all(windlass_engine::ClientId(1), &clock::read(), &mut items) {
        visits += 1;
    }
    assert!((10..1_000).contains(&visits), "{visits}");
}

/// Records how many bytes it receives at a time.
#[derive(Debug)]
struct Counting(Arc<Mutex<Vec<usize>>>);

impl Session for Counting {
    fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
        out.command(
            Tag::NONE,
            ClientCommand::Open(windlass_engine::ClientInfo::default()),
        );
    }

    fn on_bytes(&mut self, _: Timestamp, input: &mut BytesMut, _: &mut Outbox) {
        self.0.lock().unwrap().push(input.len());
        input.clear();
    }

    fn on_event(&mut self, _: Timestamp, _: Event, _: &mut Outbox) {}
}

#[test]
fn connections_that_have_much_to_say_share_a_turn() {
    const BYTES: usize = 100 * 1024;
    for (connections, share) in [(1, BYTES), (2, BYTES), (8, 32 * 1024), (40, 16 * 1024)] {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let (mut thread, read) = (
            ByHand::new(shared(&hub)),
            Arc::<Mutex<Vec<usize>>>::default(),
        );
        let connect = |_| {
            let read = Arc::clone(&read);
            let mut peer = thread.connect(move |_| Box::new(Counting(read)));
            peer.write_all(&[7; BYTES]).unwrap();
            peer
        };
        let _peers: Vec<UnixStream> = (0..connections).map(connect).collect();
        thread.turns(1);
        assert_eq!(
            *read.lock().unwrap(),
            vec![share; connections],
            "{connections} connections"
        );
        thread.until(|| read.lock().unwrap().iter().sum::<usize>() == connections * BYTES);
    }
}
