//! Three Gearman connections on one engine, used in turn: noise, packets with arguments that have a meaning together,
//! text lines, a jumping clock, peers that leave. It must not panic, the engine's indexes agree, and all output can be
//! decoded. Not tested here: whether the answers are right; transcripts do.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use windlass_config::ByteSize;
use windlass_engine::{ClientId, HistoryRules, Limits, Timestamp};
use windlass_gearman::config::{Gearman, OnTimeout};
use windlass_gearman::session::{GearmanSpeaker, Settings};
use windlass_gearman::wire::{self, Frames, HandlePrefix, Magic, Message, Response};
use windlass_testkit::memory::MemoryHub;

#[derive(Debug, Arbitrary)]
struct Input {
    requeue: bool,
    round_robin: bool,
    exceptions: bool,
    job_retries: u8,
    moves: Vec<Move>,
}

#[derive(Debug, Arbitrary)]
enum Move {
    Noise {
        peer: u8,
        bytes: Vec<u8>,
    },
    Packet {
        peer: u8,
        kind: u8,
        words: Vec<Word>,
    },
    Line {
        peer: u8,
        words: Vec<Word>,
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

/// Elements of packets and lines: few different ones, so that they coincide.
#[derive(Debug, Arbitrary)]
enum Word {
    Function(bool),
    Dash,
    Id,
    Handle(u8),
    Number(u16),
    Verb(u8),
    Bytes(Vec<u8>),
}

const VERBS: [&str; 15] = [
    "exceptions",
    "status",
    "prioritystatus",
    "workers",
    "show",
    "jobs",
    "unique",
    "cancel",
    "job",
    "create",
    "drop",
    "function",
    "maxqueue",
    "version",
    "",
];

impl Word {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Function(first) => if *first { b"f" } else { b"g" }.to_vec(),
            Self::Dash => b"-".to_vec(),
            Self::Id => b"id".to_vec(),
            Self::Handle(number) => format!("H:here:{}", number % 16).into_bytes(),
            Self::Number(number) => number.to_string().into_bytes(),
            Self::Verb(verb) => VERBS[usize::from(*verb) % VERBS.len()].as_bytes().to_vec(),
            Self::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// All limits are small, so that the fuzzer reaches them.
const LIMITS: Limits = Limits {
    jobs_max: 20,
    jobs_bytes_max: 100_000,
    memory_max: 100_000,
    schedules_max: 2,
    batches_max: 2,
    batch_depth_max: 2,
    batch_keep_ms: 50_000,
    queues_max: 4,
    abilities_max: 4,
    name_bytes_max: 200,
    listeners_max: 3,
    lease_ms_max: 100_000,
    dead_ms: 50_000,
    dead_max: 5,
    dead_bytes_max: 20_000,
    dead_memory_max: 10_000,
    wake_ms: 1_000,
    beat_ms: 60_000,
    return_ms: 5_000,
    requeue_dead_workers: false,
    losses_max: 2,
    loss_pause_ms: 1_000,
    page_max: 2,
    history: HistoryRules {
        keep_ms: 50_000,
        body_max: 9,
        result_max: 9,
        output_max: 9,
    },
};

const PEERS: usize = 3;

struct World {
    hub: MemoryHub,
    settings: Arc<Settings>,
    peers: Vec<ClientId>,
}

impl World {
    fn new(input: &Input) -> Self {
        let prefix = HandlePrefix::new(b"H:here").expect("a valid prefix");
        let section = Gearman {
            frame_bytes_max: ByteSize(2_048),
            line_bytes_max: ByteSize(200),
            job_retries: u32::from(input.job_retries % 4),
            on_timeout: if input.requeue {
                OnTimeout::Requeue
            } else {
                OnTimeout::Fail
            },
            round_robin: input.round_robin,
            exceptions: input.exceptions,
            ..Gearman::default()
        };
        let settings = Settings {
            section,
            ..Settings::new(prefix)
        };
        let hub = MemoryHub::new(LIMITS, Timestamp(1_000), 1);
        let mut world = Self {
            hub,
            settings: Arc::new(settings),
            peers: Vec::new(),
        };
        (0..PEERS).for_each(|_| {
            let peer = world.greet();
            world.peers.push(peer);
        });
        world
    }

    fn greet(&mut self) -> ClientId {
        let settings = Arc::clone(&self.settings);
        self.hub
            .open(|info| Box::new(GearmanSpeaker::session(settings, info)))
    }

    fn make(&mut self, next: &Move) {
        match next {
            Move::Noise { peer, bytes } => self.say(*peer, bytes),
            Move::Packet { peer, kind, words } => self.say(*peer, &packet(*kind, words)),
            Move::Line { peer, words } => {
                let words: Vec<Vec<u8>> = words.iter().map(Word::bytes).collect();
                self.say(*peer, &[words.join(&b' '), b"\n".to_vec()].concat());
            }
            Move::HalfClose { peer } => self.hub.half_close(self.peers[usize::from(*peer) % PEERS]),
            Move::Replace { peer } => {
                let place = usize::from(*peer) % PEERS;
                let gone = self.peers[place];
                self.hub.close(gone);
                self.listen(gone);
                self.peers[place] = self.greet();
            }
            Move::Wait { ms } => self.hub.advance_ms((*ms).into()),
        }
    }

    fn say(&mut self, peer: u8, bytes: &[u8]) {
        self.hub.send(self.peers[usize::from(peer) % PEERS], bytes);
    }

    /// All output is a server's complete packets and lines.
    fn listen(&mut self, client: ClientId) {
        let mut heard: BytesMut = self.hub.take_output(client);
        let mut frames = Frames::new(wire::Limits {
            frame_bytes_max: 1 << 20,
            line_bytes_max: 1 << 20,
        });
        while let Some(message) = frames.decode(&mut heard).expect("output can be decoded") {
            if let Message::Packet(packet) = message {
                assert_eq!(packet.magic, Magic::Response);
                Response::parse(&packet).expect("a response");
            }
        }
        assert!(
            heard.is_empty() && frames.bytes_wanted() == 0,
            "half a message"
        );
    }
}

fn packet(kind: u8, words: &[Word]) -> Vec<u8> {
    let words: Vec<Vec<u8>> = words.iter().map(Word::bytes).collect();
    let body = words.join(&0);
    let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [
        b"\0REQ".as_slice(),
        &u32::from(kind % 44).to_be_bytes(),
        &size.to_be_bytes(),
        &body,
    ]
    .concat()
}

fuzz_target!(|input: Input| {
    let mut world = World::new(&input);
    input.moves.iter().for_each(|next| world.make(next));
    world.hub.engine().check();
    world
        .peers
        .clone()
        .into_iter()
        .for_each(|peer| world.listen(peer));
});
