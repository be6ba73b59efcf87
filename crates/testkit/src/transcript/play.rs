//! Plays the steps of a scene over a wire. The [`Speech`] defines the messages.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::{Bytes, BytesMut};

use super::parse::Step;
use super::pattern::{Pattern, Variables};
use super::wire::{Heard, Wire};

/// The peer's side of a protocol's codec, as far as a transcript needs it.
pub trait Speech {
    /// Encodes a peer's message. `raw` and `hex` are handled elsewhere.
    ///
    /// # Errors
    /// There is no such message.
    fn encode(&self, verb: &str, arguments: &[Bytes]) -> Result<Said, String>;

    /// Takes the server's next message from `input`; `None` if it is incomplete.
    ///
    /// # Errors
    /// A server of this protocol does not send such a message.
    fn decode(&self, input: &mut BytesMut) -> Result<Option<Spoken>, String>;

    /// A message that is answered at once and changes nothing, and its answer; different for every number. Its answer
    /// proves that all earlier messages have been processed.
    fn barrier(&self, number: u64) -> (Bytes, Spoken);
}

/// A peer's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// As it is sent.
    pub bytes: Bytes,
    /// Whether it is a complete message, rather than a part of one.
    pub whole: bool,
}

/// A server's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// Its name.
    pub verb: String,
    /// Its arguments.
    pub arguments: Vec<Bytes>,
}

/// The length to which failures shorten an argument.
const SHOWN_BYTES_MAX: usize = 200;

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verb)?;
        self.arguments
            .iter()
            .try_for_each(|argument| match argument.get(..SHOWN_BYTES_MAX) {
                Some(shown) if shown.len() < argument.len() => {
                    write!(
                        f,
                        " \"{}\"… ({} bytes)",
                        shown.escape_ascii(),
                        argument.len()
                    )
                }
                _ => write!(f, " \"{}\"", argument.escape_ascii()),
            })
    }
}

/// A scene in progress.
pub(super) struct Player<'a> {
    wire: &'a mut dyn Wire,
    speech: &'a dyn Speech,
    peers: BTreeMap<String, Peer>,
    variables: Variables,
    barriers: u64,
}

#[derive(Default)]
struct Peer {
    input: BytesMut,
    /// Read from the wire, not expected yet.
    heard: VecDeque<Spoken>,
    /// It can send no more.
    silent: bool,
    /// It may be in the middle of a message; a barrier would become part of that message.
    midway: bool,
}

/// The result of reading.
enum Read {
    Message(Spoken),
    Nothing,
    Closed,
}

impl<'a> Player<'a> {
    pub(super) const fn new(wire: &'a mut dyn Wire, speech: &'a dyn Speech) -> Self {
        Self {
            wire,
            speech,
            peers: BTreeMap::new(),
            variables: Variables::new(),
            barriers: 0,
        }
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Open(who) => self.introduce(who),
            Step::Say {
                who,
                verb,
                arguments,
            } => self.say(who, verb, arguments),
            Step::Hear {
                who,
                verb,
                arguments,
            } => self.hear(who, verb, arguments),
            Step::Nothing(who) => self.nothing(who),
            Step::Closed(who) => self.closed(who),
            Step::HalfClose(who) => {
                self.introduce(who)?;
                self.peer(who).silent = true;
                self.wire.half_close(who);
                Ok(())
            }
            Step::Close(who) => {
                self.introduce(who)?;
                self.wire.close(who);
                self.peers.remove(who);
                Ok(())
            }
            Step::Advance(ms) => self.wire.advance_ms(*ms),
            Step::Stall => self.wire.stall(),
            Step::Resume => {
                self.nothing_more()?;
                self.wire.resume()
            }
        }
    }

    /// No remaining connection has an unexpected message left.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.nothing_more()
            .map_err(|text| format!("at the end, {text}"))
    }

    fn nothing_more(&mut self) -> Result<(), String> {
        let all: Vec<String> = self.peers.keys().cloned().collect();
        all.iter()
            .try_for_each(|who| self.nothing(who).map_err(|text| format!("{who}: {text}")))
    }

    /// Opens a connection when its name is first used.
    fn introduce(&mut self, who: &str) -> Result<(), String> {
        if !self.peers.contains_key(who) {
            self.wire.open(who)?;
            self.peers.insert(who.to_owned(), Peer::default());
            // Ensures that connections are numbered in the order of the scene.
            self.wait_for_all(who)?;
        }
        Ok(())
    }

    fn peer(&mut self, who: &str) -> &mut Peer {
        self.peers.entry(who.to_owned()).or_default()
    }

    fn say(&mut self, who: &str, verb: &str, arguments: &[Pattern]) -> Result<(), String> {
        self.introduce(who)?;
        let arguments: Vec<Bytes> = arguments
            .iter()
            .map(|a| a.fill(&self.variables))
            .collect::<Result<_, _>>()?;
        let said = match verb {
            "raw" => Said {
                bytes: arguments.concat().into(),
                whole: false,
            },
            "hex" => Said {
                bytes: hex(&arguments)?,
                whole: false,
            },
            _ => self.speech.encode(verb, &arguments)?,
        };
        self.wire.send(who, &said.bytes);
        self.peer(who).midway = !said.whole;
        if said.whole {
            self.wait_for_all(who)
        } else {
            Ok(())
        }
    }

    fn hear(&mut self, who: &str, verb: &str, arguments: &[Pattern]) -> Result<(), String> {
        self.introduce(who)?;
        let spoken = match self.peer(who).heard.pop_front() {
            Some(spoken) => spoken,
            None => match self.read(who)? {
                Read::Message(spoken) => spoken,
                Read::Nothing => return Err(format!("nothing came{}", self.rest(who))),
                Read::Closed => return Err(format!("the server has hung up{}", self.rest(who))),
            },
        };
        let same = spoken.verb == verb
            && spoken.arguments.len() == arguments.len()
            && arguments
                .iter()
                .zip(&spoken.arguments)
                .all(|(pattern, bytes)| pattern.matches(bytes, &mut self.variables));
        if same {
            Ok(())
        } else {
            Err(format!("came: {spoken}"))
        }
    }

    fn nothing(&mut self, who: &str) -> Result<(), String> {
        self.introduce(who)?;
        if self.wire.is_immediate() {
            while let Read::Message(spoken) = self.read(who)? {
                self.peer(who).heard.push_back(spoken);
            }
        } else {
            self.wait_for_all(who)?;
        }
        let rest = self.rest(who);
        match self.peer(who).heard.front() {
            Some(spoken) => Err(format!("came: {spoken}")),
            None if rest.is_empty() => Ok(()),
            None => Err(rest),
        }
    }

    fn closed(&mut self, who: &str) -> Result<(), String> {
        self.introduce(who)?;
        if let Some(spoken) = self.peer(who).heard.front() {
            return Err(format!("came: {spoken}"));
        }
        match self.read(who)? {
            Read::Message(spoken) => Err(format!("came: {spoken}")),
            Read::Nothing => Err("the server has not hung up".to_owned()),
            Read::Closed if self.peer(who).input.is_empty() => {
                self.peers.remove(who);
                Ok(())
            }
            Read::Closed => Err(self.rest(who)),
        }
    }

    /// Waits until the server has processed all messages, where that can be determined; keeps what it answers.
    fn wait_for_all(&mut self, who: &str) -> Result<(), String> {
        if self.wire.is_immediate() || self.peer(who).silent || self.peer(who).midway {
            return Ok(());
        }
        self.barriers += 1;
        let (bytes, answer) = self.speech.barrier(self.barriers);
        self.wire.send(who, &bytes);
        loop {
            match self.read(who)? {
                Read::Message(spoken) if spoken == answer => return Ok(()),
                Read::Message(spoken) => self.peer(who).heard.push_back(spoken),
                Read::Nothing => return Err("the server does not answer".to_owned()),
                Read::Closed => {
                    self.peer(who).silent = true;
                    return Ok(());
                }
            }
        }
    }

    fn read(&mut self, who: &str) -> Result<Read, String> {
        let peer = self.peers.entry(who.to_owned()).or_default();
        loop {
            if let Some(spoken) = self.speech.decode(&mut peer.input)? {
                return Ok(Read::Message(spoken));
            }
            match self.wire.receive(who, &mut peer.input) {
                Heard::Bytes => {}
                Heard::Nothing => return Ok(Read::Nothing),
                Heard::Closed => return Ok(Read::Closed),
            }
        }
    }

    /// The incomplete message in the input, for a failure.
    fn rest(&mut self, who: &str) -> String {
        let input = &self.peer(who).input;
        let shown = input.get(..SHOWN_BYTES_MAX).unwrap_or(input);
        if input.is_empty() {
            String::new()
        } else {
            format!(", a part of a message: {}", shown.escape_ascii())
        }
    }
}

fn hex(words: &[Bytes]) -> Result<Bytes, String> {
    let byte = |word: &Bytes| {
        let digits = std::str::from_utf8(word)
            .ok()
            .filter(|digits| digits.len() == 2);
        digits
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .ok_or(format!("{word:?} is not a hex byte"))
    };
    words
        .iter()
        .map(byte)
        .collect::<Result<Vec<u8>, String>>()
        .map(Bytes::from)
}
