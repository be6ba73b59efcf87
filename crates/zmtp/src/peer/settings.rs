//! What an operator can set, and what the protocol above decides. Where the values come from is the server's business.

use bytes::Bytes;
use subtle::{Choice, ConstantTimeEq};

use crate::wire::{Metadata, SocketType};

/// One set of rules for all connections of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Which side of which pattern this is.
    pub role: Role,
    /// How peers prove who they are. Peers must be set to the same.
    pub mechanism: Mechanism,
    /// What a peer may make us hold.
    pub limits: Limits,
    /// How long the greeting and the handshake may take together, in milliseconds.
    pub handshake_ms: u64,
    /// Silence after which a peer is asked for a sign of life, in milliseconds; 0 = never. Peers older than 3.1 never are.
    pub ping_idle_ms: u64,
    /// How long it may take to give one, in milliseconds.
    pub ping_timeout_ms: u64,
}

/// Which side of which pattern is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Hears whom it will and answers whom it will; for REQ, DEALER and ROUTER.
    Router,
    /// Tells those who subscribed; for SUB and XSUB.
    Pub,
    /// The connecting side of a ROUTER, for tests and load generators. Always NULL, whatever
    /// the mechanism is set to.
    Dealer,
}

/// A security mechanism, and what it needs to know. This side is always its server.
///
/// CURVE would be a third: its handshake is one more function in `handshake`, and its MESSAGE commands become frames
/// where `traffic` reads commands, and frames become they where `send` writes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// Everybody is let in.
    Null,
    /// Those are let in who know a password. It travels in the clear.
    Plain(Vec<Login>),
}

/// A user, and what proves it. Its `Debug` text shows no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// At most 255 bytes, or nobody can say it.
    pub user: Bytes,
    /// The same.
    pub password: Bytes,
}

/// What a peer may make us hold, in bytes unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest body of one frame of a message.
    pub frame_bytes_max: usize,
    /// Largest sum of the bodies of one message.
    pub message_bytes_max: usize,
    /// Parts of one message.
    pub parts_max: usize,
    /// Largest body of a command, and so the longest topic.
    pub command_bytes_max: usize,
    /// What may wait in the buffer that is sent from.
    pub outbound_bytes_max: usize,
}

impl Settings {
    /// The defaults, without security.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            role,
            mechanism: Mechanism::Null,
            limits: Limits::default(),
            handshake_ms: 5_000,
            ping_idle_ms: 30_000,
            ping_timeout_ms: 30_000,
        }
    }

    pub(super) fn mechanism(&self) -> &Mechanism {
        if self.role.is_client() { &Mechanism::Null } else { &self.mechanism }
    }

    /// What is said of ourselves.
    pub(super) fn metadata(&self) -> Metadata {
        Metadata { socket_type: Some(self.role.socket_type()), ..Metadata::default() }
    }
}

impl Role {
    pub(super) const fn socket_type(self) -> SocketType {
        match self {
            Self::Router => SocketType::Router,
            Self::Pub => SocketType::Pub,
            Self::Dealer => SocketType::Dealer,
        }
    }

    /// Spec: RFC 37, the table in "The Socket-Type Property". REP is not in it for a ROUTER.
    pub(super) const fn serves(self, peer: SocketType) -> bool {
        match self {
            Self::Router => matches!(peer, SocketType::Req | SocketType::Dealer | SocketType::Router),
            Self::Pub => matches!(peer, SocketType::Sub | SocketType::XSub),
            Self::Dealer => matches!(peer, SocketType::Router | SocketType::Rep | SocketType::Dealer),
        }
    }

    pub(super) const fn is_client(self) -> bool {
        matches!(self, Self::Dealer)
    }
}

impl Mechanism {
    pub(super) const fn name(&self) -> &'static [u8] {
        match self {
            Self::Null => b"NULL",
            Self::Plain(_) => b"PLAIN",
        }
    }

    /// Whether it has a server at all: "If the mechanism does not specify roles, as-server SHOULD be zero".
    pub(super) const fn is_server(&self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

/// Whether one of `logins` is this one. Takes the same time whichever it is, and if it is none.
pub(super) fn is_known(logins: &[Login], user: &[u8], password: &[u8]) -> bool {
    let fits = |login: &Login| login.user.ct_eq(user) & login.password.ct_eq(password);
    logins.iter().fold(Choice::from(0), |any, login| any | fits(login)).into()
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 64 << 20,
            message_bytes_max: 64 << 20,
            parts_max: 64,
            command_bytes_max: 8 << 10,
            outbound_bytes_max: 128 << 20,
        }
    }
}
