//! HI and HELLO: who is there, and whether they know the password.
//!
//! Spec: "Not Identified State", "`HELLO` Command". What is no HELLO is not answered, as by deployed servers.

use bytes::Bytes;
use windlass_engine::{Command, Tag, Timestamp};
use windlass_session::{Outbox, Reason};

use super::settings::Counted;
use super::{FaktorySession, Settings};
use crate::wire::{Challenge, Hello, hi, password_matches, reply};

/// Longest line taken before the client is known, in bytes.
pub(super) const HELLO_BYTES_MAX: usize = 64 << 10;

/// Nothing that fails is told, so one tag does.
const ENLIST: Tag = Tag::silent(1);

/// What is open until the client has said HELLO.
#[derive(Debug)]
pub(super) struct Handshake {
    challenge: Option<Challenge>,
    deadline: Option<Timestamp>,
}

impl Handshake {
    pub(super) fn new(settings: &Settings, dice: [u64; 2]) -> Self {
        let challenge = (!settings.password.is_empty()).then(|| Challenge::new(dice));
        Self { challenge, deadline: None }
    }

    /// Speaks first.
    pub(super) fn begin(&mut self, now: Timestamp, settings: &Settings, out: &mut Outbox) {
        self.deadline = Some(now.after_ms(settings.handshake_ms));
        out.bytes().extend_from_slice(hi(self.challenge.as_ref()).as_bytes());
    }

    pub(super) const fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }
}

impl FaktorySession {
    /// The first line.
    pub(super) fn greeted(&mut self, handshake: &Handshake, line: &[u8], out: &mut Outbox) {
        let Some(hello) = std::str::from_utf8(line).ok().and_then(Hello::parse) else {
            return self.end(Reason::Protocol("no HELLO".to_owned()), out);
        };
        if let Some(challenge) = &handshake.challenge
            && !password_matches(&self.settings.password, challenge, &hello)
        {
            reply::error("Invalid password", out.bytes());
            return self.end(Reason::WrongPassword, out);
        }
        reply::ok(out.bytes());
        let (counted, connections) = Counted::new(&self.settings.shared);
        if connections > self.settings.connections_max {
            reply::error(format!("too many connections: {connections}"), out.bytes());
            return self.end(Reason::Limit("connections_max"), out);
        }
        self.counted = Some(counted);
        if !hello.wid.is_empty() {
            let about = about(&hello);
            self.wid = Bytes::from(hello.wid);
            out.command(ENLIST, Command::Enlist { worker: self.wid.clone(), about });
        }
    }
}

/// What a worker says of itself, for those who look at workers: a line of text for each.
fn about(hello: &Hello) -> Bytes {
    let labels = hello.labels.join(" ");
    format!("{}\n{}\n{labels}", hello.hostname.replace('\n', " "), hello.pid).into()
}
