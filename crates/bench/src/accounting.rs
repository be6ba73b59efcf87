//! Tests of the generator against a broker in memory: the counts of an honest one are right, and lies fail. Not a test of any
//! real server. Each protocol adds its [`Wire`].

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use proptest::prelude::*;
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Message, Peer as Transport, Role, Settings};

use crate::cases::Shape;
use crate::driver::{Driver, Measured, Next, Plan, Speaker};
use crate::error::Error;
use crate::metric::Metric;
use crate::peers::Peer;
use crate::tally::Rules;
use crate::{eventmq, faktory, gearman, spiderq};

/// Jobs of a run.
pub(crate) const JOBS: u64 = 300;
/// The request of a client that the broker lies about.
const LIE_AT: u64 = 50;
const PLAN: Plan = Plan::Counted { warm: 30, window: JOBS - 30 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
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
pub(crate) enum Ask {
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

pub(crate) enum Answer<'a> {
    Echo,
    Accepted,
    Job(u64, &'a [u8]),
    Empty,
    Wake,
    Finished,
    Result(u64),
    Raw(&'a [u8]),
}

/// A protocol, from the server's side.
pub(crate) trait Wire {
    /// The length of the whole messages at the start of `bytes`, and their requests. May answer what concerns no job.
    fn read(&mut self, from: usize, bytes: &[u8], out: &mut Vec<u8>) -> (usize, Vec<Ask>);
    fn write(&mut self, out: &mut Vec<u8>, request: &[u8], answer: &Answer<'_>);
    /// Makes a job that was never submitted.
    fn invent(&self, job: &mut [u8]);
}

/// A server for any number of connections.
pub(crate) struct Broker<W> {
    pub(crate) wire: W,
    lie: Lie,
    requests: u64,
    pub(crate) jobs: VecDeque<Job>,
    takers: VecDeque<(usize, Vec<u8>)>,
    sleepers: Vec<usize>,
    /// The callers of the jobs that were handed out.
    leases: Vec<Option<(usize, Vec<u8>)>>,
}

#[derive(Clone)]
pub(crate) struct Job {
    body: Vec<u8>,
    caller: Option<(usize, Vec<u8>)>,
}

impl<W: Wire> Broker<W> {
    pub(crate) fn new(wire: W, lie: Lie) -> Self {
        let (jobs, takers, sleepers, leases) = (VecDeque::new(), VecDeque::new(), Vec::new(), Vec::new());
        Self { wire, lie, requests: 0, jobs, takers, sleepers, leases }
    }

    /// Handles the whole messages at the start of `bytes` and returns their length, or `None` to hang up.
    fn on_bytes(&mut self, from: usize, bytes: &[u8], replies: &mut [Vec<u8>]) -> Option<usize> {
        let (used, asks) = self.wire.read(from, bytes, &mut replies[from]);
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
                    self.wire.invent(&mut job);
                }
                *job.last_mut()? ^= u8::from(lies(Lie::Spoil));
                let copies = 1 + usize::from(lies(Lie::Double)) - usize::from(lies(Lie::Lose));
                let job = Job { body: job, caller: calls.then_some((from, request)) };
                self.jobs.extend(std::iter::repeat_n(job, copies));
                for sleeper in self.sleepers.drain(..) {
                    // Some servers repeat this.
                    (0..2).for_each(|_| self.wire.write(&mut replies[sleeper], b"", &Answer::Wake));
                }
            }
            Ask::Take { request, waits } if self.jobs.is_empty() => match waits {
                true => self.takers.push_back((from, request)),
                false => self.wire.write(&mut replies[from], &request, &Answer::Empty),
            },
            Ask::Take { request, .. } => self.hand_out(from, &request, replies),
            Ask::Finish { request, lease, job } => {
                self.jobs.extend(job.map(|body| Job { body, caller: None }));
                self.wire.write(&mut replies[from], &request, &Answer::Finished);
                let caller = self.leases.get_mut(usize::try_from(lease).unwrap()).and_then(Option::take);
                if let Some((caller, request)) = caller {
                    self.wire.write(&mut replies[caller], &request, &Answer::Result(lease));
                }
            }
            Ask::Sleep if self.jobs.is_empty() => self.sleepers.push(from),
            Ask::Sleep => self.wire.write(&mut replies[from], b"", &Answer::Wake),
        }
        Some(())
    }

    fn hand_out(&mut self, to: usize, request: &[u8], replies: &mut [Vec<u8>]) {
        let job = self.jobs.pop_front().unwrap();
        self.wire.write(&mut replies[to], request, &Answer::Job(self.leases.len() as u64, &job.body));
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
        (0..times).for_each(|_| self.wire.write(&mut replies[to], &request, answer));
        Some(())
    }

    /// Runs a load of [`JOBS`], of which `queued` are queued already.
    pub(crate) fn converse(
        &mut self,
        speakers: Vec<Box<dyn Speaker>>,
        rules: Rules,
        queued: u64,
    ) -> Result<Measured, Error> {
        let mut requests = vec![Vec::new(); speakers.len()];
        let mut replies = requests.clone();
        // How much of its replies a connection has read without using it.
        let mut carried = vec![0; requests.len()];
        let mut driver = Driver::new(speakers, rules, &PLAN, queued, std::process::id())?;
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

/// ZeroMQ's transport of a broker.
#[derive(Default)]
pub(crate) struct Zmtp(Vec<Option<(Transport, BytesMut)>>);

impl Zmtp {
    pub(crate) fn read(&mut self, from: usize, bytes: &[u8], out: &mut Vec<u8>) -> Vec<Vec<Vec<u8>>> {
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

    pub(crate) fn write<'a>(out: &mut Vec<u8>, parts: impl IntoIterator<Item = &'a [u8]>) {
        out.extend_from_slice(Message::new(parts).frames());
    }
}

/// Every job was counted once, and those in the window have a latency.
pub(crate) fn assert_counted(run: impl Debug, measured: Result<Measured, Error>) {
    let measured = measured.unwrap_or_else(|error| panic!("{run:?}: {error}"));
    assert_eq!(measured.submitted, JOBS, "{run:?}");
    assert!((1..=JOBS - 30).contains(&measured.jobs), "{run:?}: {}", measured.jobs);
    assert_eq!(measured.latency.len(), measured.jobs, "{run:?}");
    let sample = measured.sample();
    assert!(sample[&Metric::JobsPerSecond] > 0.0 && sample[&Metric::P50Micros] >= 1.0, "{run:?}: {sample:?}");
}

pub(crate) fn assert_caught(lie: Lie, measured: Result<Measured, Error>, expected: &str) {
    let error = measured.unwrap_err().to_string();
    assert!(error.starts_with(expected), "{lie:?}: {error}");
}

proptest! {
    #[test]
    fn noise_never_panics(noise: Vec<u8>) {
        let shape = Shape::flow(1, 2, 1, 4096);
        for protocol in [&gearman::GEARMAN, &faktory::FAKTORY, &spiderq::SPIDERQ, &eventmq::EVENTMQ] {
            let client = (protocol.open)(Peer::Router);
            let mut driver = Driver::new(client.speakers(&shape), shape.rules(true), &PLAN, 0, 0).unwrap();
            for at in 0..2 {
                let mut out = Vec::new();
                driver.on_wake(at, &mut out);
                let _ = driver.on_bytes(at, &noise, &mut out);
            }
        }
    }
}
