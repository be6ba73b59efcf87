//! One connection: reads all that is there, visits the engine once, writes once. Knows sockets, no protocol.
//!
//! Back-pressure: nothing is read while the peer has not taken what it was sent (`outbound_bytes_max`) or while too many
//! of its commands wait for the disk (`unacknowledged_max`). What other connections have posted stays in the mailbox, where
//! there is a bound on it, while the peer has some to read.
//!
//! A connection that has much to do does it in turns: between two visits to the engine, and after much was read or written,
//! the others of its thread come first. An answer that is asked for page by page goes out as it comes.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;
use windlass_engine::{ClientId, Reading, Timestamp};
use windlass_session::{Item, Outbox, Post, Reason, Session};

use crate::budget::{Budget, Share};
use crate::clock;
use crate::hub::Hub;
use crate::mailbox::{Mail, Mailbox};
use crate::parcel::Depot;
use crate::ringer::Ringer;
use crate::stream::Stream;

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
}

/// No more is read while more than this waits to be written: the peer must take its answers first.
const WRITE_HIGH_BYTES: usize = 256 * 1024;

/// Others have a turn when a connection has read or written so much.
const TURN_BYTES: usize = 128 * 1024;

/// What was posted is taken out of the mailbox while less than this waits to be written. It is shared there, and copied here:
/// a peer that reads nothing is to cost no more than one that does.
const POSTED_HIGH_BYTES: usize = 32 * 1024;

/// How long a peer may take to read what it is still due once the connection is to end.
const LINGER: Duration = Duration::from_secs(10);

/// And how long it may take nothing of that once the daemon stops.
const STOP_LINGER: Duration = Duration::from_secs(1);

/// The most a declared length makes us reserve at once; beyond it, memory grows with what has really come.
const RESERVE_MAX: usize = 1024 * 1024;

/// What all connections share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) hub: Arc<Hub>,
    pub(crate) budget: Arc<Budget>,
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
    output: BytesMut,
    outbox: Outbox,
    /// What of the outbox the engine is still to do.
    items: VecDeque<Item>,
    /// It has visited the engine, or moved so many bytes, since others had a turn.
    visited: bool,
    moved: usize,
    /// It leaves its mail where it is until the peer has read.
    holds_back: bool,
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
    /// When it was last woken: reading the clock costs as much as a command.
    now: Timestamp,
    reading: Reading,
    heard_at: Timestamp,
    budget: Arc<Budget>,
    share: Share,
}

/// What a connection waited for.
enum Woke {
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
    Mail,
    Tick,
    Idle,
}

impl<S: Stream> Connection<S> {
    pub(crate) fn new(
        stream: S,
        greet: impl FnOnce(Arc<dyn Post>) -> Box<dyn Session>,
        client: ClientId,
        ringer: Arc<Ringer>,
        Shared { hub, budget, depot }: Shared,
        bounds: Bounds,
    ) -> Self {
        let mailbox = Arc::new(Mailbox::new(bounds.outbound_bytes_max, depot, ringer));
        let session = greet(Arc::<Mailbox>::clone(&mailbox));
        hub.join(client, Arc::clone(&mailbox));
        let reading = clock::read();
        Self {
            stream,
            session,
            client,
            hub,
            mailbox,
            bounds,
            input: BytesMut::new(),
            output: BytesMut::new(),
            outbox: Outbox::at(reading.clock.skew_ms),
            items: VecDeque::new(),
            visited: false,
            moved: 0,
            holds_back: false,
            mail: Vec::new(),
            left_behind: None,
            eof: false,
            ending: None,
            stopping: false,
            waits: false,
            paused: false,
            now: reading.now,
            reading,
            heard_at: reading.now,
            budget,
            share: Share::default(),
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
                    self.moved += read;
                    self.heard();
                }
                Woke::Wrote(Ok(written)) if written > 0 => self.wrote(written),
                Woke::Read(Err(_)) | Woke::Wrote(_) => return self.ending.take().unwrap_or(Reason::PeerClosed),
                Woke::Mail => self.heed_shutdown(),
                Woke::Tick => self.tick(),
                Woke::Idle if self.silent_until().is_none_or(|at| at > self.now) => {}
                Woke::Idle if self.stalls_the_stop() => {
                    return Reason::TimedOut("takes no answers while the daemon stops");
                }
                Woke::Idle => return self.ending.take().unwrap_or(Reason::TimedOut("idle")),
            }
            self.settle().await;
            if was_read && self.is_answered_with_nothing() {
                self.stream.acknowledge();
            }
        }
    }

    /// Whether what was read gets no answer, now or when the disk has it, and the peer may have more to say all the same.
    fn is_answered_with_nothing(&self) -> bool {
        let answered = !self.output.is_empty() || self.mailbox.len() > 0;
        !answered && !self.waits && !self.eof && self.ending.is_none()
    }

    fn read_clock(&mut self) {
        self.reading = clock::read();
        self.now = self.reading.now;
        self.outbox.set_skew_ms(self.reading.clock.skew_ms);
    }

    /// Bytes, or the end of them, have come.
    fn heard(&mut self) {
        if self.bounds.idle_max.is_some() {
            self.heard_at = self.now;
        }
        self.session.on_bytes(self.now, &mut self.input, &mut self.outbox);
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

    fn tick(&mut self) {
        // The daemon may have stood still: then it is not so late as it seemed.
        if self.session.next_deadline().is_some_and(|at| at > self.now) {
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

    /// Takes everything that is to be done as far as it goes: outbox to the engine, mail to the session, words to the
    /// output. Ends when the session has nothing more to do with what is there, or the peer is to take its answers first.
    async fn settle(&mut self) {
        loop {
            self.send_outbox().await;
            // The next page of a long answer waits in the mailbox until the peer has taken those before.
            self.holds_back = self.output.len() >= WRITE_HIGH_BYTES && (self.visited || self.holds_back);
            if self.holds_back || (!self.read_mail().await && !self.reread()) {
                return;
            }
        }
    }

    /// Whatever else waits on this thread has a turn, and whoever waits for the engine.
    async fn let_others_go_first(&mut self) {
        tokio::task::yield_now().await;
        self.read_clock();
        (self.visited, self.moved) = (false, 0);
    }

    async fn send_outbox(&mut self) {
        if let Some(reason) = self.outbox.take_reason()
            && self.ending.is_none()
        {
            self.ending = Some(reason);
            self.heard_at = self.now;
            self.input = BytesMut::new();
        }
        // Words alone, with nothing before them that waits, need no visit.
        if self.mailbox.len() == 0
            && let Some(words) = self.outbox.take_bytes()
        {
            self.say(&words);
        } else if !self.outbox.is_empty() {
            self.items.extend(self.outbox.drain());
            loop {
                if self.visited {
                    self.let_others_go_first().await;
                }
                self.visited = true;
                if self.hub.visit(self.client, &self.reading, &mut self.items) {
                    break;
                }
            }
        }
        if let Some(how) = self.outbox.take_stop() {
            tracing::info!(client = self.client.0, ?how, "a client wants the daemon to stop");
            self.hub.ask_to_stop(how);
        }
    }

    /// Hands the session its mail. Says whether there was any.
    async fn read_mail(&mut self) -> bool {
        let mut mail = std::mem::take(&mut self.mail);
        let room = POSTED_HIGH_BYTES.saturating_sub(self.output.len());
        self.left_behind = self.hub.take_mail(&self.mailbox, room, &mut mail);
        let any = !mail.is_empty();
        for mail in mail.drain(..) {
            match mail {
                Mail::Bytes(words) => self.say(&words),
                Mail::Posted(parcel) => self.say(parcel.words()),
                Mail::Event(event) => {
                    self.session.on_event(self.now, event, &mut self.outbox);
                    // What it answers at once stands ahead of whatever else is in the mail; only what it asks is new.
                    if let Some(words) = self.outbox.take_leading_bytes() {
                        self.say(&words);
                    }
                    if !self.outbox.is_empty() {
                        self.send_outbox().await;
                    }
                }
            }
        }
        self.mail = mail;
        any
    }

    fn say(&mut self, words: &[u8]) {
        if self.stopping && self.output.is_empty() {
            self.heard_at = self.now;
        }
        self.output.extend_from_slice(words);
    }

    /// A session that left input behind, because it wanted its answers first, may go on. Says whether it did anything.
    fn reread(&mut self) -> bool {
        if self.input.is_empty() || self.ending.is_some() || !self.has_room() {
            return false;
        }
        let before = self.input.len();
        self.session.on_bytes(self.now, &mut self.input, &mut self.outbox);
        before != self.input.len() || !self.outbox.is_empty()
    }

    /// Whether it is over: hung up, everything sent, nothing promised that is still to come.
    fn try_finish(&mut self) -> Option<Reason> {
        if let Some(why) = self.mailbox.dismissed() {
            return Some(why.clone());
        }
        if self.mailbox.overflowed() || self.output.len() > self.bounds.outbound_bytes_max {
            return Some(Reason::Limit("outbound_bytes_max"));
        }
        let held = self.input.len() + self.unread();
        if !self.budget.report(&mut self.share, held) {
            return Some(Reason::Limit("buffer_bytes_max"));
        }
        let done = self.ending.is_some() && self.output.is_empty() && self.mailbox.len() == 0;
        if done { self.ending.take() } else { None }
    }

    fn wants_to_read(&self) -> bool {
        let room = self.input.len() < self.bounds.read_bytes_max || self.session.needs_bytes() > 0;
        room && !self.eof && self.ending.is_none() && self.has_room()
    }

    /// What the peer is still to take, besides what others have posted.
    fn unread(&self) -> usize {
        self.output.len() + self.left_behind.unwrap_or_default()
    }

    /// Whether the peer has taken enough of its answers, and the disk of its commands, for there to be more.
    fn has_room(&self) -> bool {
        // What is left behind waits for the peer, and is judged by its bytes.
        let acknowledged = self.left_behind.is_some() || self.mailbox.len() < self.bounds.unacknowledged_max;
        self.unread() < WRITE_HIGH_BYTES && acknowledged
    }

    /// Says whether to read now. A peer from which nothing was read is not to be blamed for it.
    fn begin_reading(&mut self) -> bool {
        let reading = self.wants_to_read();
        if reading && self.paused {
            self.session.excuse(self.now);
        }
        self.paused = !reading && !self.eof && self.ending.is_none();
        reading
    }

    /// When the peer has said nothing for too long.
    fn silent_until(&self) -> Option<Timestamp> {
        let silence_max = match &self.ending {
            None => self.bounds.idle_max,
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
        let mailbox = Arc::clone(&self.mailbox);
        let mut bell = pin!(mailbox.rung());
        let mut tick = pin!(sleep_until(deadline));
        let mut silence = pin!(sleep_until(silent_until));
        poll_fn(|cx| {
            let output = self.output.get(..WRITE_HIGH_BYTES).unwrap_or(&self.output);
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
            if tick.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Woke::Tick);
            }
            if silence.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Woke::Idle);
            }
            Poll::Pending
        })
        .await
    }

    /// Reads what is there, up to the bound. Small messages go through a buffer shared by the thread, so that a
    /// connection at rest holds none; the rest of a large one is read straight into its place.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let needs = self.session.needs_bytes();
        if needs > SCRATCH_BYTES {
            self.input.reserve(needs.min(RESERVE_MAX));
            return tokio_util::io::poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.input);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut total = 0;
            loop {
                let mut buffer = ReadBuf::new(scratch);
                match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending if total > 0 => return Poll::Ready(Ok(total)),
                    Poll::Pending => return Poll::Pending,
                }
                let filled = buffer.filled().len();
                self.input.extend_from_slice(buffer.filled());
                total += filled;
                // A short read means that there is no more; asking again would only cost a system call.
                if filled < SCRATCH_BYTES || total >= self.bounds.read_bytes_max {
                    return Poll::Ready(Ok(total));
                }
            }
        })
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        leave(&self.hub, self.client);
        self.budget.report(&mut self.share, 0);
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

const SCRATCH_BYTES: usize = 64 * 1024;

std::thread_local! {
    static SCRATCH: std::cell::RefCell<Box<[u8]>> = std::cell::RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

async fn sleep_until(at: Option<Timestamp>) {
    match at {
        Some(at) => clock::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod turns;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use windlass_engine::{Command, Engine, Event, Limits, Tag};
    use windlass_store::Journal;

    use super::*;
    use crate::hub::Promise;

    /// More than may wait when the pipe is full.
    const ANSWER_BYTES: usize = WRITE_HIGH_BYTES + 4096;

    /// What a session was told, in order.
    type Told = Arc<Mutex<Vec<&'static str>>>;

    /// Answers the first byte with so many, and wants to be ticked at once until it was.
    #[derive(Debug)]
    struct Talkative {
        answer_bytes: usize,
        told: Told,
        ticks_at: Option<Timestamp>,
    }

    impl Session for Talkative {
        fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
            out.command(Tag::NONE, Command::Open(windlass_engine::ClientInfo::default()));
        }

        fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
            if self.told.lock().unwrap().is_empty() {
                out.bytes().resize(self.answer_bytes, 0);
                self.ticks_at = Some(now);
            }
            self.told.lock().unwrap().push("bytes");
            input.clear();
        }

        fn on_event(&mut self, _: Timestamp, _: Event, _: &mut Outbox) {}

        fn on_tick(&mut self, _: Timestamp, _: &mut Outbox) {
            self.told.lock().unwrap().push("tick");
            self.ticks_at = None;
        }

        fn next_deadline(&self) -> Option<Timestamp> {
            self.ticks_at
        }

        fn excuse(&mut self, _: Timestamp) {
            self.told.lock().unwrap().push("excused");
        }
    }

    const BOUNDS: Bounds =
        Bounds { read_bytes_max: 1 << 20, outbound_bytes_max: 1 << 20, unacknowledged_max: 9, idle_max: None };

    /// What mailboxes may hold of what was posted.
    const DEPOT_BYTES: usize = 1 << 20;

    /// A connection with such a session, what that is told, and the way to it from outside.
    fn connection<S: Stream>(stream: S, answer_bytes: usize) -> (Connection<S>, Told, Arc<dyn Post>) {
        let journal = Journal::new();
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), journal, Promise::Soon, 7));
        let (told, mut handle) = (Told::default(), None);
        let greet = |line| {
            handle = Some(line);
            Box::new(Talkative { answer_bytes, told: Arc::clone(&told), ticks_at: None }) as Box<dyn Session>
        };
        let (budget, depot) = (Arc::new(Budget::new(1 << 30)), Arc::new(Depot::new(DEPOT_BYTES)));
        let shared = Shared { hub, budget, depot };
        let connection = Connection::new(stream, greet, ClientId(1), Arc::default(), shared, BOUNDS);
        (connection, told, handle.unwrap())
    }

    #[tokio::test]
    async fn a_peer_that_is_not_read_from_is_excused() {
        let (ours, mut theirs) = duplex(1024);
        let (connection, told, _) = connection(ours, ANSWER_BYTES);
        let served = tokio::spawn(connection.serve());
        theirs.write_all(b"1").await.unwrap();
        while told.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*told.lock().unwrap(), ["bytes", "excused", "tick"]);
        theirs.write_all(b"2").await.unwrap();
        let mut answer = vec![0; ANSWER_BYTES];
        theirs.read_exact(&mut answer).await.unwrap();
        while told.lock().unwrap().len() < 5 {
            tokio::task::yield_now().await;
        }
        assert_eq!(told.lock().unwrap()[3..], ["excused", "bytes"]);
        drop(theirs);
        assert_eq!(served.await.unwrap(), Reason::PeerClosed);
    }

    #[tokio::test]
    async fn a_dismissed_connection_ends_at_once_whatever_it_is_owed() {
        let (ours, mut theirs) = duplex(1024);
        let (connection, told, handle) = connection(ours, ANSWER_BYTES);
        let served = tokio::spawn(connection.serve());
        theirs.write_all(b"1").await.unwrap();
        while told.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
        handle.dismiss(Reason::Dismissed);
        handle.dismiss(Reason::Ended);
        assert_eq!(served.await.unwrap(), Reason::Dismissed);
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_misses_what_is_posted_is_heard_and_is_not_hung_up_on() {
        const WORDS: usize = 4096;
        let (ours, mut theirs) = duplex(1024);
        let (connection, told, line) = connection(ours, 1);
        let served = tokio::spawn(connection.serve());
        let words = |number: usize| Bytes::from(vec![u8::try_from(number % 256).unwrap(); WORDS]);
        let mut posted = 0;
        while line.post(words(posted)) {
            posted += 1;
            tokio::task::yield_now().await;
        }
        // A mailbox's part of what is free, what is copied to be written, and what is written.
        let held_max = DEPOT_BYTES / 8 + POSTED_HIGH_BYTES + WORDS + 1024;
        assert!((BOUNDS.unacknowledged_max + 1..=held_max / WORDS).contains(&posted), "{posted}");
        // More of them wait than there may be commands that wait for the disk: those they are not.
        theirs.write_all(b"1").await.unwrap();
        while told.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*told.lock().unwrap(), ["bytes", "excused", "tick"]);
        let mut heard = vec![0; WORDS];
        for number in 0..posted {
            theirs.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard, words(number), "{number}");
        }
        assert_eq!(theirs.read_u8().await.unwrap(), 0, "its answer stands behind them");
        assert!(line.post(words(0)), "there is room again");
        drop(theirs);
        assert_eq!(served.await.unwrap(), Reason::PeerClosed);
    }
}
