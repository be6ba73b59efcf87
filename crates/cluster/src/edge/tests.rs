//! The requests that an edge sends for its clients, and how many may be in flight.

use std::pin::pin;
use std::task::Waker;
use std::thread;

use windlass_engine::{JobCommand, NewJob, Protocol, QueueCommand, QueueKind, Taken};

use std::collections::VecDeque;

use windlass_hub::Visited;
use windlass_link::Edge as EdgeNumber;
use windlass_session::Item;

use super::state::{ASKED, BYTES_MAX, ITEM_BYTES, ITEMS_MAX, UNDER_WAY_MAX};
use super::*;
use windlass_hub::testing::nowhere;

const NUMBER: u32 = 7;

pub(super) fn welcome() -> Welcome {
    Welcome {
        epoch: 1,
        edge: EdgeNumber::new(NUMBER).unwrap(),
        reaches: 0,
        durable: 5,
        same_settings: true,
        clock: clock::read(),
        frame_bytes_max: 1 << 20,
    }
}

fn open_link(edge: &Edge) {
    edge.open_link(&welcome());
}

/// An edge with a leader and this many clients, numbered from 1.
pub(super) fn edge(clients: u64) -> (Edge, Vec<Arc<Mailbox>>) {
    let edge = Edge::new(Arc::new(Budget::new(1 << 30)));
    open_link(&edge);
    let mailboxes = (1..=clients).map(|client| {
        let mailbox = Arc::new(Mailbox::new(1 << 30, Arc::clone(&edge.budget), nowhere()));
        edge.open(ClientId(client), Arc::clone(&mailbox));
        mailbox
    });
    let mailboxes = mailboxes.collect();
    // The edge claims nothing.
    assert!(matches!(to_leader(&edge)[..], [ToLeader::Claimed]));
    (edge, mailboxes)
}

/// The leader's number of a client.
pub(super) fn there(client: u64) -> ClientId {
    ClientId(EdgeNumber::new(NUMBER).unwrap().first_client().0 | client)
}

pub(super) fn visit(edge: &Edge, client: u64, items: &mut VecDeque<Item>) -> Visited {
    let mut visited = Visited::All;
    let batch = Batch {
        client: ClientId(client),
        items,
        room: usize::MAX,
        visited: &mut visited,
    };
    edge.visit(&clock::read(), &mut std::iter::once(batch));
    visited
}

/// Pushes a job with this accounted size.
fn push(bytes: usize) -> Item {
    let body = Bytes::from(vec![7; bytes - ITEM_BYTES]);
    let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"f"), body);
    Item::Command(Tag(1), JobCommand::Push(Box::new(job)).into())
}

pub(super) fn open() -> Item {
    Item::Command(Tag(1), ClientCommand::Open(ClientInfo::default()).into())
}

pub(super) fn to_leader(edge: &Edge) -> Vec<ToLeader> {
    let mut to_leader = Vec::new();
    edge.take_outgoing(&mut to_leader);
    to_leader
}

fn is_notified(edge: &Edge) -> bool {
    pin!(edge.to_send.notified())
        .poll(&mut std::task::Context::from_waker(Waker::noop()))
        .is_ready()
}

pub(super) fn mail(edge: &Edge, mailbox: &Mailbox) -> usize {
    let mut mail = Vec::new();
    edge.mail(mailbox, usize::MAX, &mut mail);
    mail.len()
}

pub(super) fn done(client: u64, gate: u64) -> ToEdge {
    ToEdge::Event {
        client: there(client),
        gate,
        event: Event::Reply(Tag(1), Reply::Done),
    }
}

#[test]
fn the_items_of_a_client_on_their_way_are_bounded() {
    let (edge, mailboxes) = edge(1);
    let mut items: VecDeque<Item> = (0..ITEMS_MAX + 2).map(|_| open()).collect();
    assert_eq!(visit(&edge, 1, &mut items), Visited::UntilRung);
    assert_eq!((items.len(), mailboxes[0].unanswered()), (2, ITEMS_MAX));
    assert_eq!(to_leader(&edge).len(), ITEMS_MAX + 1, "and the client");
    let _ = mailboxes[0].wake_flag().look();
    edge.receive([ToEdge::Applied {
        client: there(1),
        count: 1,
    }]);
    assert!(mailboxes[0].wake_flag().look(), "it may go on");
    assert_eq!(visit(&edge, 1, &mut items), Visited::UntilRung);
    assert_eq!(items.len(), 1);
    edge.receive([ToEdge::Applied {
        client: there(1),
        count: u32::MAX,
    }]);
    assert!(mailboxes[0].wake_flag().look());
    assert_eq!(mailboxes[0].unanswered(), 0);
    assert_eq!(visit(&edge, 1, &mut items), Visited::All);
    edge.receive([ToEdge::Applied {
        client: there(1),
        count: 1,
    }]);
    assert!(
        !mailboxes[0].wake_flag().look(),
        "it has nothing that waits"
    );
}

#[test]
fn the_bytes_on_their_way_are_bounded_by_client_and_for_all() {
    const PART: usize = BYTES_MAX / 4;
    let (edge, mailboxes) = edge(6);
    let mut all: Vec<VecDeque<Item>> = (0..6)
        .map(|_| (0..5).map(|_| push(PART)).collect())
        .collect();
    let left: Vec<usize> = (1..)
        .zip(&mut all)
        .map(|(client, items)| (visit(&edge, client, items), items.len()).1)
        .collect();
    assert_eq!(left, [1, 1, 1, 1, 5, 5]);
    assert_eq!(edge.lock().under_way_bytes, UNDER_WAY_MAX);
    let rung = || {
        mailboxes
            .iter()
            .map(|mailbox| u8::from(mailbox.wake_flag().look()))
            .collect::<Vec<_>>()
    };
    rung();
    edge.receive([ToEdge::Applied {
        client: there(5),
        count: 1,
    }]);
    assert_eq!(rung(), [0; 6], "the way is still full");
    edge.receive([ToEdge::Applied {
        client: there(1),
        count: 1,
    }]);
    assert_eq!(rung(), [1; 6], "all clients were blocked");
    assert_eq!(visit(&edge, 5, &mut all[4]), Visited::UntilRung);
    assert_eq!(all[4].len(), 4);
    // Below the overall limit, each client has a limit of its own.
    edge.receive([ToEdge::Applied {
        client: there(2),
        count: 4,
    }]);
    rung();
    assert_eq!(visit(&edge, 5, &mut all[4]), Visited::UntilRung);
    assert_eq!(all[4].len(), 1);
    edge.receive([
        ToEdge::Applied {
            client: there(2),
            count: 4,
        },
        ToEdge::Applied {
            client: there(1),
            count: 3,
        },
    ]);
    rung();
    edge.receive([ToEdge::Applied {
        client: there(5),
        count: 1,
    }]);
    assert_eq!(rung(), [0, 0, 0, 0, 1, 0]);
    while !edge.close(ClientId(3)) {}
    assert_eq!(
        edge.lock().under_way_bytes,
        7 * PART,
        "nothing more comes for a client that has gone"
    );
}

#[test]
fn bytes_for_a_peer_stand_behind_the_answers_before_them() {
    let (edge, mailboxes) = edge(1);
    let words = || Item::Bytes(Bytes::from_static(b"words"));
    assert_eq!(visit(&edge, 1, &mut [words()].into()), Visited::All);
    assert_eq!(mail(&edge, &mailboxes[0]), 1, "nothing is before them");
    visit(&edge, 1, &mut [open(), words(), words()].into());
    assert_eq!(
        (mail(&edge, &mailboxes[0]), mailboxes[0].unanswered()),
        (0, 3)
    );
    edge.receive([
        ToEdge::Applied {
            client: there(1),
            count: 1,
        },
        done(1, 0),
    ]);
    assert_eq!(
        (mail(&edge, &mailboxes[0]), mailboxes[0].unanswered()),
        (1, 2)
    );
    visit(&edge, 1, &mut [words()].into());
    assert_eq!(mail(&edge, &mailboxes[0]), 0, "others are before them");
    edge.receive([ToEdge::OwnBytes {
        client: there(1),
        count: 2,
    }]);
    assert_eq!(
        (mail(&edge, &mailboxes[0]), mailboxes[0].unanswered()),
        (2, 1)
    );
    edge.receive([ToEdge::OwnBytes {
        client: there(1),
        count: 9,
    }]);
    assert_eq!(
        (mail(&edge, &mailboxes[0]), mailboxes[0].unanswered()),
        (1, 0)
    );
}

#[test]
fn mail_waits_for_its_commit() {
    let (edge, mailboxes) = edge(1);
    edge.receive([done(1, 5)]);
    assert!(edge.lock().waiting.is_empty(), "commit 5 is durable");
    assert_eq!(mail(&edge, &mailboxes[0]), 1);
    edge.receive([done(1, 6), done(1, 7)]);
    assert_eq!(mail(&edge, &mailboxes[0]), 0);
    let _ = mailboxes[0].wake_flag().look();
    edge.receive([ToEdge::Durable { commit: 6 }]);
    assert!(mailboxes[0].wake_flag().look());
    assert_eq!(
        (mail(&edge, &mailboxes[0]), edge.lock().waiting.len()),
        (1, 1)
    );
    edge.receive([ToEdge::Failed(true)]);
    assert!(mailboxes[0].wake_flag().look(), "its outcome is unknown");
    assert_eq!(mail(&edge, &mailboxes[0]), 1);
}

#[test]
fn the_link_is_notified_once_when_there_is_something_to_send() {
    let (edge, _) = edge(1);
    visit(&edge, 1, &mut VecDeque::new());
    assert!(!is_notified(&edge));
    visit(&edge, 1, &mut [open()].into());
    assert!(is_notified(&edge));
    visit(&edge, 1, &mut [open()].into());
    assert!(!is_notified(&edge), "it has not taken all");
    assert_eq!(to_leader(&edge).len(), 3);
    let (mut items, mut visited) = ([open()].into(), Visited::Part);
    let batch = Batch {
        client: ClientId(1),
        items: &mut items,
        room: 1,
        visited: &mut visited,
    };
    assert!(edge.visit_nonblocking(&clock::read(), batch));
    assert!(is_notified(&edge));
    assert_eq!((to_leader(&edge).len(), visited), (1, Visited::All));
}

/// The leader learns how many bytes a session can accept.
#[test]
fn room_is_reported_to_the_leader_in_steps() {
    let (edge, mailboxes) = edge(1);
    visit(&edge, 1, &mut [open()].into());
    to_leader(&edge);
    let taken = Taken {
        body: Bytes::from(vec![7; 1000]),
        ..windlass_hub::testing::taken()
    };
    let event = Event::Reply(Tag(1), Reply::Taken(Box::new(taken)));
    let bytes = event.bytes();
    let one = ToEdge::Event {
        client: there(1),
        gate: 0,
        event,
    };
    let many = ROOM_STEP.div_ceil(bytes);
    edge.receive((1..many).map(|_| one.clone()));
    assert_eq!(mail(&edge, &mailboxes[0]), many - 1);
    assert!(to_leader(&edge).is_empty());
    edge.receive([one.clone()]);
    assert_eq!(mail(&edge, &mailboxes[0]), 1);
    let told = to_leader(&edge);
    assert!(
        matches!(told[..], [ToLeader::Room { client, bytes: room }] if client == there(1) && room == (many * bytes) as u64)
    );
    edge.receive([one]);
    assert_eq!(mail(&edge, &mailboxes[0]), 1);
    assert!(to_leader(&edge).is_empty());
}

/// Large jobs count only towards the overall limit, not towards the mailbox's: the client has
/// requested each of them.
#[test]
fn large_jobs_fill_no_mailbox_and_the_leader_learns_when_they_have_left() {
    const LARGE_BYTES: usize = 100_000;
    let (edge, _) = edge(0);
    let mailbox = Arc::new(Mailbox::new(
        LARGE_BYTES,
        Arc::clone(&edge.budget),
        nowhere(),
    ));
    edge.open(ClientId(1), Arc::clone(&mailbox));
    edge.budget
        .enter(ClientId(1), Arc::<Mailbox>::clone(&mailbox));
    visit(&edge, 1, &mut [open()].into());
    let taken = Taken {
        body: Bytes::from(vec![7; LARGE_BYTES]),
        ..windlass_hub::testing::taken()
    };
    let event = Event::Reply(Tag(1), Reply::Taken(Box::new(taken)));
    let room = edge.budget.room();
    edge.receive((0..3).map(|_| ToEdge::Event {
        client: there(1),
        gate: 0,
        event: event.clone(),
    }));
    assert_eq!(room - edge.budget.room(), 3 * LARGE_BYTES as u64);
    assert!(!mailbox.pressure.overflowed());
    to_leader(&edge);
    edge.sent_jobs(ClientId(1), 2);
    assert!(
        matches!(to_leader(&edge)[..], [ToLeader::Sent { client, jobs: 2 }] if client == there(1))
    );
    for (unsent, closed) in [(0, false), (LARGE_BYTES, true)] {
        mailbox.pressure.set_unsent(unsent, 0);
        edge.receive([ToEdge::Starved]);
        mailbox.check_stall(windlass_hub::clock::now());
        assert_eq!(
            mailbox.close_reason().is_some(),
            closed,
            "{unsent} bytes of jobs do not move"
        );
    }
}

#[test]
fn the_daemons_own_questions_are_clients_of_their_own() {
    let (edge, mailboxes) = edge(1);
    let question = || QueueCommand::Create {
        queue: Bytes::from_static(b"q"),
        kind: QueueKind::Work,
    };
    let mut clients = foldhash::HashSet::default();
    for reply in [Reply::Done, Reply::Refused(Refusal::InUse)] {
        let answer = thread::scope(|scope| {
            let asks_it = scope.spawn(|| edge.ask(question().into()));
            let mut asked = Vec::new();
            while asked.len() < 4 {
                edge.take_outgoing(&mut asked);
                thread::yield_now();
            }
            assert!(matches!(
                asked[..],
                [
                    ToLeader::Open { .. },
                    ToLeader::Command { .. },
                    ToLeader::Command { .. },
                    ToLeader::Close { .. }
                ]
            ));
            let client = asked[0].client().unwrap();
            assert!(client.0 & (OWN_REQUESTS * 2 - 1) > OWN_REQUESTS);
            clients.insert(client);
            edge.receive([ToEdge::Event {
                client,
                gate: 0,
                event: Event::Reply(ASKED, reply.clone()),
            }]);
            asks_it.join().unwrap()
        });
        if let Reply::Refused(why) = reply {
            assert_eq!(answer.unwrap_err(), why);
        } else {
            assert!(matches!(answer, Ok(Reply::Done)));
        }
    }
    assert_eq!((clients.len(), mailboxes[0].len()), (2, 0));
    assert!(edge.lock().questions.is_empty());
    edge.close_link();
    assert_eq!(
        edge.ask(question().into()).unwrap_err(),
        Refusal::Unavailable
    );
}

#[test]
fn an_edge_serves_while_it_has_a_way_and_the_store_responds() {
    let (edge, _) = edge(0);
    assert_eq!(edge.health(), Health::Serving);
    edge.receive([ToEdge::Failed(true)]);
    assert_eq!(edge.health(), Health::StoreFailed);
    edge.receive([ToEdge::Failed(false)]);
    assert_eq!(edge.health(), Health::Serving);
    edge.close_link();
    assert_eq!(edge.health(), Health::StoreFailed);
    edge.stop();
    assert_eq!(edge.health(), Health::Stopping);
}

#[test]
fn clients_without_an_answer_stay_blocked_until_there_is_a_way_again() {
    let (edge, mailboxes) = edge(2);
    for client in [1, 2] {
        let mut items: VecDeque<Item> = (0..=ITEMS_MAX).map(|_| open()).collect();
        assert_eq!(visit(&edge, client, &mut items), Visited::UntilRung);
    }
    edge.receive([ToEdge::Applied {
        client: there(1),
        count: 1,
    }]);
    assert_eq!(edge.lock().blocked, [ClientId(2)]);
    edge.close_link();
    let _ = mailboxes[1].wake_flag().look();
    open_link(&edge);
    assert!(
        mailboxes[1].wake_flag().look(),
        "it goes on when there is a way again"
    );
}
