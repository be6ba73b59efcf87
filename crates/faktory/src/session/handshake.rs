//! HI and HELLO: the client's identity and its password.
//!
//! Spec: "Not Identified State", "`HELLO` Command". As on deployed servers, anything but HELLO closes the connection
//! without a reply.

use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{Timestamp, WorkerCommand};
use windlass_session::Reason;

use super::counts::Counted;
use super::settings::Login;
use super::{FaktorySpeaker, Settings, Talk};
use crate::wire::{Challenge, Hello, hi, password_matches, reply};

/// Bytes of the longest line before HELLO.
pub(super) const HELLO_BYTES_MAX: usize = 64 << 10;

/// The state before HELLO.
#[derive(Debug)]
pub(super) struct Handshake {
    challenge: Option<Challenge>,
    deadline: Option<Timestamp>,
    /// The namespace of the address, if it has one.
    at: Option<Box<str>>,
}

impl Handshake {
    pub(super) fn new(settings: &Settings, at: Option<Box<str>>, rng: [u64; 2]) -> Self {
        let challenge = settings.asks(at.as_deref()).then(|| Challenge::new(rng));
        Self {
            challenge,
            deadline: None,
            at,
        }
    }

    /// Whether the password, and not the address, tells the client's namespace.
    pub(super) fn tells_namespace(&self, settings: &Settings) -> bool {
        self.at.is_none() && !settings.section.passwords.is_empty()
    }

    /// Sends HI.
    pub(super) fn begin(&mut self, settings: &Settings, talk: &mut Talk<'_>) {
        self.deadline = Some(talk.now().after_ms(settings.section.hello_timeout.as_ms()));
        talk.bytes()
            .extend_from_slice(hi(self.challenge.as_ref()).as_bytes());
    }

    pub(super) const fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }
}

impl FaktorySpeaker {
    /// Handles the first line.
    pub(super) fn greeted(&mut self, handshake: &Handshake, line: &[u8], talk: &mut Talk<'_>) {
        let Some(hello) = std::str::from_utf8(line).ok().and_then(Hello::parse) else {
            return talk.end(Reason::Protocol("no HELLO".to_owned()));
        };
        let settings = Arc::clone(&self.settings);
        let mut namespace = handshake.at.as_deref();
        if let Some(challenge) = &handshake.challenge {
            let logins = settings.logins(namespace);
            let Some(login) = proven(&logins, challenge, &hello) else {
                reply::error("Invalid password", talk.bytes());
                return talk.end(Reason::WrongPassword);
            };
            namespace = login.namespace;
        }
        talk.enter(namespace);
        reply::ok(talk.bytes());
        let counted = Counted::new(&settings.shared, namespace);
        let connections = counted.number();
        if (1..connections).contains(&settings.section.connections_max) {
            reply::error(format!("too many connections: {connections}"), talk.bytes());
            return talk.end(Reason::Limit("connections_max"));
        }
        self.counted = Some(counted);
        if !hello.wid.is_empty() {
            let about = about(&hello);
            self.wid = Bytes::from(hello.wid);
            talk.send(WorkerCommand::Register {
                worker: self.wid.clone(),
                about,
            });
        }
    }
}

/// The login whose password the client has hashed. Takes the same time whichever it is, and if it is none.
fn proven<'a>(logins: &[Login<'a>], challenge: &Challenge, hello: &Hello) -> Option<Login<'a>> {
    logins.iter().fold(None, |found, login| {
        let matches = password_matches(login.password, challenge, hello);
        if matches { Some(*login) } else { found }
    })
}

/// A worker's description for the list of workers, one line for each property.
fn about(hello: &Hello) -> Bytes {
    let labels = hello.labels.join(" ");
    format!(
        "{}\n{}\n{labels}",
        hello.hostname.replace('\n', " "),
        hello.pid
    )
    .into()
}
