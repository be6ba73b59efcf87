//! One connection: reads all that is there, visits the engine, writes once. Knows sockets, no protocol.
//!
//! Back-pressure: while the peer has not taken its answers nothing more is read from it, nothing more of what it has asked is
//! done, and its mail stays in the mailbox, where it shares its bytes with others. Nor is anything read while too many of its
//! commands wait for the disk (`unacknowledged_max`).
//!
//! A connection that has much to do does it in turns: between two visits to the engine, and after much was read or written,
//! the others of its thread come first (`work`). An answer that is asked for page by page goes out as it comes.
//!
//! A peer that has begun a message has a while to end it: see `patience`.

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
use crate::budget::{Budget, SMALL_BYTES};
use crate::clock;
use crate::hub::Hub;
use crate::mailbox::{Mail, Mailbox};
use crate::output::Output;
use crate::parcel::Depot;
use crate::patience::{Patience, Pending};
use crate::places::Guest;
use crate::ringer::Ringer;
use crate::stream::Stream;

mod input;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod turns;
mod work;

/// What one connection may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes read before the engine is visited.
    pub(crate) read_bytes_max: usize,
    /// Bytes that may wait for a peer that does not read.
    pub(crate) outbound_bytes_max: usize,
    /// Replies that may wait for the disk or the peer before no more is read.
    pub(crate) unacknowledged_max: usize,
    /// Silence after which a connection is closed; `None` = never.
    pub(crate) idle_max: Option<Duration>,
    /// How long a message may take to come in whole.
    pub(crate) patience: Patience,
}

/// No more is read while more than this waits to be written: the peer must take its answers first.
const WRITE_HIGH_BYTES: usize = 256 * 1024;

/// Others have a turn when a connection has read or written so much.
const TURN_BYTES: usize = 128 * 1024;

/// What was posted is taken out of the mailbox while less than this waits to be written. It is shared there, and copied here:
/// a peer that reads nothing is to cost no more than one that does.
const POSTED_HIGH_BYTES: usize = 32 * 1024;

/// So much room there must be for what was posted.
pub(crate) const POSTED_ROOM_BYTES: usize = WRITE_HIGH_BYTES - POSTED_HIGH_BYTES;

/// How long a peer may take to read what it is still due once the connection is to end.
const LINGER: Duration = Duration::from_secs(10);

/// And how long it may take nothing of that once the daemon stops.
const STOP_LINGER: Duration = Duration::from_secs(1);

/// What all connections share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) hub: Arc<Hub>,
    pub(crate) depot: Arc<Depot>,
}

/// One connection and all it consists of.
pub(crate) struct Connection<S> {
    stream: S,
    session: Box<dyn Session>,
    client: ClientId,
    hub: Arc<Hub>,
    mailbox: Arc<Mailbox>,
    bounds: Bounds,
    input: BytesMut,
    output: Output,
    outbox: Outbox,
    /// What the peer has asked and is not done yet.
    items: VecDeque<Item>,
    /// Nothing of it was tried yet.
    is_new: bool,
    /// What is first there waits for another's large job.
    is_held_up: bool,
    /// Bytes the session took the last time: what is not done yet was made of them.
    fed_bytes: usize,
    /// It has visited the engine, or moved so many bytes, since others had a turn.
    visited: bool,
    moved: usize,
    mail: Vec<Mail>,
    /// What was posted is left in the mailbox, and with it other mail of so many bytes.
    left_behind: Option<usize>,
    /// The peer sends no more.
    eof: bool,
    /// Why it ends, once it does.
    ending: Option<Reason>,
    /// The session has been told that the daemon stops.
    stopping: bool,
    /// The last that was read ends in a wait for a job.
    waits: bool,
    /// Nothing is read, until the peer or the disk has caught up.
    paused: bool,
    alarm: Alarm,
    /// When it was last woken: reading the clock costs as much as a command.
    now: Timestamp,
    reading: Reading,
    heard_at: Timestamp,
    /// The message that has begun and not ended.
    pending: Pending,
    /// It was let in although there was no place, or could be sent away for another.
    guest: Guest,
    budget: Arc<Budget>,
}

/// What a connection waited for.
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
        Shared { hub, depot }: Shared,
        bounds: Bounds,
        guest: Guest,
    ) -> Self {
        let budget = Arc::clone(&hub.budget);
        let mailbox = Arc::new(Mailbox::new(bounds.outbound_bytes_max, depot, Arc::clone(&budget), ringer));
        let session = greet(Arc::<Mailbox>::clone(&mailbox));
        budget.enter(client, Arc::clone(&mailbox));
        hub.join(client, Arc::clone(&mailbox));
        guest.can_be_reached(&mailbox);
        let reading = clock::read();
        Self {
            stream,
            session,
            client,
            hub,
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

    /// Serves the connection to its end and says why it ended.
    pub(crate) async fn serve(mut self) -> Reason {
        self.session.on_open(self.now, &mut self.outbox);
        // The bell may have been rung before there was a mailbox.
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

    /// Whether what was read gets no answer, now or when the disk has it, and the peer may have more to say all the same.
    fn is_answered_with_nothing(&self) -> bool {
        let answered = !self.output.is_empty() || self.mailbox.len() > 0 || !self.items.is_empty();
        !answered && !self.waits && !self.eof && self.ending.is_none()
    }

    fn read_clock(&mut self) {
        self.reading = clock::read();
        self.now = self.reading.now;
        self.outbox.set_skew_ms(self.reading.clock.skew_ms);
    }

    /// Bytes, or the end of them, have come.
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

    /// Whether the daemon stops and the peer is all it waits for.
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
            self.is_late().then_some(Reason::TimedOut("half a message"))
        }
    }

    /// Lets the session do what is due, if anything is.
    fn tick(&mut self) {
        if self.ending.is_some() || self.session.next_deadline().is_none_or(|at| at > self.now) {
            return;
        }
        // What it was asked may stand behind what it has not read.
        if self.paused || self.left_behind.is_some() {
            self.session.excuse(self.now);
        }
        self.session.on_tick(self.now, &mut self.outbox);
    }

    fn heed_shutdown(&mut self) {
        if self.hub.stopping() && !self.stopping {
            self.stopping = true;
            self.heard_at = self.now;
            self.session.on_shutdown(self.now, &mut self.outbox);
            self.outbox.hang_up(Reason::Shutdown);
        }
    }

    /// Whatever else waits on this thread has a turn, and whoever waits for the engine.
    async fn let_others_go_first(&mut self) {
        tokio::task::yield_now().await;
        self.read_clock();
        (self.visited, self.moved) = (false, 0);
    }

    /// Whether it is over: hung up, everything sent, nothing promised that is still to come.
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

    /// Takes down what it holds, when that has changed much, and makes room if it is too much.
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

    /// Says whether to read now. A peer from which nothing was read is not to be blamed for it.
    fn begin_reading(&mut self) -> bool {
        let reading = self.wants_to_read();
        if reading && self.paused {
            self.session.excuse(self.now);
            self.pending.resume(self.now);
        }
        self.paused = !reading && !self.eof && self.ending.is_none();
        if self.paused {
            self.pending.pause(self.now);
        }
        reading
    }

    /// Whether the message that has begun should have ended. The peer is not late while nothing is read from it.
    fn is_late(&self) -> bool {
        let is_read = !self.paused && !self.eof && self.ending.is_none();
        is_read && self.pending.deadline(self.bounds.patience).is_some_and(|at| at <= self.now)
    }

    /// When the peer has said nothing for too long.
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

    /// Waits for whatever comes first; writing goes before reading.
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
        leave(&self.hub, self.client);
        self.budget.leave(self.client);
        self.budget.report(self.mailbox.buffers(), 0);
    }
}

/// A connection is gone. What takes long of that goes on in turns.
fn leave(hub: &Arc<Hub>, client: ClientId) {
    if hub.leave(client) {
        return;
    }
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        while !hub.leave(client) {}
        return;
    };
    let hub = Arc::clone(hub);
    runtime.spawn(async move {
        while !hub.leave(client) {
            tokio::task::yield_now().await;
        }
    });
}
