//! The leader's items for an edge, turn by turn.

use std::pin::pin;
use std::task::Waker;

use bytes::Bytes;
use windlass_engine::{
    Claim, ClientCommand, ClientInfo, Engine, From, Held, Holder, JobCommand, JobId, JobRef,
    LeaseTerms, Limits, NewJob, Protocol, Query, Select, Subscription, Take, Timestamp, Wait,
};
use windlass_store::Journal;

use super::*;
use windlass_hub::Durability;
use windlass_hub::clock::simulated;

const ROOM: u64 = 1 << 20;

struct Led {
    hub: Arc<Hub>,
    rung: Arc<Notify>,
    edge: EdgeClients,
}

impl Led {
    /// A leader, and an edge with one client that has not sent anything.
    fn new(room: u64) -> Self {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Durable,
            7,
        ));
        while hub.cut().map(|cut| hub.committed(cut.commit)).is_some() {}
        let rung = Arc::new(Notify::new());
        let edge = EdgeClients::new(Arc::clone(&hub), number(), 1 << 20, Arc::clone(&rung));
        let mut led = Self { hub, rung, edge };
        led.edge
            .receive(ToLeader::Open {
                client: client(),
                room,
            })
            .unwrap();
        led
    }

    fn receive(&mut self, command: impl Into<Command>) {
        self.edge
            .receive(ToLeader::Command {
                client: client(),
                tag: Tag(1),
                command: command.into(),
            })
            .unwrap();
    }

    /// The items of one turn, except the time.
    fn turn(&mut self) -> Vec<ToEdge> {
        let mut to_edge = Vec::new();
        self.edge.turn(&mut to_edge);
        to_edge.retain(|item| !matches!(item, ToEdge::Clock(_)));
        to_edge
    }

    fn is_notified(&self) -> bool {
        pin!(self.rung.notified())
            .poll(&mut std::task::Context::from_waker(Waker::noop()))
            .is_ready()
    }

    /// Writes the next commit. Returns the number of mailboxes woken by it.
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
    push_bytes(0)
}

fn push_bytes(bytes: usize) -> JobCommand {
    let body = Bytes::from(vec![7; bytes]);
    JobCommand::Push(Box::new(NewJob::new(
        Protocol::GEARMAN,
        Bytes::from_static(b"f"),
        body,
    )))
}

fn take(wait: Wait) -> Command {
    let from = From::Listed {
        queues: vec![Bytes::from_static(b"f")],
        lease: LeaseTerms::CONNECTION,
    };
    Command::Take(TakeCommand::Take(Take {
        from,
        select: Select::BestPriority,
        wait,
        worker: Bytes::new(),
    }))
}

/// The large job is before it on the way to disk, and the client's buffer space is exhausted
/// meanwhile.
#[test]
fn a_client_that_waits_for_the_disk_goes_on_when_it_has_room_too() {
    const LARGE_BYTES: usize = 3 << 20;
    let mut led = Led::new(ROOM);
    led.receive(open());
    led.receive(push_bytes(LARGE_BYTES));
    led.receive(push_bytes(LARGE_BYTES));
    while led.edge.turn(&mut Vec::new()) {}
    let jobs = |led: &Led| led.hub.with_journal(|engine, _| engine.job_count());
    assert_eq!(jobs(&led), 1);
    led.edge
        .clients
        .values_mut()
        .for_each(|member| member.room = 0);
    while led
        .hub
        .cut()
        .map(|cut| {
            led.hub
                .committed(cut.commit)
                .iter()
                .for_each(|it| it.ring())
        })
        .is_some()
    {}
    led.edge.collect(&mut Vec::new());
    assert!(led.edge.ready.is_empty(), "it has no room");
    led.edge
        .receive(ToLeader::Room {
            client: client(),
            bytes: ROOM,
        })
        .unwrap();
    assert_eq!(led.edge.ready.len(), 1);
    led.turn();
    assert_eq!(jobs(&led), 2);
}

#[test]
fn commands_without_answers_are_done_turn_after_turn() {
    let mut led = Led::new(ROOM);
    led.receive(open());
    for jobs in 1..=3 {
        led.edge
            .receive(ToLeader::Command {
                client: client(),
                tag: Tag::NONE,
                command: push().into(),
            })
            .unwrap();
        led.turn();
        assert_eq!(led.hub.with_journal(|engine, _| engine.job_count()), jobs);
    }
}

#[test]
fn a_turn_says_how_much_of_a_clients_commands_is_done_and_whether_there_is_more() {
    let (mut led, body_bytes) = (Led::new(ROOM), ROOM_BYTES / 2);
    led.receive(open());
    led.receive(push_bytes(body_bytes));
    let mut to_edge = Vec::new();
    assert!(!led.edge.turn(&mut to_edge), "all is done");
    (0..5).for_each(|_| led.receive(Query::Job(JobRef::Id(JobId(1)))));
    let mut turn = || {
        to_edge.clear();
        let more = led.edge.turn(&mut to_edge);
        let done = to_edge.iter().filter_map(|item| {
            if let ToEdge::Applied { count, .. } = item {
                Some(*count)
            } else {
                None
            }
        });
        (more, done.sum::<u32>())
    };
    assert_eq!([turn(), turn(), turn()], [(true, 2), (true, 2), (false, 1)]);
}

#[test]
fn an_edge_learns_the_time_with_all_that_it_takes_at_once_and_from_time_to_time() {
    let beat_ms = u64::try_from(BEAT.as_millis()).unwrap();
    let (mut clocks, mut led) = (clock::Clocks::new(), None::<Led>);
    let mut turn = |after_ms: u64, to_leader: bool| {
        let machine = simulated::Machine {
            boot: 1,
            since_boot_ms: 1_000_000 + after_ms,
            wall_ms: 9_000_000 + after_ms,
        };
        simulated::on(machine, &mut clocks, || {
            let led = led.get_or_insert_with(|| Led::new(ROOM));
            if to_leader {
                led.receive(open());
            }
            let mut to_edge = Vec::new();
            led.edge.turn(&mut to_edge);
            let times = to_edge
                .iter()
                .filter(|item| matches!(item, ToEdge::Clock(_)))
                .count();
            (times, matches!(to_edge.last(), Some(ToEdge::Clock(_))))
        })
    };
    assert_eq!(turn(0, false), (0, false));
    assert_eq!(turn(1, true), (1, true));
    assert_eq!(turn(beat_ms, false), (0, false));
    assert_eq!(turn(1 + beat_ms, false), (1, true));
    assert_eq!(turn(2 + beat_ms, false), (0, false));
}

#[test]
fn commands_are_counted_and_places_of_bytes_are_not() {
    let mut led = Led::new(ROOM);
    led.receive(open());
    led.receive(open());
    led.edge
        .receive(ToLeader::Forbidden {
            client: client(),
            tag: Tag(2),
        })
        .unwrap();
    assert!(matches!(led.turn()[0], ToEdge::Applied { count: 3, .. }));
    led.edge
        .receive(ToLeader::OwnBytes {
            client: client(),
            count: 2,
        })
        .unwrap();
    assert!(matches!(
        led.turn()[..],
        [
            ToEdge::OwnBytes { count: 1, .. },
            ToEdge::OwnBytes { count: 1, .. }
        ]
    ));
    assert!(led.turn().is_empty());
}

#[test]
fn a_client_without_room_waits_for_it() {
    let mut led = Led::new(0);
    led.receive(open());
    led.receive(push());
    assert!(led.turn().is_empty());
    assert!(led.edge.ready.is_empty(), "no turn can do anything");
    assert_eq!(led.hub.with_journal(|engine, _| engine.job_count()), 0);
    led.edge
        .receive(ToLeader::Room {
            client: client(),
            bytes: 1 << 20,
        })
        .unwrap();
    assert_eq!(led.edge.ready.len(), 1);
    led.edge
        .receive(ToLeader::Room {
            client: client(),
            bytes: 1,
        })
        .unwrap();
    assert_eq!(led.edge.ready.len(), 1, "each client once");
    led.turn();
    assert_eq!(led.hub.with_journal(|engine, _| engine.job_count()), 1);
    assert!(led.edge.ready.is_empty());
}

#[test]
fn an_edge_learns_of_each_commit_once_and_its_link_is_rung_for_those_it_waits_for() {
    let mut led = Led::new(ROOM);
    led.receive(open());
    led.receive(push());
    let gates = |to_edge: Vec<ToEdge>| {
        to_edge.into_iter().filter_map(|item| {
            if let ToEdge::Event { gate, .. } = item {
                Some(gate)
            } else {
                None
            }
        })
    };
    let gate = gates(led.turn()).max().unwrap();
    assert!(gate > led.hub.durable());
    assert!(led.turn().is_empty());
    assert!(led.turn().is_empty());
    while led.is_notified() {}
    assert_eq!(led.commit(), 1, "registered once");
    assert!(led.is_notified());
    assert!(matches!(led.turn()[..], [ToEdge::Durable { commit }] if commit == gate));
    assert!(led.turn().is_empty());
    assert!(!led.is_notified(), "it waits for nothing more");
    led.hub.set_failed(true);
    assert!(matches!(led.turn()[..], [ToEdge::Failed(true)]));
    assert!(led.turn().is_empty());
    led.hub.set_failed(false);
    assert!(matches!(led.turn()[..], [ToEdge::Failed(false)]));
}

#[test]
fn a_client_that_closes_has_its_commands_done_first() {
    let mut led = Led::new(0);
    led.receive(open());
    led.receive(push());
    led.edge
        .receive(ToLeader::Close { client: client() })
        .unwrap();
    led.edge
        .receive(ToLeader::Close { client: client() })
        .unwrap();
    let to_edge = led.turn();
    assert!(matches!(to_edge[0], ToEdge::Applied { count: 2, .. }));
    assert_eq!(
        to_edge
            .iter()
            .filter(|item| matches!(item, ToEdge::Closed { .. }))
            .count(),
        1
    );
    assert_eq!(led.hub.with_journal(|engine, _| engine.job_count()), 1);
    assert!(led.hub.mailboxes().is_empty());
}

/// Jobs that an edge has not sent must count at the leader like those of its own clients; otherwise
/// an edge could hold any number of them.
#[test]
fn large_jobs_count_until_the_peers_of_an_edge_have_taken_them() {
    const LARGE_BYTES: usize = 100_000;
    let mut led = Led::new(ROOM);
    let before = led.hub.budget.room();
    let counts = |led: &Led| before - led.hub.budget.room();
    led.receive(open());
    for _ in 0..3 {
        led.receive(push_bytes(LARGE_BYTES));
        led.receive(take(Wait::No));
    }
    led.turn();
    let expected = |jobs: usize| (jobs * LARGE_BYTES) as u64;
    assert_eq!(counts(&led), expected(3));
    led.edge
        .receive(ToLeader::Sent {
            client: client(),
            jobs: 1,
        })
        .unwrap();
    assert_eq!(counts(&led), expected(2));
    led.edge
        .receive(ToLeader::Close { client: client() })
        .unwrap();
    led.turn();
    assert_eq!(counts(&led), 0);
}

#[test]
fn an_edge_learns_that_workers_wait_for_room_once_a_beat() {
    let mut led = Led::new(ROOM);
    led.receive(open());
    led.receive(push_bytes(100_000));
    led.receive(push_bytes(100_000));
    led.hub.budget.limit(100_000);
    led.receive(take(Wait::Forever));
    led.receive(take(Wait::Forever));
    let told = |led: &mut Led| {
        led.turn()
            .iter()
            .filter(|item| matches!(item, ToEdge::Starved))
            .count()
    };
    assert_eq!(told(&mut led), 0, "the first job may exceed the room");
    led.hub.tick();
    assert_eq!([told(&mut led), told(&mut led)], [1, 0]);
}

/// After a reconnect, clients have new numbers but keep the state that the edge knows about.
#[test]
fn what_clients_had_by_a_link_that_was_cut_is_theirs_by_the_next_one() {
    let mut led = Led::new(ROOM);
    let queue = Bytes::from_static(b"f");
    led.receive(open());
    led.receive(push());
    led.receive(take(Wait::No));
    led.receive(take(Wait::Forever));
    led.turn();
    let holder = |hub: &Hub| {
        hub.with_journal(|engine, _| engine.job(JobId(1)).unwrap().lease().unwrap().clone())
    };
    let lease = holder(&led.hub);
    assert_eq!(lease.holder, Holder::Connection(client()));
    let Led {
        hub,
        edge: mut before,
        ..
    } = led;
    before.suspend();
    before.turn(&mut Vec::new());
    // Jobs must not go to a client that may be gone.
    hub.ask(push().into()).unwrap();
    let is_ready =
        |hub: &Hub| hub.with_journal(|engine, _| engine.job(JobId(2)).unwrap().lease().is_none());
    assert!(is_ready(&hub));

    let number = EdgeNumber::new(8).unwrap();
    let client = ClientId(number.first_client().0 | 1);
    let mut edge = EdgeClients::new(Arc::clone(&hub), number, 1 << 20, Arc::default());
    edge.succeed(before);
    let name = Bytes::new;
    let protocol = Protocol::GEARMAN;
    let held = Held {
        token: lease.token,
        until: Timestamp::NEVER,
        protocol,
        queue,
        name: name(),
        key: name(),
    };
    let claims = [
        ToLeader::Open { client, room: ROOM },
        ToLeader::Command {
            client,
            tag: Tag::NONE,
            command: open().into(),
        },
        ToLeader::Claim {
            client,
            claim: Claim::Holds {
                job: JobId(1),
                held,
            },
        },
    ];
    claims
        .into_iter()
        .for_each(|item| edge.receive(item).unwrap());
    edge.turn(&mut Vec::new());
    assert_eq!(
        (holder(&hub).holder, edge.keeps()),
        (Holder::Connection(client), true)
    );
    edge.receive(ToLeader::Claimed).unwrap();
    edge.turn(&mut Vec::new());
    assert_eq!(
        (holder(&hub).holder, edge.keeps()),
        (Holder::Connection(client), false)
    );
    assert_eq!(
        hub.mailboxes().len(),
        1,
        "the client under its old number has ended"
    );
}

#[test]
fn an_edge_may_not_act_for_clients_of_another_edge() {
    let mut led = Led::new(ROOM);
    let others = ClientId(EdgeNumber::new(8).unwrap().first_client().0 | 1);
    for item in [
        ToLeader::Open {
            client: others,
            room: 1,
        },
        ToLeader::Close { client: others },
        ToLeader::Bye,
    ] {
        assert!(led.edge.receive(item).is_err());
    }
}

/// Otherwise the edge would count the job against the later wait, and would not claim that wait at
/// the next leader.
#[test]
fn a_job_for_a_wait_that_ends_goes_out_before_the_next_wait_begins() {
    let mut led = Led::new(ROOM);
    let credit = || TakeCommand::Credit {
        credits: 1,
        select: Select::BestPriority,
    };
    led.receive(open());
    let (queue, lease) = (Bytes::from_static(b"f"), LeaseTerms::CONNECTION);
    led.receive(ClientCommand::Serve(Subscription {
        queue,
        weight: 1,
        lease,
        unclaimed: None,
    }));
    led.receive(credit());
    led.turn();
    led.receive(push());
    led.receive(TakeCommand::Unwait);
    led.receive(credit());
    let mut to_edge = Vec::new();
    while led.edge.turn(&mut to_edge) {}
    let at = |is_it: &dyn Fn(&ToEdge) -> bool| to_edge.iter().position(is_it).unwrap();
    let job =
        at(&|item| matches!(item, ToEdge::Event { event, .. } if event.handed_out().is_some()));
    let ended = at(&|item| matches!(item, ToEdge::Applied { count: 2, .. }));
    let begun = at(&|item| matches!(item, ToEdge::Applied { count: 1, .. }));
    assert!(ended < job && job < begun, "{to_edge:?}");
}
