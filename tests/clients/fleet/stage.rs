//! Two daemons, and a peer for each protocol and role.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_testkit::daemon::Daemon;

use super::peers::{PATIENCE, Program, Protocol, Voice, Word, octets};
use crate::common::daemon;
use crate::common::faktory::Fwp;

/// Short leases where a client can choose the lease; rules for some queues.
const CONFIG: &str = r#"
[faktory]
listen = ["127.0.0.1:0"]
fetch_wait = "200ms"
reserve_min = "1s"

[queues.in-json]
codec = "json"

[queues.in-base64]
codec = "base64"

[bridge]
queues = ["*"]

[queues.apart]
bridge = false

[queues."image resize"]
aliases = { faktory = "image-resize" }
"#;

/// The shipped configuration, except for the port.
const SHIPPED: &str = "[faktory]\nlisten = [\"127.0.0.1:0\"]\n";

/// No worker counts as dead because the machine is slow.
const EVENTMQ: &str =
    "binary_workers = true\ntimeout_grace = \"100ms\"\nheartbeat_timeout = \"1m\"\n";

/// Everything that a row needs. Programs start at first use.
#[derive(Debug)]
pub struct Fleet {
    programs: BTreeMap<(Protocol, Role), OnceLock<Program>>,
    steady: Site,
    hasty: Site,
    shipped: Site,
}

/// The role of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Producer,
    Worker,
}

/// A daemon and its directory.
#[derive(Debug)]
pub struct Site {
    pub daemon: Daemon,
    _dir: TempDir,
}

impl Site {
    fn start(config: &str, eventmq: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let daemon = daemon(dir.path()).set(config).eventmq(eventmq).start();
        Self { daemon, _dir: dir }
    }

    fn address(&self, protocol: Protocol) -> SocketAddr {
        self.daemon.address(protocol.name())
    }
}

impl Fleet {
    pub fn start() -> Self {
        let both = [Role::Producer, Role::Worker];
        let programs = Protocol::ALL
            .into_iter()
            .flat_map(|protocol| both.map(|role| ((protocol, role), OnceLock::new())));
        Self {
            programs: programs.collect(),
            steady: Site::start(CONFIG, EVENTMQ),
            hasty: Site::start(
                CONFIG,
                &format!("{EVENTMQ}lease = \"1s\"\ndedup = \"1m\"\n"),
            ),
            shipped: Site::start(SHIPPED, ""),
        }
    }

    fn program(&self, protocol: Protocol, role: Role) -> &Program {
        let name = match role {
            Role::Producer => "producer",
            Role::Worker => "worker",
        };
        self.programs[&(protocol, role)].get_or_init(|| Program::start(protocol, name))
    }

    /// A stage for one row.
    pub fn stage(&self, queue: &str) -> Stage<'_> {
        Stage {
            fleet: self,
            site: &self.steady,
            queue: queue.to_owned(),
        }
    }

    /// The same, with an EventMQ lease of a second, and kept EventMQ results.
    pub fn hasty_stage(&self, queue: &str) -> Stage<'_> {
        Stage {
            fleet: self,
            site: &self.hasty,
            queue: queue.to_owned(),
        }
    }

    /// The same with the shipped configuration.
    pub fn shipped_stage(&self, queue: &str) -> Stage<'_> {
        Stage {
            fleet: self,
            site: &self.shipped,
            queue: queue.to_owned(),
        }
    }

    /// The address of a protocol.
    pub fn address(&self, protocol: &str) -> SocketAddr {
        self.steady.daemon.address(protocol)
    }

    pub fn log_text(&self) -> String {
        self.steady.daemon.log_text()
    }

    /// The log of the daemon with the shipped configuration.
    pub fn shipped_log_text(&self) -> String {
        self.shipped.daemon.log_text()
    }
}

/// A queue of its own.
#[derive(Debug, Clone)]
pub struct Stage<'a> {
    fleet: &'a Fleet,
    site: &'a Site,
    pub queue: String,
}

impl<'a> Stage<'a> {
    pub fn producer(&self, protocol: Protocol) -> Producer<'a> {
        let program = self.fleet.program(protocol, Role::Producer);
        let voice = program.connect(self.site.address(protocol), json!({}));
        Producer {
            voice,
            protocol,
            queue: self.queue.clone(),
            id: String::new(),
        }
    }

    pub fn worker(&self, protocol: Protocol) -> Worker<'a> {
        self.worker_on(protocol, json!({}))
    }

    /// A Gearman worker with a timeout of a second per job.
    pub fn worker_with_timeout(&self, protocol: Protocol) -> Worker<'a> {
        self.worker_on(
            protocol,
            if protocol == Protocol::Gearman {
                json!({"timeout_ms": 1000})
            } else {
                json!({})
            },
        )
    }

    fn worker_on(&self, protocol: Protocol, mut terms: Value) -> Worker<'a> {
        terms["queue"] = octets(&self.queue).into();
        let program = self.fleet.program(protocol, Role::Worker);
        Worker {
            voice: program.connect(self.site.address(protocol), terms),
            protocol,
        }
    }

    /// A job in an operator's view, through FWP's `JOB GET`; `None` if it is gone. A job of another protocol is the
    /// only job of its queue.
    pub fn look(&self, producer: &Producer<'_>) -> Option<String> {
        let mut fwp = Fwp::connect(self.site.address(Protocol::Faktory));
        let mut get =
            |jid: &str| Some(fwp.ask(&format!("JOB GET {jid}"))).filter(|job| job != "null");
        if producer.protocol == Protocol::Faktory {
            return get(&producer.id);
        }
        let queue = format!("\"queue\":{}", Value::from(&*self.queue));
        (1..=JOBS_MAX)
            .filter_map(|number| get(&jid_of(number)))
            .find(|job| job.contains(&queue))
    }

    /// Waits until `JOB GET` shows these parts.
    pub fn ends(&self, producer: &Producer<'_>, parts: &[&str]) {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.look(producer).unwrap_or_else(|| "gone".to_owned());
            let missing = parts.iter().find(|part| !found.contains(**part));
            let Some(missing) = missing else { return };
            assert!(Instant::now() < end, "no {missing} in {found}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// More than all rows together submit to one daemon.
const JOBS_MAX: u64 = 300;

/// The jid in FWP of a job without a name, from its number.
fn jid_of(number: u64) -> String {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let digit = |n: u32| char::from(DIGITS[usize::try_from(number >> (5 * n) & 31).unwrap()]);
    format!(
        "01W1ND1ASSJ0B{}",
        (0..13).rev().map(digit).collect::<String>()
    )
}

/// The properties of a job that matter to a row.
#[derive(Debug, Clone, Copy, Default)]
pub struct Job<'a> {
    /// The workload; `args`; the message.
    pub body: &'a [u8],
    /// No client waits for it. Only Gearman distinguishes such jobs.
    pub background: bool,
    /// It has a unique id.
    pub unique: bool,
    /// The number of failures it may survive, if given.
    pub retries: Option<u32>,
    /// The time its worker has, in seconds, if given.
    pub secs: Option<u32>,
    /// More for FWP's `custom`.
    pub custom: &'a str,
    /// FWP's jobtype, if it is not `cakes.oven.bake`.
    pub jobtype: Option<&'a str>,
    /// Sent as it is, not re-encoded by a library.
    pub verbatim: bool,
}

/// A client that submits a job.
#[derive(Debug)]
pub struct Producer<'a> {
    pub voice: Voice<'a>,
    protocol: Protocol,
    queue: String,
    /// The job's identifier.
    pub id: String,
}

impl Producer<'_> {
    /// Submits the job and waits until it is accepted.
    pub fn submit(&mut self, job: &Job<'_>) {
        self.send(job);
        let word = self.voice.hear();
        match self.protocol {
            Protocol::Gearman => self.id = word.text(),
            Protocol::Faktory => assert_eq!(word.to_string(), "+OK"),
            Protocol::Eventmq => self.id = word.text(),
        }
    }

    pub fn send(&mut self, job: &Job<'_>) {
        let (queue, body) = (octets(&self.queue), octets(job.body));
        match self.protocol {
            Protocol::Gearman => {
                let unique = if job.unique { "the only one" } else { "" };
                let order = json!({"queue": queue, "body": body, "unique": unique, "background": job.background});
                self.voice.order("submit", order);
            }
            Protocol::Faktory => {
                let order = if job.verbatim {
                    "submit_text"
                } else {
                    "submit"
                };
                let unit = octets(self.unit(job));
                self.voice.order(order, json!({"unit": unit}));
            }
            Protocol::Eventmq if job.verbatim || job.unique => {
                let id = if job.unique { "the only one" } else { "any" };
                self.voice.order(
                    "submit_bytes",
                    json!({"id": id, "queue": queue, "body": body}),
                );
            }
            Protocol::Eventmq => {
                let (retry, timeout) = (job.retries.unwrap_or(0), job.secs.unwrap_or(0));
                self.voice.order(
                    "submit",
                    json!({"queue": queue, "body": body, "retry": retry, "timeout": timeout}),
                );
            }
        }
    }

    fn unit(&mut self, job: &Job<'_>) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.id = format!("fleet-{:08}", NEXT.fetch_add(1, Ordering::Relaxed));
        let number =
            |key: &str, n: Option<u32>| n.map(|n| format!(", \"{key}\": {n}")).unwrap_or_default();
        format!(
            "{{\"jid\": \"{}\", \"jobtype\": \"{}\", \"queue\": {}, \"args\": {}, \"custom\": {{\"track\": 1{}{}}}{}{}}}",
            self.id,
            job.jobtype.unwrap_or("cakes.oven.bake"),
            Value::from(&*self.queue),
            std::str::from_utf8(job.body).unwrap(),
            if job.unique {
                ", \"unique_for\": 600"
            } else {
                ""
            },
            job.custom,
            number("retry", job.retries),
            number("reserve_for", job.secs),
        )
    }

    /// Asserts the next message about the job. An FWP producer polls until it matches.
    pub fn hears(&self, words: &str) {
        match self.protocol {
            Protocol::Gearman => {}
            Protocol::Faktory => {
                let until = words.split(' ').next().unwrap();
                self.voice
                    .order("watch", json!({"jid": self.id, "until": until}));
            }
            Protocol::Eventmq => self.voice.tell("listen"),
        }
        let heard = self.voice.hear();
        assert_eq!(heard.to_string(), words);
        if self.protocol == Protocol::Eventmq {
            assert_eq!(heard.more("id"), self.id);
        }
    }

    /// Requests the job's status from Gearman; the answer is read later.
    pub fn asks(&self) {
        self.voice.order("ask", json!({"handle": self.id}));
    }

    /// Makes FWP retry the job now, not when it is due.
    pub fn does_not_wait(&self) {
        self.voice.order("try_again", json!({"jid": self.id}));
    }
}

/// A client that works on jobs.
#[derive(Debug)]
pub struct Worker<'a> {
    pub voice: Voice<'a>,
    protocol: Protocol,
}

impl Worker<'_> {
    /// Waits for a job.
    pub fn takes(&self) -> Word {
        self.voice.tell("take");
        self.voice.hears("job")
    }

    pub fn is_done(&self, result: &str) {
        self.voice.order("done", json!({"result": octets(result)}));
    }

    /// Fails the job, with this reason where its protocol can express one.
    pub fn fails(&self, why: &str) {
        self.voice.order("fail", json!({"why": octets(why)}));
    }

    /// Asks for a job and gets none. Only FWP's workers can ask without a long wait.
    pub fn takes_none(&self) {
        self.voice.tell("take_none");
        self.voice.hears("none");
    }

    /// From now on works on a job that another connection took, as FWP's workers may.
    pub fn has(&self, jid: &str) {
        self.voice.order("has", json!({"jid": jid}));
    }

    pub fn is_at(&self, part: u32, whole: u32) {
        self.voice
            .order("progress", json!({"part": part, "whole": whole}));
    }

    /// Its connection breaks.
    pub fn dies(self) {
        self.voice.tell("die");
        self.voice.hears("dead");
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
}
