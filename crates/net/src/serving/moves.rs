//! Connections move to a helper and back without their peers noticing.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientCommand, Command, Engine, Event, Limits, Query, Tag, Timestamp};
use windlass_session::{Outbox, Reason, Session};
use windlass_store::Journal;

use super::Threads;
use super::load::Kind;
use super::tests::ByHand;
use crate::connection::tests::shared;
use crate::polling::Polling;
use windlass_hub::testing::captured;
use windlass_hub::{Durability, Hub, Mail};

/// Sends a request to the engine for each byte, and replies with the byte.
#[derive(Debug, Default)]
struct Echo(BytesMut);

impl Session for Echo {
    fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
        out.command(
            Tag::NONE,
            ClientCommand::Open(windlass_engine::ClientInfo::default()),
        );
    }

    fn on_bytes(&mut self, _: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        input
            .iter()
            .for_each(|_| out.command(Tag(1), Command::Query(Query::Stats)));
        self.0.unsplit(input.split());
    }

    fn on_event(&mut self, _: Timestamp, _: Event, out: &mut Outbox) {
        out.bytes().extend_from_slice(&self.0.split_to(1));
    }
}

/// A thread with a helper, and connections that have received a reply.
struct Daemon {
    hub: Arc<Hub>,
    main: ByHand,
    helper: ByHand,
    peers: Vec<UnixStream>,
}

impl Daemon {
    fn new(connections: usize) -> Self {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let [mut main, helper] = ByHand::with_helper(&shared(&hub));
        let peers = (0..connections)
            .map(|_| main.connect(|_| Box::new(Echo::default())))
            .collect();
        let mut daemon = Self {
            hub,
            main,
            helper,
            peers,
        };
        daemon.echo();
        daemon
    }

    /// Each peer sends bytes and receives them back.
    fn echo(&mut self) {
        for (number, peer) in self.peers.iter_mut().enumerate() {
            let sent = [b'a' + u8::try_from(number).unwrap(), b'0'];
            peer.write_all(&sent).unwrap();
            assert_eq!(read(&mut self.main, &mut self.helper, peer), sent);
        }
    }

    fn connections(&self) -> [usize; 2] {
        [self.main.connections(), self.helper.connections()]
    }
}

/// Both threads run turns until the peer has received two bytes.
fn read(main: &mut ByHand, helper: &mut ByHand, peer: &mut UnixStream) -> Vec<u8> {
    let mut got = Vec::new();
    main.until(|| {
        helper.turns(1);
        let mut byte = [0];
        while peer.read(&mut byte).is_ok_and(|read| read > 0) {
            got.extend(byte);
        }
        got.len() >= 2
    });
    got
}

#[test]
fn half_of_the_connections_move_to_a_helper_and_come_back() {
    let mut daemon = Daemon::new(5);
    for _ in 0..3 {
        assert_eq!(daemon.connections(), [5, 0]);
        daemon.echo();
        daemon.main.turn_as(Kind::Other);
        assert_eq!(daemon.connections(), [5, 0]);
        daemon.echo();
        daemon.main.turn_as(Kind::Full);
        assert_eq!(daemon.connections(), [3, 2]);
        daemon.echo();
        daemon.helper.turn_as(Kind::Other);
        assert_eq!(daemon.connections(), [3, 2]);
        daemon.echo();
        daemon.helper.turn_as(Kind::Light);
        assert_eq!(daemon.connections(), [5, 0]);
        daemon.echo();
    }
    daemon.peers.clear();
    daemon.main.until_closed();
    assert_eq!(daemon.hub.mailboxes().len(), 0);
    assert_eq!(daemon.connections(), [0, 0]);
    assert!(daemon.main.is_idle(), "the clients have left the engine");
}

#[test]
fn the_connections_of_a_thread_that_ends_leave_the_engine() {
    let daemon = Daemon::new(3);
    let Daemon { hub, main, .. } = daemon;
    assert_eq!(hub.mailboxes().len(), 3);
    drop(main);
    assert_eq!(hub.mailboxes().len(), 0);
}

#[test]
fn the_log_has_the_reason_why_the_daemon_closed_a_connection() {
    let mut daemon = Daemon::new(1);
    daemon.hub.mailboxes()[0].evict(Reason::Limit("buffer_bytes_max"));
    let logged = captured(|| daemon.main.until_closed());
    assert!(
        logged.contains("closed a connection") && logged.contains("buffer_bytes_max"),
        "{logged}"
    );
}

#[test]
fn dropping_the_threads_ends_their_connections() {
    let hub = Arc::new(Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Soon,
        7,
    ));
    let (threads, _slots) = Threads::start(1, 0, &shared(&hub), Polling::Off).unwrap();
    let waker = Arc::downgrade(&threads.0[0].0);
    drop((threads, _slots));
    assert!(waker.upgrade().is_none(), "the thread has ended");
}

#[test]
fn a_helper_without_time_gets_no_more() {
    let mut daemon = Daemon::new(4);
    daemon.main.turn_as(Kind::Full);
    daemon.echo();
    daemon.helper.turn_as(Kind::Full);
    daemon.echo();
    daemon.main.turn_as(Kind::Full);
    assert_eq!(daemon.connections(), [2, 2]);
    daemon.helper.turn_as(Kind::Other);
    daemon.echo();
    daemon.main.turn_as(Kind::Full);
    assert_eq!(daemon.connections(), [1, 3]);
    daemon.echo();
}

#[test]
fn a_connection_alone_and_connections_without_commands_stay() {
    for (connections, works, expected) in [(1, true, [1, 0]), (2, true, [1, 1]), (2, false, [2, 0])]
    {
        let mut daemon = Daemon::new(connections);
        daemon.main.turn_as(Kind::Other);
        if works {
            daemon.echo();
        }
        daemon.main.turn_as(Kind::Full);
        assert_eq!(daemon.connections(), expected, "{connections} {works}");
    }
}

/// Bytes of the peer and mail of another thread that arrive while neither thread has the
/// connection.
#[test]
fn nothing_is_lost_while_a_connection_moves() {
    let mut daemon = Daemon::new(2);
    daemon.main.turn_as(Kind::Full);
    assert_eq!(daemon.connections(), [1, 1]);
    daemon
        .peers
        .iter_mut()
        .for_each(|peer| peer.write_all(b"x").unwrap());
    for mailbox in daemon.hub.mailboxes() {
        let _ = mailbox.push(0, Mail::Bytes(Bytes::from_static(b"!")), None);
    }
    let Daemon {
        main,
        helper,
        peers,
        ..
    } = &mut daemon;
    for peer in peers {
        let mut got = read(main, helper, peer);
        got.sort_unstable();
        assert_eq!(got, b"!x");
    }
}

#[test]
fn a_helper_that_ends_takes_no_connection() {
    let mut daemon = Daemon::new(2);
    daemon.helper.stop();
    daemon.main.turn_as(Kind::Full);
    daemon.main.until_open(1);
    assert_eq!(daemon.hub.mailboxes().len(), 1);
}

/// The thread stops while connections are on their way to it.
#[test]
fn connections_that_a_thread_never_served_are_closed_with_it() {
    let mut daemon = Daemon::new(2);
    daemon.main.turn_as(Kind::Full);
    let Daemon {
        hub, main, helper, ..
    } = daemon;
    drop(helper);
    assert_eq!((hub.mailboxes().len(), main.connections()), (1, 1));
}
