//! What an operator can configure, and what the protocol above decides. The server reads the values from its
//! configuration.

use std::sync::Arc;

use bytes::Bytes;
use subtle::{Choice, ConstantTimeEq};

use super::handshake::Ready;
use crate::Guests;
use crate::curve::CurveServer;
use crate::wire::{Metadata, SocketType};

/// The settings that all connections of a listener share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The pattern, and the side of it.
    pub role: Role,
    /// How peers authenticate. Peers must have the same mechanism configured.
    pub mechanism: Mechanism,
    /// The logins that tell a namespace, if the address does not: `mechanism` is that of such an address.
    pub guests: Option<Arc<Guests>>,
    /// How much a peer may make us hold.
    pub limits: Limits,
    /// Silence after which a peer is given up in its greeting or handshake, in milliseconds. Both together may take four
    /// times as long.
    pub handshake_ms: u64,
    /// Silence after which a peer receives a PING, in milliseconds; 0 = never. Peers older than 3.1 never receive one.
    pub ping_idle_ms: u64,
    /// Time to answer the PING, in milliseconds.
    pub ping_timeout_ms: u64,
}

/// The side of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Receives from any peer and answers any peer; for REQ, DEALER and ROUTER.
    Router,
    /// Publishes to subscribers; for SUB and XSUB.
    Pub,
    /// The connecting side of a ROUTER, for tests and load generators. Always uses NULL, whatever `mechanism` is.
    Dealer,
}

/// A security mechanism with its data. This side is always its server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// No authentication.
    Null,
    /// A user and a password, which travel in clear text.
    Plain(Vec<Login>),
    /// Keys, and encryption.
    Curve(Arc<CurveServer>),
}

/// A user and the password. Its `Debug` text omits the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// At most 255 bytes, the longest string in a HELLO.
    pub user: Bytes,
    /// At most 255 bytes.
    pub password: Bytes,
}

windlass_config::defaults! {
    /// How much a peer may make us hold, in bytes unless noted otherwise.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Limits {
        /// Largest body of one frame of a message.
        pub frame_bytes_max: usize = 64 << 20,
        /// Largest sum of the bodies of one message.
        pub message_bytes_max: usize = 64 << 20,
        /// Number of parts of one message.
        pub parts_max: usize = 64,
        /// Largest body of a command, and so the longest topic.
        pub command_bytes_max: usize = 8 << 10,
        /// Bytes that may wait in the output buffer.
        pub outbound_bytes_max: usize = 128 << 20,
    }
}

impl Settings {
    /// The default settings, without authentication.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            mechanism: Mechanism::Null,
            guests: None,
            limits: Limits::default(),
            handshake_ms: 30_000,
            ping_idle_ms: 30_000,
            ping_timeout_ms: 30_000,
        }
    }

    /// These settings with the logins of a section.
    #[must_use]
    pub fn with(self, guests: Guests) -> Self {
        Self {
            mechanism: guests.at(None),
            guests: guests.tell_namespaces().then(|| Arc::new(guests)),
            ..self
        }
    }

    /// The settings at an address of a namespace.
    #[must_use]
    pub fn at(&self, namespace: &str) -> Self {
        let guests = self.guests.as_ref();
        Self {
            mechanism: guests.map_or_else(|| self.mechanism.clone(), |it| it.at(Some(namespace))),
            guests: None,
            ..self.clone()
        }
    }

    /// The namespace that the login of a peer has told.
    pub fn namespace_of(&self, ready: &Ready) -> Option<&str> {
        let (guests, user) = (self.guests.as_ref()?, ready.user.as_ref()?);
        guests.namespace_of(user)
    }

    pub(super) fn mechanism(&self) -> &Mechanism {
        if self.role.is_client() {
            &Mechanism::Null
        } else {
            &self.mechanism
        }
    }

    /// Our own metadata.
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            socket_type: Some(self.role.socket_type()),
            ..Metadata::default()
        }
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

    /// Whether this role may talk to the peer's socket type. Spec: RFC 37, the table in "The Socket-Type Property". It
    /// lists no REP for a ROUTER.
    pub(super) const fn serves(self, peer: SocketType) -> bool {
        match self {
            Self::Router => matches!(
                peer,
                SocketType::Req | SocketType::Dealer | SocketType::Router
            ),
            Self::Pub => matches!(peer, SocketType::Sub | SocketType::XSub),
            Self::Dealer => matches!(
                peer,
                SocketType::Router | SocketType::Rep | SocketType::Dealer
            ),
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
            Self::Curve(_) => b"CURVE",
        }
    }

    /// Whether peers must prove who they are.
    pub fn is_guarded(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Plain(_) => true,
            Self::Curve(server) => server.knows_clients(),
        }
    }

    /// Whether the mechanism has a server: "If the mechanism does not specify roles, as-server SHOULD be zero".
    pub(super) const fn is_server(&self) -> bool {
        matches!(self, Self::Plain(_) | Self::Curve(_))
    }
}

/// Whether `logins` contains this user and password. Takes the same time whichever login matches, and if none does.
pub(super) fn is_known(logins: &[Login], user: &[u8], password: &[u8]) -> bool {
    let fits = |login: &Login| login.user.ct_eq(user) & login.password.ct_eq(password);
    logins
        .iter()
        .fold(Choice::from(0), |any, login| any | fits(login))
        .into()
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
