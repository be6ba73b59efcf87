//! HI and HELLO: the client's identity and its password.
//!
//! Spec: "Not Identified State", "`HELLO` Command". As on deployed servers, anything but HELLO closes the connection
//! without a reply.

use bytes::Bytes;
use windlass_engine::{Timestamp, WorkerCommand};
use windlass_session::Reason;

use super::settings::Counted;
use super::{FaktorySpeaker, Settings, Talk};
use crate::wire::{Challenge, Hello, hi, password_matches, reply};

/// Bytes of the longest line before HELLO.
pub(super) const HELLO_BYTES_MAX: usize = 64 << 10;

/// The state before HELLO.
#[derive(Debug)]
pub(super) struct Handshake {
    challenge: Option<Challenge>,
    deadline: Option<Timestamp>,
}

impl Handshake {
    pub(super) fn new(settings: &Settings, rng: [u64; 2]) -> Self {
        let challenge = (!settings.section.password.is_empty()).then(|| Challenge::new(rng));
        Self {
            challenge,
            deadline: None,
        }
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
        if let Some(challenge) = &handshake.challenge
            && !password_matches(self.settings.section.password.expose(), challenge, &hello)
        {
            reply::error("Invalid password", talk.bytes());
            return talk.end(Reason::WrongPassword);
        }
        reply::ok(talk.bytes());
        let (counted, connections) = Counted::new(&self.settings.shared);
        if (1..connections).contains(&self.settings.section.connections_max) {
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
