//! Tests of the generator against a broker in memory: the counts of an honest one are right, and lies fail. Not a test of any
//! real server. [`sides`] has each protocol from the server's side.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;

use self::sides::{Side, of};
use crate::cases::{Request, Shape};
use crate::driver::{Driver, Measured, Next, Plan};
use crate::error::Error;
use crate::metric::Metric;
use crate::protocol::Protocol;
use crate::table::{delivered, fetch_ack, foreground};
use crate::{beanstalkd, eventmq, faktory, gearman, redis, spiderq};

mod sides;

/// Jobs of a run.
const JOBS: u64 = 300;
/// The request of a client that the broker lies about.
const LIE_AT: u64 = 50;
const PLAN: Plan = Plan::Counted { warm: 30, window: JOBS - 30 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// Does not acknowledge any job.
    Silent,
    /// Acknowledges a job and forgets it.
    Lose,
    /// Hands a job out twice.
    Double,
    /// Hands out a job that was never submitted.
    Invent,
    /// Changes the last byte of a job.
    Spoil,
    /// Answers twice.
    Twice,
    /// Answers another request.
    Foreign,
    /// Answers with this.
    Say(&'static [u8]),
    /// Hangs up.
    HangUp,
}

/// A request, with the bytes that its answer repeats.
enum Ask {
    Echo(Vec<u8>),
    Submit {
        request: Vec<u8>,
        job: Vec<u8>,
        calls: bool,
    },
    Take {
        request: Vec<u8>,
        waits: bool,
    },
    /// Without a job, it is done; otherwise it goes back to the queue.
    Finish {
        request: Vec<u8>,
        lease: u64,
        job: Option<Vec<u8>>,
    },
    /// Waits to be woken.
    Sleep,
}

enum Answer<'a> {
    Echo,
    Accepted,
    Job(u64, &'a [u8]),
    Empty,
    Wake,
    Finished,
    Result(u64),
    Raw(&'a [u8]),
}

/// A server for any number of connections.
struct Broker {
    side: Box<dyn Side>,
    lie: Lie,
    requests: u64,
    jobs: VecDeque<Job>,
    takers: VecDeque<(usize, Vec<u8>)>,
    sleepers: Vec<usize>,
    /// The callers of the jobs that were handed out.
    leases: Vec<Option<(usize, Vec<u8>)>>,
}

#[derive(Clone)]
struct Job {
    body: Vec<u8>,
    caller: Option<(usize, Vec<u8>)>,
}

impl Broker {
    fn new(lie: Lie, side: Box<dyn Side>) -> Self {
        let (jobs, takers, sleepers, leases) = (VecDeque::new(), VecDeque::new(), Vec::new(), Vec::new());
        Self { side, lie, requests: 0, jobs, takers, sleepers, leases }
    }

    /// Handles the whole messages at the start of `bytes` and returns their length, or `None` to hang up.
    fn on_bytes(&mut self, from: usize, bytes: &[u8], replies: &mut [Vec<u8>]) -> Option<usize> {
        let (used, asks) = self.side.read(from, bytes, &mut replies[from]);
        for ask in asks {
            self.on_ask(ask, from, replies)?;
            while !self.jobs.is_empty() && !self.takers.is_empty() {
                let (to, request) = self.takers.pop_front()?;
                self.hand_out(to, &request, replies);
            }
        }
        Some(used)
    }

    fn on_ask(&mut self, ask: Ask, from: usize, replies: &mut [Vec<u8>]) -> Option<()> {
        match ask {
            Ask::Echo(request) => self.answer(from, request, &Answer::Echo, replies)?,
            Ask::Submit { request, mut job, calls } => {
                self.answer(from, request.clone(), &Answer::Accepted, replies)?;
                let lies = |lie| self.lie == lie && self.requests == LIE_AT;
                if lies(Lie::Invent) {
                    self.side.invent(&mut job);
                }
                *job.last_mut()? ^= u8::from(lies(Lie::Spoil));
                let copies = 1 + usize::from(lies(Lie::Double)) - usize::from(lies(Lie::Lose));
                let job = Job { body: job, caller: calls.then_some((from, request)) };
                self.jobs.extend(std::iter::repeat_n(job, copies));
                for sleeper in self.sleepers.drain(..) {
                    // Some servers repeat this.
                    (0..2).for_each(|_| self.side.write(&mut replies[sleeper], b"", &Answer::Wake));
                }
            }
            Ask::Take { request, waits } if self.jobs.is_empty() => match waits {
                true => self.takers.push_back((from, request)),
                false => self.side.write(&mut replies[from], &request, &Answer::Empty),
            },
            Ask::Take { request, .. } => self.hand_out(from, &request, replies),
            Ask::Finish { request, lease, job } => {
                self.jobs.extend(job.map(|body| Job { body, caller: None }));
                self.side.write(&mut replies[from], &request, &Answer::Finished);
                let caller = self.leases.get_mut(usize::try_from(lease).unwrap()).and_then(Option::take);
                if let Some((caller, request)) = caller {
                    self.side.write(&mut replies[caller], &request, &Answer::Result(lease));
                }
            }
            Ask::Sleep if self.jobs.is_empty() => self.sleepers.push(from),
            Ask::Sleep => self.side.write(&mut replies[from], b"", &Answer::Wake),
        }
        Some(())
    }

    fn hand_out(&mut self, to: usize, request: &[u8], replies: &mut [Vec<u8>]) {
        let job = self.jobs.pop_front().unwrap();
        self.side.write(&mut replies[to], request, &Answer::Job(self.leases.len() as u64, &job.body));
        self.leases.push(job.caller);
    }

    /// The answer to a client, or the lie.
    fn answer(&mut self, to: usize, mut request: Vec<u8>, answer: &Answer<'_>, replies: &mut [Vec<u8>]) -> Option<()> {
        self.requests += 1;
        let lie = if self.requests == LIE_AT || self.lie == Lie::Silent { self.lie } else { Lie::None };
        if lie == Lie::HangUp {
            return None;
        }
        if lie == Lie::Foreign {
            *request.first_mut()? ^= 1;
            *request.last_mut()? ^= 1;
        }
        let times = 1 + usize::from(lie == Lie::Twice) - usize::from(lie == Lie::Silent);
        let answer = if let Lie::Say(bytes) = lie { &Answer::Raw(bytes) } else { answer };
        (0..times).for_each(|_| self.side.write(&mut replies[to], &request, answer));
        Some(())
    }

    /// Runs a load of [`JOBS`] on new connections.
    fn converse(&mut self, protocol: &Protocol, shape: &Shape, acknowledges: bool) -> Result<Measured, Error> {
        self.side = of(protocol, shape.backlog_max == 1);
        self.takers.clear();
        let speakers = protocol.speakers(shape, acknowledges);
        let mut requests = vec![Vec::new(); speakers.len()];
        let mut replies = requests.clone();
        // How much of its replies a connection has read without using it.
        let mut carried = vec![0; requests.len()];
        let rules = shape.rules(acknowledges);
        let mut driver = Driver::new(speakers, rules, &PLAN, shape.queued, std::process::id())?;
        let (mut next, mut now_nanos) = (Next::Wake, 0);
        while next != Next::Done {
            let mut progress = next == Next::Wake;
            for at in 0..requests.len() {
                if next == Next::Wake {
                    driver.on_wake(at, &mut requests[at]);
                }
                let used = self.on_bytes(at, &requests[at], &mut replies).ok_or(Error::Closed { connection: at })?;
                requests[at].drain(..used);
                progress |= used > 0;
                now_nanos += 1000;
                driver.at(now_nanos);
                // A stream is cut anywhere.
                let piece = usize::try_from(1 + now_nanos / 1000 * 7919 % 211).unwrap();
                let read = replies[at].len().min(carried[at] + piece);
                progress |= read > carried[at];
                let used = driver.on_bytes(at, &replies[at][..read], &mut requests[at])?;
                replies[at].drain(..used);
                carried[at] = read - used;
            }
            next = driver.on_batch()?;
            if !progress && next == Next::Wait {
                return Err(Error::Stalled { waited: Duration::ZERO, state: driver.state() });
            }
        }
        driver.measured()
    }
}

/// As a run does it: fills the queue if the load needs jobs, runs the load, takes out the rest.
fn run(protocol: &Protocol, shape: Shape, acknowledges: bool, lie: Lie) -> Result<Measured, Error> {
    let mut broker = Broker::new(lie, of(protocol, false));
    if shape.queued > 0 {
        // One producer, so that jobs are numbered in the order in which they arrive.
        broker.converse(protocol, &Shape::submit(1, 7), acknowledges)?;
    }
    let measured = broker.converse(protocol, &shape, acknowledges)?;
    let (found, expected) = (broker.jobs.len() as u64, measured.left);
    if found != expected {
        return Err(Error::Mismatch(format!("{found} instead of {expected}")));
    }
    if shape.queued > 0 && found > 0 {
        broker.converse(protocol, &Shape { queued: JOBS, ..protocol.empty }, acknowledges)?;
        assert!(broker.jobs.is_empty());
    }
    Ok(measured)
}

/// Every job was counted once, and those in the window have a latency.
fn assert_counted(run: impl Debug, measured: Result<Measured, Error>) {
    let measured = measured.unwrap_or_else(|error| panic!("{run:?}: {error}"));
    assert!((1..=JOBS - 30).contains(&measured.jobs), "{run:?}: {}", measured.jobs);
    assert_eq!(measured.latency.len(), measured.jobs, "{run:?}");
    let sample = measured.sample();
    assert!(sample[&Metric::JobsPerSecond] > 0.0 && sample[&Metric::P50Micros] >= 1.0, "{run:?}: {sample:?}");
}

const ECHO: Shape = Shape::clients(Request::Echo, 1, 1);
const JOB: Shape = Shape::clients(Request::Job, 2, 1);

#[test]
fn an_honest_server_is_counted_right() {
    let cycle = |clients, window| Shape { queued: JOBS, ..Shape::clients(Request::Cycle, clients, window) };
    let (wake, jobs) = (Shape::flow(1, 1, 4, 1), Shape::clients(Request::Job, 3, 16));
    // Few enough in flight that one round cannot bring all answers before the window opens.
    let unique = Shape { unique: true, ..Shape::submit(3, 16) };
    let flows = [Shape::flow(2, 1, 3, u64::MAX), Shape::flow(2, 128, 3, 10)];
    let table: [(&Protocol, &[Shape]); 6] = [
        (
            &gearman::GEARMAN,
            &[ECHO, Shape::submit(3, 1), unique, flows[0], flows[1], wake, foreground(1, 2), JOB, jobs],
        ),
        (
            &faktory::FAKTORY,
            &[
                Shape::submit(3, 1),
                Shape::submit(2, 13),
                wake,
                Shape::clients(Request::Echo, 10, 1),
                fetch_ack(3, false, JOBS),
                fetch_ack(3, true, JOBS),
                JOB,
            ],
        ),
        (
            &spiderq::SPIDERQ,
            &[
                ECHO,
                Shape::clients(Request::Echo, 3, 16),
                Shape::submit(8, 1),
                Shape::submit(2, 64),
                cycle(8, 1),
                cycle(2, 20),
                wake,
            ],
        ),
        (&eventmq::EVENTMQ, &[delivered(1, 1), delivered(4, 16), delivered(1, 256), Shape::submit(3, 1)]),
        (&redis::REDIS, &[Shape::submit(3, 1), JOB, jobs]),
        (&beanstalkd::BEANSTALKD, &[Shape::submit(3, 1), JOB, jobs]),
    ];
    for (protocol, shapes) in table {
        for shape in shapes {
            assert_counted((protocol.name, shape), run(protocol, *shape, true, Lie::None));
        }
    }
    for lie in [Lie::None, Lie::Silent] {
        assert_counted(lie, run(&eventmq::EVENTMQ, delivered(4, 16), false, lie));
    }
}

#[test]
fn lies_are_caught() {
    let (flow, wake, push) = (Shape::flow(1, 1, 3, 4096), Shape::flow(1, 1, 2, 1), Shape::submit(1, 1));
    let cycle = Shape { queued: JOBS, ..Shape::clients(Request::Cycle, 1, 1) };
    let (gearman, faktory, spiderq, eventmq) =
        (&gearman::GEARMAN, &faktory::FAKTORY, &spiderq::SPIDERQ, &eventmq::EVENTMQ);
    let second = "count mismatch: a reply to no request, or a second one";
    let no_job = "count mismatch: Take was answered with Empty";
    let twice = "count mismatch: job 49 was worked twice";
    let table = [
        (gearman, Lie::Lose, flow, "stalled: nothing arrived for 0ns (started 300, acknowledged 300, worked 299"),
        (gearman, Lie::Double, flow, twice),
        (gearman, Lie::Invent, flow, "count mismatch: job 18446744073709551615 was never submitted"),
        (gearman, Lie::Spoil, flow, "protocol: an unexpected reply: \\x00RES\\x00\\x00\\x00\\x0b"),
        (gearman, Lie::Foreign, ECHO, "protocol: an unexpected reply: \\x00RES\\x00\\x00\\x00\\x11"),
        (gearman, Lie::Foreign, foreground(1, 1), "count mismatch: a result of another job"),
        (gearman, Lie::Say(b"QUEUE_ERROR\0full"), flow, "protocol: an unexpected reply: \\x00RES"),
        (gearman, Lie::Twice, flow, second),
        (gearman, Lie::HangUp, push, "the server closed connection 0"),
        (gearman, Lie::Lose, JOB, no_job),
        (faktory, Lie::Lose, fetch_ack(1, false, JOBS), no_job),
        (faktory, Lie::Double, fetch_ack(1, true, JOBS), twice),
        (
            faktory,
            Lie::Invent,
            fetch_ack(1, false, JOBS),
            "count mismatch: job 18446462598732841009 was never submitted",
        ),
        (faktory, Lie::Say(b"-ERR no room\r\n"), push, "protocol: an unexpected reply: -ERR no room"),
        (faktory, Lie::Twice, push, second),
        (spiderq, Lie::Lose, push, "count mismatch: 299 instead of 300"),
        (spiderq, Lie::Double, push, "count mismatch: 301 instead of 300"),
        (spiderq, Lie::Double, wake, twice),
        (spiderq, Lie::Invent, cycle, "protocol: an unexpected reply"),
        (spiderq, Lie::Spoil, cycle, "protocol: an unexpected reply"),
        (spiderq, Lie::Say(b"\x03"), push, "protocol: an unexpected reply"),
        (spiderq, Lie::Say(b"\x07"), push, "count mismatch: Push was answered with Finished"),
        (spiderq, Lie::Twice, ECHO, second),
        (spiderq, Lie::Foreign, ECHO, second),
        (eventmq, Lie::Lose, wake, "stalled: nothing arrived"),
        (eventmq, Lie::Double, wake, twice),
        (eventmq, Lie::Invent, wake, "count mismatch: job 17293822569102704689 was never submitted"),
        (eventmq, Lie::Spoil, wake, "protocol: an unexpected reply"),
        (eventmq, Lie::Foreign, push, second),
        (eventmq, Lie::Say(b"KBYE"), push, "protocol: an unexpected reply"),
        (&redis::REDIS, Lie::Double, JOB, twice),
        (&redis::REDIS, Lie::Say(b":0\r\n"), JOB, "protocol: an unexpected reply: :0"),
        (&redis::REDIS, Lie::Lose, JOB, no_job),
        (&beanstalkd::BEANSTALKD, Lie::Double, JOB, twice),
        (&beanstalkd::BEANSTALKD, Lie::Spoil, JOB, "protocol: an unexpected reply: RESERVED"),
        (&beanstalkd::BEANSTALKD, Lie::Say(b"DELETED\r\n"), JOB, "count mismatch: Push was answered with Finished"),
    ];
    for (protocol, lie, shape, expected) in table {
        let error = run(protocol, shape, true, lie).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{} {lie:?}: {error}", protocol.name);
    }
}

proptest! {
    #[test]
    fn noise_never_panics(noise: Vec<u8>) {
        let shape = Shape::flow(1, 2, 1, 4096);
        let (redis, beanstalkd) = (&redis::REDIS, &beanstalkd::BEANSTALKD);
        for protocol in [&gearman::GEARMAN, &faktory::FAKTORY, &spiderq::SPIDERQ, &eventmq::EVENTMQ, redis, beanstalkd] {
            let mut driver = Driver::new(protocol.speakers(&shape, true), shape.rules(true), &PLAN, 0, 0).unwrap();
            for at in 0..2 {
                let mut out = Vec::new();
                driver.on_wake(at, &mut out);
                let _ = driver.on_bytes(at, &noise, &mut out);
            }
        }
    }
}
