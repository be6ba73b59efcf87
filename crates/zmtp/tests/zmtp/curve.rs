//! CURVE, against the client's side of this crate and a recorded handshake of libzmq. Stock clients are in
//! `interop_curve`.

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use windlass_engine::Timestamp;
use windlass_zmtp::curve::{CurveClient, CurvePublicKey, CurveSecretKey, CurveServer};
use windlass_zmtp::wire::{Command, Flags, GREETING_BYTES, Greeting, Header, Metadata, SocketType};
use windlass_zmtp::{Close, Event, Limits, Mechanism, Peer, Ready, Role, Settings};

const NOW: Timestamp = Timestamp(1);

fn server_key() -> CurveSecretKey {
    CurveSecretKey::new([1; 32])
}

fn client_key() -> CurveSecretKey {
    CurveSecretKey::new([2; 32])
}

fn settings(role: Role, clients: &[CurvePublicKey]) -> Arc<Settings> {
    let server = CurveServer::new(server_key(), clients.to_vec(), || 7);
    let limits = Limits {
        frame_bytes_max: 600_000,
        message_bytes_max: 700_000,
        parts_max: 3,
        ..Limits::default()
    };
    Arc::new(Settings {
        mechanism: Mechanism::Curve(Arc::new(server)),
        limits,
        ..Settings::new(role)
    })
}

/// A server's peer, and the client.
struct Wire {
    peer: Peer,
    client: CurveClient,
    /// To the server.
    input: BytesMut,
    /// From the server, as it leaves.
    said: BytesMut,
}

impl Wire {
    fn new(role: Role, clients: &[CurvePublicKey], server: CurvePublicKey) -> Self {
        let client = CurveClient::new(client_key(), server, [3; 32], [4; 16]);
        let peer = Peer::new(settings(role, clients));
        Self {
            peer,
            client,
            input: BytesMut::new(),
            said: BytesMut::new(),
        }
    }

    /// Both greetings, and HELLO.
    fn greeted(mut self) -> Self {
        let mut out = BytesMut::new();
        self.peer.open(NOW, &mut out);
        Greeting::new(b"CURVE", false).encode(&mut self.input);
        self.client.hello(&mut self.input);
        self.leave(&out);
        self
    }

    /// A connection after its handshake.
    fn ready(role: Role, clients: &[CurvePublicKey], socket_type: SocketType) -> (Self, Ready) {
        let mut wire = Self::new(role, clients, server_key().public()).greeted();
        assert_eq!(wire.read(), Ok(None));
        let greeting = Greeting::decode(&wire.said.split_to(GREETING_BYTES)).unwrap();
        assert_eq!(
            (greeting.mechanism_text().as_str(), greeting.as_server),
            ("CURVE", true)
        );
        let welcome = wire.frame();
        let metadata = Metadata {
            socket_type: Some(socket_type),
            identity: "me".into(),
            ..Metadata::default()
        };
        wire.client
            .welcomed(&welcome, &metadata, &mut wire.input)
            .unwrap();
        let Ok(Some(Event::Ready(ready))) = wire.read() else {
            panic!("not ready")
        };
        let body = wire.frame();
        let theirs = wire.client.ready(&body).unwrap();
        assert_eq!(
            theirs.socket_type,
            Some(if role == Role::Pub {
                SocketType::Pub
            } else {
                SocketType::Router
            })
        );
        (wire, *ready)
    }

    /// Bytes of the peer leave.
    fn leave(&mut self, bytes: &[u8]) {
        let sealed = self.peer.seal(bytes).expect("it has CURVE");
        self.said.extend_from_slice(&sealed);
    }

    fn read(&mut self) -> Result<Option<Event>, Close> {
        let mut out = BytesMut::new();
        let event = self.peer.read(NOW, &mut self.input, &mut out);
        self.leave(&out);
        event
    }

    /// The body of the next frame from the server.
    fn frame(&mut self) -> BytesMut {
        let header = Header::decode(&self.said).unwrap().unwrap();
        self.said.advance(header.header_bytes);
        self.said
            .split_to(usize::try_from(header.body_bytes).unwrap())
    }

    /// The client sends frames.
    fn send(&mut self, frames: &[u8]) {
        let sealed = self.client.seal(frames);
        self.input.extend_from_slice(&sealed);
    }

    /// What the client receives: the next frame.
    fn receive(&mut self) -> BytesMut {
        let body = self.frame();
        assert!(body.starts_with(b"\x07MESSAGE"), "{}", body.escape_ascii());
        BytesMut::from(&self.client.open(&body).unwrap()[..])
    }
}

fn frames(parts: &[&[u8]]) -> BytesMut {
    let mut out = BytesMut::new();
    for (number, part) in parts.iter().enumerate() {
        Header::encode(
            if number + 1 == parts.len() {
                Flags::LAST
            } else {
                Flags::MORE
            },
            part.len(),
            &mut out,
        );
        out.extend_from_slice(part);
    }
    out
}

fn command(command: &Command<'_>) -> BytesMut {
    let mut out = BytesMut::new();
    command.encode(&mut out);
    out
}

#[test]
fn messages_and_commands_go_both_ways() {
    let (mut wire, ready) = Wire::ready(Role::Router, &[client_key().public()], SocketType::Dealer);
    assert_eq!(
        ready.user.as_deref(),
        Some(client_key().public().to_string().as_bytes())
    );
    assert_eq!(
        (ready.socket_type, ready.identity.as_deref()),
        (SocketType::Dealer, Some(&b"me"[..]))
    );
    let large = vec![9; 500_000];
    let table: [&[&[u8]]; 4] = [
        &[b""],
        &[b"", b"ask"],
        &[&[7; 255], &[8; 256]],
        &[b"a", &large, b"b"],
    ];
    for parts in table {
        wire.send(&frames(parts));
        let Ok(Some(Event::Message(message))) = wire.read() else {
            panic!("no message")
        };
        assert!(message.parts().eq(parts.iter().copied()));
        assert_eq!(wire.peer.bytes_wanted(), 0);
        let mut out = BytesMut::new();
        wire.peer.send(message.parts(), &mut out).unwrap();
        wire.leave(&out);
        let answer: Vec<u8> = parts.iter().flat_map(|_| wire.receive()).collect();
        assert!(answer == frames(parts), "another answer");
    }
    wire.send(&command(&Command::Ping {
        ttl_ds: 0,
        context: b"there",
    }));
    assert_eq!(wire.read(), Ok(None));
    assert_eq!(wire.receive(), command(&Command::Pong(b"there")));
}

#[test]
fn what_leaves_in_another_order_is_numbered_in_that_order() {
    let (mut wire, _) = Wire::ready(Role::Router, &[], SocketType::Req);
    let (mut first, mut second) = (BytesMut::new(), BytesMut::new());
    wire.peer.send([&b"first"[..]], &mut first).unwrap();
    wire.peer.send([&b"second"[..]], &mut second).unwrap();
    wire.leave(&second);
    wire.leave(&first);
    assert_eq!([wire.receive(), wire.receive()], [second, first]);
}

#[test]
fn subscriptions_come_in_boxes() {
    let (mut wire, _) = Wire::ready(Role::Pub, &[], SocketType::Sub);
    wire.send(&command(&Command::Subscribe(b"news")));
    wire.send(&frames(&[b"\x00old"]));
    assert_eq!(
        [wire.read(), wire.read()],
        [
            Ok(Some(Event::Subscribe("news".into()))),
            Ok(Some(Event::Cancel("old".into())))
        ]
    );
}

#[test]
fn the_place_of_cuts_does_not_matter() {
    let (mut wire, _) = Wire::ready(Role::Router, &[], SocketType::Dealer);
    let parts: [&[u8]; 3] = [b"one", &[2; 300], b"three"];
    wire.send(&frames(&parts));
    let (bytes, mut out) = (wire.input.split(), BytesMut::new());
    let mut found = Vec::new();
    for byte in bytes.chunks(1) {
        wire.input.extend_from_slice(byte);
        found.extend(wire.peer.read(NOW, &mut wire.input, &mut out).unwrap());
        assert_eq!(
            wire.peer.bytes_wanted() == 0,
            !found.is_empty(),
            "amid the message more is wanted"
        );
    }
    let [Event::Message(message)] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(message.parts().eq(parts));
}

#[test]
fn strangers_are_refused() {
    let mut wire = Wire::new(
        Role::Router,
        &[CurvePublicKey::from([9; 32])],
        server_key().public(),
    )
    .greeted();
    assert_eq!(wire.read(), Ok(None));
    wire.said.advance(GREETING_BYTES);
    let (welcome, metadata) = (wire.frame(), Metadata::default());
    wire.client
        .welcomed(&welcome, &metadata, &mut wire.input)
        .unwrap();
    assert_eq!(wire.read(), Err(Close::Credentials));
    assert_eq!(&wire.frame()[..], b"\x05ERROR\x03400", "in the clear");
    // A client that expects another server, and a server that does not have its key.
    let mut wire = Wire::new(Role::Router, &[], CurvePublicKey::from([9; 32])).greeted();
    assert_eq!(wire.read(), Err(Close::Forged { what: "HELLO" }));
    let mut client = CurveClient::new(
        client_key(),
        CurvePublicKey::from([9; 32]),
        [3; 32],
        [4; 16],
    );
    assert_eq!(
        client.welcomed(&welcome, &metadata, &mut BytesMut::new()),
        Err(Close::Forged { what: "WELCOME" })
    );
}

#[test]
fn every_changed_byte_of_a_handshake_or_message_is_noticed() {
    let mut wire = Wire::new(Role::Router, &[], server_key().public()).greeted();
    let hello = wire.input.clone();
    assert_eq!(wire.read(), Ok(None));
    wire.said.advance(GREETING_BYTES);
    let (welcome, metadata) = (
        wire.frame(),
        Metadata {
            socket_type: Some(SocketType::Req),
            ..Metadata::default()
        },
    );
    let mut initiate = BytesMut::new();
    wire.client
        .welcomed(&welcome, &metadata, &mut initiate)
        .unwrap();
    let sealed = wire.client.seal(&frames(&[b"ask"]));
    let stream = [&hello[..], &initiate, &sealed].concat();
    let ends = |stream: &[u8]| {
        let (mut peer, mut out) = (Peer::new(settings(Role::Router, &[])), BytesMut::new());
        peer.open(NOW, &mut out);
        let mut input = BytesMut::from(stream);
        loop {
            match peer.read(NOW, &mut input, &mut out) {
                Ok(Some(Event::Message(message))) => return Ok(message.last().to_vec()),
                Ok(Some(_)) => {}
                Ok(None) => return Err(None),
                Err(close) => return Err(Some(close)),
            }
        }
    };
    assert_eq!(ends(&stream), Ok(b"ask".to_vec()));
    // The padding of HELLO has no meaning.
    let hello_at = GREETING_BYTES + 2;
    let padding = hello_at + 8..hello_at + 80;
    for at in (GREETING_BYTES..stream.len()).filter(|at| !padding.contains(at)) {
        let mut changed = stream.clone();
        changed[at] ^= 0x10;
        let found = ends(&changed);
        assert!(found.is_err(), "byte {at}: {found:?}");
    }
}

#[test]
fn a_message_cannot_be_repeated_or_come_late() {
    for again in [0, 1] {
        let (mut wire, _) = Wire::ready(Role::Router, &[], SocketType::Dealer);
        let sealed = [b"1", b"2"].map(|text| wire.client.seal(&frames(&[text])));
        wire.input.extend_from_slice(&sealed[1]);
        assert!(matches!(wire.read(), Ok(Some(Event::Message(_)))));
        wire.input.extend_from_slice(&sealed[again]);
        assert_eq!(wire.read(), Err(Close::Forged { what: "MESSAGE" }));
    }
}

#[test]
fn limits_hold_in_boxes() {
    let over = |what: &'static str, given: u64, allowed| Close::Limit {
        what,
        given,
        allowed,
    };
    let large = vec![0; 400_000];
    let table: [(&[&[u8]], Close); 3] = [
        (
            &[&vec![0; 600_001]],
            over("frame_bytes_max", 600_034, 600_033),
        ),
        (
            &[&large, &large],
            over("message_bytes_max", 800_000, 700_000),
        ),
        (&[b"1", b"2", b"3", b"4"], over("parts_max", 4, 3)),
    ];
    for (parts, expected) in table {
        let (mut wire, _) = Wire::ready(Role::Router, &[], SocketType::Dealer);
        wire.send(&frames(parts));
        assert_eq!(wire.read(), Err(expected));
    }
    // Text outside a box is refused, whatever it is.
    for plain in [
        frames(&[b"ask"]),
        command(&Command::Ping {
            ttl_ds: 0,
            context: b"",
        }),
    ] {
        let (mut wire, _) = Wire::ready(Role::Router, &[], SocketType::Dealer);
        wire.input.extend_from_slice(&plain);
        assert!(matches!(wire.read(), Err(Close::Malformed(_))));
    }
}

#[test]
fn other_handshakes_are_refused() {
    let table: [(&str, BytesMut, &str); 4] = [
        (
            "NULL's READY",
            command(&Command::Ready(Metadata::default())),
            "READY while HELLO was due",
        ),
        (
            "PLAIN's HELLO",
            command(&Command::Hello {
                user: b"u",
                password: b"p",
            }),
            "malformed HELLO",
        ),
        (
            "INITIATE at once",
            command(&Command::Initiate(Metadata::default())),
            "INITIATE while HELLO was due",
        ),
        (
            "ERROR",
            command(&Command::Error(b"400")),
            "peer's error: 400",
        ),
    ];
    for (name, bytes, expected) in table {
        let mut wire = Wire::new(Role::Router, &[], server_key().public());
        wire.peer.open(NOW, &mut BytesMut::new());
        Greeting::new(b"CURVE", false).encode(&mut wire.input);
        wire.input.extend_from_slice(&bytes);
        assert_eq!(wire.read().unwrap_err().to_string(), expected, "{name}");
    }
    let mut wire = Wire::new(Role::Router, &[], server_key().public());
    wire.peer.open(NOW, &mut BytesMut::new());
    Greeting::new(b"NULL", false).encode(&mut wire.input);
    assert!(matches!(wire.read(), Err(Close::Mechanism { .. })));
}
