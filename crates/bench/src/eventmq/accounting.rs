//! The broker's side of eMQP. A job is the request's identifier and its body.

use super::{flow, speakers};
use crate::accounting::{Answer, Ask, Broker, Lie, Wire, Zmtp, assert_caught, assert_counted};
use crate::cases::{Request, Shape};
use crate::driver::Measured;
use crate::error::Error;

const ALONE: Shape = Shape::clients(Request::Submit, 1, 4);

#[derive(Default)]
struct Router(Zmtp);

fn message<'a>(command: &'a [u8], body: &[&'a [u8]]) -> Vec<&'a [u8]> {
    [&[&b""[..], b"eMQP/1.0", command, b"m"], body].concat()
}

impl Wire for Router {
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

fn run(shape: &Shape, is_acknowledged: bool, lie: Lie) -> Result<Measured, Error> {
    let rules = shape.rules(is_acknowledged);
    Broker::new(Router::default(), lie).converse(speakers::of(shape, is_acknowledged), rules, 0)
}

#[test]
fn an_honest_server_is_counted_right() {
    for shape in [flow(1, 1, 1), flow(4, 16, 2), flow(1, 256, 2)] {
        for (is_acknowledged, lie) in [(true, Lie::None), (false, Lie::None), (false, Lie::Silent)] {
            assert_counted((shape, is_acknowledged), run(&shape, is_acknowledged, lie));
        }
    }
    assert_counted("no workers", run(&Shape { clients: 2, window: 8, ..ALONE }, true, Lie::None));
}

#[test]
fn lies_are_caught() {
    let flow = flow(1, 4, 1);
    let cases = [
        (Lie::Double, flow, "count mismatch: job 49 was worked twice"),
        (Lie::Invent, flow, "count mismatch: job 17293822569102704689 was never submitted"),
        (Lie::Spoil, flow, "count mismatch: a job without a request"),
        (Lie::Twice, flow, "count mismatch: a reply to no request, or a second one"),
        (Lie::Foreign, ALONE, "count mismatch: a reply to no request, or a second one: "),
        (Lie::Say(b"KBYE"), flow, "protocol: a message of 4 parts:  | eMQP/1.0 | KBYE | m"),
        (Lie::HangUp, flow, "the server closed connection 1"),
    ];
    for (lie, shape, expected) in cases {
        assert_caught(lie, run(&shape, true, lie), expected);
    }
}
