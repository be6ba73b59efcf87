//! Three Faktory connections on one engine, used in turn: noise, lines that have a meaning together, a jumping clock,
//! peers that leave. It must not panic, the engine's indexes agree, and all output is RESP. Not tested here: whether
//! the answers are right; transcripts do.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use windlass_bridge::{Bridge, Origin, Side};
use windlass_config::ByteSize;
use windlass_engine::{ClientId, Limits, Protocol, Timestamp};
use windlass_faktory::bridge::FwpOrigin;
use windlass_faktory::config::Faktory;
use windlass_faktory::session::{FaktorySpeaker, Settings};
use windlass_testkit::memory::MemoryHub;

#[derive(Debug, Arbitrary)]
struct Input {
    moves: Vec<Move>,
}

#[derive(Debug, Arbitrary)]
enum Move {
    Noise {
        peer: u8,
        bytes: Vec<u8>,
    },
    Push {
        peer: u8,
        jid: u8,
        bulk: bool,
        traits: Vec<u8>,
    },
    Line {
        peer: u8,
        verb: u8,
        jid: u8,
        extra: Vec<u8>,
    },
    HalfClose {
        peer: u8,
    },
    Replace {
        peer: u8,
    },
    Wait {
        ms: u32,
    },
}

/// Optional fields of a job.
const TRAITS: [&str; 14] = [
    r#","queue":"q""#,
    r#","retry":0"#,
    r#","retry":1"#,
    r#","retry":-1"#,
    r#","priority":9"#,
    r#","reserve_for":1"#,
    r#","at":"1970-01-01T00:00:09Z""#,
    r#","custom":{"unique_for":2}"#,
    r#","custom":{"unique_for":2,"unique_until":"start"}"#,
    r#","custom":{"expires_in":3}"#,
    r#","custom":{"track":1}"#,
    r#","custom":{"bid":"b-nosuch"}"#,
    r#","failure":{"retry_count":2,"failed_at":"x"}"#,
    r#","backtrace":1,"created_at":"x""#,
];

/// `{}` is replaced by a jid.
const LINES: [&str; 32] = [
    "FETCH default q",
    "FETCH q",
    "FETCH",
    r#"ACK {"jid":"{}"}"#,
    r#"ACK {"jid":"{}","result":"r"}"#,
    r#"FAIL {"jid":"{}","message":"m","backtrace":["l"]}"#,
    r#"REQUEUE {"jid":"{}"}"#,
    r#"BEAT {"wid":"w1"}"#,
    r#"BEAT {"wid":"w1","current_state":"quiet"}"#,
    r#"BEAT {"wid":"w1","current_state":"terminate"}"#,
    "INFO",
    "FLUSH",
    "END",
    "QUEUE PAUSE q",
    "QUEUE PAUSE *",
    "QUEUE RESUME *",
    "QUEUE REMOVE q",
    "QUEUE REMOVE *",
    "QUEUE LATENCY q default",
    r#"MUTATE {"cmd":"kill","target":"scheduled"}"#,
    r#"MUTATE {"cmd":"kill","target":"retries","filter":{"regexp":"*{}*"}}"#,
    r#"MUTATE {"cmd":"requeue","target":"dead","filter":{"jids":["{}"]}}"#,
    r#"MUTATE {"cmd":"requeue","target":"retries","filter":{"jobtype":"T"}}"#,
    r#"MUTATE {"cmd":"clear","target":"dead"}"#,
    "JOB GET {}",
    "JOB CANCEL {}",
    "TRACK GET {}",
    r#"TRACK SET {"jid":"{}","percent":7,"desc":"d","reserve_until":"1970-01-01T01:00:00Z"}"#,
    r#"BATCH NEW {"success":{"jid":"{}","jobtype":"T","args":[]}}"#,
    "BATCH STATUS b-nosuch",
    "BATCH COMMIT b-nosuch",
    "NOPE",
];

const PEERS: usize = 3;

/// What reads FWP's jobs for MUTATE.
fn reader() -> Arc<Bridge> {
    let origin: Arc<dyn Origin> = Arc::new(FwpOrigin);
    Arc::new(Bridge::new(vec![Side {
        protocol: Protocol::FAKTORY,
        name: "faktory",
        origin: Some(origin),
    }]))
}

struct World {
    hub: MemoryHub,
    settings: Arc<Settings>,
    peers: Vec<ClientId>,
    greeted: u64,
}

impl World {
    fn new() -> Self {
        // All limits are small, so that the fuzzer reaches them.
        let limits = Limits {
            jobs_max: 20,
            jobs_bytes_max: 100_000,
            queues_max: 4,
            abilities_max: 4,
            name_bytes_max: 200,
            lease_ms_max: 100_000,
            dead_ms: 50_000,
            page_max: 2,
            ..Limits::default()
        };
        let settings = Settings::new(
            Faktory {
                line_bytes_max: ByteSize(2_048),
                ..Faktory::default()
            },
            Timestamp(0),
        );
        let hub = MemoryHub::new(limits, Timestamp(1_000), 1).reading(reader());
        let mut world = Self {
            hub,
            settings: Arc::new(settings),
            peers: Vec::new(),
            greeted: 0,
        };
        (0..PEERS).for_each(|place| {
            let peer = world.greet(place);
            world.peers.push(peer);
        });
        world
    }

    fn greet(&mut self, place: usize) -> ClientId {
        self.greeted += 1;
        let (settings, rng) = (Arc::clone(&self.settings), [self.greeted, 1]);
        let client = self
            .hub
            .open(|info| Box::new(FaktorySpeaker::session(settings, info, rng)));
        let hello = [
            r#"HELLO {"v":2}"#,
            r#"HELLO {"v":2,"wid":"w1"}"#,
            r#"HELLO {"v":2,"wid":"w1"}"#,
        ];
        self.hub.send(
            client,
            format!("{}\n", hello[place % hello.len()]).as_bytes(),
        );
        client
    }

    fn make(&mut self, next: &Move) {
        match next {
            Move::Noise { peer, bytes } => self.say(*peer, bytes),
            Move::Push {
                peer,
                jid,
                bulk,
                traits,
            } => {
                let traits: String = traits
                    .iter()
                    .map(|it| TRAITS[usize::from(*it) % TRAITS.len()])
                    .collect();
                let unit = format!(
                    r#"{{"jid":"jid0000{}","jobtype":"T","args":[1]{traits}}}"#,
                    jid % 8
                );
                let line = if *bulk {
                    format!("PUSHB [{unit},{unit}]\n")
                } else {
                    format!("PUSH {unit}\n")
                };
                self.say(*peer, line.as_bytes());
            }
            Move::Line {
                peer,
                verb,
                jid,
                extra,
            } => {
                let line = LINES[usize::from(*verb) % LINES.len()]
                    .replace("{}", &format!("jid0000{}", jid % 8));
                self.say(*peer, &[line.as_bytes(), extra, b"\n"].concat());
            }
            Move::HalfClose { peer } => self.hub.half_close(self.peers[usize::from(*peer) % PEERS]),
            Move::Replace { peer } => {
                let place = usize::from(*peer) % PEERS;
                let gone = self.peers[place];
                self.hub.close(gone);
                self.listen(gone);
                self.peers[place] = self.greet(place);
            }
            Move::Wait { ms } => self.hub.advance_ms((*ms % 4_000_000).into()),
        }
    }

    fn say(&mut self, peer: u8, bytes: &[u8]) {
        self.hub.send(self.peers[usize::from(peer) % PEERS], bytes);
    }

    /// All output is complete RESP.
    fn listen(&mut self, client: ClientId) {
        let heard = self.hub.take_output(client);
        let mut rest: &[u8] = &heard;
        while !rest.is_empty() {
            let end = rest
                .windows(2)
                .position(|pair| pair == b"\r\n")
                .expect("a whole line");
            let (line, after) = (&rest[..end], &rest[end + 2..]);
            rest = match line[0] {
                b'+' | b'-' => {
                    assert!(!line.contains(&b'\n'));
                    after
                }
                b'$' if line == b"$-1" => after,
                b'$' => {
                    let digits = std::str::from_utf8(&line[1..]).expect("digits");
                    let size: usize = digits.parse().expect("a size");
                    assert_eq!(&after[size..size + 2], b"\r\n");
                    &after[size + 2..]
                }
                other => panic!("{other}"),
            };
        }
    }
}

fuzz_target!(|input: Input| {
    let mut world = World::new();
    input.moves.iter().for_each(|next| world.make(next));
    world.hub.engine().check();
    world
        .peers
        .clone()
        .into_iter()
        .for_each(|peer| world.listen(peer));
});
