//! Tests of the generator against servers in memory: the counts of an honest one are right, and lies fail. The servers
//! are the daemon's own sessions on one engine; of the other peers, a list of jobs. Not a test of any server.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use windlass_engine::{
    ClientId, Job, JobCommand, JobRef, JobState, Limits, NewJob, QueueKind, Timestamp,
};
use windlass_session::protocol::{Protocol as _, SessionFactory};
use windlass_session::{Closer, Reason};
use windlass_testkit::memory::MemoryHub;
use windlass_testkit::protocol::daemon;

use crate::driver::{Context, Driver, Measured, Next, Plan};
use crate::error::Error;
use crate::metric::Metric;
use crate::protocol::Protocol;
use crate::shape::{Request, Shape, delivered, fetch_ack, foreground};
use crate::tally::Tally;
use crate::{beanstalkd, eventmq, faktory, gearman, redis, spiderq};

/// Jobs of a run.
const JOBS: u64 = 300;
/// The first reply with which the server may lie.
const LIE_AT: u64 = 30;
const PLAN: Plan = Plan::Counted {
    warm: 30,
    window: JOBS - 30,
};
/// Milliseconds that pass when nothing happens: more than an empty FETCH waits.
const PAUSE_MS: u64 = 2_500;
/// Pauses without progress after which a run has stalled: more than the empty answers that a worker accepts.
const PAUSES_MAX: u32 = 15;

/// A lie about one reply, to the client if there are two connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// No reply to clients at all.
    Silent,
    /// The job is acknowledged and forgotten.
    Lose,
    /// The job is there twice.
    Double,
    /// One byte is another one, this far from the end.
    Alter(usize),
    /// The same, in a reply to the worker.
    AlterJob(usize),
    /// A reply to the worker never leaves.
    Withhold,
    /// The reply comes twice.
    Twice,
    /// This reply.
    Say(&'static [u8]),
    HangUp,
}

/// A server for any number of connections.
enum Server {
    Daemon {
        hub: Box<MemoryHub>,
        sessions: SessionFactory,
        clients: Vec<ClientId>,
    },
    Plain {
        peer: &'static Plain,
        jobs: VecDeque<Vec<u8>>,
    },
}

/// The requests of a peer, each with its reply. A job follows a push, and is a part of the reply to a take.
struct Plain {
    push: (&'static [u8], &'static [u8]),
    take: (&'static [u8], &'static [u8]),
    empty: &'static [u8],
    /// Its request has this number of bytes behind it.
    finish: (&'static [u8], &'static [u8], usize),
}

static REDIS: Plain = Plain {
    push: (b"*3\r\n$5\r\nLPUSH\r\n$5\r\nbench\r\n$100\r\n", b":7\r\n"),
    take: (
        b"*5\r\n$5\r\nLMOVE\r\n$5\r\nbench\r\n$5\r\ntaken\r\n$5\r\nRIGHT\r\n$4\r\nLEFT\r\n",
        b"$100\r\n",
    ),
    empty: b"$-1\r\n",
    finish: (
        b"*4\r\n$4\r\nLREM\r\n$5\r\ntaken\r\n$2\r\n-1\r\n$100\r\n",
        b":1\r\n",
        102,
    ),
};
static BEANSTALKD: Plain = Plain {
    push: (b"put 0 0 3600 100\r\n", b"INSERTED 7\r\n"),
    take: (b"reserve\r\n", b"RESERVED 7 100\r\n"),
    empty: b"TIMED_OUT\r\n",
    finish: (b"delete 7\r\n", b"DELETED\r\n", 0),
};

impl Plain {
    /// Answers requests, which come whole.
    fn answer(&self, mut rest: &[u8], jobs: &mut VecDeque<Vec<u8>>, out: &mut Vec<u8>) {
        while !rest.is_empty() {
            if let Some(pushed) = rest.strip_prefix(self.push.0) {
                jobs.push_back(pushed[..102].to_vec());
                (rest, _) = (&pushed[102..], out.extend(self.push.1));
            } else if let Some(taken) = rest.strip_prefix(self.take.0) {
                rest = taken;
                match jobs.pop_front() {
                    Some(job) => out.extend([self.take.1, &job].concat()),
                    None => out.extend(self.empty),
                }
            } else {
                let finished = rest
                    .strip_prefix(self.finish.0)
                    .unwrap_or_else(|| panic!("{}", rest.escape_ascii()));
                (rest, _) = (&finished[self.finish.2..], out.extend(self.finish.1));
            }
        }
    }
}

impl Server {
    fn of(protocol: &Protocol) -> Self {
        let plain = |peer| Server::Plain {
            peer,
            jobs: VecDeque::new(),
        };
        let spiderq = windlass_spiderq::config::Spiderq {
            dialect: windlass_spiderq::config::Dialect::V1_4,
            ..Default::default()
        };
        let endpoints = match protocol.name {
            "gearman" => windlass_gearman::config::Gearman::default().endpoints(&daemon()),
            "faktory" => windlass_faktory::config::Faktory::default().endpoints(&daemon()),
            "spiderq" => spiderq.endpoints(&daemon()),
            "eventmq" => windlass_eventmq::config::Eventmq::default().endpoints(&daemon()),
            "redis" => return plain(&REDIS),
            _ => return plain(&BEANSTALKD),
        };
        let sessions = Arc::clone(&endpoints.unwrap()[0].sessions);
        let hub = Box::new(MemoryHub::new(
            Limits::default(),
            Timestamp(1_700_000_000_000),
            7,
        ));
        Server::Daemon {
            hub,
            sessions,
            clients: Vec::new(),
        }
    }

    /// New connections in the place of those of before.
    fn connect(&mut self, count: usize) {
        let Server::Daemon {
            hub,
            sessions,
            clients,
        } = self
        else {
            return;
        };
        clients.drain(..).for_each(|client| hub.close(client));
        clients.extend((0..count).map(|_| hub.open(|info| sessions(info, Arc::new(NoCloser)))));
    }

    /// The replies to these bytes, for every connection.
    fn send(&mut self, from: usize, bytes: &[u8], replies: &mut [Vec<u8>]) {
        match self {
            Server::Daemon { hub, clients, .. } => hub.send(clients[from], bytes),
            Server::Plain { peer, jobs } => peer.answer(bytes, jobs, &mut replies[from]),
        }
        self.collect(replies);
    }

    fn pause(&mut self, replies: &mut [Vec<u8>]) {
        if let Server::Daemon { hub, .. } = self {
            hub.advance_ms(PAUSE_MS);
        }
        self.collect(replies);
    }

    fn collect(&mut self, replies: &mut [Vec<u8>]) {
        let Server::Daemon { hub, clients, .. } = self else {
            return;
        };
        clients
            .iter()
            .zip(replies)
            .for_each(|(client, replies)| replies.extend(hub.take_output(*client)));
    }

    fn count(&self) -> u64 {
        match self {
            // A task that was dropped keeps its key.
            Server::Daemon { hub, .. } => hub
                .engine()
                .jobs()
                .filter(|job| job.state != JobState::Parked)
                .count() as u64,
            Server::Plain { jobs, .. } => jobs.len() as u64,
        }
    }

    /// Adds a copy of the youngest job, or removes that job. Returns whether it was in the queue.
    fn meddle(&mut self, doubles: bool) -> bool {
        match self {
            Server::Plain { jobs, .. } => {
                let job = jobs.pop_back();
                jobs.extend(
                    job.iter()
                        .cycle()
                        .take(if doubles { 2 } else { 0 })
                        .cloned(),
                );
                job.is_some()
            }
            Server::Daemon { hub, .. } => {
                let youngest = hub.engine().jobs().max_by_key(|job| job.id);
                let Some(job) = youngest.filter(|job| doubles || job.state == JobState::Ready)
                else {
                    return false;
                };
                let command = if doubles {
                    push(job, hub)
                } else {
                    JobCommand::Cancel(JobRef::Id(job.id))
                };
                hub.command(command);
                true
            }
        }
    }
}

fn push(job: &Job, hub: &MemoryHub) -> JobCommand {
    let queue = hub.engine().queue(job.queue).unwrap().image().name.clone();
    let name = Some(job.name().to_vec().into()).filter(|_| !job.name().is_empty());
    let kind = if job.cycle().is_some() {
        QueueKind::Cycle
    } else {
        QueueKind::Work
    };
    let new = NewJob::new(job.protocol, queue, job.body().to_vec().into());
    JobCommand::Push(Box::new(NewJob {
        kind,
        name,
        meta: job.meta(),
        retry: job.retry,
        ..new
    }))
}

#[derive(Debug)]
struct NoCloser;

impl Closer for NoCloser {
    fn close(&self, _: Reason) {}
}

/// A server that lies once.
struct Broker {
    server: Server,
    lie: Lie,
    replies: u64,
    last: Vec<u64>,
}

impl Broker {
    /// Replaces the replies to these requests by the lie, or returns `None` to hang up.
    fn on_bytes(
        &mut self,
        from: usize,
        bytes: &[u8],
        workers: usize,
        replies: &mut [Vec<u8>],
    ) -> Option<()> {
        let mut fresh = vec![Vec::new(); replies.len()];
        self.server.send(from, bytes, &mut fresh);
        let victim = if matches!(self.lie, Lie::AlterJob(_) | Lie::Withhold) {
            0
        } else {
            workers
        };
        let reply = fresh.get_mut(victim).filter(|reply| !reply.is_empty());
        if let Some(reply) = reply.filter(|_| self.lie != Lie::None) {
            self.replies += 1;
            let lied = match self.lie {
                Lie::Silent => std::mem::take(reply).is_empty(),
                _ if self.replies < LIE_AT => false,
                Lie::Lose | Lie::Double => self.server.meddle(self.lie == Lie::Double),
                // Not every reply has a byte there.
                Lie::Alter(end) | Lie::AlterJob(end) => {
                    let at = reply.len().checked_sub(end);
                    at.and_then(|at| reply.get_mut(at))
                        .map(|byte| *byte ^= 1)
                        .is_some()
                }
                Lie::Twice => !std::mem::replace(reply, reply.repeat(2)).is_empty(),
                Lie::Withhold => !std::mem::take(reply).is_empty(),
                Lie::Say(bytes) => !std::mem::replace(reply, bytes.to_vec()).is_empty(),
                Lie::HangUp | Lie::None => return None,
            };
            self.lie = if lied { Lie::None } else { self.lie };
        }
        replies
            .iter_mut()
            .zip(fresh)
            .for_each(|(replies, fresh)| replies.extend(fresh));
        Some(())
    }

    /// Runs a load of [`JOBS`] on new connections.
    fn converse(
        &mut self,
        protocol: &Protocol,
        shape: &Shape,
        acknowledges: bool,
    ) -> Result<Measured, Error> {
        let speakers = protocol.speakers(shape, acknowledges);
        let mut replies = vec![Vec::new(); speakers.len()];
        self.server.connect(speakers.len());
        self.server.collect(&mut replies);
        let mut tally = Tally::new(shape, acknowledges, PLAN.jobs_max(), shape.queued)?;
        tally.last = std::mem::take(&mut self.last);
        let mut driver = Driver::new(speakers, tally, &PLAN, Some(std::process::id()));
        // How much of its replies a connection has read without using it.
        let mut carried = vec![0; replies.len()];
        let (mut next, mut now_nanos, mut pauses, mut state) = (Next::Wake, 0, 0, String::new());
        while next != Next::Done {
            let mut progress = next == Next::Wake;
            for at in 0..replies.len() {
                let mut requests = Vec::new();
                if next == Next::Wake {
                    driver.on_wake(at, &mut requests);
                }
                now_nanos += 1000;
                driver.at(now_nanos);
                // A stream is cut anywhere.
                let piece = usize::try_from(1 + now_nanos / 1000 * 7919 % 211).unwrap();
                let read = replies[at].len().min(carried[at] + piece);
                progress |= read > carried[at];
                let used = driver.on_bytes(at, &replies[at][..read], &mut requests)?;
                replies[at].drain(..used);
                carried[at] = read - used;
                if !requests.is_empty() {
                    let open = self.on_bytes(at, &requests, shape.workers, &mut replies);
                    open.ok_or(Error::Closed(at))?;
                }
            }
            next = driver.on_batch()?;
            if !progress && next == Next::Wait {
                pauses = if state == driver.state() {
                    pauses + 1
                } else {
                    0
                };
                state = driver.state();
                if pauses > PAUSES_MAX {
                    return Err(Error::Stalled(Duration::ZERO, state));
                }
                self.server.pause(&mut replies);
                now_nanos += PAUSE_MS * 1_000_000;
            }
        }
        let measured = driver.measured()?;
        self.last.clone_from(&measured.last);
        Ok(measured)
    }
}

/// As a run does it: fills the queue if the load needs jobs, runs the load, takes out the rest.
fn run(protocol: &Protocol, shape: Shape, acknowledges: bool, lie: Lie) -> Result<Measured, Error> {
    let mut broker = Broker {
        server: Server::of(protocol),
        lie,
        replies: 0,
        last: Vec::new(),
    };
    if shape.queued > 0 {
        // One producer, so that jobs are numbered in the order in which they arrive.
        broker.converse(protocol, &Shape::submit(1, 7), acknowledges)?;
    }
    let measured = broker.converse(protocol, &shape, acknowledges)?;
    let (found, expected) = (broker.server.count(), measured.left);
    if found != expected {
        return Err(Error::Mismatch(format!("{found} instead of {expected}")));
    }
    if protocol.drains && found > 0 {
        broker.converse(
            protocol,
            &Shape {
                queued: measured.left,
                ..protocol.empty
            },
            acknowledges,
        )?;
        assert_eq!(broker.server.count(), 0);
    }
    Ok(measured)
}

/// Every job was counted once, and those in the window have a latency.
fn assert_counted(run: impl Debug, measured: Result<Measured, Error>) {
    let measured = measured.unwrap_or_else(|error| panic!("{run:?}: {error}"));
    assert!(
        (1..=JOBS - 30).contains(&measured.jobs),
        "{run:?}: {}",
        measured.jobs
    );
    assert_eq!(measured.latency.len(), measured.jobs, "{run:?}");
    let sample = measured.sample();
    assert!(
        sample[&Metric::JobsPerSecond] > 0.0 && sample[&Metric::P50Micros] >= 1.0,
        "{run:?}: {sample:?}"
    );
}

const ECHO: Shape = Shape::clients(Request::Echo, 1, 1);
const JOB: Shape = Shape::clients(Request::Job, 2, 1);

#[test]
fn an_honest_server_is_counted_right() {
    let cycle = |clients, window| Shape {
        queued: JOBS,
        ..Shape::clients(Request::Cycle, clients, window)
    };
    let (wake, jobs) = (Shape::flow(1, 1, 4, 1), Shape::clients(Request::Job, 3, 16));
    // Few enough in flight that one round cannot bring all answers before the window opens.
    let unique = Shape {
        unique: true,
        ..Shape::submit(3, 16)
    };
    let (free, bound) = (Shape::flow(2, 1, 3, u64::MAX), Shape::flow(2, 128, 3, 10));
    let (echo, batches) = (
        |clients, window| Shape::clients(Request::Echo, clients, window),
        Shape::submit(2, 13),
    );
    let (fetch, eager, push) = (
        fetch_ack(3, false, JOBS),
        fetch_ack(3, true, JOBS),
        Shape::submit(3, 1),
    );
    let table: [(&Protocol, &[Shape]); 6] = [
        (
            &gearman::GEARMAN,
            &[
                ECHO,
                push,
                unique,
                free,
                bound,
                wake,
                foreground(1, 2),
                JOB,
                jobs,
            ],
        ),
        (
            &faktory::FAKTORY,
            &[push, batches, wake, echo(10, 1), fetch, eager, JOB],
        ),
        (
            &spiderq::SPIDERQ,
            &[
                ECHO,
                echo(3, 16),
                Shape::submit(8, 1),
                Shape::submit(2, 64),
                cycle(8, 1),
                cycle(2, 20),
                wake,
            ],
        ),
        (
            &eventmq::EVENTMQ,
            &[delivered(1, 1), delivered(4, 16), delivered(1, 256), push],
        ),
        (&redis::REDIS, &[push, JOB, jobs]),
        (&beanstalkd::BEANSTALKD, &[push, JOB, jobs]),
    ];
    for (protocol, shapes) in table {
        for shape in shapes {
            assert_counted(
                (protocol.name, shape),
                run(protocol, *shape, true, Lie::None),
            );
        }
    }
    for lie in [Lie::None, Lie::Silent] {
        assert_counted(lie, run(&eventmq::EVENTMQ, delivered(4, 16), false, lie));
    }
}

#[test]
fn lies_are_caught() {
    let (flow, wake, push) = (
        Shape::flow(1, 1, 1, 4096),
        Shape::flow(1, 1, 1, 1),
        Shape::submit(1, 1),
    );
    let job = Shape::clients(Request::Job, 1, 1);
    let fetch = fetch_ack(1, true, JOBS);
    let (gearman, faktory, spiderq, eventmq) = (
        &gearman::GEARMAN,
        &faktory::FAKTORY,
        &spiderq::SPIDERQ,
        &eventmq::EVENTMQ,
    );
    let second = "count mismatch: a reply to no request, or a second one";
    let no_job = "count mismatch: Take was answered with Empty";
    let table = [
        (
            gearman,
            Lie::Lose,
            flow,
            "stalled: nothing arrived for 0ns (started 300, acknowledged 300, worked 299",
        ),
        (gearman, Lie::Double, flow, "was worked twice"),
        (gearman, Lie::AlterJob(93), flow, "was never submitted"),
        (
            gearman,
            Lie::AlterJob(1),
            flow,
            "protocol: an unexpected reply: \\x00RES\\x00\\x00\\x00\\x0b",
        ),
        (
            gearman,
            Lie::Alter(1),
            ECHO,
            "protocol: an unexpected reply: \\x00RES\\x00\\x00\\x00\\x11",
        ),
        (
            gearman,
            Lie::Alter(8),
            foreground(1, 1),
            "count mismatch: Result was answered with Result(",
        ),
        (
            gearman,
            Lie::Alter(10),
            foreground(1, 1),
            "count mismatch: a result of another job",
        ),
        (
            gearman,
            Lie::Say(b"\0RES\0\0\0\x13\0\0\0\x10QUEUE_ERROR\0full"),
            flow,
            "protocol: an unexpected reply: \\x00RES",
        ),
        (gearman, Lie::Twice, flow, second),
        (gearman, Lie::HangUp, push, "the server closed connection 0"),
        (gearman, Lie::Lose, job, no_job),
        (faktory, Lie::Lose, fetch, no_job),
        (faktory, Lie::Double, fetch, "was worked twice"),
        (
            faktory,
            Lie::Say(b"-ERR no room\r\n"),
            push,
            "protocol: an unexpected reply: -ERR no room",
        ),
        (faktory, Lie::Twice, push, second),
        (
            spiderq,
            Lie::Lose,
            push,
            "count mismatch: 299 instead of 300",
        ),
        (
            spiderq,
            Lie::Double,
            push,
            "count mismatch: 301 instead of 300",
        ),
        (
            spiderq,
            Lie::AlterJob(20),
            wake,
            "protocol: an unexpected reply",
        ),
        (
            spiderq,
            Lie::AlterJob(105),
            wake,
            "protocol: an unexpected reply",
        ),
        (
            spiderq,
            Lie::Say(b"\0\x01\x03"),
            push,
            "protocol: an unexpected reply",
        ),
        (spiderq, Lie::Twice, ECHO, second),
        (spiderq, Lie::Alter(4), ECHO, second),
        (eventmq, Lie::Withhold, wake, "stalled: nothing arrived"),
        (eventmq, Lie::Double, wake, "protocol: an unexpected reply"),
        (
            eventmq,
            Lie::AlterJob(40),
            wake,
            "protocol: an unexpected reply",
        ),
        (
            eventmq,
            Lie::AlterJob(76),
            wake,
            "protocol: an unexpected reply",
        ),
        (eventmq, Lie::Alter(1), push, second),
        (&redis::REDIS, Lie::Double, job, "was worked twice"),
        (
            &redis::REDIS,
            Lie::Say(b":0\r\n"),
            job,
            "protocol: an unexpected reply: :0",
        ),
        (&redis::REDIS, Lie::Lose, job, no_job),
        (
            &beanstalkd::BEANSTALKD,
            Lie::Double,
            job,
            "was worked twice",
        ),
        (
            &beanstalkd::BEANSTALKD,
            Lie::Alter(3),
            job,
            "protocol: an unexpected reply",
        ),
        (
            &beanstalkd::BEANSTALKD,
            Lie::Say(b"DELETED\r\n"),
            push,
            "count mismatch: Push was answered with Finished",
        ),
    ];
    for (protocol, lie, shape, expected) in table {
        let error = run(protocol, shape, true, lie)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(
            error.contains(expected),
            "{} {lie:?}: {error}",
            protocol.name
        );
    }
}

/// The first request of a client that submits job 1 at 258 ns.
fn push_of(protocol: &Protocol) -> Vec<u8> {
    let (mut server, shape) = (Server::of(protocol), Shape::submit(1, 1));
    let mut tally = Tally::new(&shape, true, 1, 1).unwrap();
    tally.now_nanos = 258;
    let mut speaker = protocol.speakers(&shape, true).remove(0);
    let (mut out, mut replies) = (Vec::new(), [Vec::new()]);
    server.connect(1);
    speaker.on_wake(&mut Context {
        out: &mut out,
        tally: &mut tally,
    });
    while tally.started == 0 {
        server.send(0, &std::mem::take(&mut out), &mut replies);
        let used = speaker
            .on_bytes(
                &replies[0],
                &mut Context {
                    out: &mut out,
                    tally: &mut tally,
                },
            )
            .unwrap();
        replies[0].drain(..used);
    }
    out
}

/// The figures depend on the size of a job.
#[test]
fn jobs_to_the_byte() {
    let table: [(&Protocol, &[u8], &[u8]); 6] = [
        (&gearman::GEARMAN, b"\0REQ\0\0\0\x12\0\0\0\x6bbench\0\0", b"\x01\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0x"),
        (&faktory::FAKTORY, b"PUSH {\"jid\":\"", b"\",\"queue\":\"bench\",\"jobtype\":\"bench\",\"args\":[\"00000000000000010000000000000102\"]}\r\n"),
        (&spiderq::SPIDERQ, b"\x01\0\x01\x08\0\0\0\0\0\0\0\x01\0\x76\x02\0\0\0\x08", b"\0\0\0\0\0\0\0\x01\0\0\0\x64\x01\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0x"),
        (&eventmq::EVENTMQ, b"\x01\0\x01\x08eMQP/1.0\x01\x07REQUEST\x01\x24", b"-000000000001\x01\x07default\x01\0\0\x99[\"run\", {\"callable\": \"done\", \"path\": \"windlass_tasks\", \"args\": [\"0000"),
        (&redis::REDIS, b"*3\r\n$5\r\nLPUSH\r\n$5\r\nbench\r\n$100\r\n\x01\0", b"x\r\n"),
        (&beanstalkd::BEANSTALKD, b"put 0 0 3600 100\r\n\x01\0", b"x\r\n"),
    ];
    let sizes = table.map(|(protocol, head, part)| {
        let bytes = push_of(protocol);
        let found = bytes.windows(part.len()).any(|window| window == part);
        assert!(bytes.starts_with(head) && found, "{}", bytes.escape_ascii());
        bytes.len()
    });
    assert_eq!(sizes, [119, 119, 132, 225, 134, 120]);
}

proptest! {
    #[test]
    fn noise_never_panics(noise: Vec<u8>) {
        let shape = Shape::flow(1, 2, 1, 4096);
        let (redis, beanstalkd) = (&redis::REDIS, &beanstalkd::BEANSTALKD);
        for protocol in [&gearman::GEARMAN, &faktory::FAKTORY, &spiderq::SPIDERQ, &eventmq::EVENTMQ, redis, beanstalkd] {
            let tally = Tally::new(&shape, true, PLAN.jobs_max(), 0).unwrap();
            let mut driver = Driver::new(protocol.speakers(&shape, true), tally, &PLAN, Some(0));
            for at in 0..2 {
                let mut out = Vec::new();
                driver.on_wake(at, &mut out);
                let _ = driver.on_bytes(at, &noise, &mut out);
            }
        }
    }
}
