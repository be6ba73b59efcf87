//! A connection whose socket, broker, session and clock are controlled by a test, which performs
//! the steps of a turn.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Clock, Command, Event, Refusal, Reply, Tag,
};

use super::tests::{BOUNDS, admission};
use super::*;
use crate::traffic::Traffic;
use windlass_hub::testing::nowhere;
use windlass_hub::{Batch, Broker, Budget, CommitDuty, Health};

/// The behaviour of a socket, and the calls that it received.
#[derive(Debug)]
pub(super) struct Wire {
    /// The next reads; no bytes mean the end of the stream. After that, reads find nothing.
    pub(super) arrives: VecDeque<io::Result<Vec<u8>>>,
    /// The number of bytes that it still accepts.
    pub(super) takes: usize,
    /// The errors of the next writes.
    pub(super) fails: VecDeque<io::ErrorKind>,
    pub(super) written: Vec<u8>,
    /// The destination of each read: the thread's buffer, or the message's.
    pub(super) reads: Vec<&'static str>,
    /// The results of the next handshake steps. After that, the handshake is complete.
    pub(super) shakes: VecDeque<io::Result<bool>>,
    pub(super) has_unwritten: bool,
    pub(super) is_drained_by_short_reads: bool,
}

impl Wire {
    fn read(&mut self, room: usize) -> io::Result<Vec<u8>> {
        let Some(next) = self.arrives.pop_front() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let mut next = next?;
        if next.is_empty() {
            self.arrives.push_front(Ok(Vec::new()));
        }
        let rest = next.split_off(next.len().min(room));
        if !rest.is_empty() {
            self.arrives.push_front(Ok(rest));
        }
        Ok(next)
    }
}

#[derive(Debug)]
struct Socket(Arc<Mutex<Wire>>);

impl Stream for Socket {
    fn shake_hands(&mut self) -> io::Result<bool> {
        self.0
            .lock()
            .unwrap()
            .shakes
            .pop_front()
            .unwrap_or(Ok(true))
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        wire.reads.push("shared");
        let bytes = wire.read(buffer.len())?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn read_behind(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        wire.reads.push("own");
        let bytes = wire.read(buffer.capacity() - buffer.len())?;
        buffer.extend_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn is_drained_by_short_reads(&self) -> bool {
        self.0.lock().unwrap().is_drained_by_short_reads
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        if let Some(kind) = wire.fails.pop_front() {
            return Err(kind.into());
        }
        let taken = bytes.len().min(wire.takes);
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        wire.takes -= taken;
        wire.written.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn has_unwritten(&self) -> bool {
        self.0.lock().unwrap().has_unwritten
    }

    fn source(&mut self) -> &mut dyn Source {
        unreachable!("no thread waits for it")
    }
}

/// The behaviour of a session.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// Its immediate reply to bytes.
    pub(super) answer: Vec<u8>,
    /// The number of commands that bytes cause.
    pub(super) commands: usize,
    /// Whether it closes the connection when bytes arrive.
    pub(super) ends: bool,
    /// Whether it leaves its input unread.
    pub(super) keeps: bool,
    /// Whether it consumes one byte at a time, without replies.
    pub(super) sips: bool,
    /// The number of events to which it responds with a command.
    pub(super) asks: usize,
    pub(super) needs_bytes: usize,
    pub(super) held_bytes: usize,
    pub(super) ticks_at: Option<Timestamp>,
    /// The bytes that it sends in a tick.
    pub(super) says: Vec<u8>,
    /// Its calls, in order.
    pub(super) told: Vec<&'static str>,
}

#[derive(Debug)]
struct Scripted(Arc<Mutex<Script>>);

impl Session for Scripted {
    fn on_open(&mut self, _: Timestamp, _: &mut Outbox) {
        self.0.lock().unwrap().told.push("open");
    }

    fn on_bytes(&mut self, _: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        let mut script = self.0.lock().unwrap();
        if script.keeps || input.is_empty() {
            return;
        }
        script.told.push("bytes");
        if script.sips {
            return drop(input.split_to(1));
        }
        drop(input.split());
        out.bytes().extend_from_slice(&script.answer);
        (0..script.commands)
            .for_each(|_| out.command(Tag(1), ClientCommand::Open(ClientInfo::default())));
        if script.ends {
            out.hang_up(Reason::Ended);
        }
    }

    fn on_event(&mut self, _: Timestamp, _: Event, out: &mut Outbox) {
        let mut script = self.0.lock().unwrap();
        if script.asks > 0 {
            script.asks -= 1;
            return out.command(Tag(1), ClientCommand::Open(ClientInfo::default()));
        }
        out.bytes().extend_from_slice(b"!");
    }

    fn on_tick(&mut self, _: Timestamp, out: &mut Outbox) {
        let mut script = self.0.lock().unwrap();
        script.told.push("tick");
        script.ticks_at = None;
        out.bytes().extend_from_slice(&script.says);
    }

    fn on_shutdown(&mut self, _: Timestamp, _: &mut Outbox) {
        self.0.lock().unwrap().told.push("shutdown");
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.0.lock().unwrap().ticks_at
    }

    fn needs_bytes(&self) -> usize {
        self.0.lock().unwrap().needs_bytes
    }

    fn held_bytes(&self) -> usize {
        self.0.lock().unwrap().held_bytes
    }

    fn reset_liveness(&mut self, _: Timestamp) {
        self.0.lock().unwrap().told.push("excused");
    }
}

/// A broker that executes as much as it is set to.
#[derive(Debug)]
pub(super) struct Desk {
    mailbox: Mutex<Option<Arc<Mailbox>>>,
    /// The result of visits: `All` executes all items, others none.
    pub(super) goes: Mutex<Visited>,
    /// The buffer space in each visit.
    pub(super) rooms: Mutex<Vec<usize>>,
    pub(super) durable: AtomicU64,
}

impl Broker for Desk {
    fn open(&self, _: ClientId, mailbox: Arc<Mailbox>) {
        *self.mailbox.lock().unwrap() = Some(mailbox);
    }

    fn visit(&self, _: &Reading, batches: &mut dyn Iterator<Item = Batch<'_>>) -> CommitDuty {
        let mailbox = self.mailbox();
        for batch in batches {
            self.rooms.lock().unwrap().push(batch.room);
            *batch.visited = *self.goes.lock().unwrap();
            if *batch.visited != Visited::All {
                continue;
            }
            for item in batch.items.drain(..) {
                let mail = match item {
                    Item::Bytes(bytes) => Mail::Bytes(bytes),
                    Item::Command(..) | Item::Forbidden(_) | Item::Publish(..) => {
                        Mail::Event(Event::Reply(Tag(1), Reply::Done))
                    }
                };
                mailbox.push(0, mail, None);
            }
        }
        CommitDuty::None
    }

    fn visit_nonblocking(&self, now: &Reading, batch: Batch<'_>) -> bool {
        self.visit(now, &mut std::iter::once(batch));
        true
    }

    fn mail_nonblocking(&self, mailbox: &Mailbox, into: &mut Vec<Mail>) -> bool {
        self.mail(mailbox, usize::MAX, into);
        true
    }

    fn mail(&self, mailbox: &Mailbox, room: usize, into: &mut Vec<Mail>) -> Option<usize> {
        mailbox.take(self.durable.load(Ordering::Relaxed), false, room, into)
    }

    fn close(&self, _: ClientId) -> bool {
        true
    }

    fn ask(&self, _: Command) -> Result<Reply, Refusal> {
        Err(Refusal::Unavailable)
    }

    fn health(&self) -> Health {
        Health::Serving
    }

    fn stop(&self) {}
}

impl Desk {
    pub(super) fn mailbox(&self) -> Arc<Mailbox> {
        self.mailbox.lock().unwrap().clone().unwrap()
    }
}

/// A connection and its environment. It is created at 1000 ms.
pub(super) struct InHand {
    pub(super) connection: Connection,
    pub(super) wire: Arc<Mutex<Wire>>,
    pub(super) script: Arc<Mutex<Script>>,
    pub(super) desk: Arc<Desk>,
    pub(super) budget: Arc<Budget>,
    traffic: Arc<Traffic>,
    /// Whether the daemon is stopping.
    pub(super) stopping: bool,
}

impl InHand {
    pub(super) fn new(bounds: Bounds, script: Script) -> Self {
        let wire = Wire {
            arrives: VecDeque::new(),
            takes: usize::MAX,
            fails: VecDeque::new(),
            written: Vec::new(),
            reads: Vec::new(),
            shakes: VecDeque::new(),
            has_unwritten: false,
            is_drained_by_short_reads: true,
        };
        let (wire, script) = (Arc::new(Mutex::new(wire)), Arc::new(Mutex::new(script)));
        let goes = Mutex::new(Visited::All);
        let (mailbox, rooms, durable) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        let desk = Arc::new(Desk {
            mailbox,
            goes,
            rooms,
            durable,
        });
        let budget = Arc::new(Budget::new(1 << 30));
        let shared = Shared::new(Arc::<Desk>::clone(&desk), Arc::clone(&budget), bounds);
        let traffic = Arc::<Traffic>::default();
        let session = Box::new(Scripted(Arc::clone(&script)));
        let connection = Connection::new(
            Newcomer {
                stream: Box::new(Socket(Arc::clone(&wire))),
                handshake_max: Duration::from_secs(5),
                greet: Box::new(|_, _| session),
                admission: admission(),
                rights: Rights::ALL,
            },
            nowhere(),
            &shared,
            traffic.counts("any"),
            Timestamp(1000),
        );
        Self {
            connection,
            wire,
            script,
            desk,
            budget,
            traffic,
            stopping: false,
        }
    }

    /// With the usual bounds, and after its first turn.
    pub(super) fn open(script: Script) -> Self {
        let mut it = Self::new(BOUNDS, script);
        it.turn(1000);
        it
    }

    /// Bytes arrive.
    pub(super) fn arrives(&mut self, bytes: impl Into<Vec<u8>>) {
        self.wire
            .lock()
            .unwrap()
            .arrives
            .push_back(Ok(bytes.into()));
        self.connection.notice(true, false, false);
    }

    /// The first bytes of a message arrive.
    pub(super) fn begins_a_message(&mut self) {
        self.script().needs_bytes = 10;
        self.arrives("x");
    }

    /// The socket accepts this many bytes.
    pub(super) fn takes(&mut self, bytes: usize) {
        self.wire.lock().unwrap().takes = bytes;
        self.connection.notice(false, true, false);
    }

    pub(super) fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    pub(super) fn wire(&self) -> std::sync::MutexGuard<'_, Wire> {
        self.wire.lock().unwrap()
    }

    /// Runs a turn at this time, in milliseconds. Returns what the connection waits for then.
    pub(super) fn turn(&mut self, at_ms: u64) -> String {
        let reading = Reading {
            now: Timestamp(at_ms),
            clock: Clock::default(),
            pause_ms: None,
        };
        self.connection
            .begin_turn(&Turn::of(1, reading, self.stopping));
        if let Some(batch) = self.connection.batch() {
            self.desk.visit(&reading, &mut std::iter::once(batch));
        }
        self.connection.answer();
        if self.connection.was_refused() {
            self.connection.rest(Timestamp(at_ms + 10));
        }
        match self.connection.next() {
            Next::Turn => "a turn".to_owned(),
            Next::Wait(None) => "no time".to_owned(),
            Next::Wait(Some(at)) => at.0.to_string(),
            Next::Over(End::Closed(why)) => why.to_string(),
            Next::Over(End::NoHandshake(error)) => format!("no handshake: {:?}", error.kind()),
        }
    }

    /// Puts a reply of the engine into the mailbox.
    pub(super) fn has_a_reply(&self) {
        self.has(Event::Reply(Tag(1), Reply::Done));
    }

    /// Puts this event into the mailbox.
    pub(super) fn has(&self, event: Event) {
        self.desk.mailbox().push(0, Mail::Event(event), None);
    }

    /// The counters of the connection.
    pub(super) fn traffic(&self) -> crate::traffic::ProtocolTraffic {
        self.traffic.read().remove("any").unwrap_or_default()
    }

    /// Reply bytes of the engine wait for this commit.
    pub(super) fn waits_for_commit(&self, commit: u64, bytes: usize) {
        self.desk
            .mailbox()
            .push(commit, Mail::Bytes(Bytes::from(vec![0; bytes])), None);
    }
}
