//! A client of CURVE that knows the server's key and may send anything in its boxes: whatever it sends, and wherever
//! the stream is cut, the peer gives the same events, the same answers and the same end, keeps to its limits, and what
//! leaves can be read by the client.
#![no_main]

use std::sync::{Arc, LazyLock};

use arbitrary::{Arbitrary, Unstructured};
use bytes::{Buf, BufMut, BytesMut};
use libfuzzer_sys::fuzz_target;
use windlass_engine::Timestamp;
use windlass_zmtp::curve::{CurveClient, CurvePublicKey, CurveSecretKey, CurveServer};
use windlass_zmtp::wire::{Command, Flags, GREETING_BYTES, Greeting, Header, Metadata, SocketType};
use windlass_zmtp::{Close, Event, Limits, Mechanism, Peer, Role, Settings};

const NOW: Timestamp = Timestamp(1);

/// Small, so that the fuzzer reaches them.
const LIMITS: Limits = Limits {
    frame_bytes_max: 600,
    message_bytes_max: 900,
    parts_max: 4,
    command_bytes_max: 100,
    outbound_bytes_max: 4_000,
};

/// The most bytes that may be held: a message's limit, a header for each part, and a frame in its box.
const HELD_BYTES_MAX: usize = 900 + 5 * 9 + 700;

static SERVER: LazyLock<CurveSecretKey> = LazyLock::new(|| CurveSecretKey::new([1; 32]));

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    publishes: bool,
    knows_clients: bool,
    /// Bytes of the stream that are changed: where, and how.
    changes: Vec<(u16, u8)>,
    metadata: Vec<(&'a [u8], &'a [u8])>,
    handshake: Shake,
    parts: Vec<Part<'a>>,
    rest: &'a [u8],
    pieces: Vec<u8>,
}

#[derive(Debug, Arbitrary, PartialEq)]
enum Shake {
    Nothing,
    Hello,
    Whole,
}

#[derive(Debug, Arbitrary)]
enum Part<'a> {
    More(&'a [u8]),
    Last(&'a [u8]),
    Command(&'a [u8]),
    Ping(u16, &'a [u8]),
    Subscribe(&'a [u8]),
    /// Not in a box.
    Plain(&'a [u8]),
    /// The last box again.
    Again,
}

fuzz_target!(|data: &[u8]| {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else {
        return;
    };
    let mut stream = stream(&input);
    for (at, change) in &input.changes {
        if let Some(byte) = stream.get_mut(usize::from(*at)) {
            *byte ^= change;
        }
    }
    let whole = hear(&input, [&stream[..]]);
    assert_eq!(hear(&input, stream.chunks(1)), whole, "cut into bytes");
    let (mut rest, mut pieces) = (&stream[..], Vec::new());
    for bytes in &input.pieces {
        let (piece, left) = rest.split_at(usize::from(*bytes).min(rest.len()));
        pieces.push(piece);
        rest = left;
    }
    pieces.push(rest);
    assert_eq!(hear(&input, pieces), whole, "cut into pieces");
});

fn client() -> CurveClient {
    CurveClient::new(
        CurveSecretKey::new([2; 32]),
        SERVER.public(),
        [3; 32],
        [4; 16],
    )
}

fn peer(input: &Input<'_>) -> Peer {
    let role = if input.publishes {
        Role::Pub
    } else {
        Role::Router
    };
    let clients = if input.knows_clients {
        vec![CurvePublicKey::from([9; 32])]
    } else {
        Vec::new()
    };
    let server = CurveServer::new(SERVER.clone(), clients, || 7);
    let mechanism = Mechanism::Curve(Arc::new(server));
    Peer::new(Arc::new(Settings {
        mechanism,
        limits: LIMITS,
        ..Settings::new(role)
    }))
}

/// The server's WELCOME, which is the same for each connection: its random numbers are.
fn welcome(hello: &[u8]) -> BytesMut {
    let input = Input::arbitrary_take_rest(Unstructured::new(b"")).expect("the empty input");
    let (mut peer, mut bytes, mut out) = (peer(&input), BytesMut::from(hello), BytesMut::new());
    peer.open(NOW, &mut out);
    assert_eq!(peer.read(NOW, &mut bytes, &mut out), Ok(None));
    out.advance(GREETING_BYTES);
    let header = Header::decode(&out).expect("a frame").expect("a whole one");
    out.advance(header.header_bytes);
    out
}

fn stream(input: &Input<'_>) -> Vec<u8> {
    let (mut out, mut client) = (BytesMut::new(), client());
    if input.handshake != Shake::Nothing {
        Greeting::new(b"CURVE", false).encode(&mut out);
        client.hello(&mut out);
    }
    if input.handshake == Shake::Whole {
        let socket_type = if input.publishes {
            SocketType::Sub
        } else {
            SocketType::Dealer
        };
        let others = input
            .metadata
            .iter()
            .map(|(name, value)| (name.to_vec().into(), value.to_vec().into()))
            .collect();
        let metadata = Metadata {
            socket_type: Some(socket_type),
            others,
            ..Metadata::default()
        };
        let welcome = welcome(&out);
        client
            .welcomed(&welcome, &metadata, &mut out)
            .expect("the server's own WELCOME");
    }
    let mut last = BytesMut::new();
    for part in &input.parts {
        let mut frame = BytesMut::new();
        match part {
            Part::More(body) => put(Flags::MORE, body, &mut frame),
            Part::Last(body) => put(Flags::LAST, body, &mut frame),
            Part::Command(body) => put(Flags::COMMAND, body, &mut frame),
            Part::Ping(ttl_ds, context) => Command::Ping {
                ttl_ds: *ttl_ds,
                context,
            }
            .encode(&mut frame),
            Part::Subscribe(topic) => Command::Subscribe(topic).encode(&mut frame),
            Part::Plain(body) => {
                put(Flags::LAST, body, &mut out);
                continue;
            }
            Part::Again => {
                out.put_slice(&last);
                continue;
            }
        }
        last = client.seal(&frame);
        out.put_slice(&last);
    }
    out.put_slice(input.rest);
    out.to_vec()
}

fn put(flags: Flags, body: &[u8], out: &mut BytesMut) {
    Header::encode(flags, body.len(), out);
    out.put_slice(body);
}

/// The outcome of a stream.
#[derive(Debug, PartialEq)]
struct Heard {
    events: Vec<Event>,
    said: BytesMut,
    close: Option<Close>,
}

fn hear<'a>(input: &Input<'_>, pieces: impl IntoIterator<Item = &'a [u8]>) -> Heard {
    let mut peer = peer(input);
    let (mut bytes, mut said, mut events) = (BytesMut::new(), BytesMut::new(), Vec::new());
    let mut out = BytesMut::new();
    peer.open(NOW, &mut out);
    // A stream without bytes has no pieces, and is answered with the greeting all the same.
    for piece in pieces.into_iter().chain([&[][..]]) {
        bytes.extend_from_slice(piece);
        let end = loop {
            let found = peer.read(NOW, &mut bytes, &mut out);
            let sealed = peer.seal(&out.split()).expect("it has CURVE");
            said.extend_from_slice(&sealed);
            match found {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break None,
                Err(close) => break Some(close),
            }
        };
        if end.is_some() {
            return Heard {
                events,
                said,
                close: end,
            };
        }
        assert!(
            bytes.len() <= HELD_BYTES_MAX.max(8_192 + 9),
            "{} bytes",
            bytes.len()
        );
        assert!(peer.bytes_wanted() <= 8_192 + 9);
    }
    Heard {
        events,
        said,
        close: None,
    }
}
