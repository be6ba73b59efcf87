//! What transcripts cannot express: the frames around a request, and the errors that end a bare connection.

use std::sync::Arc;

use bytes::BytesMut;
use windlass_config::ByteSize;
use windlass_engine::{ClientId, Limits, Timestamp};
use windlass_session::Reason;
use windlass_spiderq::config::Spiderq;
use windlass_spiderq::session::{Settings, SpiderqSpeaker};
use windlass_testkit::memory::MemoryHub;
use windlass_zmtp::{ConnectionRegistry, Event, Message, Peer, Role, Zmtp};

struct Server {
    hub: MemoryHub,
    registry: Arc<ConnectionRegistry>,
    settings: Arc<Settings>,
}

impl Server {
    fn new() -> Self {
        let settings = Settings::new(Spiderq {
            queue: "tasks".to_owned(),
            zmtp: Zmtp {
                message_bytes_max: ByteSize(100),
                ..Zmtp::default()
            },
            ..Spiderq::default()
        });
        let hub = MemoryHub::new(Limits::default(), Timestamp(1_000), 1);
        Self {
            hub,
            registry: Arc::default(),
            settings: Arc::new(settings),
        }
    }

    fn open(&mut self) -> ClientId {
        let registration = self.registry.enter(Arc::new(|_| ()));
        let settings = Arc::clone(&self.settings);
        self.hub
            .open(|info| Box::new(SpiderqSpeaker::session(settings, info, registration)))
    }

    fn say(&mut self, peer: ClientId, bytes: &[u8]) -> String {
        self.hub.send(peer, bytes);
        hex::encode(self.hub.take_output(peer))
    }
}

#[test]
fn every_part_before_the_last_is_echoed() {
    let (mut server, mut out) = (Server::new(), BytesMut::new());
    let id = server.open();
    let mut peer = Peer::new(Arc::new(windlass_zmtp::Settings::new(Role::Dealer)));
    peer.open(Timestamp(0), &mut out);
    server.hub.send(id, &out);
    let long = [7; 300];
    let table: [&[&[u8]]; 6] = [
        &[],
        &[b""],
        &[b"h1", b"", b"\0h2"],
        &[b"", b"131"],
        &[&long, b""],
        &[b"", b"", b"", b"", b"", b""],
    ];
    for envelope in table {
        for (request, reply) in [
            (&b"\x0b"[..], &b"\x11"[..]),
            (b"\x01", b"\x01\0\0\0\0"),
            (b"", b"\x0b\x01\0\0\0\x01\0\0\0\0"),
        ] {
            let parts = |last| envelope.iter().copied().chain([last]);
            server.hub.send(id, Message::new(parts(request)).frames());
            let mut said = server.hub.take_output(id);
            let heard =
                std::iter::from_fn(|| peer.read(Timestamp(0), &mut said, &mut out).unwrap());
            let heard: Vec<Message> = heard
                .filter_map(|event| {
                    if let Event::Message(message) = event {
                        Some(message)
                    } else {
                        None
                    }
                })
                .collect();
            assert_eq!(
                heard.iter().map(Message::frames).collect::<Vec<_>>(),
                [Message::new(parts(reply)).frames()]
            );
        }
    }
}

#[test]
fn a_bare_connection_that_turns_to_zmtp_ends() {
    let mut server = Server::new();
    let bare = server.open();
    assert_eq!(
        server.say(bare, b"\x0b\x01\x0b"),
        "11010000000011",
        "the driver ends the connection"
    );
}

#[test]
fn invalid_requests_end_a_bare_connection() {
    let table: [(&[u8], &str, Reason); 3] = [
        (
            b"\x0b\x0d\x0b",
            "110b020d",
            Reason::Protocol("unknown request".into()),
        ),
        (b"\x09\0\0\0\x65", "", Reason::Limit("frame_bytes_max")),
        (
            b"\x02\0\0\0\x01a\xff\xff\xff\xff",
            "",
            Reason::Limit("frame_bytes_max"),
        ),
    ];
    for (said, heard, why) in table {
        let mut server = Server::new();
        let peer = server.open();
        assert_eq!(server.say(peer, said), heard);
        assert_eq!(server.hub.end_of(peer), Some(&why));
    }
}

#[test]
fn an_incomplete_greeting_times_out() {
    let mut server = Server::new();
    let peer = server.open();
    assert!(
        server.say(peer, b"\xff").starts_with("ff"),
        "the server greets as soon as the transport is known"
    );
    server.hub.advance_ms(30_000);
    assert_eq!(
        server.hub.end_of(peer),
        Some(&Reason::TimedOut("handshake"))
    );
    let silent = server.open();
    server.hub.advance_ms(60_000);
    assert_eq!(
        server.hub.end_of(silent),
        None,
        "a silent client may be a bare client that has no request yet"
    );
}
