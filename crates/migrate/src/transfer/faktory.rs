//! FWP's both sides: a worker of the old Faktory, a producer of the daemon.
//!
//! Spec: Faktory Work Protocol, "Protocol Basics", "Producer Commands", "Consumer Commands", "`INFO`"; worker
//! lifecycle.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::process;
use std::rc::Rc;
use std::str;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use windlass_faktory::wire::is_queue_name;

use super::lane::{Answer, New, Old, Outcome, Reports};
use super::link::{JOB_BYTES_MAX, Link, PATIENCE, Trouble, random, within};
use super::place::Place;
use super::tally::Tally;

/// A worker that sends no heartbeat for a minute is forgotten; stock workers send one every 15 s.
const BEAT_EVERY: Duration = Duration::from_secs(15);

/// Time between two looks for new queues.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long a lane waits if there are no queues at all.
const NO_QUEUES: Duration = Duration::from_secs(1);

/// Queues in one FETCH.
const QUEUES_MAX: usize = 1_024;

/// A line that is not a bulk string: an error may repeat a part of a job.
const LINE_BYTES_MAX: usize = 64 << 10;

/// INFO, and jobs.
const BULK_BYTES_MAX: usize = JOB_BYTES_MAX;

/// How often a password may have to be hashed. Faktory asks for less than ten thousand.
const ROUNDS_MAX: u32 = 1_000_000;

/// A reply.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Simple(Bytes),
    Error(String),
    Bulk(Bytes),
    Null,
}

/// What both sides have: a connection after its handshake.
#[derive(Debug)]
struct Fwp(Link);

impl Fwp {
    /// `worker`: its name, or none for a producer.
    async fn connect(place: &Place, worker: Option<&str>) -> Result<Self, Trouble> {
        let mut fwp = Self(Link::connect(place).await?);
        let hello = match fwp.answer().await? {
            Reply::Simple(hi) => hello(&hi, place.password.as_deref(), worker)?,
            Reply::Error(why) => return Err(Trouble::Lost(why)),
            Reply::Bulk(_) | Reply::Null => return Err(Trouble::lost("not a Faktory")),
        };
        match fwp.ask(&[b"HELLO ", hello.as_bytes()]).await? {
            Reply::Simple(ok) if &ok[..] == b"OK" => Ok(fwp),
            Reply::Error(why) if why.contains("password") => Err(Trouble::Fatal(why)),
            other => Err(other.unexpected()),
        }
    }

    /// Sends a line of these parts, none of which may have a line end, and waits for the answer.
    async fn ask(&mut self, line: &[&[u8]]) -> Result<Reply, Trouble> {
        let line = [line, &[b"\r\n"]].concat().concat();
        self.0.send(&line).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Reply, Trouble> {
        let answer = async {
            loop {
                match reply(&mut self.0.input)? {
                    Some(reply) => return Ok(reply),
                    None => self.0.more().await?,
                }
            }
        };
        within(PATIENCE, "no answer", answer).await
    }

    async fn expect_ok(&mut self, line: &[&[u8]]) -> Result<(), Trouble> {
        match self.ask(line).await? {
            Reply::Simple(ok) if &ok[..] == b"OK" => Ok(()),
            other => Err(other.unexpected()),
        }
    }
}

impl Reply {
    fn unexpected(&self) -> Trouble {
        match self {
            Self::Error(why) => Trouble::lost(why),
            Self::Simple(text) | Self::Bulk(text) => Trouble::strange(text),
            Self::Null => Trouble::strange(b"$-1"),
        }
    }
}

/// Takes a reply out of the input; `None` if it is incomplete.
fn reply(input: &mut BytesMut) -> Result<Option<Reply>, Trouble> {
    let Some(end) = input
        .iter()
        .take(LINE_BYTES_MAX)
        .position(|byte| *byte == b'\n')
    else {
        return if input.len() < LINE_BYTES_MAX {
            Ok(None)
        } else {
            Err(Trouble::strange(input))
        };
    };
    let line = input.get(..end).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (kind, rest) = line.split_first().ok_or_else(|| Trouble::strange(line))?;
    let found = match kind {
        b'+' => Reply::Simple(Bytes::copy_from_slice(rest)),
        b'-' => Reply::Error(String::from_utf8_lossy(rest).into_owned()),
        b'$' if rest == b"-1" => Reply::Null,
        b'$' => return bulk(input, end),
        _ => return Err(Trouble::strange(line)),
    };
    input.advance(end + 1);
    Ok(Some(found))
}

/// Takes a bulk string whose head ends at `end`.
fn bulk(input: &mut BytesMut, end: usize) -> Result<Option<Reply>, Trouble> {
    let head = input.get(1..end).unwrap_or_default().trim_ascii_end();
    let bytes = str::from_utf8(head)
        .ok()
        .and_then(|digits| digits.parse::<usize>().ok());
    let bytes = bytes.ok_or_else(|| Trouble::strange(head))?;
    if bytes > BULK_BYTES_MAX {
        return Err(Trouble::Lost(format!(
            "a job or an answer of {bytes} bytes, {BULK_BYTES_MAX} allowed"
        )));
    }
    let (begin, after) = (end + 1, end + 1 + bytes + 2);
    if input.len() < after {
        return Ok(None);
    }
    let mut whole = input.split_to(after);
    whole.advance(begin);
    if !whole.ends_with(b"\r\n") {
        return Err(Trouble::strange(&whole));
    }
    whole.truncate(bytes);
    Ok(Some(Reply::Bulk(whole.freeze())))
}

/// The argument of HELLO.
fn hello(hi: &[u8], password: Option<&str>, worker: Option<&str>) -> Result<String, Trouble> {
    #[derive(Deserialize)]
    struct Hi {
        #[serde(default)]
        s: Option<String>,
        #[serde(default)]
        i: Option<u32>,
    }
    let hi = hi
        .strip_prefix(b"HI ")
        .ok_or_else(|| Trouble::strange(hi))?;
    let Hi { s, i } = serde_json::from_slice(hi).map_err(|_| Trouble::strange(hi))?;
    let mut hello = Map::new();
    hello.insert("v".to_owned(), json!(2));
    if let Some(wid) = worker {
        let (host, labels) = (
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            ["windlass-bridge"],
        );
        let about = [
            ("wid", json!(wid)),
            ("hostname", json!(host)),
            ("pid", json!(process::id())),
            ("labels", json!(labels)),
        ];
        hello.extend(about.map(|(key, value)| (key.to_owned(), value)));
    }
    if let Some(salt) = s {
        let password =
            password.ok_or_else(|| Trouble::Fatal("a password is required".to_owned()))?;
        let rounds = i.unwrap_or(1);
        if rounds > ROUNDS_MAX {
            return Err(Trouble::Fatal(format!(
                "{rounds} rounds of a password's hash, {ROUNDS_MAX} allowed"
            )));
        }
        hello.insert(
            "pwdhash".to_owned(),
            Value::String(hash(password, &salt, rounds)),
        );
    }
    Ok(Value::Object(hello).to_string())
}

fn hash(password: &str, salt: &str, rounds: u32) -> String {
    let first = Sha256::new()
        .chain_update(password)
        .chain_update(salt)
        .finalize();
    hex::encode((1..rounds).fold(first, |hash, _| Sha256::digest(hash)))
}

// ---- the old Faktory -------------------------------------------------------------------------------------------------

/// A job's text, on one line, and its name.
#[derive(Debug)]
pub(super) struct Job {
    jid: String,
    queue: String,
    text: Bytes,
}

impl Job {
    fn read(text: Bytes) -> Result<Self, Trouble> {
        #[derive(Deserialize)]
        struct Names {
            jid: String,
            #[serde(default)]
            queue: Option<String>,
        }
        let Names { jid, queue } =
            serde_json::from_slice(&text).map_err(|_| Trouble::strange(&text))?;
        // A line end can only be a blank of the JSON text: inside a string it is invalid.
        let text = match text.iter().any(|byte| is_line_end(*byte)) {
            true => text
                .iter()
                .map(|byte| if is_line_end(*byte) { b' ' } else { *byte })
                .collect(),
            false => text,
        };
        Ok(Self {
            jid,
            queue: queue.unwrap_or_else(|| "default".to_owned()),
            text,
        })
    }

    /// The name as an argument that ends with the line, if it can be one.
    fn plain_jid(&self) -> Option<&[u8]> {
        let is_plain = !self.jid.is_empty() && self.jid.bytes().all(|byte| byte.is_ascii_graphic());
        is_plain.then_some(self.jid.as_bytes())
    }
}

const fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "jid \"{}\" of queue \"{}\"",
            self.jid.escape_debug(),
            self.queue.escape_debug()
        )
    }
}

/// What all lanes share: they are one worker with many connections.
#[derive(Debug)]
pub(super) struct Worker {
    wid: String,
    beaten_at: Cell<Instant>,
    /// The queues of a FETCH, those with jobs first, and when the next look for others is due.
    queues: RefCell<Vec<String>>,
    look_at: Cell<Option<Instant>>,
}

/// One connection of the worker.
pub(super) struct OldFaktory {
    fwp: Fwp,
    worker: Rc<Worker>,
    tally: Rc<Tally>,
}

impl Old for OldFaktory {
    type Job = Job;
    type Crew = Worker;
    const OUTLIVES_CONNECTION: bool = true;

    fn crew(tally: &Tally) -> Result<Worker, Trouble> {
        if let Some(wrong) = tally
            .queues
            .iter()
            .find(|name| !is_queue_name(name.as_bytes()))
        {
            return Err(Trouble::Fatal(format!(
                "`{}` is not a name of a queue",
                wrong.escape_debug()
            )));
        }
        Ok(Worker {
            wid: format!("windlass-bridge-{}", hex::encode(random::<8>()?)),
            beaten_at: Cell::new(Instant::now()),
            queues: RefCell::new(tally.queues.clone()),
            look_at: Cell::new(tally.queues.is_empty().then(Instant::now)),
        })
    }

    async fn connect(tally: &Rc<Tally>, crew: &Rc<Worker>) -> Result<Self, Trouble> {
        let fwp = Fwp::connect(&tally.from, Some(&crew.wid)).await?;
        Ok(Self {
            fwp,
            worker: Rc::clone(crew),
            tally: Rc::clone(tally),
        })
    }

    async fn take(&mut self) -> Result<Option<Job>, Trouble> {
        self.beat().await?;
        self.look().await?;
        let line = self.worker.queues.borrow().join(" ");
        if line.is_empty() {
            self.tally.pause(NO_QUEUES).await;
            return Ok(None);
        }
        match self.fwp.ask(&[b"FETCH ", line.as_bytes()]).await? {
            Reply::Bulk(text) => Job::read(text).map(Some),
            Reply::Null => Ok(None),
            other => Err(other.unexpected()),
        }
    }

    async fn beat(&mut self) -> Result<(), Trouble> {
        if self.worker.beaten_at.get().elapsed() < BEAT_EVERY {
            return Ok(());
        }
        self.worker.beaten_at.set(Instant::now());
        let beat = json!({"wid": self.worker.wid}).to_string();
        match self.fwp.ask(&[b"BEAT ", beat.as_bytes()]).await? {
            Reply::Simple(ok) if &ok[..] == b"OK" => {}
            // An operator of the old Faktory has asked for it.
            Reply::Bulk(state) if is_state(&state, "quiet") || is_state(&state, "terminate") => {
                self.tally.print("the old Faktory asks its workers to stop");
                self.tally.stop();
            }
            other => return Err(other.unexpected()),
        }
        Ok(())
    }

    async fn finish(&mut self, job: &Job, _: &Outcome) -> Result<(), Trouble> {
        let ack = json!({"jid": job.jid}).to_string();
        self.fwp.expect_ok(&[b"ACK ", ack.as_bytes()]).await
    }

    /// Jobs are only handed out on request.
    async fn leave(&mut self) -> Vec<Job> {
        // The connection ends anyway.
        let _ = self.fwp.0.send(b"END\r\n").await;
        Vec::new()
    }
}

fn is_state(text: &[u8], state: &str) -> bool {
    let value: Option<Value> = serde_json::from_slice(text).ok();
    value.is_some_and(|value| value.get("state").and_then(Value::as_str) == Some(state))
}

impl OldFaktory {
    /// Asks for queues, if it is time.
    async fn look(&mut self) -> Result<(), Trouble> {
        if self
            .worker
            .look_at
            .get()
            .is_none_or(|at| at > Instant::now())
        {
            return Ok(());
        }
        self.worker.look_at.set(Some(Instant::now() + LOOK_EVERY));
        match self.fwp.ask(&[b"INFO"]).await? {
            Reply::Bulk(text) => {
                let queues = queues_of(&text).ok_or_else(|| Trouble::strange(&text))?;
                self.worker.queues.replace(queues);
                Ok(())
            }
            other => Err(other.unexpected()),
        }
    }
}

/// The queues in the answer to INFO, those with jobs first.
fn queues_of(info: &[u8]) -> Option<Vec<String>> {
    let info: Value = serde_json::from_slice(info).ok()?;
    let queues = info.pointer("/faktory/queues")?;
    let named = queues
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| is_queue_name(name.as_bytes()));
    let mut queues: Vec<(bool, &String)> = named
        .map(|(name, jobs)| (jobs.as_u64() == Some(0), name))
        .collect();
    queues.sort_unstable();
    Some(
        queues
            .into_iter()
            .take(QUEUES_MAX)
            .map(|(_, name)| name.clone())
            .collect(),
    )
}

// ---- the daemon ------------------------------------------------------------------------------------------------------

/// A producer.
#[derive(Debug)]
pub(super) struct NewFaktory(Fwp);

impl New for NewFaktory {
    type Job = Job;

    async fn connect(tally: &Rc<Tally>) -> Result<Self, Trouble> {
        Fwp::connect(&tally.to, None).await.map(Self)
    }

    async fn push(&mut self, job: &Job, _: Reports) -> Result<Answer, Trouble> {
        // The daemon accepts one jid many times. It refuses this question where it does not let clients look; then jobs
        // that come again are pushed again.
        if let Some(jid) = job.plain_jid()
            && let Reply::Bulk(_) = self.0.ask(&[b"JOB GET ", jid]).await?
        {
            return Ok(Answer::Known);
        }
        match self.0.ask(&[b"PUSH ", &job.text]).await? {
            Reply::Simple(ok) if &ok[..] == b"OK" => Ok(Answer::Accepted(Outcome::Moved)),
            Reply::Error(why) => Ok(refusal(why)),
            other => Err(other.unexpected()),
        }
    }
}

/// A daemon that is full, cannot write or does not permit it may accept the job later. A fault of the job itself,
/// of its batch, or of an equal job here stays for long.
fn refusal(why: String) -> Answer {
    const HOPELESS: [&str; 7] = [
        "invalid JSON",
        "jobs must",
        "jobs cannot",
        "No such batch",
        "NOTUNIQUE",
        "body_bytes",
        "this jid",
    ];
    if HOPELESS.iter().any(|text| why.contains(text)) {
        Answer::Never(why)
    } else {
        Answer::NotNow(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies() {
        let reply_of = |text: &[u8]| reply(&mut BytesMut::from(text));
        let bytes = Bytes::from_static;
        let table: [(&[u8], Option<Reply>); 9] = [
            (b"+OK\r\n", Some(Reply::Simple(bytes(b"OK")))),
            (b"-ERR no\n", Some(Reply::Error("ERR no".to_owned()))),
            (b"$-1\r\n", Some(Reply::Null)),
            (b"$2\r\n{}\r\n+", Some(Reply::Bulk(bytes(b"{}")))),
            (b"$0\r\n\r\n", Some(Reply::Bulk(Bytes::new()))),
            (b"$2\r\n\r\n\r\n", Some(Reply::Bulk(bytes(b"\r\n")))),
            (b"", None),
            (b"+OK", None),
            (b"$2\r\n{}\r", None),
        ];
        for (text, expected) in table {
            assert_eq!(reply_of(text), Ok(expected), "{}", text.escape_ascii());
        }
        let endless = [b'+'; LINE_BYTES_MAX];
        for text in [
            &b"\r\n"[..],
            b"OK\r\n",
            b"$x\r\n",
            b"$-2\r\n",
            b"$99999999999\r\n",
            b"$2\r\n{}xx",
            &endless,
        ] {
            assert!(reply_of(text).is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_reply_may_come_byte_by_byte() {
        let (mut input, mut found) = (BytesMut::new(), Vec::new());
        for byte in b"$3\r\na\nb\r\n+OK\r\n" {
            input.extend_from_slice(&[*byte]);
            found.extend(reply(&mut input).unwrap());
        }
        let bytes = Bytes::from_static;
        assert_eq!(
            found,
            [Reply::Bulk(bytes(b"a\nb")), Reply::Simple(bytes(b"OK"))]
        );
    }

    #[test]
    fn hello_hashes_the_password() {
        let hi = br#"HI {"v":2,"i":1545,"s":"55104dc76695721d"}"#;
        let text = hello(hi, Some("foobar"), None).unwrap();
        assert!(
            text.contains("6d877f8e5544b1f2598768f817413ab8a357afffa924dedae99eb91472d4ec30"),
            "{text}"
        );
        assert!(matches!(hello(hi, None, None), Err(Trouble::Fatal(_))));
        assert!(matches!(
            hello(br#"HI {"v":2,"i":4000000000,"s":"x"}"#, Some("p"), None),
            Err(Trouble::Fatal(_))
        ));
        let worker = hello(br#"HI {"v":2}"#, Some("unused"), Some("w")).unwrap();
        assert!(
            worker.contains(r#""wid":"w""#) && !worker.contains("pwdhash"),
            "{worker}"
        );
        assert!(hello(b"HELLO", None, None).is_err());
    }

    #[test]
    fn a_job_is_one_line_and_keeps_every_other_byte() {
        let job = Job::read(Bytes::from_static(
            b"{\"jid\":\"abcdefgh\",\r\n\"queue\":\"q\",\"args\":[1.0, \"\\n\"]}",
        ))
        .unwrap();
        assert_eq!(
            &job.text[..],
            b"{\"jid\":\"abcdefgh\",  \"queue\":\"q\",\"args\":[1.0, \"\\n\"]}"
        );
        assert_eq!(
            (job.plain_jid(), job.to_string().as_str()),
            (Some(&b"abcdefgh"[..]), "jid \"abcdefgh\" of queue \"q\"")
        );
        for odd in [r#"{"jid":"a b"}"#, r#"{"jid":""}"#, r#"{"jid":"a\nFLUSH"}"#] {
            assert_eq!(Job::read(odd.into()).unwrap().plain_jid(), None, "{odd}");
        }
        for wrong in ["", "{}", "[]", r#"{"jid":1}"#] {
            assert!(Job::read(wrong.into()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn queues_with_jobs_come_first() {
        let info = br#"{"faktory":{"queues":{"a":0,"b":2,"c":0,"a b":3,"d":1}}}"#;
        assert_eq!(queues_of(info).unwrap(), ["b", "d", "a", "c"]);
        assert_eq!(
            queues_of(br#"{"faktory":{"queues":null}}"#).unwrap(),
            Vec::<String>::new()
        );
        assert!(queues_of(b"{}").is_none());
    }

    #[test]
    fn refusals_for_now_and_for_good() {
        for why in [
            "ERR invalid JSON: x",
            "ERR No such batch b-1",
            "NOTUNIQUE Job not unique",
        ] {
            assert!(matches!(refusal(why.to_owned()), Answer::Never(_)), "{why}");
        }
        for why in [
            "ERR jobs_max reached",
            "ERR unavailable",
            "ERR not permitted at this address",
        ] {
            assert!(
                matches!(refusal(why.to_owned()), Answer::NotNow(_)),
                "{why}"
            );
        }
    }

    #[test]
    fn states_of_a_beat() {
        assert!(is_state(br#"{"state":"quiet"}"#, "quiet") && !is_state(b"quiet", "quiet"));
    }
}
