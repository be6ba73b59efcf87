//! Plays the steps of a scene over a wire. What the messages look like is the speech's to know.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::{Bytes, BytesMut};

use super::parse::Step;
use super::pattern::{Pattern, Variables};
use super::wire::{Heard, Wire};

/// A protocol, as far as a transcript needs it: the peer's side of the codec.
pub trait Speech {
    /// What a peer's message looks like on the wire. `raw` and `hex` never come here.
    ///
    /// # Errors
    ///
    /// There is no such message.
    fn encode(&self, verb: &str, arguments: &[Bytes]) -> Result<Said, String>;

    /// Takes the next message of the server's out of what has come; `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// No server of this protocol says such a thing.
    fn decode(&self, input: &mut BytesMut) -> Result<Option<Spoken>, String>;

    /// A message that is answered at once and changes nothing, and its answer; different for every number. With it a
    /// player knows that all said before has been dealt with.
    fn barrier(&self, number: u64) -> (Bytes, Spoken);
}

/// A peer's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// As it is sent.
    pub bytes: Bytes,
    /// Whether it is a message, rather than a part of one.
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

/// As much of an argument as helps a person who reads a failure.
const SHOWN_BYTES_MAX: usize = 200;

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verb)?;
        self.arguments.iter().try_for_each(|argument| match argument.get(..SHOWN_BYTES_MAX) {
            Some(shown) if shown.len() < argument.len() => {
                write!(f, " \"{}\"… ({} bytes)", shown.escape_ascii(), argument.len())
            }
            _ => write!(f, " \"{}\"", argument.escape_ascii()),
        })
    }
}

/// A scene as it is played.
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
    /// Read from the wire, not yet asked for.
    heard: VecDeque<Spoken>,
    /// It can say no more.
    silent: bool,
    /// It may be in the middle of a message, where a barrier would be a part of that.
    midway: bool,
}

/// What reading gave.
enum Read {
    Message(Spoken),
    Nothing,
    Closed,
}

impl<'a> Player<'a> {
    pub(super) const fn new(wire: &'a mut dyn Wire, speech: &'a dyn Speech) -> Self {
        Self { wire, speech, peers: BTreeMap::new(), variables: Variables::new(), barriers: 0 }
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Open(who) => self.introduce(who),
            Step::Say { who, verb, arguments } => self.say(who, verb, arguments),
            Step::Hear { who, verb, arguments } => self.hear(who, verb, arguments),
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

    /// Whoever is still there has nothing left to hear.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.nothing_more().map_err(|text| format!("at the end, {text}"))
    }

    fn nothing_more(&mut self) -> Result<(), String> {
        let all: Vec<String> = self.peers.keys().cloned().collect();
        all.iter().try_for_each(|who| self.nothing(who).map_err(|text| format!("{who}: {text}")))
    }

    /// A connection for somebody who is named for the first time.
    fn introduce(&mut self, who: &str) -> Result<(), String> {
        if !self.peers.contains_key(who) {
            self.wire.open(who)?;
            self.peers.insert(who.to_owned(), Peer::default());
            // So that connections are numbered as the scene names them.
            self.wait_for_all(who)?;
        }
        Ok(())
    }

    fn peer(&mut self, who: &str) -> &mut Peer {
        self.peers.entry(who.to_owned()).or_default()
    }

    fn say(&mut self, who: &str, verb: &str, arguments: &[Pattern]) -> Result<(), String> {
        self.introduce(who)?;
        let arguments: Vec<Bytes> = arguments.iter().map(|a| a.fill(&self.variables)).collect::<Result<_, _>>()?;
        let said = match verb {
            "raw" => Said { bytes: arguments.concat().into(), whole: false },
            "hex" => Said { bytes: hex(&arguments)?, whole: false },
            _ => self.speech.encode(verb, &arguments)?,
        };
        self.wire.send(who, &said.bytes);
        self.peer(who).midway = !said.whole;
        if said.whole { self.wait_for_all(who) } else { Ok(()) }
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
        if same { Ok(()) } else { Err(format!("came: {spoken}")) }
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

    /// Waits until all that was said has been dealt with, where that can be known; what came of it is remembered.
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

    /// The part of a message that came without the rest of it, for a failure to show.
    fn rest(&mut self, who: &str) -> String {
        let input = &self.peer(who).input;
        let shown = input.get(..SHOWN_BYTES_MAX).unwrap_or(input);
        if input.is_empty() { String::new() } else { format!(", a part of a message: {}", shown.escape_ascii()) }
    }
}

fn hex(words: &[Bytes]) -> Result<Bytes, String> {
    let byte = |word: &Bytes| {
        let digits = std::str::from_utf8(word).ok().filter(|digits| digits.len() == 2);
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or(format!("{word:?} is no byte"))
    };
    words.iter().map(byte).collect::<Result<Vec<u8>, String>>().map(Bytes::from)
}
