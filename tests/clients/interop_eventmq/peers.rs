//! Sockets of the stock client and of libzmq, all in one Python program (`peer.py`) that a test directs line by line.
//!
//! Frames may be any bytes. Here they are texts in which each character stands for a byte, as in Latin-1.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::client::python;

/// The longest wait on a loaded machine. A test waits this long only if it fails.
const PATIENCE_MS: u64 = 60_000;

/// The program.
#[derive(Debug, Clone)]
pub struct Peers(Arc<Program>);

#[derive(Debug)]
struct Program {
    child: Mutex<Child>,
    orders: Mutex<ChildStdin>,
    answers: Mutex<BufReader<ChildStdout>>,
    /// Counts sockets and messages, for unique names.
    count: AtomicU32,
}

impl Peers {
    pub fn start() -> Self {
        let mut command = python("interop_eventmq/peer.py");
        // Settings on this machine must not affect the test. The program's errors go to the test's own standard error.
        command
            .env("EVENTMQ_CONFIG_FILE", "/nonexistent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{error}; tests/install-clients installs it"));
        let orders = Mutex::new(child.stdin.take().unwrap());
        let answers = Mutex::new(BufReader::new(child.stdout.take().unwrap()));
        Self(Arc::new(Program {
            child: Mutex::new(child),
            orders,
            answers,
            count: AtomicU32::new(0),
        }))
    }

    /// The released programs' own socket, which the stock client uses.
    pub fn stock(&self, address: &str) -> Socket {
        self.open("stock", &[json!(address)])
    }

    /// A socket with a unique identity.
    pub fn dealer(&self, address: &str) -> Socket {
        let identity = format!("peer-{}", self.next());
        self.open("dealer", &[json!(address), json!(identity)])
    }

    /// A socket with this identity, or with none.
    pub fn dealer_called(&self, address: &str, identity: Option<&str>) -> Socket {
        self.open("dealer", &[json!(address), json!(identity)])
    }

    pub fn subscriber(&self, address: &str, topics: &[&str]) -> Socket {
        let socket = self.open("sub", &[json!(address)]);
        topics.iter().for_each(|topic| socket.subscribe(topic));
        socket
    }

    /// A worker that has been acknowledged. `queues` is JSON.
    pub fn worker(&self, address: &str, queues: &str) -> Worker {
        Worker::over(self.dealer(address), queues)
    }

    /// The stock decorator's `delay` of the task `note`.
    pub fn delay(&self, address: &str, queue: Option<&str>, args: &Value) -> String {
        self.order(0, "delay", &[json!(address), json!(queue), args.clone()])
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn open(&self, kind: &str, arguments: &[Value]) -> Socket {
        let number = self.next();
        self.order(number, kind, arguments);
        Socket {
            peers: self.clone(),
            number,
        }
    }

    fn next(&self) -> u32 {
        self.0.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn order(&self, number: u32, name: &str, arguments: &[Value]) -> Value {
        let order = [&[json!(number), json!(name)], arguments].concat();
        self.try_order(&json!(order))
            .unwrap_or_else(|| panic!("the peer has ended at {name} {arguments:?}"))
    }

    fn try_order(&self, order: &Value) -> Option<Value> {
        let mut orders = self.0.orders.lock().unwrap();
        writeln!(orders, "{order}")
            .and_then(|()| orders.flush())
            .ok()?;
        let mut answer = String::new();
        self.0.answers.lock().unwrap().read_line(&mut answer).ok()?;
        serde_json::from_str(&answer).ok()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.get_mut().unwrap().kill();
        let _ = self.child.get_mut().unwrap().wait();
    }
}

/// One socket. Closed when dropped.
#[derive(Debug)]
pub struct Socket {
    peers: Peers,
    number: u32,
}

/// A message behind the delimiter and the version: the command, the identifier, and the arguments.
pub type Frames = Vec<String>;

impl Socket {
    /// Sends exactly these frames.
    pub fn send_bare(&self, frames: &[&str]) {
        self.order(
            "send",
            &frames.iter().map(|frame| json!(frame)).collect::<Vec<_>>(),
        );
    }

    /// Sends a message under a new identifier, which is returned.
    pub fn say(&self, command: &str, frames: &[&str]) -> String {
        let id = format!("message-{}", self.peers.next());
        self.say_as(&id, command, frames);
        id
    }

    /// Sends a message under this identifier.
    pub fn say_as(&self, id: &str, command: &str, frames: &[&str]) {
        self.send_bare(&[&["", "eMQP/1.0", command, id], frames].concat());
    }

    /// Requests a job.
    pub fn request(&self, queue: &str, headers: &str, body: &str) -> String {
        self.say("REQUEST", &[queue, headers, body])
    }

    /// The next frames, whatever they are.
    pub fn hear_bare(&self) -> Frames {
        self.hear_within(PATIENCE_MS)
            .unwrap_or_else(|| panic!("nothing is received"))
    }

    /// The next frames, if any arrive within this time.
    pub fn hear_within(&self, milliseconds: u64) -> Option<Frames> {
        serde_json::from_value(self.order("hear", &[json!(milliseconds)])).unwrap()
    }

    /// The next message, heartbeats included.
    pub fn hear_any(&self) -> Frames {
        let frames = self.hear_bare();
        let (head, message) = frames
            .split_at_checked(2)
            .unwrap_or_else(|| panic!("too short: {frames:?}"));
        assert_eq!(head, ["", "eMQP/1.0"]);
        assert!(message.len() >= 2, "too short: {frames:?}");
        message.to_vec()
    }

    /// The next message that is not a heartbeat.
    pub fn hear(&self) -> Frames {
        loop {
            let message = self.hear_any();
            if message[0] != "HEARTBEAT" {
                return message;
            }
        }
    }

    /// Expects this command, and returns the frames behind its identifier.
    pub fn hears(&self, command: &str) -> Frames {
        let message = self.hear();
        assert_eq!(message[0], command, "{message:?}");
        message[2..].to_vec()
    }

    /// Sends an administrator's request, and returns the answer.
    pub fn report(&self, command: &str) -> Value {
        self.say(command, &[]);
        let said = self.hears("REPLY");
        assert_eq!(said.len(), 1, "{said:?}");
        serde_json::from_str(&said[0]).unwrap()
    }

    /// Requests a job as the stock client does.
    pub fn defer_job(&self, function: &str, options: &Value) -> String {
        self.id("defer_job", &[json!(function), options.clone()])
    }

    /// Sends a job's message as the stock client does.
    pub fn send_request(&self, message: &Value, options: &Value) -> String {
        self.id("send_request", &[message.clone(), options.clone()])
    }

    /// Schedules a job as the stock client does, or removes its schedule.
    pub fn schedule(&self, function: &str, options: &Value) -> String {
        self.id("schedule", &[json!(function), options.clone()])
    }

    /// Publishes as the stock client does, which writes the message as JSON.
    pub fn publish(&self, topic: &str, message: &Value) {
        self.id("publish", &[json!(topic), message.clone()]);
    }

    pub fn subscribe(&self, topic: &str) {
        self.order("subscribe", &[json!(topic)]);
    }

    pub fn unsubscribe(&self, topic: &str) {
        self.order("unsubscribe", &[json!(topic)]);
    }

    fn id(&self, name: &str, arguments: &[Value]) -> String {
        self.order(name, arguments)
            .as_str()
            .unwrap_or_else(|| panic!("{name} {arguments:?} is refused"))
            .to_owned()
    }

    fn order(&self, name: &str, arguments: &[Value]) -> Value {
        self.peers.order(self.number, name, arguments)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.peers.try_order(&json!([self.number, "close"]));
    }
}

/// A worker controlled by the test.
#[derive(Debug)]
pub struct Worker(pub Socket);

/// A job as a worker receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: String,
    pub queue: String,
    pub headers: String,
    pub body: String,
}

impl Worker {
    /// Introduces a worker over this socket.
    pub fn over(socket: Socket, queues: &str) -> Self {
        let informed = socket.say("INFORM", &[queues, "worker"]);
        assert_eq!(
            socket.hear_any()[2..],
            [informed],
            "the first thing is the acknowledgement"
        );
        Self(socket)
    }

    /// Announces that it can take this many more jobs.
    pub fn ready(&self, jobs: usize) {
        for _ in 0..jobs {
            self.0.say("READY", &[]);
        }
    }

    pub fn job(&self) -> Job {
        let message = self.0.hear();
        let [command, id, queue, headers, body] = &message[..] else {
            panic!("no job: {message:?}")
        };
        assert_eq!(command, "REQUEST");
        Job {
            id: id.clone(),
            queue: queue.clone(),
            headers: headers.clone(),
            body: body.clone(),
        }
    }

    /// The next jobs' bodies.
    pub fn bodies(&self, jobs: usize) -> Vec<String> {
        (0..jobs).map(|_| self.job().body).collect()
    }

    pub fn finish(&self, job: &Job) {
        self.0.say("REPLY", &["{\"value\": null}", &job.id]);
    }

    /// Takes a job, finishes it, and announces a free slot.
    pub fn work(&self) -> Job {
        self.ready(1);
        let job = self.job();
        self.finish(&job);
        job
    }
}
