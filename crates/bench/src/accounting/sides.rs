//! Each protocol from the server's side: requests from bytes, answers to bytes.

use std::sync::Arc;

use bytes::BytesMut;
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Message, Peer as Transport, Role, Settings};

use super::{Answer, Ask};
use crate::protocol::Protocol;

pub(super) trait Side {
    /// The length of the whole messages at the start of `bytes`, and their requests. May answer what concerns no job.
    fn read(&mut self, from: usize, bytes: &[u8], out: &mut Vec<u8>) -> (usize, Vec<Ask>);
    fn write(&mut self, out: &mut Vec<u8>, request: &[u8], answer: &Answer<'_>);
    /// Makes a job that was never submitted.
    fn invent(&self, job: &mut [u8]) {
        job[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    }
}

/// The server's side. `waits`: a request for a job from an empty queue waits, where the protocol has both.
pub(super) fn of(protocol: &Protocol, waits: bool) -> Box<dyn Side> {
    match protocol.name {
        "gearman" => Box::new(Gearmand),
        "faktory" => Box::new(Faktory { greeted: Vec::new(), waits }),
        "spiderq" => Box::new(Spiderq::default()),
        "eventmq" => Box::new(Router::default()),
        "redis" => Box::new(Redis),
        "beanstalkd" => Box::new(Beanstalkd),
        other => panic!("{other}"),
    }
}

/// A job's handle is its lease; that of a submit's answer the next one.
struct Gearmand;

impl Side for Gearmand {
    fn read(&mut self, _: usize, bytes: &[u8], _: &mut Vec<u8>) -> (usize, Vec<Ask>) {
        let (mut rest, mut asks) = (bytes, Vec::new());
        while let Some((header, after)) = rest.split_first_chunk::<12>() {
            assert_eq!(&header[..4], b"\0REQ");
            let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
            let (body, after) = after.split_at(number(8).try_into().unwrap());
            let mut parts = body.splitn(3, |byte| *byte == 0);
            asks.extend(match number(4) {
                1 => None,
                4 => Some(Ask::Sleep),
                kind @ (7 | 18) => {
                    let job = parts.nth(2).unwrap().to_vec();
                    Some(Ask::Submit { request: job[..8].to_vec(), job, calls: kind == 7 })
                }
                9 => Some(Ask::Take { request: Vec::new(), waits: false }),
                13 => {
                    let lease = std::str::from_utf8(parts.next().unwrap()).unwrap().parse().unwrap();
                    Some(Ask::Finish { request: Vec::new(), lease, job: None })
                }
                16 => Some(Ask::Echo(body.to_vec())),
                other => panic!("unexpected type {other}"),
            });
            rest = after;
        }
        (bytes.len() - rest.len(), asks)
    }

    fn write(&mut self, out: &mut Vec<u8>, request: &[u8], answer: &Answer<'_>) {
        let number = request.get(..8).map_or(0, |number| u64::from_le_bytes(number.try_into().unwrap()));
        let (kind, body): (u32, Vec<u8>) = match answer {
            Answer::Echo => (17, request.to_vec()),
            // One caller at a time: its job is the next one.
            Answer::Accepted => (8, number.to_string().into_bytes()),
            Answer::Job(lease, job) => (11, [lease.to_string().as_bytes(), b"\0bench\0", job].concat()),
            Answer::Empty => (10, Vec::new()),
            Answer::Wake => (6, Vec::new()),
            Answer::Finished => return,
            Answer::Result(lease) => (13, [lease.to_string().as_bytes(), b"\0", request].concat()),
            Answer::Raw(text) => (19, text.to_vec()),
        };
        let size = u32::try_from(body.len()).unwrap();
        out.extend([b"\0RES", &kind.to_be_bytes()[..], &size.to_be_bytes(), &body].concat());
    }
}

struct Faktory {
    greeted: Vec<usize>,
    /// An empty FETCH waits, instead of returning at once.
    waits: bool,
}

impl Side for Faktory {
    fn read(&mut self, from: usize, bytes: &[u8], out: &mut Vec<u8>) -> (usize, Vec<Ask>) {
        if !self.greeted.contains(&from) {
            self.greeted.push(from);
            out.extend(b"+HI {\"v\":2}\r\n");
        }
        let ask = |line: &str| {
            let (verb, rest) = line.split_once(' ').unwrap();
            let request = verb.as_bytes().to_vec();
            match verb {
                "FETCH" => vec![Ask::Take { request, waits: self.waits }],
                "ACK" => vec![Ask::Finish { request, lease: 0, job: None }],
                "PUSH" => vec![Ask::Submit { request, job: rest.as_bytes().to_vec(), calls: false }],
                "PUSHB" => {
                    let jobs: Vec<serde_json::Value> = serde_json::from_str(rest).unwrap();
                    let submit = |(at, job): (usize, &serde_json::Value)| {
                        // Only the last one is answered.
                        let request = if at + 1 == jobs.len() { request.clone() } else { Vec::new() };
                        Ask::Submit { request, job: job.to_string().into_bytes(), calls: false }
                    };
                    jobs.iter().enumerate().map(submit).collect()
                }
                _ => {
                    out.extend(b"+OK\r\n");
                    Vec::new()
                }
            }
        };
        (bytes.len(), std::str::from_utf8(bytes).unwrap().lines().flat_map(ask).collect())
    }

    fn write(&mut self, out: &mut Vec<u8>, request: &[u8], answer: &Answer<'_>) {
        match answer {
            Answer::Accepted if request == b"PUSHB" => out.extend(b"$2\r\n{}\r\n"),
            Answer::Accepted if request.is_empty() => {}
            Answer::Accepted | Answer::Finished => out.extend(b"+OK\r\n"),
            Answer::Job(_, job) => out.extend([format!("${}\r\n", job.len()).as_bytes(), job, b"\r\n"].concat()),
            Answer::Empty => out.extend(b"$-1\r\n"),
            Answer::Raw(line) => out.extend_from_slice(line),
            Answer::Echo | Answer::Wake | Answer::Result(_) => {}
        }
    }

    fn invent(&self, job: &mut [u8]) {
        let at = job.windows(2).position(|pair| pair == b"[\"").unwrap();
        job[at + 2..at + 6].copy_from_slice(b"ffff");
    }
}

/// A job is a task: key and value, each after its length.
#[derive(Default)]
struct Spiderq(Zmtp);

impl Side for Spiderq {
    fn read(&mut self, from: usize, bytes: &[u8], out: &mut Vec<u8>) -> (usize, Vec<Ask>) {
        let ask = |message: Vec<Vec<u8>>| {
            let [_, cookie, request] = message.try_into().unwrap();
            let body = || request[1..request.len() - 1].to_vec();
            match request[0] {
                0x0B => Ask::Echo(cookie),
                0x02 => Ask::Submit { request: cookie, job: body(), calls: false },
                0x04 => Ask::Take { request: cookie, waits: request[9] == 1 },
                0x05 => Ask::Finish {
                    request: cookie,
                    lease: u64::from_be_bytes(request[1..9].try_into().unwrap()),
                    job: (*request.last().unwrap() == 1).then(|| body()[8..].to_vec()),
                },
                other => panic!("unexpected {other}"),
            }
        };
        (bytes.len(), self.0.read(from, bytes, out).into_iter().map(ask).collect())
    }

    fn write(&mut self, out: &mut Vec<u8>, cookie: &[u8], answer: &Answer<'_>) {
        let reply = match answer {
            Answer::Echo => vec![0x11],
            Answer::Accepted => vec![0x02],
            Answer::Job(lease, task) => [&[0x06], &lease.to_be_bytes()[..], task].concat(),
            Answer::Empty => vec![0x10],
            Answer::Finished => vec![0x07],
            Answer::Raw(b"") => return Zmtp::write(out, [&b""[..], &[0x11]]),
            Answer::Raw(bytes) => bytes.to_vec(),
            Answer::Wake | Answer::Result(_) => return,
        };
        Zmtp::write(out, [&b""[..], cookie, &reply]);
    }

    fn invent(&self, task: &mut [u8]) {
        task[4] = 0xFF;
    }
}

/// A job is the request's identifier and its body.
#[derive(Default)]
struct Router(Zmtp);

fn message<'a>(command: &'a [u8], body: &[&'a [u8]]) -> Vec<&'a [u8]> {
    [&[&b""[..], b"eMQP/1.0", command, b"m"], body].concat()
}

impl Side for Router {
    fn read(&mut self, from: usize, bytes: &[u8], out: &mut Vec<u8>) -> (usize, Vec<Ask>) {
        let mut asks = Vec::new();
        for frames in self.0.read(from, bytes, out) {
            match (std::str::from_utf8(&frames[2]).unwrap(), frames.len()) {
                ("INFORM", 6) => {
                    assert_eq!((&*frames[4], &*frames[5]), (&b"[[10, \"default\"]]"[..], &b"worker"[..]));
                    Zmtp::write(out, message(b"ACK", &[&frames[3]]));
                    Zmtp::write(out, message(b"HEARTBEAT", &[b"1.5"]));
                }
                ("READY", 4) => asks.push(Ask::Take { request: Vec::new(), waits: true }),
                ("HEARTBEAT", 5) | ("REPLY", 6) => {}
                ("REQUEST", 7) => {
                    let (request, job) = (frames[3].clone(), [&*frames[3], &frames[6]].concat());
                    asks.push(Ask::Submit { request, job, calls: false });
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        (bytes.len(), asks)
    }

    fn write(&mut self, out: &mut Vec<u8>, request: &[u8], answer: &Answer<'_>) {
        match answer {
            Answer::Accepted => Zmtp::write(out, message(b"REPLY", &[request])),
            Answer::Job(_, job) => {
                let (id, body) = job.split_at(36);
                let frames: [&[u8]; 7] = [b"", b"eMQP/1.0", b"REQUEST", id, b"default", b"", body];
                Zmtp::write(out, frames);
            }
            Answer::Raw(command) => Zmtp::write(out, message(command, &[])),
            Answer::Echo | Answer::Empty | Answer::Wake | Answer::Finished | Answer::Result(_) => {}
        }
    }

    /// Number and identifier agree, and are those of a much later job.
    fn invent(&self, job: &mut [u8]) {
        (job[19], job[36 + 65]) = (b'f', b'f');
    }
}

/// A job's lease is the job itself.
struct Redis;

impl Side for Redis {
    fn read(&mut self, _: usize, bytes: &[u8], _: &mut Vec<u8>) -> (usize, Vec<Ask>) {
        let (mut rest, mut words): (_, Vec<&[u8]>) = (bytes, Vec::new());
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (head, after) = rest.split_at(end + 1);
            let size =
                if head[0] == b'$' { std::str::from_utf8(&head[1..end - 1]).unwrap().parse().unwrap() } else { 0 };
            words.push(&after[..size]);
            rest = &after[size + if size > 0 { 2 } else { 0 }..];
        }
        let ask = |command: &[&[u8]]| match *command {
            [_, b"LPUSH", b"bench", job] => Ask::Submit { request: Vec::new(), job: job.to_vec(), calls: false },
            [_, b"LREM", b"taken", b"-1", _] => Ask::Finish { request: Vec::new(), lease: 0, job: None },
            [_, b"LMOVE", b"bench", b"taken", b"RIGHT", b"LEFT"] => Ask::Take { request: Vec::new(), waits: false },
            _ => panic!("{command:?}"),
        };
        (bytes.len(), words.chunk_by(|_, word| !word.is_empty()).map(ask).collect())
    }

    fn write(&mut self, out: &mut Vec<u8>, _: &[u8], answer: &Answer<'_>) {
        match answer {
            Answer::Accepted => out.extend(b":7\r\n"),
            Answer::Finished => out.extend(b":1\r\n"),
            Answer::Job(_, job) => out.extend([&b"$100\r\n"[..], job, b"\r\n"].concat()),
            Answer::Empty => out.extend(b"$-1\r\n"),
            Answer::Raw(line) => out.extend_from_slice(line),
            Answer::Echo | Answer::Wake | Answer::Result(_) => {}
        }
    }
}

struct Beanstalkd;

impl Side for Beanstalkd {
    fn read(&mut self, _: usize, bytes: &[u8], _: &mut Vec<u8>) -> (usize, Vec<Ask>) {
        let (mut asks, mut rest, request) = (Vec::new(), bytes, Vec::new);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end + 1);
            let words: Vec<_> = std::str::from_utf8(line).unwrap().split_whitespace().collect();
            rest = after;
            asks.push(match *words {
                ["put", "0", "0", "3600", "100"] => {
                    rest = &after[102..];
                    Ask::Submit { request: request(), job: after[..100].to_vec(), calls: false }
                }
                ["reserve"] => Ask::Take { request: request(), waits: true },
                ["delete", id] => Ask::Finish { request: request(), lease: id.parse().unwrap(), job: None },
                _ => panic!("{words:?}"),
            });
        }
        (bytes.len() - rest.len(), asks)
    }

    fn write(&mut self, out: &mut Vec<u8>, _: &[u8], answer: &Answer<'_>) {
        match answer {
            Answer::Accepted => out.extend(b"INSERTED 7\r\n"),
            Answer::Finished => out.extend(b"DELETED\r\n"),
            Answer::Job(lease, job) => {
                out.extend([format!("RESERVED {lease} 100\r\n").as_bytes(), job, b"\r\n"].concat());
            }
            Answer::Raw(line) => out.extend_from_slice(line),
            Answer::Echo | Answer::Empty | Answer::Wake | Answer::Result(_) => {}
        }
    }
}

/// ZeroMQ's transport of a broker.
#[derive(Default)]
struct Zmtp(Vec<Option<(Transport, BytesMut)>>);

impl Zmtp {
    fn read(&mut self, from: usize, bytes: &[u8], out: &mut Vec<u8>) -> Vec<Vec<Vec<u8>>> {
        self.0.resize_with(self.0.len().max(from + 1), || None);
        let mut output = BytesMut::new();
        let (peer, input) = self.0[from].get_or_insert_with(|| {
            let mut peer = Transport::new(Arc::new(Settings::new(Role::Router)));
            peer.open(Timestamp(0), &mut output);
            (peer, BytesMut::new())
        });
        input.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some(event) = peer.read(Timestamp(0), input, &mut output).unwrap() {
            if let Event::Message(message) = event {
                messages.push(message.parts().map(<[u8]>::to_vec).collect());
            }
        }
        out.extend_from_slice(&output);
        messages
    }

    fn write<'a>(out: &mut Vec<u8>, parts: impl IntoIterator<Item = &'a [u8]>) {
        out.extend_from_slice(Message::new(parts).frames());
    }
}
