//! One connection: reads all that is there, visits the engine, writes once. Uses sockets; independent of the protocol.
//!
//! Back-pressure: while the peer has not taken its answers, the connection reads nothing more, does no more of the requests it
//! has read, and leaves mail in the mailbox, where its bytes are shared with others. It also reads nothing while too many of the
//! peer's commands wait for the disk (`unacknowledged_max`).
//!
//! A connection with much to do does it in turns: between two visits to the engine, and after it has read or written much, the
//! other connections of its thread come first (`work`). A paged answer leaves page by page.
//!
//! A peer has a limited time to finish a message that it has begun: see `patience`.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use windlass_engine::{ClientId, Reading, Timestamp};
use windlass_session::{Item, Outbox, Post, Reason, Session};

use crate::alarm::Alarm;
use crate::broker::{Broker, Health};
use crate::budget::{Budget, SMALL_BYTES};
use crate::clock;
use crate::control::StopRequests;
use crate::mailbox::{Mail, Mailbox};
use crate::output::Output;
use crate::patience::{Patience, Pending};
use crate::places::Guest;
use crate::published::SharedBudget;
use crate::ringer::Ringer;
use crate::stream::Stream;

mod input;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod turns;
mod work;

/// Limits for one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes read before the engine is visited.
    pub(crate) read_bytes_max: usize,
    /// Bytes that may wait for a peer that does not read.
    pub(crate) outbound_bytes_max: usize,
    /// Replies that may wait for the disk or the peer before reading stops.
    pub(crate) unacknowledged_max: usize,
    /// Silence after which a connection is closed; `None` = never.
    pub(crate) idle_max: Option<Duration>,
    /// How long a whole message may take to arrive.
    pub(crate) patience: Patience,
}

/// Reading stops while more than this waits to be written: the peer must take its answers first.
const WRITE_HIGH_BYTES: usize = 256 * 1024;

/// Other connections have a turn when one has read or written this many bytes.
const TURN_BYTES: usize = 128 * 1024;

/// Posted bytes are taken out of the mailbox while less than this waits to be written. They are shared in the mailbox and copied
/// here: a peer that reads nothing must cost no more than one that does.
const POSTED_HIGH_BYTES: usize = 32 * 1024;

/// How much room there must be before posted bytes are taken out of the mailbox.
pub(crate) const POSTED_ROOM_BYTES: usize = WRITE_HIGH_BYTES - POSTED_HIGH_BYTES;

/// How long a peer may take to read the rest of its answers once the connection ends.
const LINGER: Duration = Duration::from_secs(10);

/// How long a peer may take none of its answers once the daemon stops.
const STOP_LINGER: Duration = Duration::from_secs(1);

/// State that all connections share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) shared_budget: Arc<SharedBudget>,
    pub(crate) stops: Arc<StopRequests>,
}

/// One connection, with its stream, session and buffers.
pub(crate) struct Connection<S> {
    stream: S,
    session: Box<dyn Session>,
    client: ClientId,
    broker: Arc<dyn Broker>,
    stops: Arc<StopRequests>,
    mailbox: Arc<Mailbox>,
    bounds: Bounds,
    input: BytesMut,
    output: Output,
    outbox: Outbox,
    /// The peer's requests that are not done yet.
    items: VecDeque<Item>,
    /// None of the items has been tried yet.
    is_new: bool,
    /// The first item waits for another client's large job.
    is_held_up: bool,
    /// Bytes that the session consumed last: the items were made of them.
    fed_bytes: usize,
    /// Since other connections had a turn: whether this one has visited the engine, and how many bytes it has moved.
    visited: bool,
    moved: usize,
    mail: Vec<Mail>,
    /// Posted mail was left in the mailbox, and with it other mail of this many bytes.
    left_behind: Option<usize>,
    /// The peer sends no more.
    eof: bool,
    /// Why the connection ends, once it does.
    ending: Option<Reason>,
    /// The session has been notified that the daemon stops.
    stopping: bool,
    /// The last bytes read end in a wait for a job.
    waits: bool,
    /// Reading is paused until the peer or the disk has caught up.
    paused: bool,
    alarm: Alarm,
    /// When the connection was last woken: reading the clock costs as much as a command.
    now: Timestamp,
    reading: Reading,
    heard_at: Timestamp,
    /// The message that has begun and not ended.
    pending: Pending,
    /// The connection's place, which another connection may take while the peer is silent.
    guest: Guest,
    budget: Arc<Budget>,
}

/// Why a connection woke.
enum Woke {
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
    Mail,
    Alarm,
}

impl<S: Stream> Connection<S> {
    pub(crate) fn new(
        stream: S,
        greet: impl FnOnce(Arc<dyn Post>) -> Box<dyn Session>,
        client: ClientId,
        ringer: Arc<Ringer>,
        Shared { broker, budget, shared_budget, stops }: Shared,
        bounds: Bounds,
        guest: Guest,
    ) -> Self {
        let mailbox = Arc::new(Mailbox::new(bounds.outbound_bytes_max, shared_budget, Arc::clone(&budget), ringer));
        let session = greet(Arc::<Mailbox>::clone(&mailbox));
        budget.enter(client, Arc::clone(&mailbox));
        broker.open(client, Arc::clone(&mailbox));
        guest.can_be_reached(&mailbox);
        let reading = clock::read();
        Self {
            stream,
            session,
            client,
            broker,
            stops,
            mailbox,
            bounds,
            input: BytesMut::new(),
            output: Output::default(),
            outbox: Outbox::at(reading.clock.skew_ms),
            items: VecDeque::new(),
            is_new: false,
            is_held_up: false,
            fed_bytes: 0,
            visited: false,
            moved: 0,
            mail: Vec::new(),
            left_behind: None,
            eof: false,
            ending: None,
            stopping: false,
            waits: false,
            paused: false,
            alarm: Alarm::default(),
            now: reading.now,
            reading,
            heard_at: reading.now,
            pending: Pending::default(),
            guest,
            budget,
        }
    }

    /// Serves the connection to its end and returns why it ended.
    pub(crate) async fn serve(mut self) -> Reason {
        self.session.on_open(self.now, &mut self.outbox);
        // The daemon may have begun to stop before the mailbox existed.
        self.heed_shutdown();
        self.settle().await;
        loop {
            if let Some(reason) = self.try_finish() {
                return reason;
            }
            if self.moved > TURN_BYTES {
                self.let_others_go_first().await;
            }
            let woke = self.wait().await;
            self.read_clock();
            let was_read = matches!(woke, Woke::Read(_));
            self.visited = false;
            match woke {
                Woke::Read(Ok(read)) => {
                    self.eof = read == 0;
                    self.mailbox.ringer().turns().count_read();
                    self.moved += read;
                    self.heard(read);
                }
                Woke::Wrote(Ok(written)) if written > 0 => self.wrote(written),
                Woke::Read(Err(_)) | Woke::Wrote(_) => return self.ending.take().unwrap_or(Reason::PeerClosed),
                Woke::Mail => {
                    self.is_held_up = false;
                    self.heed_shutdown();
                }
                Woke::Alarm => {
                    if let Some(reason) = self.times_out() {
                        return reason;
                    }
                    self.tick();
                }
            }
            self.settle().await;
            if was_read && self.is_answered_with_nothing() {
                self.stream.acknowledge();
            }
        }
    }

    /// Whether the bytes just read get no answer, now or after a commit, although the peer may be about to send more.
    fn is_answered_with_nothing(&self) -> bool {
        let answered = !self.output.is_empty() || self.mailbox.len() > 0 || !self.items.is_empty();
        !answered && !self.waits && !self.eof && self.ending.is_none()
    }

    fn read_clock(&mut self) {
        self.reading = clock::read();
        self.now = self.reading.now;
        self.outbox.set_skew_ms(self.reading.clock.skew_ms);
    }

    /// Handles bytes, or their end, that have arrived.
    fn heard(&mut self, read: usize) {
        if self.bounds.idle_max.is_some() {
            self.heard_at = self.now;
        }
        if let Some(reason) = self.guest.spoke(self.input.first().copied()) {
            return self.outbox.hang_up(reason);
        }
        self.pending.came(read);
        self.feed();
        self.waits = self.input.is_empty() && self.outbox.ends_in_waiting();
        if self.eof {
            self.session.on_eof(self.now, &mut self.outbox);
        }
    }

    fn wrote(&mut self, bytes: usize) {
        self.moved += bytes;
        self.output.advance(bytes);
        if self.stopping {
            self.heard_at = self.now;
        }
    }

    /// Whether the daemon stops and this connection waits only for its peer.
    fn stalls_the_stop(&self) -> bool {
        self.stopping && !self.output.is_empty()
    }

    /// Why the connection ends, if a deadline has passed that ends it.
    fn times_out(&mut self) -> Option<Reason> {
        let is_silent = self.silent_until().is_some_and(|at| at <= self.now);
        if is_silent && self.stalls_the_stop() {
            Some(Reason::TimedOut("takes no answers while the daemon stops"))
        } else if is_silent {
            Some(self.ending.take().unwrap_or(Reason::TimedOut("idle")))
        } else {
            self.is_late().then_some(Reason::TimedOut("message incomplete"))
        }
    }

    /// Calls the session if its deadline has passed.
    fn tick(&mut self) {
        if self.ending.is_some() || self.session.next_deadline().is_none_or(|at| at > self.now) {
            return;
        }
        // The request that the session waits for may stand behind bytes that the connection has not read.
        if self.paused || self.left_behind.is_some() {
            self.session.reset_liveness(self.now);
        }
        self.session.on_tick(self.now, &mut self.outbox);
    }

    fn heed_shutdown(&mut self) {
        if self.broker.health() == Health::Stopping && !self.stopping {
            self.stopping = true;
            self.heard_at = self.now;
            self.session.on_shutdown(self.now, &mut self.outbox);
            self.outbox.hang_up(Reason::Shutdown);
        }
    }

    /// Lets other tasks of this thread, and threads that wait for the engine, go first.
    async fn let_others_go_first(&mut self) {
        tokio::task::yield_now().await;
        self.read_clock();
        (self.visited, self.moved) = (false, 0);
    }

    /// Returns the reason if the connection is over: it ends, everything is sent, and no acknowledgement is still to come.
    fn try_finish(&mut self) -> Option<Reason> {
        if self.mailbox.overflowed() || self.output.len() > self.bounds.outbound_bytes_max {
            return Some(Reason::Limit("outbound_bytes_max"));
        }
        self.report();
        if let Some(why) = self.mailbox.dismissed() {
            return Some(why.clone());
        }
        let quiet = self.items.is_empty() && self.mailbox.len() == 0;
        let done = self.ending.is_some() && self.output.is_empty() && quiet;
        if done { self.ending.take() } else { None }
    }

    /// Reports the memory that the connection holds, if it has changed much. Closes the largest connections if all hold too much.
    fn report(&self) {
        let own = self.input.capacity() + self.output.allocated() + self.session.held_bytes();
        let to_do = if self.items.is_empty() { 0 } else { self.fed_bytes + size_of::<Item>() * self.items.len() };
        let held = own + to_do;
        self.mailbox.set_unsent(self.output.allocated());
        let before = self.mailbox.buffers().bytes();
        if held.abs_diff(before) >= SMALL_BYTES || (held < SMALL_BYTES && before > 0) {
            self.budget.report(self.mailbox.buffers(), held);
        }
        self.budget.relieve();
    }

    fn wants_to_read(&self) -> bool {
        let room = self.input.len() < self.bounds.read_bytes_max || self.session.needs_bytes() > 0;
        room && !self.eof && self.ending.is_none() && self.items.is_empty() && self.has_room()
    }

    /// Returns whether to read now. The peer must not be blamed for a time in which nothing was read from it.
    fn begin_reading(&mut self) -> bool {
        let reading = self.wants_to_read();
        if reading && self.paused {
            self.session.reset_liveness(self.now);
            self.pending.resume(self.now);
        }
        self.paused = !reading && !self.eof && self.ending.is_none();
        if self.paused {
            self.pending.pause(self.now);
        }
        reading
    }

    /// Whether the peer should have finished its message by now. It is not late while nothing is read from it.
    fn is_late(&self) -> bool {
        let is_read = !self.paused && !self.eof && self.ending.is_none();
        is_read && self.pending.deadline(self.bounds.patience).is_some_and(|at| at <= self.now)
    }

    /// When the peer has been silent for too long.
    fn silent_until(&self) -> Option<Timestamp> {
        let silence_max = match &self.ending {
            None => self.bounds.idle_max,
            // It waits for the disk, not for the peer.
            Some(_) if self.is_held_up => None,
            Some(_) if self.stalls_the_stop() => Some(STOP_LINGER),
            Some(_) => Some(LINGER),
        };
        silence_max.map(|max| self.heard_at.after_ms(u64::try_from(max.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Waits for the first event; writing goes before reading.
    async fn wait(&mut self) -> Woke {
        let reading = self.begin_reading();
        let deadline = self.session.next_deadline().filter(|_| self.ending.is_none());
        let silent_until = self.silent_until();
        let late = self.pending.deadline(self.bounds.patience).filter(|_| reading);
        let mailbox = Arc::clone(&self.mailbox);
        let mut bell = pin!(mailbox.rung());
        self.alarm.set([deadline, silent_until, late].into_iter().flatten().min(), self.now);
        poll_fn(|cx| {
            let output = self.output.next();
            let output = output.get(..WRITE_HIGH_BYTES).unwrap_or(output);
            if !output.is_empty()
                && let Poll::Ready(wrote) = Pin::new(&mut self.stream).poll_write(cx, output)
            {
                return Poll::Ready(Woke::Wrote(wrote));
            }
            if reading && let Poll::Ready(read) = self.poll_read(cx) {
                return Poll::Ready(Woke::Read(read));
            }
            if bell.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Woke::Mail);
            }
            if self.alarm.poll(cx).is_ready() {
                return Poll::Ready(Woke::Alarm);
            }
            Poll::Pending
        })
        .await
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        close(&self.broker, self.client);
        self.budget.leave(self.client);
        self.budget.report(self.mailbox.buffers(), 0);
    }
}

/// Closes the client in the engine. A large client takes several turns.
fn close(broker: &Arc<dyn Broker>, client: ClientId) {
    if broker.close(client) {
        return;
    }
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        while !broker.close(client) {}
        return;
    };
    let broker = Arc::clone(broker);
    runtime.spawn(async move {
        while !broker.close(client) {
            tokio::task::yield_now().await;
        }
    });
}
