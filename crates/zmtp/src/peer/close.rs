//! Why a connection ends: for the log, for the peer as far as the protocol has words, and for the session above.

use windlass_session::Reason;

use crate::wire::{BadFlags, GreetingError, Malformed};

/// Why a connection is to be closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Close {
    /// It is not ZMTP, or too old a version.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// The two sides are set to different mechanisms.
    #[error("peer's mechanism is {theirs:?}, ours is {ours}")]
    Mechanism {
        /// Theirs.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// A frame that cannot be.
    #[error(transparent)]
    BadFlags(#[from] BadFlags),
    /// A command that cannot be understood.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Something else was due in the handshake.
    #[error("{found} while {due} was due")]
    Unexpected {
        /// What came.
        found: String,
        /// What was to come.
        due: &'static str,
    },
    /// The two socket types have nothing to say to each other.
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
    /// A user or a password that is not right.
    #[error("wrong user or password")]
    Credentials,
    /// The peer said ERROR.
    #[error("peer's error: {0}")]
    PeerError(String),
    /// More than one of [`Limits`](super::Limits) allows.
    #[error("{what}: {given}, {allowed} allowed")]
    Limit {
        /// The limit's name.
        what: &'static str,
        /// What was announced.
        given: u64,
        /// The limit.
        allowed: usize,
    },
    /// No end of the handshake in time.
    #[error("no handshake in time")]
    HandshakeTimeout,
    /// No sign of life after a PING.
    #[error("no answer to a ping")]
    PingTimeout,
    /// Silence for longer than the peer itself said in a PING.
    #[error("silent for longer than its ping allowed")]
    TtlExpired,
    /// Many others came while it was still shaking hands.
    #[error("gave way to newer handshakes")]
    Evicted,
    /// Another connection has taken its identity over.
    #[error("identity taken over by another connection")]
    Displaced,
}

impl Close {
    /// What ERROR says of it; `None` if a peer has no use for it. Without blanks: "error-reason = short-size 0*255VCHAR".
    pub(super) const fn told(&self) -> Option<&'static [u8]> {
        match self {
            // libzmq takes three digits for the status codes of RFC 27.
            Self::Credentials => Some(b"400"),
            Self::SocketType { .. } => Some(b"Invalid-Socket-Type"),
            Self::Identity { .. } => Some(b"Invalid-Identity"),
            Self::Malformed(_) | Self::Unexpected { .. } => Some(b"Invalid-Command"),
            Self::Greeting(_)
            | Self::Mechanism { .. }
            | Self::BadFlags(_)
            | Self::PeerError(_)
            | Self::Limit { .. }
            | Self::HandshakeTimeout
            | Self::PingTimeout
            | Self::TtlExpired
            | Self::Evicted
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
            Close::Evicted => Self::Limit("handshakes_max"),
            Close::Displaced => Self::Dismissed,
            Close::Credentials => Self::WrongPassword,
            Close::Greeting(_)
            | Close::Mechanism { .. }
            | Close::BadFlags(_)
            | Close::Malformed(_)
            | Close::Unexpected { .. }
            | Close::SocketType { .. }
            | Close::Identity { .. }
            | Close::PeerError(_) => Self::Protocol(close.to_string()),
        }
    }
}
