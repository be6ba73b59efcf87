//! What an edge sends to the leader.
//!
//! **Order.** A stream begins with [`ToLeader::Hello`]. To a new leader the edge then sends [`ToLeader::Open`] for its clients,
//! their claims, and [`ToLeader::Claimed`] , even if there are none. After that anything follows in the order in which it
//! takes effect; the items of one client, from its `Open` to its `Close`, are done in their order.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use windlass_codec::{Reader, decode};
use windlass_engine::{Claim, ClientId, Command, Protocol, Tag};

use crate::frame::Item;
use crate::number::Edge;

/// One item from an edge. A new kind comes last: a kind is its index here.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum ToLeader {
    /// What the edge is. Answer: `Welcome` or `Refused`.
    Hello(Box<Hello>),
    /// A client has connected. Its first command follows, which opens it in the engine.
    Open {
        /// Its number, which is one of the edge's.
        client: ClientId,
        /// Answers of this many bytes have room ([`windlass_engine::Event::bytes`]).
        room: u64,
    },
    /// A client's command.
    Command {
        /// The client.
        client: ClientId,
        /// The answer repeats it.
        tag: Tag,
        /// The command.
        command: Command,
    },
    /// In the place of a command that the client may not send. Answer: the refusal `NotPermitted`.
    Forbidden {
        /// The client.
        client: ClientId,
        /// The answer repeats it.
        tag: Tag,
    },
    /// Stands for this many pieces of bytes for the client's peer, which the edge keeps. They come back as `OwnBytes`.
    OwnBytes {
        /// The client.
        client: ClientId,
        /// How many.
        count: u32,
    },
    /// A message that a connection has published. The leader passes it to its own connections that want it, and to the
    /// other edges.
    Publish {
        /// The connection's protocol.
        protocol: Protocol,
        /// As the protocol encodes it.
        message: Bytes,
    },
    /// Answers of this many more bytes have room: the client's session has taken as many. While a client has none, its
    /// items wait.
    Room {
        /// The client.
        client: ClientId,
        /// More bytes.
        bytes: u64,
    },
    /// A client's connection has ended. The client ends when its earlier items are done. Answer: `Closed`.
    Close {
        /// The client.
        client: ClientId,
    },
    /// A client claims what it had at an earlier leader's engine.
    Claim {
        /// The client, which is open.
        client: ClientId,
        /// What it had.
        claim: Claim,
    },
    /// The edge has made all its claims.
    Claimed,
    /// The edge ends the stream. Its clients are gone.
    Bye,
    /// The client's peer has taken this many more of the jobs that count as on their way.
    Sent {
        /// The client.
        client: ClientId,
        /// How many.
        jobs: u32,
    },
    /// What the edge is. Comes after the greeting, and after each change.
    About(About),
}

/// What a daemon is, for people.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub struct About {
    /// The version of its program.
    pub version: Box<str>,
    /// Why it could not lead; empty if it could.
    pub cannot_lead: Box<str>,
}

/// What an edge is.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Hello {
    /// The name of the broker that the edge is part of.
    pub cluster: Box<str>,
    /// The edge's name, for people.
    pub name: Box<str>,
    /// A digest of the settings that all daemons of a broker must have in common.
    pub settings: [u8; 32],
    /// What the edge knows of an earlier leader, if its clients have been served by one.
    pub known: Option<Known>,
}

/// What an edge knows of the leader before this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Known {
    /// The edge's number there, which its clients' numbers contain.
    pub edge: Edge,
    /// That leader's epoch.
    pub epoch: u64,
    /// The newest commit of that epoch that was durable, as far as the edge knows.
    pub commit: u64,
}

impl Item for ToLeader {
    /// A command that the leader does not know is refused, so that its client does not wait for an answer. `Command` and
    /// `Forbidden` begin with the same fields.
    fn in_place_of(unknown: &[u8]) -> Option<Self> {
        const COMMAND: u8 = 2;
        const FORBIDDEN: u8 = 3;
        let fields = unknown.strip_prefix(&[COMMAND])?;
        decode(&mut Reader::new(&[&[FORBIDDEN], fields].concat())).ok()
    }
}

impl ToLeader {
    /// The client that the item is about, if it is about one.
    pub const fn client(&self) -> Option<ClientId> {
        match self {
            Self::Open { client, .. }
            | Self::Command { client, .. }
            | Self::Forbidden { client, .. }
            | Self::OwnBytes { client, .. }
            | Self::Room { client, .. }
            | Self::Close { client }
            | Self::Claim { client, .. }
            | Self::Sent { client, .. } => Some(*client),
            Self::Hello(_) | Self::Publish { .. } | Self::Claimed | Self::Bye | Self::About(_) => {
                None
            }
        }
    }

    /// Whether [`ToEdge::Applied`](crate::ToEdge::Applied) counts the item.
    pub const fn is_counted(&self) -> bool {
        matches!(self, Self::Command { .. } | Self::Forbidden { .. })
    }
}
