//! The security mechanisms: from the greeting to the peer's metadata, with one function for each expected command.
//!
//! CURVE's commands are in `curve`.
//!
//! Spec: RFC 37, "The NULL Security Mechanism" and "Connection Metadata"; RFC 24.

use bytes::{Bytes, BytesMut};
use windlass_engine::Timestamp;

use super::settings::is_known;
use super::{Close, Mechanism, Peer, Stage};
use crate::curve::Awaited;
use crate::wire::{Command, Metadata, SocketType};

/// The longest identity.
const IDENTITY_BYTES_MAX: usize = 255;

/// The command that the mechanism expects.
#[derive(Debug)]
pub(super) enum Step {
    /// NULL: the peer's metadata.
    NullReady,
    /// PLAIN: user and password.
    PlainHello,
    /// PLAIN: the metadata of this user.
    PlainInitiate { user: Bytes },
    /// CURVE: the client's transient key.
    CurveHello,
    /// CURVE: the client's key and metadata.
    CurveInitiate(Box<Awaited>),
}

/// The result of the handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The peer's socket type.
    pub socket_type: SocketType,
    /// The identity the peer asks for, if it is allowed: at most 255 bytes, the first of which is not 0. See
    /// [`Registration::settle`](crate::Registration::settle).
    pub identity: Option<Bytes>,
    /// The user that logged in; `None` with a mechanism that has no users.
    pub user: Option<Bytes>,
    /// All other metadata of the peer, in order.
    pub metadata: Vec<(Bytes, Bytes)>,
}

impl Peer {
    pub(super) fn first_step(&self) -> Step {
        match self.settings.mechanism() {
            Mechanism::Null => Step::NullReady,
            Mechanism::Plain(_) => Step::PlainHello,
            Mechanism::Curve(_) => Step::CurveHello,
        }
    }

    /// Handles one command. Returns the result of the handshake after its last command.
    pub(super) fn shake(
        &mut self,
        body: &[u8],
        now: Timestamp,
        out: &mut BytesMut,
    ) -> Result<Option<Ready>, Close> {
        if self.curve.is_some() {
            return self.shake_curve(body, now, out);
        }
        let command = Command::parse(body)?;
        if let Command::Error(reason) = command {
            return Err(Close::PeerError(reason.escape_ascii().to_string()));
        }
        let Stage::Handshake(step) = &mut self.stage else {
            return Ok(None);
        };
        let (ready, metadata) = match (step, command) {
            (Step::NullReady, Command::Ready(metadata)) => {
                (self.introduced(metadata, None)?, self.settings.metadata())
            }
            (Step::PlainHello, Command::Hello { user, password }) => {
                self.hello(user, password, out)?;
                return Ok(None);
            }
            (Step::PlainInitiate { user }, Command::Initiate(metadata)) => {
                let user = std::mem::take(user);
                (
                    self.introduced(metadata, Some(user))?,
                    self.settings.metadata(),
                )
            }
            (step, command) => {
                return Err(Close::Unexpected {
                    found: name(&command),
                    due: step.due(),
                });
            }
        };
        if !self.settings.role.is_client() {
            Command::Ready(metadata).encode(out);
        }
        self.stage = Stage::Traffic;
        self.heart.received(now);
        Ok(Some(ready))
    }

    fn hello(&mut self, user: &[u8], password: &[u8], out: &mut BytesMut) -> Result<(), Close> {
        let known = match &self.settings.mechanism {
            Mechanism::Plain(logins) => is_known(logins, user, password),
            Mechanism::Null | Mechanism::Curve(_) => false,
        };
        if !known {
            return Err(Close::Credentials);
        }
        Command::Welcome.encode(out);
        self.stage = Stage::Handshake(Step::PlainInitiate {
            user: Bytes::copy_from_slice(user),
        });
        Ok(())
    }

    pub(super) fn introduced(
        &self,
        metadata: Metadata,
        user: Option<Bytes>,
    ) -> Result<Ready, Close> {
        let Metadata {
            socket_type,
            identity,
            others,
        } = metadata;
        let role = self.settings.role;
        let socket_type = socket_type.filter(|kind| role.serves(*kind));
        let socket_type = socket_type.ok_or(Close::SocketType {
            ours: role.socket_type().name(),
        })?;
        Self::check_identity_bytes(identity.len())?;
        // "Identities starting with a zero octet are reserved for implementations' internal use."
        let identity =
            Some(identity).filter(|identity| identity.first().is_some_and(|first| *first != 0));
        Ok(Ready {
            socket_type,
            identity,
            user,
            metadata: others,
        })
    }

    /// Returns an identity's length, or an error if it is too long.
    pub(super) const fn check_identity_bytes(bytes: usize) -> Result<usize, Close> {
        if bytes > IDENTITY_BYTES_MAX {
            Err(Close::Identity { bytes })
        } else {
            Ok(bytes)
        }
    }
}

impl Step {
    const fn due(&self) -> &'static str {
        match self {
            Self::NullReady => "READY",
            Self::PlainHello | Self::CurveHello => "HELLO",
            Self::PlainInitiate { .. } | Self::CurveInitiate(_) => "INITIATE",
        }
    }
}

/// A command's name, for the log.
pub(super) fn name(command: &Command<'_>) -> String {
    match command {
        Command::Ready(_) => "READY".to_owned(),
        Command::Error(_) => "ERROR".to_owned(),
        Command::Hello { .. } => "HELLO".to_owned(),
        Command::Welcome => "WELCOME".to_owned(),
        Command::Initiate(_) => "INITIATE".to_owned(),
        Command::Ping { .. } => "PING".to_owned(),
        Command::Pong(_) => "PONG".to_owned(),
        Command::Subscribe(_) => "SUBSCRIBE".to_owned(),
        Command::Cancel(_) => "CANCEL".to_owned(),
        Command::Unknown { name } => name.escape_ascii().to_string(),
    }
}
