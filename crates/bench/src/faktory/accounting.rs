//! Tests of the generator against a small server in this process: its counts of an honest server are right, and lies fail.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::iter::repeat_n;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::error::Error;
use crate::faktory::cases::Shape;
use crate::faktory::wire;
use crate::interrupt::Interrupt;
use crate::load::client::{Idle, Links};
use crate::load::driver::{Driver, Measured, Plan};

/// The job that the server lies about.
const LIE_AT: u64 = 50;
/// How long the server lets a FETCH wait.
const FETCH_WAIT: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// Acknowledges a job and forgets it.
    LoseJob,
    /// Hands a job out twice.
    DoubleJob,
    /// Hands out a job that was never pushed.
    InventJob,
    /// Refuses a push.
    Refuse,
    /// Hangs up.
    HangUp,
}

#[derive(Default)]
struct Queue {
    pushed: u64,
    waiting: VecDeque<String>,
}

/// Starts the server; its threads end with its connections.
fn serve(lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let queue = Arc::new(Mutex::new(Queue::default()));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, queue) = (stream.unwrap(), Arc::clone(&queue));
            std::thread::spawn(move || talk(stream, &queue, lie));
        }
    });
    addr
}

/// Answers until the peer is gone or a write fails, which ends this thread only.
fn talk(mut stream: TcpStream, queue: &Mutex<Queue>, lie: Lie) -> Option<()> {
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"+HI {\"v\":2}\r\n").ok()?;
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for line in lines {
        let line = line.ok()?;
        let (verb, rest) = line.split_once(' ').unwrap();
        let answer = match verb {
            "HELLO" => "+OK\r\n".to_owned(),
            "PUSH" => push(&mut queue.lock().unwrap(), &[rest.to_owned()], lie)?.replace("$2\r\n{}", "+OK"),
            "PUSHB" => {
                let jobs: Vec<serde_json::Value> = serde_json::from_str(rest).unwrap();
                push(&mut queue.lock().unwrap(), &jobs.iter().map(ToString::to_string).collect::<Vec<_>>(), lie)?
            }
            "FETCH" => fetch(queue),
            "ACK" | "BEAT" => "+OK\r\n".to_owned(),
            _ => panic!("unexpected {line}"),
        };
        stream.write_all(answer.as_bytes()).ok()?;
    }
    Some(())
}

fn push(queue: &mut Queue, jobs: &[String], lie: Lie) -> Option<String> {
    for job in jobs {
        queue.pushed += 1;
        let lies = |this| lie == this && queue.pushed == LIE_AT;
        if lies(Lie::HangUp) {
            return None;
        }
        if lies(Lie::Refuse) {
            return Some("-ERR no room\r\n".to_owned());
        }
        let copies = 1 + usize::from(lies(Lie::DoubleJob)) - usize::from(lies(Lie::LoseJob));
        let invented = job.replace("[\"0000", "[\"ffff");
        let job = if lies(Lie::InventJob) { &invented } else { job };
        queue.waiting.extend(std::iter::repeat_n(job.clone(), copies));
    }
    Some("$2\r\n{}\r\n".to_owned())
}

fn fetch(queue: &Mutex<Queue>) -> String {
    let taken = || queue.lock().unwrap().waiting.pop_front();
    let found = taken().or_else(|| {
        std::thread::sleep(FETCH_WAIT);
        taken()
    });
    found.map_or("$-1\r\n".to_owned(), |job| format!("${}\r\n{job}\r\n", job.len()))
}

fn run(shape: &Shape, lie: Lie, queued: u64) -> Result<Measured, Error> {
    let addr = serve(lie);
    let drive = |shape: &Shape, queued: Option<u64>| {
        let plan = Plan::Counted { warm: 30, window: 270 };
        let mut driver = Driver::new(shape.roles(), shape.rules(), &plan, std::process::id());
        if let Some(queued) = queued {
            driver = driver.for_queued(queued);
        }
        let workers = shape.workers + shape.idlers;
        let mut links = Links::open_with(repeat_n(addr, driver.connections()), Idle::Sleep, |at, stream| {
            wire::greet(stream, (at < workers).then_some(at))
        })?;
        links.drive(&mut driver, &Interrupt::default())?;
        driver.measured()
    };
    if queued == 0 {
        return drive(shape, None);
    }
    // One producer, so that jobs are numbered in the order in which they arrive.
    drive(&Shape::push(1, 7), None)?;
    drive(shape, Some(queued))
}

#[test]
fn an_honest_server_is_counted_right() {
    let shapes = [
        ("push", Shape::push(3, 1), 0),
        ("batches", Shape::push(2, 13), 0),
        ("wake", Shape::wake(4), 0),
        ("idle", Shape::idle(10), 0),
        ("drain", Shape::drain(3, false), 300),
        ("eager drain", Shape::drain(3, true), 300),
    ];
    for (name, shape, queued) in shapes {
        let measured = run(&shape, Lie::None, queued).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(measured.submitted, 300, "{name}");
        assert!((1..=270).contains(&measured.jobs), "{name}: {}", measured.jobs);
        assert_eq!(measured.latency.count(), measured.jobs, "{name}");
    }
}

#[test]
fn lies_are_caught() {
    let cases = [
        (Lie::LoseJob, Shape::drain(1, false), "count mismatch: 10 FETCHes in a row came back empty"),
        (Lie::DoubleJob, Shape::drain(1, true), "count mismatch: job 49 was worked twice"),
        (Lie::InventJob, Shape::drain(1, false), "count mismatch: job 18446462598732841009 was never submitted"),
        (Lie::Refuse, Shape::push(1, 1), "protocol: producer got -ERR no room"),
        (Lie::HangUp, Shape::push(1, 1), "the server closed connection 0"),
    ];
    for (lie, shape, expected) in cases {
        let queued = if shape.workers > 0 { 300 } else { 0 };
        let error = run(&shape, lie, queued).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{lie:?}: {error}");
    }
}
