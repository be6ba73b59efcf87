//! Why a connection ends: for the log, for the session, and for the peer if the protocol can express it.

use windlass_session::Reason;

use crate::wire::{BadFlags, GreetingError, Malformed};

/// Why a connection must be closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Close {
    /// Not ZMTP, or too old a version.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// The two sides have different mechanisms configured.
    #[error("peer's mechanism is {theirs:?}, ours is {ours}")]
    Mechanism {
        /// The peer's.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// A frame with invalid flags.
    #[error(transparent)]
    BadFlags(#[from] BadFlags),
    /// A malformed command.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Something unexpected in the handshake.
    #[error("{found} while {due} was due")]
    Unexpected {
        /// What came instead.
        found: String,
        /// What was expected.
        due: &'static str,
    },
    /// The two socket types cannot talk to each other.
    #[error("peer's socket type is not for {ours}")]
    SocketType {
        /// Ours.
        ours: &'static str,
    },
    /// An identity of more than 255 bytes.
    #[error("identity of {bytes} bytes")]
    Identity {
        /// Its length.
        bytes: usize,
    },
    /// A wrong user or password, or a key that may not connect.
    #[error("wrong user, password or key")]
    Credentials,
    /// A box of CURVE that was not made with the keys of this connection.
    #[error("{what} cannot be decrypted")]
    Forged {
        /// The command.
        what: &'static str,
    },
    /// The peer sent ERROR.
    #[error("peer's error: {0}")]
    PeerError(String),
    /// The peer exceeded one of [`Limits`](super::Limits).
    #[error("{what}: {given}, {allowed} allowed")]
    Limit {
        /// The limit's name.
        what: &'static str,
        /// The announced size or number.
        given: u64,
        /// The limit.
        allowed: usize,
    },
    /// The handshake took too long.
    #[error("no handshake in time")]
    HandshakeTimeout,
    /// The peer did not answer a PING.
    #[error("no answer to a ping")]
    PingTimeout,
    /// The peer was silent for longer than the time to live in its own PING.
    #[error("silent for longer than its ping allowed")]
    TtlExpired,
    /// Another connection has taken its identity over.
    #[error("identity taken over by another connection")]
    Displaced,
}

impl Close {
    /// The reason in ERROR; `None` if the peer has no use for it. Without blanks: "error-reason = short-size
    /// 0*255VCHAR".
    pub(super) const fn error_reason(&self) -> Option<&'static [u8]> {
        match self {
            // libzmq reads three digits as a status code of RFC 27.
            Self::Credentials => Some(b"400"),
            Self::SocketType { .. } => Some(b"Invalid-Socket-Type"),
            Self::Identity { .. } => Some(b"Invalid-Identity"),
            Self::Malformed(_) | Self::Unexpected { .. } => Some(b"Invalid-Command"),
            Self::Greeting(_)
            | Self::Mechanism { .. }
            | Self::BadFlags(_)
            | Self::Forged { .. }
            | Self::PeerError(_)
            | Self::Limit { .. }
            | Self::HandshakeTimeout
            | Self::PingTimeout
            | Self::TtlExpired
            | Self::Displaced => None,
        }
    }
}

impl From<Close> for Reason {
    fn from(close: Close) -> Self {
        match close {
            Close::Limit { what, .. } => Self::Limit(what),
            Close::HandshakeTimeout => Self::TimedOut("handshake"),
            Close::PingTimeout => Self::TimedOut("ping"),
            Close::TtlExpired => Self::TimedOut("ping ttl"),
            Close::Displaced => Self::ClosedByServer,
            Close::Credentials => Self::WrongPassword,
            Close::Greeting(_)
            | Close::Mechanism { .. }
            | Close::BadFlags(_)
            | Close::Forged { .. }
            | Close::Malformed(_)
            | Close::Unexpected { .. }
            | Close::SocketType { .. }
            | Close::Identity { .. }
            | Close::PeerError(_) => Self::Protocol(close.to_string()),
        }
    }
}
