//! The broker's side of FWP.

use super::{drain, idle, push, speakers};
use crate::accounting::{Answer, Ask, Broker, JOBS, Lie, Wire, assert_caught, assert_counted};
use crate::cases::Shape;
use crate::driver::Measured;
use crate::error::Error;

#[derive(Default)]
struct Faktory {
    greeted: Vec<usize>,
    /// An empty FETCH waits, instead of returning at once.
    waits: bool,
}

impl Wire for Faktory {
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

fn run(shape: &Shape, lie: Lie) -> Result<Measured, Error> {
    let mut broker = Broker::new(Faktory { waits: shape.backlog_max == 1, ..Faktory::default() }, lie);
    if shape.queued > 0 {
        // One producer, so that jobs are numbered in the order in which they arrive.
        broker.converse(speakers::of(&push(1, 7)), push(1, 7).rules(true), 0)?;
        broker.wire.greeted.clear();
    }
    broker.converse(speakers::of(shape), shape.rules(true), shape.queued)
}

#[test]
fn an_honest_server_is_counted_right() {
    let wake = Shape::flow(1, 1, 4, 1);
    let shapes = [push(3, 1), push(2, 13), wake, idle(10), drain(3, false, JOBS), drain(3, true, JOBS)];
    shapes.iter().for_each(|shape| assert_counted(shape, run(shape, Lie::None)));
}

#[test]
fn lies_are_caught() {
    let cases = [
        (Lie::Lose, drain(1, false, JOBS), "count mismatch: 10 FETCHes in a row came back empty"),
        (Lie::Double, drain(1, true, JOBS), "count mismatch: job 49 was worked twice"),
        (Lie::Invent, drain(1, false, JOBS), "count mismatch: job 18446462598732841009 was never submitted"),
        (Lie::Say(b"-ERR no room\r\n"), push(1, 1), "protocol: producer got -ERR no room"),
        (Lie::Twice, push(1, 1), "protocol: producer got +OK"),
        (Lie::HangUp, push(1, 1), "the server closed connection 0"),
    ];
    for (lie, shape, expected) in cases {
        assert_caught(lie, run(&shape, lie), expected);
    }
}
