//! Stock client libraries as child processes that a test directs.
//!
//! Each peer is a small program around one library. It speaks lines of words with the test, so that one scene can be played
//! with every library; bodies, unique ids and what jobs say are hexadecimal. `PEER HOST PORT client [exceptions]` is told:
//!
//! | line | |
//! | --- | --- |
//! | `submit TAG foreground\|background high\|normal\|low FUNCTION UNIQUE BODY` | the library may only send it at the next `wait` |
//! | `wait` | until the jobs are over; libraries that listen anyway do nothing |
//! | `ask TAG HANDLE` | `GET_STATUS` |
//! | `ask-unique TAG HANDLE` | `GET_STATUS_UNIQUE`, with the unique id of that job; only some libraries |
//! | `admin version\|functions\|workers\|jobs\|uniques\|cancel [HANDLE]` | text commands, only some libraries |
//!
//! and says, as it hears it: `TAG created HANDLE`, `TAG status NUMERATOR DENOMINATOR`, `TAG data DATA`, `TAG warning DATA`,
//! `TAG complete DATA`, `TAG fail`, `TAG exception DATA`, `TAG is KNOWN RUNNING NUMERATOR DENOMINATOR
//! [CLIENTS]`, `admin answer LINES`.
//!
//! `PEER HOST PORT worker` works on `echo` (gives back the body), `note` (the same, and says `worker note BODY`), `steps` (status 1
//! of 2, data, a warning, the result), `fail`, `raise` (an exception) and `hold` (status 3 of 4, and is held while the file that
//! the body names is there).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How long something may take on a loaded machine. A test waits this long only when it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// One stock library.
#[derive(Debug, Clone, Copy)]
pub struct Stock {
    pub name: &'static str,
    /// What starts it, below the top folder.
    program: &'static [&'static str],
    /// Whether bodies may be any bytes. Else they are text.
    pub binary: bool,
    /// Whether a client can ask for exceptions.
    pub exceptions: bool,
    /// Whether a client can do anything else while it waits for a job.
    pub listens: bool,
}

/// PyPI's `gear`, what Zuul uses.
pub const GEAR: Stock = Stock {
    name: "gear",
    program: &["target/clients/python/bin/python", "tests/interop/gear_peer.py"],
    binary: true,
    exceptions: true,
    listens: true,
};

/// PyPI's `python3-gearman`, one of the forks of python-gearman.
pub const PYTHON3_GEARMAN: Stock = Stock {
    name: "python3-gearman",
    program: &["target/clients/python/bin/python", "tests/interop/python3_gearman_peer.py"],
    binary: false,
    exceptions: false,
    listens: false,
};

/// Perl's `Gearman::Client` and `Gearman::Worker`.
pub const PERL: Stock = Stock {
    name: "Gearman::Client",
    program: &["/usr/bin/perl", "tests/interop/perl_peer.pl"],
    binary: true,
    exceptions: true,
    listens: false,
};

/// The C library, of which `gearman` is a part.
pub const LIBGEARMAN: Stock = Stock {
    name: "libgearman",
    program: &["target/clients/python/bin/python", "tests/interop/libgearman_peer.py"],
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

/// npm's `gearmanode`, of which the tests know the worker alone.
pub const GEARMANODE: Stock = Stock {
    name: "gearmanode",
    program: &["/usr/bin/node", "tests/interop/gearmanode_peer.js"],
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

/// A peer that runs, killed when dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
    heard: HashMap<String, Vec<Event>>,
    complaints: Arc<Mutex<String>>,
}

/// Something a peer said about one tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub what: String,
    /// The words behind it, or what they are in hexadecimal.
    pub words: Vec<u8>,
}

impl Event {
    fn is_the_end(&self) -> bool {
        ["complete", "fail", "exception"].contains(&self.what.as_str())
    }

    /// For reading: bytes that are no text are escaped.
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
            .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/install-clients installs it"));
        let (sender, lines) = channel();
        let said = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let complaints = Arc::new(Mutex::new(String::new()));
        let (mut stderr, shared) = (child.stderr.take().unwrap(), Arc::clone(&complaints));
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut chunk) {
                shared.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk[..read]));
            }
        });
        Self { orders: child.stdin.take(), child, lines, heard: HashMap::new(), complaints }
    }

    /// Submits a job. What becomes of it is told under its tag.
    pub fn submit(&mut self, tag: &str, way: &str, function: &str, unique: &str, body: impl AsRef<[u8]>) {
        let (unique, body) = (hex::encode(unique), hex::encode(body));
        self.order(&format!("submit {tag} {way} {function} {unique} {body}"));
    }

    /// Has the library wait for the jobs submitted so far, which some libraries need in order to hear anything.
    pub fn wait(&mut self) {
        self.order("wait");
    }

    /// Asks for the status of a job: known, running, numerator, denominator.
    pub fn ask(&mut self, handle: &str) -> String {
        self.answer(&format!("ask question {handle}"), "question")
    }

    /// The same by the job's unique id, and how many clients wait for it.
    pub fn ask_by_unique(&mut self, handle: &str) -> String {
        self.answer(&format!("ask-unique question {handle}"), "question")
    }

    /// A text command and the lines of its answer, their columns a space apart.
    pub fn admin(&mut self, command: &str) -> Vec<String> {
        self.answer(&format!("admin {command}"), "admin").lines().map(str::to_owned).collect()
    }

    /// What is said under a tag to an order.
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

    /// The handle of a job, when it is there.
    pub fn created(&mut self, tag: &str) -> String {
        String::from_utf8(self.hears(tag, |event| event.what == "created").words).unwrap()
    }

    /// Waits for a piece of news; earlier ones count.
    pub fn hears_of(&mut self, tag: &str, what: &str, words: &str) {
        self.hears(tag, |event| event.what == what && event.words == words.as_bytes());
    }

    /// Waits for the end of a job, and tells everything there was but its handle.
    pub fn story(&mut self, tag: &str) -> Vec<String> {
        self.hears(tag, Event::is_the_end);
        self.so_far(tag)
    }

    /// Everything heard of a job but its handle.
    pub fn so_far(&self, tag: &str) -> Vec<String> {
        let events = self.heard.get(tag).into_iter().flatten();
        events.filter(|event| event.what != "created").map(Event::text).collect()
    }

    /// The result of a job, byte for byte.
    pub fn result(&mut self, tag: &str) -> Vec<u8> {
        let end = self.hears(tag, Event::is_the_end);
        assert_eq!(end.what, "complete", "{:?}", self.so_far(tag));
        end.words
    }

    /// Waits until a worker has noted as many bodies, and tells them in their order.
    pub fn notes(&mut self, number: usize) -> Vec<String> {
        while self.heard.get("worker").map_or(0, Vec::len) < number {
            self.listen();
        }
        self.so_far("worker")
    }

    fn hears(&mut self, tag: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            if let Some(event) = self.heard.get(tag).and_then(|events| events.iter().find(|event| wanted(event))) {
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
        let (tag, what, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or_default());
        let plain = ["created", "status", "is"].contains(&what);
        let words = if plain { rest.into() } else { hex::decode(rest).unwrap() };
        self.heard.entry(tag.to_owned()).or_default().push(Event { what: what.to_owned(), words });
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends a client in its own time and insists that it found nothing wrong.
    pub fn leave(mut self) {
        drop(self.orders.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.complaints.lock().unwrap());
    }

    fn lost(&self, why: &str) -> ! {
        let heard: Vec<_> = self.heard.keys().map(|tag| (tag, self.so_far(tag))).collect();
        panic!("{why}; heard {heard:?}; it said: {}", self.complaints.lock().unwrap())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file that holds `hold` for as long as it is there.
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
