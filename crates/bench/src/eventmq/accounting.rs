//! Tests of the generator against a small server in this process: its counts of an honest server are right, and lies fail.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Peer, Role, Settings};

use crate::error::Error;
use crate::eventmq::cases::Shape;
use crate::eventmq::peers::Ports;
use crate::eventmq::roles::{CREDITS, Pace};
use crate::eventmq::run::Bout;
use crate::interrupt::Interrupt;
use crate::load::client::Idle;
use crate::load::driver::{Measured, Plan};

/// The request that the server lies about.
const LIE_AT: u64 = 50;
const PLAN: Plan = Plan::Counted { warm: 30, window: 270 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// Does not acknowledge a request.
    Silent,
    /// Sends a job to a worker twice.
    DoubleJob,
    /// Sends a job that was never requested.
    InventJob,
    /// Sends a job with another job's identifier.
    SwapId,
    /// Changes a byte of a job.
    SpoilJob,
    /// Names another queue.
    OtherQueue,
    /// Sends a job before it has acknowledged the worker.
    Hasty,
    /// Acknowledges a request twice.
    ReplyTwice,
    /// Acknowledges a request that was never sent.
    ForeignReply,
    /// Sends an unknown message.
    Babble,
    /// Hangs up.
    HangUp,
}

/// The offset of a job's number.
const JOB_DIGITS_AT: usize = 65;
/// A message's frames.
type Frames = Vec<Vec<u8>>;

struct Worker {
    stream: TcpStream,
    credits: usize,
}

#[derive(Default)]
struct Router {
    workers: Vec<Worker>,
    waiting: VecDeque<Frames>,
    requests: u64,
    in_flight: u64,
    /// The most requests that waited for a worker.
    waiting_max: usize,
}

/// Starts the server; its threads end with its connections.
fn serve(lie: Lie) -> (SocketAddr, Arc<Mutex<Router>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let router = Arc::new(Mutex::new(Router::default()));
    let shared = Arc::clone(&router);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, router) = (stream.unwrap(), Arc::clone(&shared));
            std::thread::spawn(move || talk(stream, &router, lie));
        }
    });
    (addr, router)
}

/// Answers until the peer has gone or a write fails, which ends this thread only.
fn talk(mut stream: TcpStream, router: &Mutex<Router>, lie: Lie) -> Option<()> {
    stream.set_nodelay(true).unwrap();
    let mut peer = Peer::new(Arc::new(Settings::new(Role::Router)));
    let (mut input, mut output, mut scratch) = (BytesMut::new(), BytesMut::new(), [0; 4096]);
    peer.open(Timestamp(0), &mut output);
    let mut me = None;
    loop {
        while let Some(event) = peer.read(Timestamp(0), &mut input, &mut output).unwrap() {
            match event {
                Event::Ready(ready) => assert_eq!(ready.identity.unwrap().len(), 36),
                Event::Message(message) => {
                    let frames: Frames = message.parts().map(<[u8]>::to_vec).collect();
                    let mut router = router.lock().unwrap();
                    for answer in router.answer(&frames, &stream, &mut me, lie)? {
                        peer.send(answer.iter().map(Vec::as_slice), &mut output).unwrap();
                    }
                    // Under the lock, since other threads write to a worker as well.
                    stream.write_all(&output).ok()?;
                    output.clear();
                }
                other @ (Event::Subscribe(_) | Event::Cancel(_)) => panic!("{other:?}"),
            }
        }
        stream.write_all(&output).ok()?;
        output.clear();
        let count = stream.read(&mut scratch).ok().filter(|count| *count > 0)?;
        input.extend_from_slice(&scratch[..count]);
    }
}

fn said(command: &str, body: &[&[u8]]) -> Frames {
    let head = [&b""[..], b"eMQP/1.0", command.as_bytes(), b"m"];
    head.iter().chain(body).map(|part| part.to_vec()).collect()
}

impl Router {
    /// The answer to the sender; `None` hangs up. `me` is the sender's index among the workers.
    fn answer(&mut self, frames: &Frames, stream: &TcpStream, me: &mut Option<usize>, lie: Lie) -> Option<Vec<Frames>> {
        let command = std::str::from_utf8(&frames[2]).unwrap();
        match (command, frames.len()) {
            ("INFORM", 6) => {
                assert_eq!((&*frames[4], &*frames[5]), (&b"[[10, \"default\"]]"[..], &b"worker"[..]));
                *me = Some(self.workers.len());
                self.workers.push(Worker { stream: stream.try_clone().unwrap(), credits: 0 });
                let hasty = said("REQUEST", &[b"default", b"", b"{}"]);
                let before = (lie == Lie::Hasty).then_some(hasty);
                Some(before.into_iter().chain([said("ACK", &[&frames[3]]), said("HEARTBEAT", &[b"1.5"])]).collect())
            }
            ("READY", 4) => {
                self.workers[me.unwrap()].credits += 1;
                assert!(self.workers[me.unwrap()].credits <= CREDITS);
                self.dispatch();
                Some(Vec::new())
            }
            ("HEARTBEAT", 5) => Some(Vec::new()),
            ("REPLY", 6) => {
                self.in_flight -= 1;
                Some(Vec::new())
            }
            ("REQUEST", 7) => {
                self.requests += 1;
                let lie = if self.requests == LIE_AT || lie == Lie::Silent { lie } else { Lie::None };
                if lie == Lie::HangUp {
                    return None;
                }
                self.take(frames, lie);
                Some(accept(&frames[3], lie))
            }
            ("STATUS", 4) => {
                let (waiting, in_flight) = (self.waiting.len(), self.in_flight);
                let json = format!(
                    r#"{{"waiting_messages_by_queue": {{"default": {waiting}}}, "inflight_messages_by_queue": {{"default": {in_flight}}}, "more": 1}}"#
                );
                Some(vec![said("REPLY", &[json.as_bytes()])])
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn take(&mut self, frames: &Frames, lie: Lie) {
        let mut job = frames.clone();
        if lie == Lie::InventJob {
            // Number and identifier agree, and are those of a much later job.
            job[3][19] = b'f';
            job[6][JOB_DIGITS_AT] = b'f';
        }
        if lie == Lie::SwapId {
            job[3][35] ^= 1;
        }
        if lie == Lie::SpoilJob {
            job[6][5] ^= 1;
        }
        if lie == Lie::OtherQueue {
            job[4] = b"other".to_vec();
        }
        let copies = 1 + usize::from(lie == Lie::DoubleJob);
        self.waiting.extend(std::iter::repeat_n(job, copies));
        self.waiting_max = self.waiting_max.max(self.waiting.len());
        self.dispatch();
    }

    fn dispatch(&mut self) {
        while let Some(worker) = self.workers.iter_mut().find(|worker| worker.credits > 0) {
            let Some(job) = self.waiting.pop_front() else { return };
            worker.credits -= 1;
            self.in_flight += 1;
            let message = windlass_zmtp::Message::new(job.iter().map(Vec::as_slice));
            // A worker that received a lie has gone.
            let _ = worker.stream.write_all(message.frames());
        }
    }
}

/// The answer to a client's request.
fn accept(id: &[u8], lie: Lie) -> Vec<Frames> {
    let reply = said("REPLY", &[id]);
    if lie == Lie::ForeignReply {
        return vec![said("REPLY", &[b"00000000-0000-0000-0000-000000000f00"])];
    }
    if lie == Lie::Babble {
        return vec![said("KBYE", &[])];
    }
    vec![reply; 1 + usize::from(lie == Lie::ReplyTwice) - usize::from(lie == Lie::Silent)]
}

fn run(shape: &Shape, pace: Pace, lie: Lie) -> Result<(Measured, Arc<Mutex<Router>>), Error> {
    let (addr, router) = serve(lie);
    let bout = Bout {
        ports: Ports { front: addr, back: addr, admin: addr },
        pid: std::process::id(),
        pace,
        idle: Idle::Sleep,
        interrupt: &Interrupt::default(),
    };
    bout.run(shape, &PLAN).map(|measured| (measured, router))
}

#[test]
fn an_honest_server_is_counted_right() {
    let shapes = [
        ("one", Shape { workers: 1, clients: 1, in_flight: 1 }),
        ("many", Shape { workers: 2, clients: 4, in_flight: 16 }),
        ("wide", Shape { workers: 2, clients: 1, in_flight: 256 }),
        ("no workers", Shape { workers: 0, clients: 2, in_flight: 8 }),
    ];
    for (name, shape) in shapes {
        for (pace, lie) in [(Pace::Accepted, Lie::None), (Pace::Delivered, Lie::None), (Pace::Delivered, Lie::Silent)] {
            if shape.workers == 0 && pace == Pace::Delivered {
                continue;
            }
            let (measured, router) = run(&shape, pace, lie).unwrap_or_else(|error| panic!("{name}, {pace:?}: {error}"));
            assert_eq!(measured.submitted, 300, "{name}, {pace:?}");
            assert!((1..=270).contains(&measured.jobs), "{name}, {pace:?}: {}", measured.jobs);
            assert_eq!(measured.latency.count(), measured.jobs, "{name}, {pace:?}");
            let on_their_way = shape.clients * shape.in_flight;
            let waiting_max = router.lock().unwrap().waiting_max;
            assert!(shape.workers == 0 || waiting_max <= on_their_way, "{name}, {pace:?}: {waiting_max}");
        }
    }
}

#[test]
fn lies_are_caught() {
    let (flow, alone) =
        (Shape { workers: 1, clients: 1, in_flight: 4 }, Shape { workers: 0, clients: 1, in_flight: 4 });
    let cases = [
        (Lie::DoubleJob, flow, "count mismatch: job 49 was worked twice"),
        (Lie::InventJob, flow, "count mismatch: job 17293822569102704689 was never submitted"),
        (Lie::SwapId, flow, "count mismatch: a job without a request"),
        (Lie::SpoilJob, flow, "count mismatch: a job without a request"),
        (Lie::OtherQueue, flow, "count mismatch: a job without a request"),
        (Lie::Hasty, flow, "protocol: a worker received Request"),
        (Lie::ReplyTwice, flow, "count mismatch: a reply to no request, or a second one"),
        (Lie::ForeignReply, alone, "count mismatch: a reply to no request, or a second one: 00000000"),
        (Lie::Babble, flow, "protocol: a message of 4 parts:  | eMQP/1.0 | KBYE | m"),
        (Lie::HangUp, flow, "the server closed connection 1"),
    ];
    for (lie, shape, expected) in cases {
        let error = run(&shape, Pace::Accepted, lie).map(|(measured, _)| measured).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{lie:?}: {error}");
    }
}
