//! eMQP's both sides: a worker of the old router, a client of the daemon.
//!
//! Spec: `eventmq-protocol.rst`; the frames are those of the released programs, as `windlass-eventmq` has them.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write as _};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use serde_json::json;
use windlass_engine::Timestamp;
use windlass_eventmq::wire::{Command, Headers, Packet, PeerKind, Plan, Request, unix_seconds};
use windlass_zmtp::{Close, Event, Limits, Message, Peer, Role, Settings};

use super::guard::{Guard, demanded};
use super::lane::{Answer, New, Old, Outcome, Reports};
use super::link::{JOB_BYTES_MAX, Link, Trouble, random};
use super::place::{Files, Place, Scheme};
use super::tally::Tally;

/// The queue of routers that know no other.
const DEFAULT_QUEUE: &str = "default";

/// The weight of a queue in an INFORM.
const WEIGHT: u32 = 10;

/// Released routers drop a worker after five seconds of silence, and send a sign of life every three seconds.
const BEAT_EVERY: Duration = Duration::from_secs(2);
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How long a connection may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// How long a lane waits for a job before it looks around.
const WAIT: Duration = Duration::from_secs(1);

/// How long to wait for a job that a router hands out while the worker takes leave.
const LEAVE: Duration = Duration::from_millis(500);

/// How long the daemon may take to accept a job. Only its log has the reason of a refusal.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(10);

const SILENT: &str = "no answer; the daemon's log has the reason";

/// Jobs that came without a credit.
const UNASKED_MAX: usize = 64;

/// What both sides have: messages over a connection.
#[derive(Debug)]
struct Emqp {
    link: Link,
    /// Present if the broker demands a login.
    guard: Option<Guard>,
    peer: Peer,
    out: BytesMut,
    began: Instant,
    /// When the last bytes came, and when the last ones left.
    heard_at: Instant,
    beaten_at: Instant,
}

impl Emqp {
    async fn connect(place: &Place) -> Result<Self, Trouble> {
        let limits = Limits {
            frame_bytes_max: JOB_BYTES_MAX,
            message_bytes_max: JOB_BYTES_MAX,
            ..Limits::default()
        };
        let settings = Settings {
            limits,
            ..Settings::new(Role::Dealer)
        };
        let identity = Bytes::from(unique_name()?);
        let mut link = Link::connect(place).await?;
        let guard = match &place.login {
            Some(login) => Some(Guard::open(login, identity.clone(), &mut link).await?),
            None => None,
        };
        let now = Instant::now();
        let mut emqp = Self {
            link,
            guard,
            peer: Peer::new(Arc::new(settings)),
            out: BytesMut::new(),
            began: now,
            heard_at: now,
            beaten_at: now,
        };
        emqp.peer.open_as(identity, emqp.now(), &mut emqp.out);
        if emqp.guard.is_some() {
            // The guard has sent a greeting of its own.
            emqp.out.clear();
        }
        let end = now + READY_WITHIN;
        while !emqp.peer.is_ready() {
            if let Some(message) = emqp.message_until(end).await? {
                return Err(Trouble::strange(message.last()));
            }
            if Instant::now() >= end {
                return Err(Trouble::lost("no ZMTP handshake"));
            }
        }
        Ok(emqp)
    }

    /// The engine's time is only a count of milliseconds here.
    fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    async fn flush(&mut self) -> Result<(), Trouble> {
        if !self.out.is_empty() {
            let mut out = self.out.split();
            if let Some(guard) = &mut self.guard {
                out = guard.seal(out);
            }
            self.link.send(&out).await?;
        }
        Ok(())
    }

    async fn send(&mut self, id: &[u8], command: Command<'_>) -> Result<(), Trouble> {
        self.peer
            .send(Packet { id, command }.frames(), &mut self.out)
            .map_err(Trouble::lost)?;
        self.flush().await
    }

    /// A sign of life, if one is due.
    async fn beat(&mut self) -> Result<(), Trouble> {
        if self.beaten_at.elapsed() < BEAT_EVERY {
            return Ok(());
        }
        self.beaten_at = Instant::now();
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let time = unix_seconds(u64::try_from(time.as_millis()).unwrap_or(0));
        self.send(
            unique_name()?.as_bytes(),
            Command::Heartbeat {
                time: time.as_bytes(),
            },
        )
        .await
    }

    /// The next message until then. Returns `None` when the connection becomes ready, too.
    async fn message_until(&mut self, end: Instant) -> Result<Option<Message>, Trouble> {
        loop {
            let now = self.now();
            let input = match &mut self.guard {
                Some(guard) => guard.unseal(&mut self.link.input)?,
                None => &mut self.link.input,
            };
            let event = self.peer.read(now, input, &mut self.out);
            self.flush().await?;
            match event.map_err(ended)? {
                Some(Event::Message(message)) => return Ok(Some(message)),
                Some(Event::Ready(_)) => return Ok(None),
                Some(Event::Subscribe(_) | Event::Cancel(_)) => {}
                None => {
                    let left = end.saturating_duration_since(Instant::now());
                    if !self.link.more_within(left).await? {
                        let now = self.now();
                        self.peer.tick(now, &mut self.out).map_err(Trouble::lost)?;
                        self.flush().await?;
                        return Ok(None);
                    }
                    self.heard_at = Instant::now();
                }
            }
        }
    }

    /// Sends a command, and returns whether the daemon accepts it in time.
    async fn is_accepted(&mut self, id: &[u8], command: Command<'_>) -> Result<bool, Trouble> {
        self.send(id, command).await?;
        self.awaits(
            ACCEPTED_WITHIN,
            |it| matches!(it, Command::Reply { text, of: None } if *text == id),
        )
        .await
    }

    /// Waits for a command like this. Returns whether it came in time.
    async fn awaits(
        &mut self,
        time: Duration,
        is: impl Fn(&Command<'_>) -> bool,
    ) -> Result<bool, Trouble> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let message = self.message_until(end).await?;
            if message.is_some_and(|message| {
                Packet::decode(&message).is_ok_and(|packet| is(&packet.command))
            }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for the result of a request that the daemon has accepted, however long its worker takes.
    async fn result(&mut self, id: &[u8]) -> Result<Bytes, Trouble> {
        loop {
            let Some(message) = self.message_until(Instant::now() + WAIT).await? else {
                self.beat().await?;
                continue;
            };
            if let Ok(Packet {
                command: Command::Reply { text, of: Some(of) },
                ..
            }) = Packet::decode(&message)
                && of == id
            {
                return Ok(Bytes::copy_from_slice(text));
            }
        }
    }

    /// Routers send signs of life to workers, as workers do to them.
    fn check_silence(&self) -> Result<(), Trouble> {
        if self.heard_at.elapsed() > SILENCE_MAX {
            return Err(Trouble::Lost(format!(
                "nothing for {} s",
                SILENCE_MAX.as_secs()
            )));
        }
        Ok(())
    }
}

/// Why a connection is over.
fn ended(why: Close) -> Trouble {
    if let Close::Mechanism { theirs, ours } = &why {
        return demanded(theirs, ours);
    }
    Trouble::lost(why)
}

/// A name that no other peer has: stock routers need text.
fn unique_name() -> Result<String, Trouble> {
    Ok(hex::encode(random::<16>()?))
}

// ---- the old router --------------------------------------------------------------------------------------------------

/// A job's frames.
#[derive(Debug)]
pub(super) struct Job {
    id: Bytes,
    queue: Bytes,
    headers: Bytes,
    job: Bytes,
}

impl Job {
    fn of(id: &[u8], request: &Request<'_>) -> Self {
        let Request {
            queue,
            headers,
            job,
        } = request;
        let [id, queue, headers, job] = [id, *queue, headers.0, *job].map(Bytes::copy_from_slice);
        Self {
            id,
            queue,
            headers,
            job,
        }
    }

    fn request(&self) -> Request<'_> {
        Request {
            queue: &self.queue,
            headers: Headers(&self.headers),
            job: &self.job,
        }
    }

    /// A line for `windlass import jsonl`.
    fn line(&self) -> String {
        let queue = String::from_utf8_lossy(&self.queue);
        json!({"origin": "eventmq", "queue": queue, "body_base64": STANDARD.encode(&self.job)})
            .to_string()
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "message {} of queue \"{}\"",
            self.id.escape_ascii(),
            self.queue.escape_ascii()
        )
    }
}

/// A worker with one credit at most.
pub(super) struct OldEventmq {
    emqp: Emqp,
    /// The router may hand out a job.
    has_credit: bool,
    /// Jobs that came while a lane had one.
    unasked: VecDeque<Job>,
}

impl Old for OldEventmq {
    type Job = Job;
    type Crew = ();
    const OUTLIVES_CONNECTION: bool = true;

    fn crew(_: &Tally) -> Result<(), Trouble> {
        Ok(())
    }

    async fn connect(tally: &Rc<Tally>, _: &Rc<()>) -> Result<Self, Trouble> {
        let emqp = Emqp::connect(&tally.from).await?;
        let mut worker = Self {
            emqp,
            has_credit: false,
            unasked: VecDeque::new(),
        };
        let named = tally.queues.iter().map(|name| (WEIGHT, name.as_str()));
        let queues: Vec<_> = if tally.queues.is_empty() {
            vec![(WEIGHT, DEFAULT_QUEUE)]
        } else {
            named.collect()
        };
        let (queues, id) = (json!(queues).to_string(), unique_name()?);
        worker
            .emqp
            .send(
                id.as_bytes(),
                Command::Inform {
                    queues: queues.as_bytes(),
                    kind: PeerKind::Worker,
                },
            )
            .await?;
        match worker
            .emqp
            .awaits(
                READY_WITHIN,
                |it| matches!(it, Command::Ack { of } if *of == id.as_bytes()),
            )
            .await?
        {
            true => Ok(worker),
            false => Err(Trouble::lost("no ACK of an INFORM")),
        }
    }

    async fn take(&mut self) -> Result<Option<Job>, Trouble> {
        if !self.has_credit && self.unasked.is_empty() {
            self.emqp
                .send(unique_name()?.as_bytes(), Command::Ready)
                .await?;
            self.has_credit = true;
        }
        self.read_for(WAIT).await?;
        self.emqp.check_silence()?;
        self.emqp.beat().await?;
        Ok(self.unasked.pop_front())
    }

    async fn beat(&mut self) -> Result<(), Trouble> {
        self.read_for(Duration::ZERO).await?;
        self.emqp.beat().await
    }

    /// A router sends no answer.
    async fn finish(&mut self, job: &Job, outcome: &Outcome) -> Result<(), Trouble> {
        let text: &[u8] = match outcome {
            Outcome::Done(text) => text,
            // A request's end is always a result, so nothing else comes.
            Outcome::Moved | Outcome::Failed | Outcome::Exception(_) => b"{\"value\": null}",
        };
        let reply = Command::Reply {
            text,
            of: Some(&job.id),
        };
        self.emqp.send(unique_name()?.as_bytes(), reply).await
    }

    async fn leave(&mut self) -> Vec<Job> {
        let goodbye = async {
            self.emqp
                .send(unique_name()?.as_bytes(), Command::Kbye)
                .await?;
            self.read_for(LEAVE).await
        };
        // The connection may be over: then no more jobs come.
        let _ = goodbye.await;
        self.unasked.drain(..).collect()
    }

    fn rescue(job: &Job) {
        // A closed standard output was the operator's choice.
        drop(writeln!(io::stdout(), "{}", job.line()));
    }
}

impl OldEventmq {
    /// Reads messages for this long, or until a job has come.
    async fn read_for(&mut self, time: Duration) -> Result<(), Trouble> {
        let end = Instant::now() + time;
        while self.unasked.is_empty() || time.is_zero() {
            let Some(message) = self.emqp.message_until(end).await? else {
                return Ok(());
            };
            self.read(&message)?;
        }
        Ok(())
    }

    fn read(&mut self, message: &Message) -> Result<(), Trouble> {
        let Packet { id, command } = Packet::decode(message).map_err(Trouble::lost)?;
        match command {
            Command::Request(request) => {
                self.has_credit = false;
                if self.unasked.len() >= UNASKED_MAX {
                    return Err(Trouble::lost("more jobs than credits"));
                }
                self.unasked.push_back(Job::of(id, &request));
                Ok(())
            }
            Command::Disconnect | Command::Kbye => Err(Trouble::lost("the router stops")),
            _ => Ok(()),
        }
    }
}

// ---- the daemon ------------------------------------------------------------------------------------------------------

/// A client.
#[derive(Debug)]
pub(super) struct NewEventmq {
    emqp: Emqp,
    /// Waits for results.
    waits: bool,
}

impl New for NewEventmq {
    type Job = Job;

    async fn connect(tally: &Rc<Tally>) -> Result<Self, Trouble> {
        Ok(Self {
            emqp: Emqp::connect(&tally.to).await?,
            waits: tally.results,
        })
    }

    /// The daemon recognises a message that it has: it is safe to send one again.
    async fn push(&mut self, job: &Job, _: Reports) -> Result<Answer, Trouble> {
        let request = job.request();
        let has_client = request.headers.reply_requested();
        match self
            .emqp
            .is_accepted(&job.id, Command::Request(request))
            .await?
        {
            true if self.waits && has_client => Ok(Answer::Accepted(Outcome::Done(
                self.emqp.result(&job.id).await?,
            ))),
            true => Ok(Answer::Accepted(Outcome::Moved)),
            false => Ok(Answer::NotNow(SILENT.to_owned())),
        }
    }
}

/// A client that schedules jobs.
#[derive(Debug)]
pub(crate) struct Scheduling(Emqp);

impl Scheduling {
    /// # Errors
    /// Why there is no connection.
    pub(crate) async fn connect(place: &Place) -> Result<Self, String> {
        if place.scheme != Scheme::Eventmq {
            return Err(format!("{place}: expected eventmq://HOST:PORT"));
        }
        let place = place
            .clone()
            .with_tls(Files::default())
            .map_err(|why| why.to_string())?;
        Emqp::connect(&place)
            .await
            .map(Self)
            .map_err(|why| format!("{place}: {}", why.into_text()))
    }

    /// Schedules a job and waits until the daemon has the schedule on its disk.
    ///
    /// # Errors
    /// Why the schedule may not be there.
    pub(crate) async fn schedule(&mut self, plan: &Plan<'_>) -> Result<(), String> {
        let id = unique_name().map_err(Trouble::into_text)?;
        match self
            .0
            .is_accepted(id.as_bytes(), Command::Schedule(*plan))
            .await
        {
            Ok(true) => Ok(()),
            Ok(false) => Err(SILENT.to_owned()),
            Err(why) => Err(why.into_text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_left_is_a_line_for_the_import() {
        let request = Request {
            queue: b"q\"",
            headers: Headers(b"timeout:3"),
            job: b"[\xff]",
        };
        let job = Job::of(b"m", &request);
        assert_eq!(
            job.line(),
            r#"{"body_base64":"W/9d","origin":"eventmq","queue":"q\""}"#
        );
        assert_eq!(job.request(), request);
        assert_eq!(job.to_string(), "message m of queue \"q\\\"\"");
    }
}
