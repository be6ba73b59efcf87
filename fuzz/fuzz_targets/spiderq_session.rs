//! Three spiderq connections on one engine, used in turn: noise, requests that have a meaning together, over ZMTP and
//! bare, a jumping clock, peers that leave. It must not panic, the engine's indexes agree, and all output to a bare
//! peer can be decoded. Not tested here: whether the answers are right; transcripts do.
#![no_main]

#[path = "../../crates/spiderq/tests/spiderq/client.rs"]
mod client;

use std::sync::Arc;

use arbitrary::Arbitrary;
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use windlass_config::ByteSize;
use windlass_engine::{ClientId, Limits, Timestamp};
use windlass_spiderq::config::{Dialect, Spiderq};
use windlass_spiderq::session::{Settings, SpiderqSpeaker};
use windlass_spiderq::wire::{Patience, Reply, Request, Status};
use windlass_testkit::memory::MemoryHub;
use windlass_zmtp::{ConnectionRegistry, Message, Peer, Role, Zmtp};

#[derive(Debug, Arbitrary)]
struct Input {
    dialect: u8,
    terminate: bool,
    release: bool,
    zmtp: [bool; PEERS],
    moves: Vec<Move>,
}

#[derive(Debug, Arbitrary)]
enum Move {
    Noise {
        peer: u8,
        bytes: Vec<u8>,
    },
    Say {
        peer: u8,
        which: u8,
        key: bool,
        value: Vec<u8>,
        number: u8,
        cookie: bool,
    },
    HalfClose {
        peer: u8,
    },
    Replace {
        peer: u8,
    },
    Wait {
        ms: u16,
    },
}

const PEERS: usize = 3;

fuzz_target!(|input: Input| {
    let mut hub = MemoryHub::new(
        Limits {
            jobs_max: 5,
            ..Limits::default()
        },
        Timestamp(1_000),
        1,
    );
    let settings = Arc::new(Settings::new(Spiderq {
        queue: "tasks".to_owned(),
        dialect: [Dialect::Auto, Dialect::V1_3, Dialect::V1_4][usize::from(input.dialect % 3)],
        terminate: input.terminate,
        release_on_disconnect: input.release,
        lends_max: 3,
        zmtp: Zmtp {
            message_bytes_max: ByteSize(300),
            ..Zmtp::default()
        },
        ..Spiderq::default()
    }));
    let registry = Arc::<ConnectionRegistry>::default();
    let greet = |hub: &mut MemoryHub, zmtp: bool| {
        let peer = hub.open(|info| {
            Box::new(SpiderqSpeaker::session(
                Arc::clone(&settings),
                info,
                registry.enter(Arc::new(|_| ())),
            ))
        });
        let mut hello = BytesMut::new();
        if zmtp {
            Peer::new(Arc::new(windlass_zmtp::Settings::new(Role::Dealer)))
                .open(Timestamp(0), &mut hello);
        }
        hub.send(peer, &hello);
        peer
    };
    let mut peers: Vec<ClientId> = input
        .zmtp
        .iter()
        .map(|zmtp| greet(&mut hub, *zmtp))
        .collect();
    let mut noisy = [false; PEERS];
    for next in &input.moves {
        match next {
            Move::Noise { peer, bytes } => {
                let peer = usize::from(*peer) % PEERS;
                noisy[peer] = true;
                hub.send(peers[peer], bytes);
            }
            Move::Say {
                peer,
                which,
                key,
                value,
                number,
                cookie,
            } => {
                let peer = usize::from(*peer) % PEERS;
                let key: &[u8] = if *key { b"k" } else { b"l" };
                let mut said = BytesMut::new();
                client::encode(&request(*which, key, value, u64::from(*number)), &mut said);
                if input.zmtp[peer] {
                    let cookie: &[u8] = if *cookie { b"cookie" } else { b"" };
                    hub.send(peers[peer], Message::new([cookie, &said]).frames());
                } else {
                    hub.send(peers[peer], &said);
                }
            }
            Move::HalfClose { peer } => hub.half_close(peers[usize::from(*peer) % PEERS]),
            Move::Replace { peer } => {
                let peer = usize::from(*peer) % PEERS;
                hub.close(peers[peer]);
                hub.take_output(peers[peer]);
                peers[peer] = greet(&mut hub, input.zmtp[peer]);
                noisy[peer] = false;
            }
            Move::Wait { ms } => hub.advance_ms(u64::from(*ms)),
        }
        hub.engine().check();
        for (index, peer) in peers.iter().enumerate() {
            let mut said = hub.take_output(*peer);
            while !input.zmtp[index] && !noisy[index] && !said.is_empty() {
                let (reply, length) = client::decode(&said).expect("a reply");
                // Only the end of the counters shows their number.
                let length = if matches!(reply, Reply::StatsGot(..)) {
                    said.len()
                } else {
                    length
                };
                drop(said.split_to(length));
            }
        }
    }
});

fn request<'a>(which: u8, key: &'a [u8], value: &'a [u8], number: u64) -> Request<'a> {
    let value = value.get(..200).unwrap_or(value);
    match which % 15 {
        0 => Request::Count,
        1 | 2 => Request::Add {
            key,
            value,
            mode: None,
        },
        3 => Request::Update { key, value },
        4 => Request::Lend {
            timeout_ms: number,
            patience: Patience::Block,
        },
        5 => Request::Lend {
            timeout_ms: number,
            patience: Patience::Poll,
        },
        6 => Request::Repay {
            lend_key: number,
            key,
            value,
            status: Status::Reward,
        },
        7 => Request::Repay {
            lend_key: number,
            key,
            value,
            status: Status::Drop,
        },
        8 => Request::Heartbeat {
            lend_key: number,
            key,
            timeout_ms: number,
        },
        9 => Request::Lookup { key },
        10 => Request::Flush,
        11 => Request::Ping,
        12 => Request::Remove { key },
        13 => Request::Terminate,
        _ => Request::Stats,
    }
}
