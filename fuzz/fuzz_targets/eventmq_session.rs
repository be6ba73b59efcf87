//! Four EventMQ connections and a subscriber on one engine, used in turn: noise, messages that have a meaning together,
//! a jumping clock, peers that leave. It must not panic, the engine's indexes agree, all output can be decoded, and a
//! worker gets no more jobs than it requested. Not tested here: whether they are the right ones; transcripts do.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use windlass_config::{ByteSize, Period};
use windlass_engine::{ClientId, Limits, Timestamp};
use windlass_eventmq::config::{Eventmq, Order, Scheduler};
use windlass_eventmq::publish::SubscriberSpeaker;
use windlass_eventmq::session::{EventmqSpeaker, Settings};
use windlass_eventmq::wire::{Command, Headers, Packet, PeerKind, Plan, Request};
use windlass_testkit::memory::MemoryHub;
use windlass_zmtp::wire::Command as Transport;
use windlass_zmtp::{ConnectionRegistry, Event, Message, Peer, Role};

#[derive(Debug, Arbitrary)]
struct Input {
    external: bool,
    disconnect: bool,
    keep_failed: bool,
    in_order: bool,
    losses_max: u8,
    dedup_ms: u8,
    moves: Vec<Move>,
}

#[derive(Debug, Arbitrary)]
enum Move {
    Noise {
        peer: u8,
        bytes: Vec<u8>,
    },
    Frames {
        peer: u8,
        frames: Vec<Vec<u8>>,
    },
    Say {
        peer: u8,
        which: u8,
        id: u8,
        queue: u8,
        headers: u8,
        text: Vec<u8>,
    },
    Subscribe {
        topic: bool,
        cancel: bool,
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

const PEERS: usize = 4;

const IDS: [&[u8]; 4] = [b"a", b"b", b"c", b"\xff"];
const QUEUES: [&[u8]; 3] = [b"default", b"q", b""];
const HEADERS: [&[u8]; 8] = [
    b"",
    b"reply-requested",
    b"timeout:1",
    b"retry-count:1,timeout:1",
    b"guarantee,reply-requested",
    b"nohaste",
    b"run_count:2",
    b"run_count:0,nohaste",
];
const JOBS: [&[u8]; 2] = [b"[\"run\",{}]", b"[\"run\",{\"path\":\"p\"}]"];
const CRONS: [&[u8]; 3] = [b"* * * * *", b"0 0 30 2 *", b"0 0 29 2 mon#5"];
const INFORMED: [&[u8]; 5] = [
    b"",
    b"[]",
    b"[[10,\"q\"],[20,\"default\"]]",
    b"[1,'q']",
    b"[[-9,\"\"]]",
];

/// A peer that sends, and its received messages.
struct Talker {
    client: ClientId,
    peer: Peer,
    input: BytesMut,
    /// It has sent noise: the transport may be in any state.
    noisy: bool,
    /// The handshake is done.
    ready: bool,
    credits: usize,
    jobs: usize,
}

impl Talker {
    fn new(
        hub: &mut MemoryHub,
        role: Role,
        greet: impl FnOnce(&mut MemoryHub) -> ClientId,
    ) -> Self {
        let client = greet(hub);
        let mut peer = Peer::new(Arc::new(windlass_zmtp::Settings::new(role)));
        let mut hello = BytesMut::new();
        peer.open(hub.now(), &mut hello);
        hub.send(client, &hello);
        let mut talker = Self {
            client,
            peer,
            input: BytesMut::new(),
            noisy: false,
            ready: false,
            credits: 0,
            jobs: 0,
        };
        talker.hear(hub);
        talker
    }

    /// Reads the output, publications of other connections included.
    fn hear(&mut self, hub: &mut MemoryHub) {
        self.input.unsplit(hub.take_output(self.client));
        if self.noisy {
            return self.input.clear();
        }
        let mut out = BytesMut::new();
        while let Some(event) = self
            .peer
            .read(hub.now(), &mut self.input, &mut out)
            .expect("what ZMTP has")
        {
            self.ready = true;
            let Event::Message(message) = event else {
                continue;
            };
            let packet = Packet::decode(&message).expect("what eMQP has");
            assert!(
                !matches!(packet.command, Command::Unknown { .. }),
                "{packet:?}"
            );
            self.jobs += usize::from(matches!(packet.command, Command::Request(_)));
        }
        // A peer that connects while the daemon stops may receive half a greeting.
        let cut_off = !self.ready && hub.end_of(self.client).is_some();
        assert!(self.input.is_empty() || cut_off, "half a message");
        assert!(self.jobs <= self.credits, "more jobs than it can do");
        if !out.is_empty() {
            hub.send(self.client, &out);
        }
    }
}

fuzz_target!(|input: Input| {
    let limits = Limits {
        jobs_max: 6,
        schedules_max: 2,
        queues_max: 4,
        ..Limits::default()
    };
    let mut hub = MemoryHub::new(limits, Timestamp(1_000), 1);
    let settings = Settings::new(Eventmq {
        disconnect: input.disconnect,
        keep_failed: input.keep_failed,
        losses_max: input.losses_max.into(),
        dedup: Period::from_ms(input.dedup_ms.into()),
        order: if input.in_order {
            Order::Inform
        } else {
            Order::Weight
        },
        scheduler: if input.external {
            Scheduler::External
        } else {
            Scheduler::Embedded
        },
        lease: Period::from_secs(20),
        jobs_max: 3,
        topics_max: 2,
        topic_bytes_max: ByteSize(100),
        ..Eventmq::default()
    });
    let mut subscriptions = settings.clone();
    subscriptions.zmtp = Arc::new(windlass_zmtp::Settings::new(Role::Pub));
    let settings = Arc::new(settings);
    let registry = Arc::<ConnectionRegistry>::default();
    let greet = |hub: &mut MemoryHub| {
        Talker::new(hub, Role::Dealer, |hub| {
            let registration = registry.enter(Arc::new(|_| ()));
            hub.open(|info| {
                Box::new(EventmqSpeaker::session(
                    Arc::clone(&settings),
                    info,
                    registration,
                    1,
                ))
            })
        })
    };
    let subscriber = hub.open(|info| {
        let registration = registry.enter(Arc::new(|_| ()));
        Box::new(SubscriberSpeaker::session(
            Arc::new(subscriptions),
            info,
            registration,
        ))
    });
    let mut hello = BytesMut::new();
    Peer::new(Arc::new(windlass_zmtp::Settings::new(Role::Dealer))).open(Timestamp(0), &mut hello);
    hub.send(subscriber, &hello);
    let mut peers: [Talker; PEERS] = std::array::from_fn(|_| greet(&mut hub));
    for next in &input.moves {
        match next {
            Move::Noise { peer, bytes } => {
                let peer = &mut peers[usize::from(*peer) % PEERS];
                peer.noisy = true;
                hub.send(peer.client, bytes);
            }
            Move::Frames { peer, frames } => {
                let peer = &mut peers[usize::from(*peer) % PEERS];
                peer.credits += usize::from(frames.get(2).is_some_and(|name| name == b"READY"));
                let frames = frames.iter().map(Vec::as_slice);
                hub.send(peer.client, Message::new(frames).frames());
            }
            Move::Say {
                peer,
                which,
                id,
                queue,
                headers,
                text,
            } => {
                let peer = &mut peers[usize::from(*peer) % PEERS];
                let packet = Packet {
                    id: of(&IDS, *id),
                    command: command(*which, *queue, *headers, text),
                };
                peer.credits += usize::from(packet.command == Command::Ready);
                hub.send(peer.client, Message::new(packet.frames()).frames());
            }
            Move::Subscribe { topic, cancel } => {
                let topic: &[u8] = if *topic { b"t" } else { b"" };
                let command = if *cancel {
                    Transport::Cancel(topic)
                } else {
                    Transport::Subscribe(topic)
                };
                let mut said = BytesMut::new();
                command.encode(&mut said);
                hub.send(subscriber, &said);
            }
            Move::HalfClose { peer } => hub.half_close(peers[usize::from(*peer) % PEERS].client),
            Move::Replace { peer } => {
                let peer = &mut peers[usize::from(*peer) % PEERS];
                hub.close(peer.client);
                *peer = greet(&mut hub);
            }
            Move::Wait { ms } => hub.advance_ms(u64::from(*ms)),
        }
        hub.engine().check();
        peers.iter_mut().for_each(|peer| peer.hear(&mut hub));
        hub.take_output(subscriber);
    }
});

fn of<'a>(these: &[&'a [u8]], number: u8) -> &'a [u8] {
    these[usize::from(number) % these.len()]
}

fn command<'a>(which: u8, number: u8, headers: u8, text: &'a [u8]) -> Command<'a> {
    let (queue, headers) = (of(&QUEUES, number), Headers(of(&HEADERS, headers)));
    let text = text.get(..200).unwrap_or(text);
    let plan = |interval, cron| Plan {
        queue,
        headers,
        interval,
        job: of(&JOBS, number),
        cron,
    };
    match which % 21 {
        0 => Command::Inform {
            queues: of(&INFORMED, number),
            kind: PeerKind::Worker,
        },
        1 => Command::Inform {
            queues: b"",
            kind: PeerKind::Scheduler,
        },
        2 => Command::Inform {
            queues: text,
            kind: PeerKind::Worker,
        },
        3..6 => Command::Ready,
        6..9 => Command::Request(Request {
            queue,
            headers,
            job: text,
        }),
        9 => Command::Reply {
            text: b"{\"value\": 1}",
            of: Some(of(&IDS, number)),
        },
        10 => Command::Reply {
            text: b"{\"value\": \"TimeoutError\"}",
            of: Some(of(&IDS, number)),
        },
        11 => Command::Reply { text, of: None },
        12 => Command::Schedule(plan(b"1", b"")),
        13 => Command::Schedule(plan(b"-1", of(&CRONS, number))),
        14 => Command::Unschedule(plan(b"1", b"")),
        15 => Command::Publish {
            topic: b"topic",
            text,
        },
        16 => Command::Disconnect,
        17 => Command::Kbye,
        18 => [
            Command::Status,
            Command::ShowWorkers,
            Command::ShowSchedulers,
        ][usize::from(number) % 3],
        19 => Command::Heartbeat { time: text },
        _ => Command::Ack {
            of: of(&IDS, number),
        },
    }
}
