//! The broker's side of Gearman. A job's handle is its lease; that of a submit's answer the next one.

use super::{background, foreground, speakers};
use crate::accounting::{Answer, Ask, Broker, Lie, Wire, assert_caught, assert_counted};
use crate::cases::{Request, Shape};
use crate::driver::Measured;
use crate::error::Error;

struct Gearmand;

impl Wire for Gearmand {
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

    fn invent(&self, job: &mut [u8]) {
        job[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    }
}

fn run(shape: &Shape, lie: Lie) -> Result<Measured, Error> {
    Broker::new(Gearmand, lie).converse(speakers::of(shape), shape.rules(true), 0)
}

#[test]
fn an_honest_server_is_counted_right() {
    let shapes = [
        Shape::clients(Request::Echo, 1, 1),
        background(3, 1),
        // Few enough in flight that one round cannot bring all answers before the window opens.
        background(3, 16).with_unique_ids(),
        Shape::flow(2, 1, 3, u64::MAX),
        Shape::flow(1, 1, 5, 1),
        Shape::flow(2, 128, 3, 10),
        foreground(1, 2),
    ];
    shapes.iter().for_each(|shape| assert_counted(shape, run(shape, Lie::None)));
}

#[test]
fn lies_are_caught() {
    let (flow, echo) = (Shape::flow(1, 1, 3, 4096), Shape::clients(Request::Echo, 1, 1));
    let cases = [
        (Lie::Lose, flow, "stalled: nothing arrived for 0ns (submitted 300, acknowledged 300, worked 299"),
        (Lie::Double, flow, "count mismatch: job 49 was worked twice"),
        (Lie::Invent, flow, "count mismatch: job 18446744073709551615 was never submitted"),
        (Lie::Foreign, echo, "count mismatch: an echo of something else"),
        (Lie::Foreign, foreground(1, 1), "count mismatch: a result of another job"),
        (Lie::Say(b"QUEUE_ERROR\0full"), flow, "protocol: producer got ERROR: QUEUE_ERROR\\x00full"),
        (Lie::Twice, flow, "count mismatch: JOB_CREATED without a submit"),
        (Lie::HangUp, background(1, 1), "the server closed connection 0"),
    ];
    for (lie, shape, expected) in cases {
        assert_caught(lie, run(&shape, lie), expected);
    }
}
