//! Tests of the generator against a small server in this process: its counts of an honest server are right, and lies fail.
//! Not a test of any real server. Lies are data: one line per lie.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::error::Error;
use crate::gearman::roles::Role;
use crate::gearman::shapes::Shape;
use crate::interrupt::Interrupt;
use crate::load::client::{Idle, Links};
use crate::load::driver::{Driver, Measured, Plan};
use crate::metric::Metric;

const CAN_DO: u32 = 1;
const PRE_SLEEP: u32 = 4;
const NOOP: u32 = 6;
const SUBMIT_JOB: u32 = 7;
const JOB_CREATED: u32 = 8;
const GRAB_JOB: u32 = 9;
const NO_JOB: u32 = 10;
const JOB_ASSIGN: u32 = 11;
const WORK_COMPLETE: u32 = 13;
const ECHO_REQ: u32 = 16;
const ECHO_RES: u32 = 17;
const SUBMIT_JOB_BG: u32 = 18;
const ERROR: u32 = 19;

/// The job or packet that the server lies about.
const LIE_AT: u64 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// Acknowledges a job and forgets it.
    LoseJob,
    /// Hands a job out twice.
    DoubleJob,
    /// Hands out a job that was never submitted.
    InventJob,
    /// Echoes something else.
    FalseEcho,
    /// Sends a caller the result of another job.
    FalseResult,
    /// Refuses a submit.
    Refuse,
    /// Hangs up.
    HangUp,
    /// Answers that there is no job, and never wakes a worker.
    NeverWake,
    /// Sends the same NOOP three times.
    WakeThrice,
}

struct Job {
    handle: String,
    arguments: Vec<u8>,
    caller: Option<TcpStream>,
}

#[derive(Default)]
struct Queue {
    created: u64,
    waiting: VecDeque<Job>,
    running: Vec<Job>,
    sleepers: Vec<TcpStream>,
}

struct Connection {
    stream: TcpStream,
    queue: Arc<Mutex<Queue>>,
    lie: Lie,
}

/// Starts the server; its threads end with its connections.
fn serve(lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let queue = Arc::new(Mutex::new(Queue::default()));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let connection = Connection { stream, queue: Arc::clone(&queue), lie };
            std::thread::spawn(move || connection.talk());
        }
    });
    addr
}

impl Connection {
    /// Answers until the peer is gone or a write fails, which ends this thread only.
    fn talk(mut self) -> Option<()> {
        loop {
            let mut header = [0; 12];
            self.stream.read_exact(&mut header).ok()?;
            assert_eq!(&header[..4], b"\0REQ");
            let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
            let mut body = vec![0; usize::try_from(number(8)).unwrap()];
            self.stream.read_exact(&mut body).ok()?;
            self.answer(number(4), &body)?;
        }
    }

    fn answer(&mut self, kind: u32, body: &[u8]) -> Option<()> {
        match kind {
            ECHO_REQ => self.echo(body),
            SUBMIT_JOB | SUBMIT_JOB_BG => self.submit(kind == SUBMIT_JOB, body),
            CAN_DO => Some(()),
            GRAB_JOB => self.grab(),
            PRE_SLEEP => self.sleep(),
            WORK_COMPLETE => self.complete(body),
            _ => panic!("unexpected type {kind}"),
        }
    }

    fn echo(&mut self, body: &[u8]) -> Option<()> {
        let number = u64::from_le_bytes(body[..8].try_into().unwrap());
        let lies = self.lie == Lie::FalseEcho && number == LIE_AT;
        send(&mut self.stream, ECHO_RES, if lies { b"something else" } else { body })
    }

    fn submit(&mut self, foreground: bool, body: &[u8]) -> Option<()> {
        let mut queue = self.queue.lock().unwrap();
        queue.created += 1;
        let handle = format!("H:{}", queue.created);
        let lies = |lie| self.lie == lie && queue.created == LIE_AT;
        let copies = 1 + usize::from(lies(Lie::DoubleJob)) - usize::from(lies(Lie::LoseJob));
        let arguments = arguments(body, lies(Lie::InventJob));
        if lies(Lie::HangUp) {
            return None;
        }
        if lies(Lie::Refuse) {
            return send(&mut self.stream, ERROR, b"QUEUE_ERROR\0Job queue is full");
        }
        send(&mut self.stream, JOB_CREATED, handle.as_bytes())?;
        let caller = || foreground.then(|| self.stream.try_clone().unwrap());
        for _ in 0..copies {
            queue.waiting.push_back(Job { handle: handle.clone(), arguments: arguments.clone(), caller: caller() });
        }
        if self.lie != Lie::NeverWake {
            let times = if self.lie == Lie::WakeThrice { 3 } else { 1 };
            for mut sleeper in queue.sleepers.drain(..) {
                (0..times).try_for_each(|_| send(&mut sleeper, NOOP, b""))?;
            }
        }
        Some(())
    }

    fn grab(&mut self) -> Option<()> {
        let mut queue = self.queue.lock().unwrap();
        let job = if self.lie == Lie::NeverWake { None } else { queue.waiting.pop_front() };
        let Some(job) = job else { return send(&mut self.stream, NO_JOB, b"") };
        let body = [job.handle.as_bytes(), b"\0", &job.arguments].concat();
        queue.running.push(job);
        send(&mut self.stream, JOB_ASSIGN, &body)
    }

    fn sleep(&mut self) -> Option<()> {
        let mut queue = self.queue.lock().unwrap();
        if self.lie == Lie::NeverWake || queue.waiting.is_empty() {
            queue.sleepers.push(self.stream.try_clone().unwrap());
            return Some(());
        }
        send(&mut self.stream, NOOP, b"")
    }

    fn complete(&mut self, body: &[u8]) -> Option<()> {
        let mut queue = self.queue.lock().unwrap();
        let handle = body.split(|byte| *byte == 0).next()?;
        let at = queue.running.iter().position(|job| job.handle.as_bytes() == handle)?;
        let job = queue.running.swap_remove(at);
        let mut body = body.to_vec();
        if self.lie == Lie::FalseResult && queue.created == LIE_AT {
            *body.last_mut()? ^= 1;
        }
        job.caller.map_or(Some(()), |mut caller| send(&mut caller, WORK_COMPLETE, &body))
    }
}

/// Function and body of a submit, in the form of an assignment; an invented job has an unused number.
fn arguments(submit: &[u8], invented: bool) -> Vec<u8> {
    let mut parts = submit.splitn(3, |byte| *byte == 0);
    let (function, _unique, body) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let mut body = body.to_vec();
    if invented {
        body[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    }
    [function, b"\0", &body].concat()
}

fn send(stream: &mut TcpStream, kind: u32, body: &[u8]) -> Option<()> {
    let size = u32::try_from(body.len()).unwrap();
    let packet = [b"\0RES", &kind.to_be_bytes()[..], &size.to_be_bytes(), body].concat();
    stream.write_all(&packet).ok()
}

fn run(shape: &Shape, lie: Lie) -> Result<Measured, Error> {
    let plan = Plan::Counted { warm: 30, window: 270 };
    let mut driver = Driver::new(Role::all(shape), shape.rules(), &plan, std::process::id());
    let links = Links::open(serve(lie), shape.connections(), Idle::Sleep)?;
    // An honest server on a busy machine may be slow; a lying one is known to stay silent.
    let patience = if lie == Lie::None { Duration::from_secs(20) } else { Duration::from_millis(300) };
    links.stalling_after(patience).drive(&mut driver, &Interrupt::default())?;
    driver.measured()
}

#[test]
fn an_honest_server_is_counted_right() {
    let shapes = [
        ("echo", Shape::echo(1)),
        ("background", Shape::background(3, 1)),
        // Few enough in flight that one read cannot bring all answers before the window opens.
        ("pipelined, unique ids", Shape::background(3, 16).with_unique_ids()),
        ("flow", Shape::flow(2, 1, 3)),
        ("flow, one job at a time", Shape::flow(1, 1, 5).with_backlog(1)),
        ("pipelined flow, small backlog", Shape::flow(2, 128, 3).with_backlog(10)),
        ("foreground", Shape::foreground(4, 2)),
    ];
    for (name, shape) in shapes {
        let measured = run(&shape, Lie::None).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(measured.submitted, 300, "{name}");
        assert!((1..=270).contains(&measured.jobs), "{name}: {}", measured.jobs);
        assert_eq!(measured.latency.count(), measured.jobs, "{name}");
        assert!(measured.sample()[&Metric::JobsPerSecond] > 0.0, "{name}");
    }
}

#[test]
fn a_repeated_wake_up_costs_no_second_grab() {
    assert_eq!(run(&Shape::flow(1, 1, 5), Lie::WakeThrice).unwrap().submitted, 300);
}

#[test]
fn lies_are_caught() {
    // One producer: with more, which job the server sees as its 50th is up to the scheduler.
    let flow = Shape::flow(1, 1, 3);
    let cases = [
        (Lie::LoseJob, flow, "stalled: nothing arrived for 300ms (submitted 300, acknowledged 300, worked 299"),
        (Lie::DoubleJob, flow, "count mismatch: job 49 was worked twice"),
        (Lie::InventJob, flow, "count mismatch: job 18446744073709551615 was never submitted"),
        (Lie::FalseEcho, Shape::echo(1), "count mismatch: an echo of something else"),
        (Lie::FalseResult, Shape::foreground(1, 1), "count mismatch: a result of another job"),
        (Lie::Refuse, flow, "protocol: producer got ERROR: QUEUE_ERROR\\x00Job queue is full"),
        (Lie::HangUp, Shape::background(1, 1), "the server closed connection 0"),
        (Lie::NeverWake, Shape::flow(1, 1, 2).with_backlog(1), "stalled: nothing arrived for 300ms (submitted"),
    ];
    for (lie, shape, expected) in cases {
        let error = run(&shape, lie).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{lie:?}: {error}");
    }
}
