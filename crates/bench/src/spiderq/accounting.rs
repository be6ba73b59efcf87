//! The broker's side of spiderq. A job is a task: key and value, each after its length.

use super::{SPIDERQ, Spiderq};
use crate::accounting::{Answer, Ask, Broker, JOBS, Lie, Wire, Zmtp, assert_caught, assert_counted};
use crate::cases::{Request, Shape};
use crate::driver::Measured;
use crate::error::Error;
use crate::protocol::Client as _;

#[derive(Default)]
struct Queue(Zmtp);

impl Wire for Queue {
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

/// As a run does it: fills the queue if the load needs tasks, runs the load, takes out the rest; each part ends with a comparison
/// of counts.
fn run(shape: &Shape, lie: Lie) -> Result<Measured, Error> {
    let (client, mut broker) = (Spiderq::default(), Broker::new(Queue::default(), lie));
    let mut part = |shape: &Shape| {
        broker.wire = Queue::default();
        let measured = broker.converse(client.speakers(shape), shape.rules(true), 0)?;
        let (found, expected) = (broker.jobs.len() as u64, client.remaining());
        if found == expected { Ok(measured) } else { Err(Error::Mismatch(format!("{found} instead of {expected}"))) }
    };
    if shape.queued > 0 {
        part(&SPIDERQ.fill)?;
    }
    let measured = part(shape)?;
    if client.remaining() > 0 {
        part(&SPIDERQ.empty)?;
    }
    Ok(measured)
}

#[test]
fn an_honest_server_is_counted_right() {
    let cycle = |clients, window| Shape { queued: JOBS, ..Shape::clients(Request::Cycle, clients, window) };
    let shapes = [
        Shape::clients(Request::Echo, 1, 1),
        Shape::clients(Request::Echo, 3, 16),
        Shape::clients(Request::Submit, 8, 1),
        Shape::clients(Request::Submit, 2, 64),
        cycle(8, 1),
        cycle(2, 20),
        Shape::flow(1, 1, 4, 1),
    ];
    shapes.iter().for_each(|shape| assert_counted(shape, run(shape, Lie::None)));
}

#[test]
fn lies_are_caught() {
    let (ping, add) = (Shape::clients(Request::Echo, 1, 1), Shape::clients(Request::Submit, 1, 1));
    let wake = Shape::flow(1, 1, 2, 1);
    let cases = [
        (Lie::Lose, add, "count mismatch: 299 instead of 300"),
        (Lie::Double, add, "count mismatch: 301 instead of 300"),
        (Lie::Double, wake, "count mismatch: task \\x00\\x00\\x00\\x00\\x00\\x00\\x001 was lent"),
        (Lie::Invent, add, "count mismatch: task \\xff\\x00\\x00\\x00\\x00\\x00\\x001 was never added"),
        (Lie::Spoil, add, "count mismatch: task \\x00\\x00\\x00\\x00\\x00\\x00\\x001 came with another value"),
        (Lie::Say(b"\x03"), add, "count mismatch: Add was answered with Kept"),
        (Lie::Twice, ping, "count mismatch: a reply to no request, or a second one"),
        (Lie::Foreign, ping, "count mismatch: a reply to no request, or a second one"),
        (Lie::Say(b""), ping, "protocol: a reply of 2 parts, or in no envelope"),
        (Lie::Say(b"\x0b\x02\x0b"), ping, "count mismatch: Ping was answered with \\x0b\\x02\\x0b"),
        (Lie::Say(b"\x11\0"), ping, "count mismatch: Ping was answered with \\x11\\x00"),
        (Lie::HangUp, add, "the server closed connection 0"),
    ];
    for (lie, shape, expected) in cases {
        assert_caught(lie, run(&shape, lie), expected);
    }
}
