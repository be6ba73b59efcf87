//! What must hold for any bytes: decoding reverses encoding, cuts of the stream do not matter, and noise does no harm.

use std::sync::Arc;

use crate::client;
use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use windlass_config::ByteSize;
use windlass_engine::{ClientId, Limits, Timestamp};
use windlass_spiderq::config::Spiderq;
use windlass_spiderq::session::{Settings, SpiderqSpeaker};
use windlass_spiderq::wire::{Cut, Dialect, Mode, Patience, Request, Status, cut};
use windlass_testkit::memory::MemoryHub;
use windlass_zmtp::{ConnectionRegistry, Message, Peer, Role, Zmtp};

/// The ingredients of a request: its kind, two strings, two numbers and a choice.
type Seed = (u8, Vec<u8>, Vec<u8>, u64, u64, u8);

fn seeds() -> impl Strategy<Value = Vec<Seed>> {
    let string = || {
        prop_oneof![
            Just(Vec::new()),
            Just(b"k".to_vec()),
            vec(any::<u8>(), 0..40)
        ]
    };
    vec(
        (
            0..12u8,
            string(),
            string(),
            0..9u64,
            0..2_000u64,
            any::<u8>(),
        ),
        1..20,
    )
}

fn request(seed: &Seed) -> Request<'_> {
    let (which, key, value, lend_key, timeout_ms, choice) = seed;
    let (lend_key, timeout_ms) = (*lend_key, *timeout_ms);
    let status =
        [Status::Penalty, Status::Reward, Status::Front, Status::Drop][usize::from(choice % 4)];
    let patience = if choice % 2 == 0 {
        Patience::Block
    } else {
        Patience::Poll
    };
    match which {
        0 => Request::Count,
        1 => Request::Add {
            key,
            value,
            mode: None,
        },
        2 => Request::Update { key, value },
        3 => Request::Lend {
            timeout_ms,
            patience,
        },
        4 => Request::Repay {
            lend_key,
            key,
            value,
            status,
        },
        5 => Request::Heartbeat {
            lend_key,
            key,
            timeout_ms,
        },
        6 => Request::Stats,
        7 => Request::Terminate,
        8 => Request::Lookup { key },
        9 => Request::Flush,
        10 => Request::Ping,
        _ => Request::Remove { key },
    }
}

fn encoded(request: &Request<'_>) -> BytesMut {
    let mut bytes = BytesMut::new();
    client::encode(request, &mut bytes);
    bytes
}

fn hub() -> (MemoryHub, ClientId) {
    let mut hub = MemoryHub::new(Limits::default(), Timestamp(1_000), 1);
    let settings = Arc::new(Settings::new(Spiderq {
        queue: "tasks".to_owned(),
        zmtp: Zmtp {
            message_bytes_max: ByteSize(200),
            ..Zmtp::default()
        },
        ..Spiderq::default()
    }));
    let registry = Arc::<ConnectionRegistry>::default();
    let peer = hub.open(|info| {
        Box::new(SpiderqSpeaker::session(
            settings,
            info,
            registry.enter(Arc::new(|_| ())),
        ))
    });
    (hub, peer)
}

/// The replies to bytes that arrive in pieces of these lengths.
fn answered(stream: &[u8], pieces: &[usize]) -> (BytesMut, String) {
    let (mut hub, peer) = hub();
    let mut rest = stream;
    for piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at((*piece).clamp(1, rest.len()));
        hub.send(peer, now);
        rest = later;
    }
    hub.engine().check();
    (hub.take_output(peer), format!("{:?}", hub.end_of(peer)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn decoding_reverses_encoding(seeds in seeds(), mode in any::<bool>()) {
        for seed in &seeds {
            let mut request = request(seed);
            let bytes = encoded(&request);
            prop_assert_eq!(Request::decode(&bytes, Dialect::V1_3), Ok(request));
            prop_assert_eq!(cut(&bytes, usize::MAX >> 1), Ok(Cut::Whole(bytes.len())));
            for end in 0..bytes.len() {
                prop_assert!(Request::decode(&bytes[..end], Dialect::V1_3).is_err());
                let begun = cut(&bytes[..end], usize::MAX >> 1);
                prop_assert!(matches!(begun, Ok(Cut::Begun(least)) if least > end && least <= bytes.len()), "{begun:?}");
            }
            if let Request::Add { mode: wanted, .. } = &mut request {
                *wanted = Some(if mode { Mode::Head } else { Mode::Tail });
                let bytes = encoded(&request);
                prop_assert_eq!(Request::decode(&bytes, Dialect::V1_3), Ok(request));
                prop_assert_eq!(Request::decode(&bytes, Dialect::V1_4), Ok(request));
            }
        }
    }

    #[test]
    fn where_a_bare_stream_is_cut_does_not_matter(seeds in seeds(), pieces in vec(1..30usize, 1..9), noise in vec(any::<u8>(), 0..30)) {
        let mut stream = BytesMut::new();
        // A Ping counts as soon as it is read, before a Stats in the same piece is answered.
        let said = seeds.iter().filter(|seed| seed.0 != 10);
        said.for_each(|seed| client::encode(&request(seed), &mut stream));
        stream.extend(noise.iter().filter(|byte| **byte != 0x0B));
        prop_assert_eq!(answered(&stream, &[usize::MAX]), answered(&stream, &pieces));
    }

    #[test]
    fn every_message_but_a_blocking_lend_is_answered_once(seeds in seeds(), pieces in vec(1..30usize, 1..9)) {
        let mut client = Peer::new(Arc::new(windlass_zmtp::Settings::new(Role::Dealer)));
        let mut stream = BytesMut::new();
        client.open(Timestamp(0), &mut stream);
        let asked: Vec<Request<'_>> = seeds.iter().map(request).collect();
        let waits = |request: &&Request<'_>| matches!(request, Request::Lend { patience: Patience::Block, .. });
        for (number, request) in asked.iter().enumerate() {
            let cookie = number.to_string();
            let message = Message::new([cookie.as_bytes(), b"", &encoded(request)]);
            stream.extend_from_slice(message.frames());
        }
        let (mut said, _) = answered(&stream, &pieces);
        let mut answers = 0;
        while let Some(event) = client.read(Timestamp(0), &mut said, &mut stream).unwrap_or_default() {
            if let windlass_zmtp::Event::Message(message) = event {
                let cookie = message.parts().next().map(|part| String::from_utf8_lossy(part).parse::<usize>());
                prop_assert!(cookie.is_some_and(|number| number.is_ok_and(|number| number < asked.len())));
                prop_assert!(client::decode(message.last()).is_ok_and(|(reply, bytes)| bytes == reply.bytes()));
                answers += 1;
            }
        }
        let blocking = asked.iter().filter(waits).count();
        prop_assert!((asked.len() - blocking..=asked.len()).contains(&answers), "{answers} of {}", asked.len());
    }

    #[test]
    fn noise_does_no_harm(noise in vec(any::<u8>(), 0..300), greeted in any::<bool>(), dialect in any::<bool>()) {
        let dialect = if dialect { Dialect::V1_3 } else { Dialect::V1_4 };
        if let Ok(request) = Request::decode(&noise, dialect) {
            // The request is encoded as the beginning of the noise.
            prop_assert!(noise.starts_with(&encoded(&request)), "{request:?}");
        }
        let mut stream = BytesMut::new();
        if greeted {
            Peer::new(Arc::new(windlass_zmtp::Settings::new(Role::Dealer))).open(Timestamp(0), &mut stream);
        }
        stream.extend_from_slice(&noise);
        answered(&stream, &[7]);
    }
}
