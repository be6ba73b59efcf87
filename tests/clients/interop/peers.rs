//! Stock client libraries as child processes that a test directs.
//!
//! Each peer is a small program around one library. It exchanges lines of words with the test, so that one scene can be
//! played with every library; bodies, unique ids and jobs' messages are hexadecimal.
//! `PEER HOST PORT client [exceptions]` accepts:
//!
//! | line | |
//! | --- | --- |
//! | `submit TAG foreground\|background high\|normal\|low FUNCTION UNIQUE BODY` | the library may only send it at the next `wait` |
//! | `wait` | until the jobs are over; libraries that always receive do nothing |
//! | `ask TAG HANDLE` | `GET_STATUS` |
//! | `ask-unique TAG HANDLE` | `GET_STATUS_UNIQUE`, with the unique id of that job; only some libraries |
//! | `admin version\|functions\|workers\|jobs\|uniques\|cancel [HANDLE]` | text commands, only some libraries |
//!
//! It prints each message as it arrives: `TAG created HANDLE`, `TAG status NUMERATOR DENOMINATOR`, `TAG data DATA`,
//! `TAG warning DATA`, `TAG complete DATA`, `TAG fail`, `TAG exception DATA`,
//! `TAG is KNOWN RUNNING NUMERATOR DENOMINATOR [CLIENTS]`, `admin answer LINES`.
//!
//! `PEER HOST PORT worker` works on `echo` (returns the body), `note` (the same, and prints `worker note BODY`),
//! `steps` (status 1 of 2, data, a warning, the result), `fail`, `raise` (an exception) and `hold` (status 3 of 4, then
//! waits while the file named by the body exists).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The longest wait on a loaded machine. A test waits this long only if it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// One stock library.
#[derive(Debug, Clone, Copy)]
pub struct Stock {
    pub name: &'static str,
    /// The command that starts it, below the top folder.
    program: &'static [&'static str],
    /// Whether bodies may be any bytes. Otherwise they are text.
    pub binary: bool,
    /// Whether a client can ask for exceptions.
    pub exceptions: bool,
    /// Whether a client can do anything else while it waits for a job.
    pub listens: bool,
}

/// PyPI's `gear`, which Zuul uses.
pub const GEAR: Stock = Stock {
    name: "gear",
    program: &[
        "target/clients/python/bin/python",
        "tests/clients/interop/gear_peer.py",
    ],
    binary: true,
    exceptions: true,
    listens: true,
};

/// PyPI's `python3-gearman`, one of the forks of python-gearman.
pub const PYTHON3_GEARMAN: Stock = Stock {
    name: "python3-gearman",
    program: &[
        "target/clients/python/bin/python",
        "tests/clients/interop/python3_gearman_peer.py",
    ],
    binary: false,
    exceptions: false,
    listens: false,
};

/// Perl's `Gearman::Client` and `Gearman::Worker`.
pub const PERL: Stock = Stock {
    name: "Gearman::Client",
    program: &["/usr/bin/perl", "tests/clients/interop/perl_peer.pl"],
    binary: true,
    exceptions: true,
    listens: false,
};

/// The C library, of which `gearman` is a part.
pub const LIBGEARMAN: Stock = Stock {
    name: "libgearman",
    program: &[
        "target/clients/python/bin/python",
        "tests/clients/interop/libgearman_peer.py",
    ],
    binary: true,
    exceptions: true,
    listens: false,
};

/// The crate `gearman`.
pub const CRATE: Stock = Stock {
    name: "crate gearman",
    program: &["target/clients/crate-peer/debug/crate-peer"],
    binary: true,
    exceptions: true,
    listens: true,
};

/// npm's `gearmanode`; the tests use only its worker.
pub const GEARMANODE: Stock = Stock {
    name: "gearmanode",
    program: &["/usr/bin/node", "tests/clients/interop/gearmanode_peer.js"],
    binary: true,
    exceptions: false,
    listens: true,
};

pub const ALL: [Stock; 5] = [GEAR, PYTHON3_GEARMAN, PERL, LIBGEARMAN, CRATE];

impl Stock {
    pub fn client(&self, address: SocketAddr) -> Peer {
        self.start(address, &["client"])
    }

    pub fn client_with_exceptions(&self, address: SocketAddr) -> Peer {
        self.start(address, &["client", "exceptions"])
    }

    pub fn worker(&self, address: SocketAddr) -> Peer {
        self.start(address, &["worker"])
    }

    fn start(&self, address: SocketAddr, role: &[&str]) -> Peer {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut program = self.program.iter().map(|part| top.join(part));
        let mut command = Command::new(program.next().unwrap_or_default());
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(program)
            .args([address.ip().to_string(), address.port().to_string()])
            .args(role);
        Peer::start(&mut command)
    }
}

/// A running peer, killed when dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
    heard: HashMap<String, Vec<Event>>,
    complaints: Arc<Mutex<String>>,
}

/// A message of a peer about one tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub what: String,
    /// The rest of the line, decoded if it is hexadecimal.
    pub words: Vec<u8>,
}

impl Event {
    fn is_the_end(&self) -> bool {
        ["complete", "fail", "exception"].contains(&self.what.as_str())
    }

    /// For display: bytes that are not text are escaped.
    fn text(&self) -> String {
        let space = if self.words.is_empty() { "" } else { " " };
        format!("{}{space}{}", self.what, self.words.escape_ascii())
    }
}

impl Peer {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{command:?}: {error}; tests/install-clients installs it")
            });
        let (sender, lines) = channel();
        let said = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            said.lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let complaints = Arc::new(Mutex::new(String::new()));
        let (mut stderr, shared) = (child.stderr.take().unwrap(), Arc::clone(&complaints));
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut chunk) {
                shared
                    .lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&chunk[..read]));
            }
        });
        Self {
            orders: child.stdin.take(),
            child,
            lines,
            heard: HashMap::new(),
            complaints,
        }
    }

    /// Submits a job. Its messages carry the tag.
    pub fn submit(
        &mut self,
        tag: &str,
        way: &str,
        function: &str,
        unique: &str,
        body: impl AsRef<[u8]>,
    ) {
        let (unique, body) = (hex::encode(unique), hex::encode(body));
        self.order(&format!("submit {tag} {way} {function} {unique} {body}"));
    }

    /// Makes the library wait for the jobs submitted so far; some libraries receive messages only then.
    pub fn wait(&mut self) {
        self.order("wait");
    }

    /// Requests the status of a job: known, running, numerator, denominator.
    pub fn ask(&mut self, handle: &str) -> String {
        self.answer(&format!("ask question {handle}"), "question")
    }

    /// The same by the job's unique id, with the number of clients that wait for it.
    pub fn ask_by_unique(&mut self, handle: &str) -> String {
        self.answer(&format!("ask-unique question {handle}"), "question")
    }

    /// Sends a text command and returns the lines of its answer, with columns separated by a space.
    pub fn admin(&mut self, command: &str) -> Vec<String> {
        self.answer(&format!("admin {command}"), "admin")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Sends an order and returns the answer under this tag.
    fn answer(&mut self, order: &str, tag: &str) -> String {
        self.order(order);
        let answer = self.hears(tag, |event| ["is", "answer"].contains(&event.what.as_str()));
        self.heard.remove(tag);
        String::from_utf8(answer.words).unwrap()
    }

    fn order(&mut self, line: &str) {
        let orders = self.orders.as_mut().unwrap();
        if let Err(error) = writeln!(orders, "{line}").and_then(|()| orders.flush()) {
            self.lost(&error.to_string());
        }
    }

    /// Waits for the handle of a job.
    pub fn created(&mut self, tag: &str) -> String {
        String::from_utf8(self.hears(tag, |event| event.what == "created").words).unwrap()
    }

    /// Waits for a message; earlier ones count.
    pub fn hears_of(&mut self, tag: &str, what: &str, words: &str) {
        self.hears(tag, |event| {
            event.what == what && event.words == words.as_bytes()
        });
    }

    /// Waits for the end of a job, and returns all its messages except the handle.
    pub fn story(&mut self, tag: &str) -> Vec<String> {
        self.hears(tag, Event::is_the_end);
        self.so_far(tag)
    }

    /// All messages about a job so far, except the handle.
    pub fn so_far(&self, tag: &str) -> Vec<String> {
        let events = self.heard.get(tag).into_iter().flatten();
        events
            .filter(|event| event.what != "created")
            .map(Event::text)
            .collect()
    }

    /// The result of a job, byte for byte.
    pub fn result(&mut self, tag: &str) -> Vec<u8> {
        let end = self.hears(tag, Event::is_the_end);
        assert_eq!(end.what, "complete", "{:?}", self.so_far(tag));
        end.words
    }

    /// Waits until a worker has noted this many bodies, and returns them in order.
    pub fn notes(&mut self, number: usize) -> Vec<String> {
        while self.heard.get("worker").map_or(0, Vec::len) < number {
            self.listen();
        }
        self.so_far("worker")
    }

    fn hears(&mut self, tag: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            if let Some(event) = self
                .heard
                .get(tag)
                .and_then(|events| events.iter().find(|event| wanted(event)))
            {
                return event.clone();
            }
            self.listen();
        }
    }

    fn listen(&mut self) {
        let line = match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => self.lost(&error.to_string()),
        };
        let mut words = line.splitn(3, ' ');
        let (tag, what, rest) = (
            words.next().unwrap(),
            words.next().unwrap(),
            words.next().unwrap_or_default(),
        );
        let plain = ["created", "status", "is"].contains(&what);
        let words = if plain {
            rest.into()
        } else {
            hex::decode(rest).unwrap()
        };
        self.heard.entry(tag.to_owned()).or_default().push(Event {
            what: what.to_owned(),
            words,
        });
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends a client gracefully and asserts that it reported no error.
    pub fn leave(mut self) {
        drop(self.orders.take());
        let status = self.child.wait().unwrap();
        assert!(
            status.success(),
            "{status}: {}",
            self.complaints.lock().unwrap()
        );
    }

    fn lost(&self, why: &str) -> ! {
        let heard: Vec<_> = self
            .heard
            .keys()
            .map(|tag| (tag, self.so_far(tag)))
            .collect();
        panic!(
            "{why}; heard {heard:?}; it said: {}",
            self.complaints.lock().unwrap()
        )
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file that blocks `hold` as long as it exists.
#[derive(Debug)]
pub struct Held(PathBuf);

impl Held {
    pub fn new(dir: &Path, name: &str) -> Self {
        let path = dir.join(name);
        std::fs::write(&path, "").unwrap();
        Self(path)
    }

    /// The body for `hold`.
    pub fn body(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub fn let_go(self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}
