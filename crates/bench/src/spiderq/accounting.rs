//! Tests of the generator against a small server in this process: its counts of an honest server are right, and lies fail.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use bytes::BytesMut;
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Peer, Role, Settings};

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::load::client::Idle;
use crate::load::driver::{Measured, Plan};
use crate::spiderq::cases::Shape;
use crate::spiderq::roles::Errand;
use crate::spiderq::run::Bout;
use crate::spiderq::wire::Status;

/// The Ping, Add or Repay that the server lies about.
const LIE_AT: u64 = 50;
/// Tasks in the queue before lending.
const TASKS: u64 = 90;
/// An honest server handles its last request within this time.
const PATIENCE: Duration = Duration::from_secs(10);
const PLAN: Plan = Plan::Counted { warm: 30, window: 270 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// Acknowledges a task and forgets it.
    LoseTask,
    /// Puts a task into the queue twice.
    DoubleTask,
    /// Lends a task that was never added.
    InventTask,
    /// Adds a task with another value.
    SpoilValue,
    /// Keeps a task's value from before it was repaid.
    OldValue,
    /// Forgets a task that was repaid.
    LoseRepaid,
    /// Answers that a key exists already.
    Keep,
    /// Answers twice.
    AnswerTwice,
    /// Answers with another request's cookie.
    ForeignCookie,
    /// Answers without the cookie.
    NoCookie,
    /// Answers with an error.
    Refuse,
    /// Answers with a byte too many.
    Tail,
    /// Counts an Add that was never sent.
    MisStat,
    /// Hangs up.
    HangUp,
}

/// Indexes of the counters in use.
const PINGS: usize = 0;
const COUNTS: usize = 1;
const ADDS: usize = 2;
const LENDS: usize = 6;
const REPAYS: usize = 7;
const STATS: usize = 9;

/// A task: key and value, each after its length.
type Task = Vec<u8>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Task>,
    lent: u64,
    /// Replies: Ping, Count, Add, Update, Lookup, Remove, Lend, Repay, Heartbeat, Stats.
    replies: [u64; 10],
}

#[derive(Default)]
struct Server {
    queue: Mutex<Queue>,
    added: Condvar,
}

/// Starts the server; its threads end with its connections.
fn serve(lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = Arc::new(Server::default());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, server) = (stream.unwrap(), Arc::clone(&server));
            std::thread::spawn(move || talk(stream, &server, lie));
        }
    });
    addr
}

/// Answers until the peer has gone or a write fails, which ends this thread only.
fn talk(mut stream: TcpStream, server: &Server, lie: Lie) -> Option<()> {
    stream.set_nodelay(true).unwrap();
    let mut peer = Peer::new(Arc::new(Settings::new(Role::Router)));
    let (mut input, mut output, mut scratch) = (BytesMut::new(), BytesMut::new(), [0; 4096]);
    peer.open(Timestamp(0), &mut output);
    loop {
        while let Some(event) = peer.read(Timestamp(0), &mut input, &mut output).unwrap() {
            let Event::Message(message) = event else { continue };
            // Earlier answers must not wait for a Lend.
            stream.write_all(&output).ok()?;
            output.clear();
            let (reply, lie) = server.answer(message.last(), lie);
            let mut parts: Vec<Vec<u8>> = message.parts().map(<[u8]>::to_vec).collect();
            *parts.last_mut().unwrap() = reply;
            for parts in twist(parts, lie) {
                peer.send(parts.iter().map(Vec::as_slice), &mut output).unwrap();
            }
            if lie == Lie::HangUp {
                return None;
            }
        }
        stream.write_all(&output).ok()?;
        output.clear();
        let count = stream.read(&mut scratch).ok().filter(|count| *count > 0)?;
        input.extend_from_slice(&scratch[..count]);
    }
}

/// The messages sent for an answer: one, none, or two.
fn twist(mut parts: Vec<Vec<u8>>, lie: Lie) -> Vec<Vec<Vec<u8>>> {
    let tell = |this| lie == this;
    if tell(Lie::ForeignCookie) {
        parts[1][7] ^= 1;
    }
    if tell(Lie::NoCookie) {
        parts.remove(1);
    }
    let reply = parts.last_mut().unwrap();
    if tell(Lie::Refuse) {
        *reply = b"\x0b\x02\x0b".to_vec();
    }
    if tell(Lie::Keep) {
        *reply = vec![0x03];
    }
    if tell(Lie::Tail) {
        reply.push(0);
    }
    let copies = 1 + usize::from(tell(Lie::AnswerTwice)) - usize::from(tell(Lie::HangUp));
    vec![parts; copies]
}

impl Server {
    /// The reply to a request, and the lie to apply to it.
    fn answer(&self, request: &[u8], lie: Lie) -> (Vec<u8>, Lie) {
        let mut queue = self.queue.lock().unwrap();
        let (counter, reply) = match request[0] {
            0x0B => (PINGS, vec![0x11]),
            0x01 => (COUNTS, [&[0x01][..], &u32::try_from(queue.waiting.len()).unwrap().to_be_bytes()].concat()),
            0x02 => (ADDS, self.add(&mut queue, &request[1..request.len() - 1], lie)),
            0x04 => {
                let (lent, reply) = self.lend(queue, request[9] == 1);
                queue = lent;
                (LENDS, reply)
            }
            0x05 => (REPAYS, self.repay(&mut queue, &request[9..], lie)),
            0x07 => (STATS, [vec![0x0A], queue.replies.into_iter().flat_map(u64::to_be_bytes).collect()].concat()),
            other => panic!("unexpected {other}"),
        };
        queue.replies[counter] += 1;
        let told = [PINGS, ADDS].contains(&counter) && queue.replies[counter] == LIE_AT;
        queue.replies[ADDS] += u64::from(told && lie == Lie::MisStat);
        (reply, if told { lie } else { Lie::None })
    }

    fn add(&self, queue: &mut Queue, task: &[u8], lie: Lie) -> Vec<u8> {
        let lies = |this| lie == this && queue.replies[ADDS] + 1 == LIE_AT;
        let copies = 1 + usize::from(lies(Lie::DoubleTask)) - usize::from(lies(Lie::LoseTask));
        let mut task = task.to_vec();
        if lies(Lie::InventTask) {
            task[4] = 0xFF;
        }
        if lies(Lie::SpoilValue) {
            task[115] = b'y';
        }
        queue.waiting.extend(std::iter::repeat_n(task, copies));
        self.added.notify_all();
        vec![0x02]
    }

    fn lend<'a>(&self, mut queue: MutexGuard<'a, Queue>, blocks: bool) -> (MutexGuard<'a, Queue>, Vec<u8>) {
        while blocks && queue.waiting.is_empty() {
            queue = self.added.wait(queue).unwrap();
        }
        let Some(task) = queue.waiting.pop_front() else {
            return (queue, vec![0x10]);
        };
        queue.lent += 1;
        let reply = [&[0x06][..], &queue.lent.to_be_bytes(), &task].concat();
        (queue, reply)
    }

    fn repay(&self, queue: &mut Queue, task_and_status: &[u8], lie: Lie) -> Vec<u8> {
        let lies = |this| lie == this && queue.replies[REPAYS] + 1 == LIE_AT;
        let (status, task) = task_and_status.split_last().unwrap();
        let mut task = task.to_vec();
        if lies(Lie::OldValue) {
            // The previous time, which was one less.
            let time = u64::from_le_bytes(task[24..32].try_into().unwrap()) - 1;
            task[24..32].copy_from_slice(&time.to_le_bytes());
        }
        if *status == 1 && !lies(Lie::LoseRepaid) {
            queue.waiting.push_back(task);
        }
        vec![0x07]
    }
}

fn run(shape: &Shape, lie: Lie) -> Result<Measured, Error> {
    let bout = Bout {
        addr: serve(lie),
        pid: std::process::id(),
        idle: Idle::Sleep,
        interrupt: &Interrupt::default(),
        patience: if lie == Lie::None { PATIENCE } else { Duration::ZERO },
        ledger: Rc::default(),
    };
    bout.run(shape, TASKS, &PLAN)
}

const CYCLE: Errand = Errand::Cycle(Status::Penalty);

#[test]
fn an_honest_server_is_counted_right() {
    let shapes = [
        ("ping", Shape::steady(Errand::Ping, 1, 1)),
        ("pings", Shape::steady(Errand::Ping, 4, 64)),
        ("add", Shape::steady(Errand::Add, 8, 1)),
        ("adds", Shape::steady(Errand::Add, 2, 64)),
        ("cycle", Shape::steady(CYCLE, 8, 1)),
        ("cycles", Shape::steady(CYCLE, 2, 20)),
        ("wake", Shape::wake(4)),
    ];
    for (name, shape) in shapes {
        let measured = run(&shape, Lie::None).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(measured.submitted, 300, "{name}");
        assert!((1..=270).contains(&measured.jobs), "{name}: {}", measured.jobs);
        assert_eq!(measured.latency.count(), measured.jobs, "{name}");
    }
}

#[test]
fn lies_are_caught() {
    let (ping, add) = (Shape::steady(Errand::Ping, 1, 1), Shape::steady(Errand::Add, 1, 1));
    let cycle = Shape::steady(CYCLE, 2, 4);
    let cases = [
        (Lie::LoseTask, add, "count mismatch: the server counts 299 tasks, 300 were expected"),
        (Lie::DoubleTask, add, "count mismatch: the server counts 301 tasks, 300 were expected"),
        (Lie::DoubleTask, Shape::wake(2), "count mismatch: task \\x00\\x00\\x00\\x00\\x00\\x00\\x001 was lent"),
        (Lie::InventTask, add, "count mismatch: task \\xff\\x00\\x00\\x00\\x00\\x00\\x001 was never added"),
        (Lie::SpoilValue, add, "count mismatch: task \\x00\\x00\\x00\\x00\\x00\\x00\\x001 came with another value"),
        (Lie::OldValue, cycle, "count mismatch: task \\x00\\x00\\x00\\x00\\x00\\x00\\x00"),
        (Lie::LoseRepaid, cycle, "count mismatch: the server counts 89 tasks, 90 were expected"),
        (Lie::Keep, add, "count mismatch: Add was answered with Kept"),
        (Lie::AnswerTwice, ping, "count mismatch: a reply to no request, or a second one"),
        (Lie::ForeignCookie, ping, "count mismatch: a reply to no request, or a second one"),
        (Lie::NoCookie, ping, "protocol: a reply of 2 parts, or in no envelope"),
        (Lie::Refuse, ping, "count mismatch: Ping was answered with \\x0b\\x02\\x0b"),
        (Lie::Tail, ping, "count mismatch: Ping was answered with \\x11\\x00"),
        (Lie::MisStat, ping, "count mismatch: the server counts 0 tasks, 0 were expected; it has answered Stats"),
        (Lie::HangUp, add, "the server closed connection 0"),
    ];
    for (lie, shape, expected) in cases {
        let error = run(&shape, lie).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{lie:?}: {error}");
    }
}
