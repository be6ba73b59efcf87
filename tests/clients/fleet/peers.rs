//! The Python programs around stock libraries, and the messages exchanged with them.
//!
//! One program for each protocol and role serves all rows; each connection of it has a [`Voice`]. `speech.py` describes
//! the lines.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// The longest wait on a loaded machine. A test waits this long only if it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The protocol of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Gearman,
    Faktory,
    Eventmq,
}

impl Protocol {
    pub const ALL: [Self; 3] = [Self::Gearman, Self::Faktory, Self::Eventmq];

    /// The name of its listener and of its programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gearman => "gearman",
            Self::Faktory => "faktory",
            Self::Eventmq => "eventmq",
        }
    }
}

/// A message from a connection of a peer.
#[derive(Debug, Clone)]
pub struct Word {
    what: String,
    text: Vec<u8>,
    more: Value,
}

impl Word {
    fn read(line: &Value) -> Self {
        let text = line["text"].as_str().unwrap();
        let text = text
            .chars()
            .map(|octet| u8::try_from(u32::from(octet)).unwrap())
            .collect();
        Self {
            what: line["say"].as_str().unwrap().to_owned(),
            text,
            more: line.clone(),
        }
    }

    /// The text of the message; bytes that are not UTF-8 are escaped.
    pub fn text(&self) -> String {
        String::from_utf8(self.text.clone())
            .unwrap_or_else(|error| error.as_bytes().escape_ascii().to_string())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// A further field of the message.
    pub fn more(&self, key: &str) -> &str {
        self.more[key]
            .as_str()
            .unwrap_or_else(|| panic!("no {key} in {self}"))
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.text.is_empty() { "" } else { " " };
        write!(f, "{}{space}{}", self.what, self.text())
    }
}

/// Encodes bytes for an order.
pub fn octets(bytes: impl AsRef<[u8]>) -> String {
    bytes
        .as_ref()
        .iter()
        .map(|byte| char::from(*byte))
        .collect()
}

/// A running program, killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    orders: Mutex<ChildStdin>,
    voices: Arc<Mutex<HashMap<u64, Sender<Word>>>>,
    complaints: Arc<Mutex<String>>,
    next: AtomicU64,
}

impl Program {
    pub fn start(protocol: Protocol, role: &str) -> Self {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(top.join("target/clients/python/bin/python"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
            .arg(top.join(format!("tests/clients/fleet/{}_peer.py", protocol.name())))
            .arg(role);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn();
        let mut child = child.unwrap_or_else(|error| {
            panic!("{command:?}: {error}; tests/install-clients installs it")
        });
        let voices: Arc<Mutex<HashMap<u64, Sender<Word>>>> = Arc::default();
        let (said, heard) = (
            BufReader::new(child.stdout.take().unwrap()),
            Arc::clone(&voices),
        );
        thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let line: Value = serde_json::from_str(&line).unwrap();
                // A finished row no longer receives messages.
                if let Some(voice) = heard.lock().unwrap().get(&line["of"].as_u64().unwrap()) {
                    let _ = voice.send(Word::read(&line));
                }
            }
            // Ends the wait of all connections.
            heard.lock().unwrap().clear();
        });
        let complaints: Arc<Mutex<String>> = Arc::default();
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
        let orders = Mutex::new(child.stdin.take().unwrap());
        Self {
            child,
            orders,
            voices,
            complaints,
            next: AtomicU64::new(0),
        }
    }

    /// Opens a connection with the terms of its protocol.
    pub fn connect(&self, address: SocketAddr, mut terms: Value) -> Voice<'_> {
        let of = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, words) = channel();
        self.voices.lock().unwrap().insert(of, sender);
        let voice = Voice {
            program: self,
            of,
            words,
        };
        terms["host"] = address.ip().to_string().into();
        terms["port"] = address.port().into();
        voice.order("connect", terms);
        voice
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One connection of a program.
#[derive(Debug)]
pub struct Voice<'a> {
    program: &'a Program,
    of: u64,
    words: Receiver<Word>,
}

impl Voice<'_> {
    pub fn order(&self, what: &str, mut order: Value) {
        order["of"] = self.of.into();
        order["do"] = what.into();
        let mut orders = self.program.orders.lock().unwrap();
        if let Err(error) = writeln!(orders, "{order}") {
            panic!(
                "{order}: {error}; it said {}",
                self.program.complaints.lock().unwrap()
            );
        }
    }

    /// An order without arguments.
    pub fn tell(&self, what: &str) {
        self.order(what, json!({}));
    }

    /// The next message.
    pub fn hear(&self) -> Word {
        match self.words.recv_timeout(PATIENCE) {
            Ok(word) if word.what == "error" => panic!("{}", word.text()),
            Ok(word) => word,
            Err(error) => panic!(
                "heard nothing: {error}; it said {}",
                self.program.complaints.lock().unwrap()
            ),
        }
    }

    /// Asserts the next message.
    pub fn hears(&self, what: &str) -> Word {
        let word = self.hear();
        assert_eq!(word.what, what, "{word}");
        word
    }
}
