//! Faults that the simulator has found, each as a small scene. More are in the tests of the link's ledger (reports on earlier
//! leases, jobs that a client got again) and of the engine's claims (leases that two leaders have granted).

use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Clock, Command, Engine, Event, JobId, Note, Notice,
    Reading, TICK_MS, Tag, Timestamp, WorkerCommand,
};
use windlass_link::{Edge as EdgeNumber, ToEdge, ToLeader, Welcome};
use windlass_session::Item;
use windlass_store::Journal;

use super::Plan;
use super::lease::Lease;
use super::room::limits;
use windlass_cluster::edge::Edge;
use windlass_hub::clock::simulated::{self, Machine};
use windlass_hub::clock::{self, Clocks};
use windlass_hub::{
    Batch, Broker as _, Budget, ConnectionId, Durability, Home, Hub, Mailbox, Visited, WithMail,
};

const WALL_MS: u64 = 1_700_000_000_000;

const MACHINE: Machine = Machine {
    boot: 1,
    since_boot_ms: 5_000,
    wall_ms: WALL_MS,
};

/// A leader knows this edge under this number. Its engine's time is 7.
fn welcome(edge: u32) -> Welcome {
    Welcome {
        epoch: 1,
        edge: EdgeNumber::new(edge).unwrap(),
        reaches: 0,
        durable: 0,
        same_settings: true,
        clock: Reading {
            now: Timestamp(7),
            clock: Clock::default(),
            pause_ms: None,
        },
        frame_bytes_max: 1 << 20,
    }
}

/// The link's thread receives items of the leader before, when the daemon leads already. (Seeds 5 and 10.)
#[test]
fn a_daemon_that_leads_has_its_own_time() {
    let edge = Edge::new(Arc::new(Budget::new(1 << 20)));
    let welcome = welcome(1_025);
    simulated::on(MACHINE, &mut Clocks::new(), || {
        edge.open_link(&welcome);
        assert_eq!(clock::now(), Timestamp(7));
        drop(edge.hand_over(2, 0));
        edge.receive([ToEdge::Clock(welcome.clock)]);
        edge.open_link(&welcome);
        assert_eq!(clock::now(), Timestamp(WALL_MS));
    });
}

/// Commands between two leaders went to the second one under the numbers of the first.
#[test]
fn a_new_leader_hears_only_of_clients_under_its_own_numbers() {
    let edge = Edge::new(Arc::new(Budget::new(1 << 30)));
    let client = ClientId(1);
    let mailbox = Arc::new(Mailbox::new(
        1 << 20,
        Arc::new(Budget::new(1 << 30)),
        Home {
            waker: Arc::new(WithMail::default()),
            connection: ConnectionId { index: 0, client },
        },
    ));
    simulated::on(MACHINE, &mut Clocks::new(), || {
        edge.open_link(&welcome(1_025));
        edge.open(client, Arc::clone(&mailbox));
        let mut items = [Item::Command(Tag(1), Command::Barrier)].into();
        let (room, visited) = (usize::MAX, &mut Visited::All);
        assert!(edge.visit_nonblocking(
            &clock::read(),
            Batch {
                client,
                items: &mut items,
                room,
                visited
            }
        ));
        let number = ClientId(EdgeNumber::new(1_025).unwrap().first_client().0 | client.0);
        let data = Note::Data(vec![0; 100_000].into());
        let event = Event::Notice(Notice::Progress {
            job: JobId(7),
            note: data,
        });
        edge.receive([ToEdge::Event {
            client: number,
            gate: 0,
            event,
        }]);
        edge.close_link();
        let mut mail = Vec::new();
        edge.mail(&mailbox, usize::MAX, &mut mail);
        assert!(!mail.is_empty());
        edge.open_link(&welcome(2_049));
        let mut to_leader = Vec::new();
        edge.take_outgoing(&mut to_leader);
        assert!(
            to_leader
                .iter()
                .all(|item| matches!(item, ToLeader::Claimed)),
            "{to_leader:?}"
        );
    });
}

/// A leader whose first commit was not in the store gave numbers to foreground jobs that the next leader gave again.
/// (Seed 75.)
#[test]
fn a_daemon_that_succeeds_another_leads_when_its_first_commit_is_in_the_store() {
    simulated::on(MACHINE, &mut Clocks::new(), || {
        let lease = Arc::new(Lease::new(
            2,
            (MACHINE.since_boot_ms, WALL_MS),
            None,
            &Plan::new(0),
        ));
        let hub = Hub::new(
            Engine::new(limits(), 7),
            Journal::new(),
            Durability::Durable,
            7,
        );
        hub.set_failed(true);
        assert!(hub.has_begun(), "alone it serves what it can");
        let hub = hub.under(Some(Arc::clone(&lease) as Arc<_>));
        assert!(!hub.has_begun());
        let cut = hub.cut().unwrap();
        hub.committed(cut.commit);
        assert!(hub.has_begun());
    });
}

/// The worker's heartbeats waited in its socket: the leader visited nothing while its lease was uncertain.
#[test]
fn a_worker_that_beats_is_not_dead_because_its_leader_could_not_act() {
    const AWAY_MS: u64 = 200_000;
    let (worker, client) = (Bytes::from_static(b"w"), ClientId(1));
    let lease = Arc::new(Lease::new(
        1,
        (MACHINE.since_boot_ms, WALL_MS),
        None,
        &Plan::new(0),
    ));
    let (mut clocks, mut at_ms) = (Clocks::new(), 0);
    let mut pass = |ms: u64, act: &mut dyn FnMut(u64)| {
        at_ms += ms;
        let (since_boot_ms, wall_ms) = (MACHINE.since_boot_ms + at_ms, MACHINE.wall_ms + at_ms);
        simulated::on(
            Machine {
                since_boot_ms,
                wall_ms,
                ..MACHINE
            },
            &mut clocks,
            || act(since_boot_ms),
        );
    };
    let hub = Hub::new(
        Engine::new(limits(), 7),
        Journal::new(),
        Durability::Soon,
        7,
    )
    .under(Some(Arc::clone(&lease) as _));
    let mailbox = Arc::new(Mailbox::new(
        1 << 20,
        Arc::default(),
        Home {
            waker: Arc::new(WithMail::default()),
            connection: ConnectionId { index: 0, client },
        },
    ));
    hub.open(client, Arc::clone(&mailbox));
    let ask = |command: Command| {
        let (mut items, mut visited) = ([Item::Command(Tag(1), command)].into(), Visited::All);
        let batch = Batch {
            client,
            items: &mut items,
            room: usize::MAX,
            visited: &mut visited,
        };
        hub.visit_for_edge(&clock::read(), &mut std::iter::once(batch));
        let mut mail = Vec::new();
        mailbox.take(u64::MAX, false, usize::MAX, &mut mail);
        format!("{mail:?}")
    };
    let register = WorkerCommand::Register {
        worker: worker.clone(),
        about: Bytes::new(),
    };
    let beat = || WorkerCommand::Beat {
        worker: worker.clone(),
        state: None,
        memory_bytes: None,
    };
    pass(0, &mut |_| {
        drop((
            ask(ClientCommand::Open(ClientInfo::default()).into()),
            ask(register.clone().into()),
        ))
    });
    for _ in 0..AWAY_MS / TICK_MS {
        pass(TICK_MS, &mut |_| _ = hub.tick());
    }
    pass(1, &mut |sent_ms| {
        lease.renewed(sent_ms, sent_ms - MACHINE.since_boot_ms + WALL_MS);
        hub.tick();
        let answer = ask(beat().into());
        assert!(answer.contains("Beaten"), "{answer}");
    });
}
