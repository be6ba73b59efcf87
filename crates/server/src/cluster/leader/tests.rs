//! What a leader says to an edge, a turn at a time.

use std::pin::pin;
use std::task::Waker;

use bytes::Bytes;
use windlass_engine::{ClientCommand, ClientInfo, Engine, JobCommand, Limits, NewJob, Protocol};
use windlass_store::Journal;

use super::*;
use crate::hub::Durability;

const ROOM: u64 = 1 << 20;

struct Led {
    hub: Arc<Hub>,
    rung: Arc<Notify>,
    edge: EdgeClients,
}

impl Led {
    /// A leader and one of its edges, with one client that has said nothing yet.
    fn new(room: u64) -> Self {
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Durable, 7));
        while hub.cut().map(|cut| hub.committed(cut.commit)).is_some() {}
        let rung = Arc::new(Notify::new());
        let edge = EdgeClients::new(Arc::clone(&hub), number(), 1 << 20, Arc::clone(&rung));
        let mut led = Self { hub, rung, edge };
        led.edge.hear(Ask::Open { client: client(), room }).unwrap();
        led
    }

    fn hear(&mut self, command: impl Into<Command>) {
        self.edge.hear(Ask::Command { client: client(), tag: Tag(1), command: command.into() }).unwrap();
    }

    /// What it says in a turn, without the time.
    fn turn(&mut self) -> Vec<Say> {
        let mut says = Vec::new();
        self.edge.turn(&mut says);
        says.retain(|say| !matches!(say, Say::Clock(_)));
        says
    }

    fn is_notified(&self) -> bool {
        pin!(self.rung.notified()).poll(&mut std::task::Context::from_waker(Waker::noop())).is_ready()
    }

    /// Writes the next commit. Returns how many mailboxes are rung for it.
    fn commit(&self) -> usize {
        let due = self.hub.committed(self.hub.cut().unwrap().commit);
        due.iter().for_each(|mailbox| mailbox.ring());
        due.len()
    }
}

fn number() -> EdgeNumber {
    EdgeNumber::new(7).unwrap()
}

fn client() -> ClientId {
    ClientId(number().first_client().0 | 1)
}

fn open() -> ClientCommand {
    ClientCommand::Open(ClientInfo::default())
}

fn push() -> JobCommand {
    JobCommand::Push(Box::new(NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"f"), Bytes::new())))
}

#[test]
fn commands_are_counted_and_places_of_bytes_are_not() {
    let mut led = Led::new(ROOM);
    led.hear(open());
    led.hear(open());
    led.edge.hear(Ask::Forbidden { client: client(), tag: Tag(2) }).unwrap();
    assert!(matches!(led.turn()[0], Say::Applied { count: 3, .. }));
    led.edge.hear(Ask::Words { client: client(), count: 2 }).unwrap();
    assert!(matches!(led.turn()[..], [Say::Words { count: 1, .. }, Say::Words { count: 1, .. }]));
    assert!(led.turn().is_empty());
}

#[test]
fn a_client_without_room_waits_for_it() {
    let mut led = Led::new(0);
    led.hear(open());
    led.hear(push());
    assert!(led.turn().is_empty());
    assert_eq!(led.hub.with_journal(|engine, _| engine.job_count()), 0);
    led.edge.hear(Ask::Room { client: client(), bytes: 1 << 20 }).unwrap();
    assert_eq!(led.edge.ready.len(), 1);
    led.edge.hear(Ask::Room { client: client(), bytes: 1 }).unwrap();
    assert_eq!(led.edge.ready.len(), 1, "each client once");
    led.turn();
    assert_eq!(led.hub.with_journal(|engine, _| engine.job_count()), 1);
    assert!(led.edge.ready.is_empty());
}

#[test]
fn an_edge_learns_of_each_commit_once_and_its_link_is_rung_for_those_it_waits_for() {
    let mut led = Led::new(ROOM);
    led.hear(open());
    led.hear(push());
    let gates = |says: Vec<Say>| {
        says.into_iter().filter_map(|say| if let Say::Event { gate, .. } = say { Some(gate) } else { None })
    };
    let gate = gates(led.turn()).max().unwrap();
    assert!(gate > led.hub.durable());
    assert!(led.turn().is_empty());
    assert!(led.turn().is_empty());
    while led.is_notified() {}
    assert_eq!(led.commit(), 1, "registered once");
    assert!(led.is_notified());
    assert!(matches!(led.turn()[..], [Say::Durable { commit }] if commit == gate));
    assert!(led.turn().is_empty());
    assert!(!led.is_notified(), "it waits for nothing more");
    led.hub.set_failed(true);
    assert!(matches!(led.turn()[..], [Say::Failed(true)]));
    assert!(led.turn().is_empty());
    led.hub.set_failed(false);
    assert!(matches!(led.turn()[..], [Say::Failed(false)]));
}

#[test]
fn a_client_that_closes_has_its_commands_done_first() {
    let mut led = Led::new(0);
    led.hear(open());
    led.hear(push());
    led.edge.hear(Ask::Close { client: client() }).unwrap();
    led.edge.hear(Ask::Close { client: client() }).unwrap();
    let says = led.turn();
    assert!(matches!(says[0], Say::Applied { count: 2, .. }));
    assert_eq!(says.iter().filter(|say| matches!(say, Say::Closed { .. })).count(), 1);
    assert_eq!(led.hub.with_journal(|engine, _| engine.job_count()), 1);
    assert!(led.hub.mailboxes().is_empty());
}

#[test]
fn an_edge_may_not_act_for_clients_of_another_edge() {
    let mut led = Led::new(ROOM);
    let others = ClientId(EdgeNumber::new(8).unwrap().first_client().0 | 1);
    for ask in [Ask::Open { client: others, room: 1 }, Ask::Close { client: others }, Ask::Bye] {
        assert!(led.edge.hear(ask).is_err());
    }
}
