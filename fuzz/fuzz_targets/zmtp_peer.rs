//! Hostile bytes against a ZMTP peer: any stream, with or without a valid handshake before it, cut anywhere, must
//! result in the same events, the same output and the same end as in one piece, and keep to the limits. Then the same
//! stream with time passing between the pieces, which must not fail either.
#![no_main]

use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use bytes::{BufMut, BytesMut};
use libfuzzer_sys::fuzz_target;
use windlass_engine::Timestamp;
use windlass_zmtp::wire::{Command, Flags, Greeting, Header, Metadata, SocketType};
use windlass_zmtp::{Close, Event, Limits, Login, Mechanism, Message, Peer, Role, Settings};

/// Small, so that the fuzzer reaches them.
const LIMITS: Limits = Limits {
    frame_bytes_max: 600,
    message_bytes_max: 900,
    parts_max: 4,
    command_bytes_max: 100,
    outbound_bytes_max: 4_000,
};

/// The most bytes that may wait in the buffer: a message's limit, with a header for each part and for the next frame,
/// and a command, which is longest in a handshake.
const INPUT_BYTES_MAX: usize = 900 + 5 * 9 + 8_192;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    role: u8,
    plain: bool,
    start: Start,
    /// Sizes of the stream's pieces, and the wait before each; the rest is the last piece.
    pieces: Vec<(u8, u16)>,
    parts: Vec<Part<'a>>,
    rest: &'a [u8],
}

#[derive(Debug, Arbitrary)]
enum Start {
    Nothing,
    Greeting,
    Handshake,
}

/// A piece of the stream.
#[derive(Debug, Arbitrary)]
enum Part<'a> {
    More(&'a [u8]),
    Last(&'a [u8]),
    Ping(u16, &'a [u8]),
    Subscribe(&'a [u8]),
    Cancel(&'a [u8]),
    Command(&'a [u8]),
    Announced(u8, u64),
    Noise(&'a [u8]),
}

fuzz_target!(|data: &[u8]| {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else {
        return;
    };
    let settings = settings(&input);
    let stream = stream(&input);
    let whole = hear(&settings, [(&*stream, 0)]);
    let cut = pieces(&input, &stream);
    assert_eq!(
        hear(&settings, cut.iter().map(|(piece, _)| (*piece, 0))),
        whole,
        "cut into pieces"
    );
    assert_eq!(
        hear(&settings, stream.chunks(1).map(|byte| (byte, 0))),
        whole,
        "cut into bytes"
    );
    whole.events.iter().for_each(read_twice);
    hear(&settings, cut);
});

fn settings(input: &Input<'_>) -> Arc<Settings> {
    let role = [Role::Router, Role::Pub, Role::Dealer][usize::from(input.role % 3)];
    let login = Login {
        user: "ann".into(),
        password: "pw".into(),
    };
    let mechanism = if input.plain {
        Mechanism::Plain(vec![login])
    } else {
        Mechanism::Null
    };
    Arc::new(Settings {
        mechanism,
        limits: LIMITS,
        ..Settings::new(role)
    })
}

fn stream(input: &Input<'_>) -> BytesMut {
    let mut out = BytesMut::new();
    let (client, plain) = (input.role % 3 == 2, input.plain && input.role % 3 != 2);
    if !matches!(input.start, Start::Nothing) {
        Greeting::new(if plain { b"PLAIN" } else { b"NULL" }, false).encode(&mut out);
    }
    if matches!(input.start, Start::Handshake) {
        let socket_type =
            [SocketType::Dealer, SocketType::Sub, SocketType::Router][usize::from(input.role % 3)];
        let metadata = Metadata {
            socket_type: Some(socket_type),
            ..Metadata::default()
        };
        if plain && !client {
            Command::Hello {
                user: b"ann",
                password: b"pw",
            }
            .encode(&mut out);
            Command::Initiate(metadata).encode(&mut out);
        } else {
            Command::Ready(metadata).encode(&mut out);
        }
    }
    for part in &input.parts {
        match part {
            Part::More(body) => frame(Flags::MORE, body, &mut out),
            Part::Last(body) => frame(Flags::LAST, body, &mut out),
            Part::Ping(ttl_ds, context) => Command::Ping {
                ttl_ds: *ttl_ds,
                context,
            }
            .encode(&mut out),
            Part::Subscribe(topic) => Command::Subscribe(topic).encode(&mut out),
            Part::Cancel(topic) => Command::Cancel(topic).encode(&mut out),
            Part::Command(body) => frame(Flags::COMMAND, body, &mut out),
            Part::Announced(flags, length) => {
                out.put_u8(flags % 8 | 2);
                out.put_u64(*length);
            }
            Part::Noise(bytes) => out.put_slice(bytes),
        }
    }
    out.put_slice(input.rest);
    out
}

fn frame(flags: Flags, body: &[u8], out: &mut BytesMut) {
    Header::encode(flags, body.len(), out);
    out.put_slice(body);
}

fn pieces<'a>(input: &Input<'_>, stream: &'a [u8]) -> Vec<(&'a [u8], u64)> {
    let (mut rest, mut pieces) = (stream, Vec::new());
    for (bytes, wait_ms) in &input.pieces {
        let (piece, left) = rest.split_at(usize::from(*bytes).min(rest.len()));
        pieces.push((piece, u64::from(*wait_ms)));
        rest = left;
    }
    pieces.push((rest, 0));
    pieces
}

/// The outcome of a stream.
#[derive(Debug, PartialEq)]
struct Heard {
    events: Vec<Event>,
    said: BytesMut,
    close: Option<Close>,
    wanted: usize,
}

fn hear<'a>(settings: &Arc<Settings>, pieces: impl IntoIterator<Item = (&'a [u8], u64)>) -> Heard {
    let (mut peer, mut now) = (Peer::new(Arc::clone(settings)), Timestamp(1));
    let (mut input, mut said, mut events) = (BytesMut::new(), BytesMut::new(), Vec::new());
    let mut pings = 0;
    peer.open(now, &mut said);
    for (piece, wait_ms) in pieces {
        now = now.after_ms(wait_ms);
        let mut end = if wait_ms > 0 {
            peer.tick(now, &mut said)
        } else {
            Ok(())
        };
        input.extend_from_slice(piece);
        let capacity = input.capacity();
        while end.is_ok() {
            match peer.read(now, &mut input, &mut said) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(close) => end = Err(close),
            }
        }
        if let Err(close) = end {
            assert_eq!(
                peer.read(now, &mut input, &mut said),
                Err(close.clone()),
                "an end is final"
            );
            assert_eq!(peer.next_deadline(), None);
            return Heard {
                events,
                said,
                close: Some(close),
                wanted: peer.bytes_wanted(),
            };
        }
        assert!(
            input.capacity() <= capacity,
            "it reserved what was only announced"
        );
        assert!(input.len() <= INPUT_BYTES_MAX);
        pings += usize::from(wait_ms > 0);
        assert!(said.len() <= LIMITS.outbound_bytes_max + 9 * pings);
        assert!(peer.bytes_wanted() <= 8_192 + 9);
    }
    Heard {
        events,
        said,
        close: None,
        wanted: peer.bytes_wanted(),
    }
}

/// A decoded message must be written and decode to the same message.
fn read_twice(event: &Event) {
    let Event::Message(message) = event else {
        return;
    };
    assert!((1..=LIMITS.parts_max).contains(&message.parts().len()));
    assert!(message.parts().map(<[u8]>::len).sum::<usize>() <= LIMITS.message_bytes_max);
    assert_eq!(message.parts().last(), Some(message.last()));
    let again = Message::new(message.parts());
    assert!(again.parts().eq(message.parts()));
    assert_eq!(message.keep(message.last()), message.last());
    assert!(message.frames().starts_with(message.envelope().frames()));
}
