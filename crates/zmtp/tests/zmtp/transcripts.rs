//! Conversations as bytes, played against a peer in memory. Each line is played twice: in one piece, and byte by byte.
//!
//! A scene begins with `scene NAME`; a `#` begins a comment. Then, one per line:
//! - `role router|pub|dealer`, `plain USER PASSWORD`, `limit NAME NUMBER`, `time NAME MILLISECONDS`: settings
//! - `> BYTES`: everything our side has sent since the last `>`
//! - `< BYTES`: the peer sends these bytes
//! - `= EVENT`: the next event of our side
//! - `send PART | PART…`: our side sends a message
//! - `wait MILLISECONDS`, `reset_liveness`: time passes; the silence was ours
//! - `wanted NUMBER`: minimum number of bytes missing
//! - `close REASON`: the connection is over
//!
//! Bytes are two hexadecimal digits, `"text"`, or either followed by `*COUNT`. Output and events that the scene does
//! not expect are errors.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::Timestamp;
use windlass_session::Reason;
use windlass_zmtp::{Event, Login, Mechanism, Peer, Role, Settings};

/// How a `<` line arrives.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Whole,
    Bytes,
}

struct Scene {
    cut: Cut,
    settings: Settings,
    peer: Option<Peer>,
    now: Timestamp,
    input: BytesMut,
    out: BytesMut,
    events: VecDeque<String>,
    over: Option<String>,
}

#[test]
fn every_scene() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut scenes = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for cut in [Cut::Whole, Cut::Bytes] {
            scenes += play(&text, cut, path.file_name().unwrap().to_str().unwrap());
        }
    }
    assert!(scenes > 50, "{scenes} scenes");
}

fn play(text: &str, cut: Cut, file: &str) -> usize {
    let (mut scene, mut scenes) = (Scene::new(cut), 0);
    for (number, line) in text.lines().enumerate() {
        let at = format!("{file}:{} ({cut:?})", number + 1);
        let line = line.split('#').next().unwrap().trim();
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "" => {}
            "scene" => {
                scene.is_settled(&at);
                (scene, scenes) = (Scene::new(cut), scenes + 1);
            }
            _ => scene.line(verb, rest.trim(), &at),
        }
    }
    scene.is_settled(file);
    scenes
}

impl Scene {
    fn new(cut: Cut) -> Self {
        Self {
            cut,
            settings: Settings::new(Role::Router),
            peer: None,
            now: Timestamp(1_000),
            input: BytesMut::new(),
            out: BytesMut::new(),
            events: VecDeque::new(),
            over: None,
        }
    }

    fn line(&mut self, verb: &str, rest: &str, at: &str) {
        if matches!(verb, "role" | "plain" | "limit" | "time") {
            return self.set(verb, rest, at);
        }
        self.open();
        match verb {
            "=" => assert_eq!(
                self.events.pop_front().as_deref(),
                Some(rest),
                "{at}: event"
            ),
            ">" => {
                let said = self.out.split();
                assert_eq!(
                    hex::encode(said),
                    hex::encode(bytes(rest, at)),
                    "{at}: what was said"
                );
            }
            "<" => {
                self.is_settled(at);
                self.hear(&bytes(rest, at));
            }
            "wait" => {
                self.is_settled(at);
                self.wait(rest.parse().unwrap());
            }
            "excuse" => {
                let now = self.now;
                self.open().reset_liveness(now);
            }
            "send" => {
                let parts: Vec<Vec<u8>> = rest.split('|').map(|part| bytes(part, at)).collect();
                let mut out = self.out.split();
                let sent = self.open().send(parts.iter().map(Vec::as_slice), &mut out);
                self.out = out;
                if let Err(error) = sent {
                    self.events.push_back(format!("unsent {error}"));
                }
            }
            "wanted" => assert_eq!(self.open().bytes_wanted().to_string(), rest, "{at}"),
            "close" => assert_eq!(self.over.take().as_deref(), Some(rest), "{at}"),
            _ => panic!("{at}: {verb}?"),
        }
    }

    fn set(&mut self, verb: &str, rest: &str, at: &str) {
        let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = || value.parse().unwrap();
        let settings = &mut self.settings;
        match (verb, name) {
            ("role", "router") => settings.role = Role::Router,
            ("role", "pub") => settings.role = Role::Pub,
            ("role", "dealer") => settings.role = Role::Dealer,
            ("plain", user) => {
                let login = Login {
                    user: user.to_owned().into(),
                    password: value.to_owned().into(),
                };
                if let Mechanism::Plain(logins) = &mut settings.mechanism {
                    logins.push(login);
                } else {
                    settings.mechanism = Mechanism::Plain(vec![login]);
                }
            }
            ("limit", "frame_bytes_max") => settings.limits.frame_bytes_max = number(),
            ("limit", "message_bytes_max") => settings.limits.message_bytes_max = number(),
            ("limit", "parts_max") => settings.limits.parts_max = number(),
            ("limit", "command_bytes_max") => settings.limits.command_bytes_max = number(),
            ("limit", "outbound_bytes_max") => settings.limits.outbound_bytes_max = number(),
            ("time", "handshake") => settings.handshake_ms = number() as u64,
            ("time", "ping_idle") => settings.ping_idle_ms = number() as u64,
            ("time", "ping_timeout") => settings.ping_timeout_ms = number() as u64,
            _ => panic!("{at}: {verb} {rest}?"),
        }
    }

    fn open(&mut self) -> &mut Peer {
        let (settings, now, out) = (&self.settings, self.now, &mut self.out);
        self.peer.get_or_insert_with(|| {
            let mut peer = Peer::new(Arc::new(settings.clone()));
            peer.open(now, out);
            peer
        })
    }

    fn hear(&mut self, said: &[u8]) {
        let piece_bytes = match self.cut {
            Cut::Whole => said.len(),
            Cut::Bytes => 1,
        };
        for piece in said.chunks(piece_bytes) {
            let (mut input, mut out, now) =
                (std::mem::take(&mut self.input), self.out.split(), self.now);
            input.extend_from_slice(piece);
            loop {
                match self.open().read(now, &mut input, &mut out) {
                    Ok(Some(event)) => self.events.push_back(told(&event)),
                    Ok(None) => break,
                    Err(close) => {
                        assert_eq!(
                            self.open().read(now, &mut input, &mut out),
                            Err(close.clone()),
                            "an error is permanent"
                        );
                        assert_eq!(self.open().next_deadline(), None);
                        self.over = Some(Reason::from(close).to_string());
                        break;
                    }
                }
            }
            (self.input, self.out) = (input, out);
            if self.over.is_some() {
                return;
            }
        }
    }

    /// Ticks at every deadline on the way.
    fn wait(&mut self, ms: u64) {
        let end = self.now.after_ms(ms);
        let mut out = self.out.split();
        while let Some(due) = self.open().next_deadline().filter(|due| *due <= end) {
            if due > self.now {
                let just_before = Timestamp(due.0 - 1);
                assert_eq!(self.open().tick(just_before, &mut out), Ok(()), "too early");
                self.now = due;
            }
            let now = self.now;
            if let Err(close) = self.open().tick(now, &mut out) {
                self.over = Some(Reason::from(close).to_string());
                break;
            }
        }
        (self.now, self.out) = (end, out);
    }

    fn is_settled(&self, at: &str) {
        assert_eq!(self.events.front(), None, "{at}: an unexpected event");
        assert_eq!(hex::encode(&self.out), "", "{at}: unexpected output");
        assert_eq!(self.over, None, "{at}: the connection is over");
    }
}

fn told(event: &Event) -> String {
    match event {
        Event::Ready(ready) => {
            let mut text = format!("ready {}", ready.socket_type.name());
            let mut add =
                |name: &str, value: &Bytes| write!(text, " {name}={}", shown(value)).unwrap();
            ready
                .identity
                .iter()
                .for_each(|identity| add("identity", identity));
            ready.user.iter().for_each(|user| add("user", user));
            ready
                .metadata
                .iter()
                .for_each(|(name, value)| add(&name.escape_ascii().to_string(), value));
            text
        }
        Event::Message(message) => {
            let parts: Vec<String> = message.parts().map(shown).collect();
            assert_eq!(parts.last(), Some(&shown(message.last())));
            format!("message {}", parts.join(" | "))
        }
        Event::Subscribe(topic) => format!("subscribe {}", shown(topic)),
        Event::Cancel(topic) => format!("cancel {}", shown(topic)),
    }
}

/// Short bytes as text; long ones as their first byte and their length.
fn shown(bytes: &[u8]) -> String {
    match bytes.first() {
        Some(first) if bytes.len() > 32 => format!("{first:02x}*{}", bytes.len()),
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}

fn bytes(text: &str, at: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        let (piece, after) = if let Some(quoted) = rest.strip_prefix('"') {
            let (text, after) = quoted.split_once('"').unwrap();
            (text.as_bytes().to_vec(), after)
        } else {
            (
                hex::decode(&rest[..2]).unwrap_or_else(|_| panic!("{at}: {rest}")),
                &rest[2..],
            )
        };
        let end = after.find(' ').unwrap_or(after.len());
        let count = after[..end]
            .strip_prefix('*')
            .map_or(1, |count| count.parse().unwrap());
        bytes.extend(piece.repeat(count));
        rest = after[end..].trim_start();
    }
    bytes
}
