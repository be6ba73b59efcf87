//! What must hold for any bytes: sent messages arrive, cuts of the stream do not matter, and noise does no harm.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use windlass_engine::Timestamp;
use windlass_zmtp::wire::{Command, Flags, Greeting, Header, Metadata, SocketType};
use windlass_zmtp::{Close, Event, Limits, Login, Mechanism, Message, Peer, Role, Settings};

const NOW: Timestamp = Timestamp(1);

/// Small, so that the tests reach them.
const LIMITS: Limits = Limits {
    frame_bytes_max: 400,
    message_bytes_max: 600,
    parts_max: 5,
    command_bytes_max: 60,
    outbound_bytes_max: 2_000,
};

fn settings(role: Role, plain: bool) -> Arc<Settings> {
    let login = Login {
        user: "ann".into(),
        password: "pw".into(),
    };
    let mechanism = if plain {
        Mechanism::Plain(vec![login])
    } else {
        Mechanism::Null
    };
    Arc::new(Settings {
        limits: LIMITS,
        mechanism,
        ..Settings::new(role)
    })
}

/// Everything that a stream leads to.
#[derive(Debug, PartialEq)]
struct Heard {
    events: Vec<Event>,
    said: BytesMut,
    close: Option<Close>,
    wanted: usize,
}

fn hear<'a>(settings: &Arc<Settings>, pieces: impl IntoIterator<Item = &'a [u8]>) -> Heard {
    let (mut peer, mut input, mut said) = (
        Peer::new(Arc::clone(settings)),
        BytesMut::new(),
        BytesMut::new(),
    );
    let mut events = Vec::new();
    peer.open(NOW, &mut said);
    for piece in pieces {
        input.extend_from_slice(piece);
        let capacity = input.capacity();
        loop {
            match peer.read(NOW, &mut input, &mut said) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(close) => {
                    assert_eq!(
                        peer.read(NOW, &mut input, &mut said),
                        Err(close.clone()),
                        "an error is permanent"
                    );
                    return Heard {
                        events,
                        said,
                        close: Some(close),
                        wanted: peer.bytes_wanted(),
                    };
                }
            }
        }
        assert!(
            input.capacity() <= capacity,
            "the peer reserved memory for announced bytes"
        );
        // The bodies of one message, a header for each part, and a command among them.
        assert!(input.len() <= LIMITS.message_bytes_max + LIMITS.parts_max * 9 + 8_192 + 9);
    }
    Heard {
        events,
        said,
        close: None,
        wanted: peer.bytes_wanted(),
    }
}

fn frame(flags: Flags, body: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    Header::encode(flags, body.len(), &mut out);
    [&*out, body].concat()
}

fn encoded(command: &Command<'_>) -> Vec<u8> {
    let mut out = BytesMut::new();
    command.encode(&mut out);
    out.to_vec()
}

fn bytes(bytes_max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=bytes_max)
}

/// A piece of a stream after the greeting: usually a frame, sometimes an invalid one.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![Just(Flags::MORE), Just(Flags::LAST)];
    let body = prop_oneof![4 => bytes(20), 2 => bytes(300), 1 => bytes(450)];
    prop_oneof![
        8 => (flags, body).prop_map(|(flags, body)| frame(flags, &body)),
        2 => (any::<u16>(), bytes(20)).prop_map(|(ttl_ds, context)| encoded(&Command::Ping { ttl_ds, context: &context })),
        1 => bytes(20).prop_map(|context| encoded(&Command::Pong(&context))),
        1 => bytes(50).prop_map(|topic| encoded(&Command::Subscribe(&topic))),
        1 => bytes(50).prop_map(|topic| encoded(&Command::Cancel(&topic))),
        1 => bytes(40).prop_map(|body| frame(Flags::COMMAND, &body)),
        1 => bytes(12),
        1 => (0u8..8, any::<u64>()).prop_map(|(flags, length)| [&[flags | 2][..], &length.to_be_bytes()].concat()),
    ]
}

fn greeting(plain: bool) -> Vec<u8> {
    let mut out = BytesMut::new();
    Greeting::new(if plain { b"PLAIN" } else { b"NULL" }, false).encode(&mut out);
    out.to_vec()
}

fn introduction(role: Role, plain: bool) -> Vec<u8> {
    let socket_type = if role == Role::Pub {
        SocketType::Sub
    } else {
        SocketType::Dealer
    };
    let metadata = Metadata {
        socket_type: Some(socket_type),
        identity: "me".into(),
        others: Vec::new(),
    };
    if plain {
        let hello = encoded(&Command::Hello {
            user: b"ann",
            password: b"pw",
        });
        [hello, encoded(&Command::Initiate(metadata))].concat()
    } else {
        encoded(&Command::Ready(metadata))
    }
}

/// A stream, usually with a valid handshake.
fn stream() -> impl Strategy<Value = (Role, bool, Vec<u8>)> {
    let role = prop_oneof![3 => Just(Role::Router), 2 => Just(Role::Pub)];
    let broken = prop_oneof![12 => Just(None), 1 => any::<(Index, u8)>().prop_map(Some)];
    (role, any::<bool>(), vec(piece(), 0..12), broken).prop_map(|(role, plain, pieces, broken)| {
        let mut stream = [greeting(plain), introduction(role, plain), pieces.concat()].concat();
        if let Some((at, byte)) = broken {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        (role, plain, stream)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn cuts_do_not_matter((role, plain, stream) in stream(), cuts in vec(any::<Index>(), 0..20)) {
        let settings = settings(role, plain);
        let whole = hear(&settings, [&*stream]);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([stream.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces = starts.zip(ends).map(|(start, end)| &stream[start..end]);
        prop_assert_eq!(&hear(&settings, pieces), &whole);
        prop_assert_eq!(&hear(&settings, stream.chunks(1)), &whole);
    }

    #[test]
    fn one_byte_less_than_wanted_yields_no_event((role, plain, stream) in stream(), cut in any::<Index>(), byte: u8) {
        let settings = settings(role, plain);
        let start = &stream[..cut.index(stream.len() + 1)];
        let heard = hear(&settings, [start]);
        // One byte less than required yields no new event; it may end the connection.
        let more = vec![byte; heard.wanted.saturating_sub(1)];
        let longer = hear(&settings, [start, &more]);
        prop_assert_eq!(longer.events, heard.events);
    }

    #[test]
    fn messages_arrive(messages in vec(vec(bytes(120), 1..=5), 0..6), cuts in 1usize..200) {
        let (ours, theirs) = (settings(Role::Dealer, false), settings(Role::Router, false));
        let (mut dealer, mut said) = (Peer::new(ours), BytesMut::new());
        dealer.open(NOW, &mut said);
        let mut answer = hear(&theirs, [&*said]).said;
        let ready = dealer.read(NOW, &mut answer, &mut said).unwrap();
        prop_assert!(matches!(ready, Some(Event::Ready(_))));
        let mut sent = Vec::new();
        for parts in &messages {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            if dealer.send(parts.iter().copied(), &mut said).is_ok() {
                let message = Message::new(parts.iter().copied());
                prop_assert!(message.parts().eq(parts.iter().copied()));
                prop_assert_eq!(Some(&message.last()), parts.last());
                sent.push(message.frames().to_vec());
            }
        }
        let heard = hear(&theirs, said.chunks(cuts));
        prop_assert_eq!(heard.close, None);
        let got: Vec<Vec<u8>> = heard.events.iter().filter_map(|event| match event {
            Event::Message(message) => Some(message.frames().to_vec()),
            Event::Ready(_) | Event::Subscribe(_) | Event::Cancel(_) => None,
        }).collect();
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn a_dealer_gets_the_identity_it_sends(identity in vec(1_u8.., 0..=255)) {
        let (mut dealer, mut said) = (Peer::new(settings(Role::Dealer, false)), BytesMut::new());
        dealer.open_as(Bytes::copy_from_slice(&identity), NOW, &mut said);
        let heard = hear(&settings(Role::Router, false), [&*said]);
        let Some(Event::Ready(ready)) = heard.events.first() else { panic!("{heard:?}") };
        prop_assert_eq!(ready.identity.as_deref().unwrap_or_default(), &*identity);
    }

    #[test]
    fn an_answer_repeats_the_envelope(parts in vec(bytes(300), 1..5), payload in bytes(300)) {
        let (mut peer, mut out) = (Peer::new(settings(Role::Router, false)), BytesMut::new());
        peer.open(NOW, &mut out);
        let mut input = BytesMut::from(&*[greeting(false), introduction(Role::Router, false)].concat());
        prop_assert!(matches!(peer.read(NOW, &mut input, &mut out), Ok(Some(Event::Ready(_)))));
        out.clear();
        let message = Message::new(parts.iter().map(Vec::as_slice));
        peer.reply(&message.envelope(), payload.len(), &mut out, |out| out.extend_from_slice(&payload)).unwrap();
        let mut expected: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        *expected.last_mut().unwrap() = &payload;
        let expected = Message::new(expected);
        prop_assert_eq!(&*out, expected.frames());
        out.clear();
        peer.send(message.parts(), &mut out).unwrap();
        prop_assert_eq!(&*out, message.frames());
    }

    #[test]
    fn commands_are_read_as_they_were_written(
        name in "[A-Z]{1,20}", data in bytes(100), others in vec((bytes(40), bytes(40)), 0..5), ttl_ds: u16,
    ) {
        let others = others.into_iter().filter(|(name, _)| !name.is_empty() && name != b"Identity");
        let others = others.map(|(name, value)| (Bytes::from(name), Bytes::from(value))).collect();
        let metadata = Metadata { socket_type: Some(SocketType::XSub), identity: data.clone().into(), others };
        let commands = [
            Command::Ready(metadata.clone()),
            Command::Initiate(metadata),
            Command::Error(&data),
            Command::Hello { user: &data, password: name.as_bytes() },
            Command::Welcome,
            Command::Ping { ttl_ds, context: &data[..data.len().min(16)] },
            Command::Pong(&data[..data.len().min(16)]),
            Command::Subscribe(&data),
            Command::Cancel(&data),
        ];
        for command in commands {
            let frame = encoded(&command);
            let header = Header::decode(&frame).unwrap().unwrap();
            prop_assert!(header.flags.is_command());
            prop_assert_eq!(header.body_bytes, (frame.len() - header.header_bytes) as u64);
            prop_assert_eq!(Command::parse(&frame[header.header_bytes..]), Ok(command));
        }
    }

    #[test]
    fn noise_does_no_harm(noise in bytes(300), begun: bool) {
        let start = if begun { greeting(false) } else { Vec::new() };
        hear(&settings(Role::Router, false), [&*start, &noise]);
        let _ = Command::parse(&noise);
        let _ = Metadata::parse(&noise);
    }
}
