//! The work of one connection, the same in every protocol: a client starts requests, up to a window of them at once; a
//! worker takes jobs and finishes them; either follows every reply with the next step of the same job. What a protocol
//! adds is a [`Wire`]: its bytes.

use std::collections::VecDeque;

use crate::driver::{Context, Speaker};
use crate::error::Error;
use crate::shape::{Request, Shape};
use crate::stamp::Stamp;
use crate::tally::Tally;

/// One place of a [`Shape`] for a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) shape: Shape,
    /// Takes jobs as long as there are any. The others are clients.
    pub(crate) is_worker: bool,
    /// The number of the connection.
    pub(crate) index: usize,
    /// The server acknowledges every job.
    pub(crate) acknowledges: bool,
}

impl Seat {
    /// Whether the connection takes jobs.
    pub(crate) fn takes(&self) -> bool {
        self.is_worker || matches!(self.shape.request, Request::Cycle | Request::Job)
    }
}

/// A job as it comes out of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job<'a> {
    /// What a finish names: a handle, an id, the job itself.
    pub(crate) lease: &'a [u8],
    pub(crate) stamp: Stamp,
}

/// A reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// It concerns no request: a part of the handshake, a heartbeat.
    None,
    /// The connection is open: requests may follow.
    Ready,
    /// The answer to an echo, with the stamp if it repeats it.
    Echo(Option<Stamp>),
    /// A job is in the queue.
    Accepted,
    Job(Job<'a>),
    /// There is no job now.
    Empty,
    Finished,
    /// [`Accepted`](Self::Accepted) or [`Finished`](Self::Finished): the bytes are the same.
    Done,
    /// The number that a worker returned.
    Result(u64),
}

/// A reply at the start of the received bytes.
pub(crate) struct Incoming<'a> {
    pub(crate) reply: Reply<'a>,
    /// The number of the request, where replies come in any order. Otherwise the oldest request is answered.
    pub(crate) of: Option<u64>,
    /// The bytes after it.
    pub(crate) rest: &'a [u8],
}

/// What [`Wire::read`] finds: `None` if more bytes are needed, [`Error::Protocol`] for bytes that are no reply.
pub(crate) type Read<'a> = Result<Option<Incoming<'a>>, Error>;

/// One connection's bytes. Requests go to the end of the context's `out`.
pub(crate) trait Wire {
    /// One reply answers all jobs of a push.
    const BATCHES: bool = false;

    /// Begins the connection. Returns whether requests may follow at once; otherwise [`Reply::Ready`] comes.
    fn open(&mut self, cx: &mut Context<'_>) -> bool;

    /// The first whole reply.
    fn read<'a>(&mut self, bytes: &'a [u8], cx: &mut Context<'_>) -> Read<'a>;

    /// Queues jobs, with one reply each or [one for all](Self::BATCHES).
    fn push(&mut self, jobs: &[Stamp], cx: &mut Context<'_>);

    /// A request without effect. Most protocols have none.
    fn echo(&mut self, _stamp: Stamp, _cx: &mut Context<'_>) {}

    /// Requests a job.
    fn take(&mut self, request: Stamp, cx: &mut Context<'_>);

    /// Removes a job, or puts it back if the load cycles. Returns whether the server answers that.
    fn finish(&mut self, request: Stamp, job: &Job<'_>, cx: &mut Context<'_>) -> bool;

    /// How many requests may be unanswered when a window of this size is filled again. Half of it, so that pipelined
    /// requests leave in large writes.
    fn refill_at(size: usize) -> usize {
        size / 2
    }
}

/// A request without an answer.
#[derive(Debug, Clone, Copy)]
struct Pending {
    step: Step,
    stamp: Stamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Echo,
    Push,
    /// A push with a result to wait for.
    Call,
    Result,
    Take,
    Finish,
}

/// A connection at work.
pub(crate) struct Connection<W> {
    wire: W,
    seat: Seat,
    opened: bool,
    ready: bool,
    size: usize,
    refill_at: usize,
    /// Oldest first.
    pending: VecDeque<Pending>,
    /// The jobs of one push.
    fresh: Vec<Stamp>,
    /// What a worker has taken so far.
    takes: u64,
    /// Empty answers in a row.
    empty: u32,
}

/// Every load with workers has jobs for them. More empty answers than this in a row (FWP's come after 2 s each) mean
/// that a job or a wake-up was lost.
const EMPTY_MAX: u32 = 10;

impl<W: Wire + 'static> Connection<W> {
    /// A connection with a window of its shape; a worker's has `credits`.
    pub(crate) fn boxed(wire: W, seat: Seat, credits: usize) -> Box<dyn Speaker> {
        let size = if seat.is_worker {
            credits
        } else {
            seat.shape.window
        };
        let refill_at = if seat.takes() {
            size.saturating_sub(1)
        } else {
            W::refill_at(size)
        };
        let (pending, fresh) = (VecDeque::with_capacity(size), Vec::with_capacity(size));
        let (opened, ready, takes, empty) = (false, false, 0, 0);
        Box::new(Self {
            wire,
            seat,
            opened,
            ready,
            size,
            refill_at,
            pending,
            fresh,
            takes,
            empty,
        })
    }

    /// Starts as many requests as the window and the tally allow.
    #[inline]
    fn begin(&mut self, cx: &mut Context<'_>) {
        if self.pending.len() > self.refill_at {
            return;
        }
        while self.pending.len() < self.size {
            let Some(stamp) = self.next_stamp(cx.tally) else {
                break;
            };
            let step = match self.seat.shape.request {
                _ if self.seat.is_worker => Step::Take,
                Request::Echo => Step::Echo,
                Request::Submit | Request::Job => Step::Push,
                Request::Call => Step::Call,
                Request::Cycle => Step::Take,
            };
            match step {
                Step::Echo => self.wire.echo(stamp, cx),
                Step::Take => self.wire.take(stamp, cx),
                Step::Push | Step::Call | Step::Result | Step::Finish => self.fresh.push(stamp),
            }
            self.pending.push_back(Pending { step, stamp });
        }
        if !self.fresh.is_empty() {
            self.wire.push(&self.fresh, cx);
            self.fresh.clear();
            if !self.seat.acknowledges {
                // Whichever client is served first fills the limit that all of them share.
                self.pending.clear();
            }
        }
    }

    fn next_stamp(&mut self, tally: &mut Tally) -> Option<Stamp> {
        if !self.seat.is_worker {
            return tally.next_stamp();
        }
        self.takes += 1;
        Some(Stamp {
            number: self.takes,
            sent_nanos: tally.now_nanos,
        })
    }

    #[inline]
    fn on_answer(
        &mut self,
        of: Option<u64>,
        reply: Reply<'_>,
        cx: &mut Context<'_>,
    ) -> Result<(), Error> {
        let is_of = |pending: &Pending| of.is_none_or(|number| pending.stamp.number == number);
        let at = self.pending.iter().position(is_of);
        let Some(Pending { step, stamp }) = at.and_then(|at| self.pending.remove(at)) else {
            return Err(Error::Mismatch(format!(
                "a reply to no request, or a second one: {reply:?}"
            )));
        };
        match (step, reply) {
            (Step::Echo, Reply::Echo(found)) if found.is_none_or(|found| found == stamp) => {
                cx.tally.answered(stamp)
            }
            (Step::Push, Reply::Accepted | Reply::Done) => {
                cx.tally.acknowledged(stamp);
                if self.seat.shape.request == Request::Job {
                    self.take(stamp, cx);
                } else if W::BATCHES {
                    self.pending
                        .drain(..)
                        .for_each(|pending| cx.tally.acknowledged(pending.stamp));
                }
            }
            (Step::Call, Reply::Accepted) => {
                cx.tally.acknowledged(stamp);
                self.pending.push_front(Pending {
                    step: Step::Result,
                    stamp,
                });
            }
            (Step::Result, Reply::Result(number)) if number == stamp.number => {
                cx.tally.answered(stamp)
            }
            (Step::Take, Reply::Job(job)) => self.on_job(stamp, &job, cx)?,
            (Step::Take, Reply::Empty) if self.seat.is_worker && self.empty < EMPTY_MAX => {
                self.empty += 1;
                self.take(stamp, cx);
            }
            (Step::Finish, Reply::Finished | Reply::Done) => {
                cx.tally.answered(stamp);
                if self.seat.shape.eager
                    && let Some(next) = self.pending.front_mut()
                {
                    // It left together with the finish.
                    next.stamp.sent_nanos = cx.tally.now_nanos;
                }
            }
            _ => return Err(unexpected(step, reply)),
        }
        Ok(())
    }

    #[inline]
    fn on_job(&mut self, stamp: Stamp, job: &Job<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        cx.tally.worked(job.stamp)?;
        self.empty = 0;
        let mut job = *job;
        if !self.seat.is_worker && self.seat.shape.request == Request::Cycle {
            job.stamp = cx.tally.put_back(job.stamp);
        }
        if self.wire.finish(stamp, &job, cx) {
            self.pending.push_back(Pending {
                step: Step::Finish,
                stamp,
            });
            if self.seat.shape.eager {
                self.take(
                    Stamp {
                        number: 0,
                        sent_nanos: cx.tally.now_nanos,
                    },
                    cx,
                );
            }
        }
        Ok(())
    }

    fn take(&mut self, stamp: Stamp, cx: &mut Context<'_>) {
        self.wire.take(stamp, cx);
        self.pending.push_back(Pending {
            step: Step::Take,
            stamp,
        });
    }
}

impl<W: Wire + 'static> Speaker for Connection<W> {
    fn on_wake(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.opened, true) {
            self.ready = self.wire.open(cx);
        }
        if self.ready {
            self.begin(cx);
        }
    }

    #[inline]
    fn on_bytes(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Result<usize, Error> {
        let mut rest = bytes;
        while let Some(incoming) = self.wire.read(rest, cx)? {
            rest = incoming.rest;
            if incoming.reply == Reply::None {
                continue;
            }
            if incoming.reply == Reply::Ready {
                self.ready = true;
            } else {
                self.on_answer(incoming.of, incoming.reply, cx)?;
            }
            self.begin(cx);
        }
        Ok(bytes.len() - rest.len())
    }
}

#[cold]
fn unexpected(step: Step, reply: Reply<'_>) -> Error {
    Error::Mismatch(format!("{step:?} was answered with {reply:?}"))
}

/// The error for a reply that a server must not send, with the start of its bytes.
#[cold]
pub(crate) fn strange(bytes: &[u8]) -> Error {
    let shown = bytes.get(..bytes.len().min(200)).unwrap_or_default();
    Error::Protocol(format!("an unexpected reply: {}", shown.escape_ascii()))
}
