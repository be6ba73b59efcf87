//! What the leader sends to an edge.
//!
//! **Order.** A stream begins with [`ToEdge::Welcome`], or ends with [`ToEdge::Refused`]. Then the events and bytes of one
//! client come in the order in which the client's session must get them. [`ToEdge::Clock`] ends the items of one turn of
//! the leader: an edge takes them together.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use windlass_engine::{ClientId, Event, Protocol, Reading, Timestamp};

use crate::frame::Item;
use crate::number::Edge;
use crate::to_leader::About;

/// One item from the leader. A new kind comes last: a kind is its index here.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum ToEdge {
    /// The edge is accepted.
    Welcome(Box<Welcome>),
    /// An event for a client.
    Event {
        /// The client.
        client: ClientId,
        /// The commit of this epoch that must be durable before the client's session gets the event, or anything behind
        /// it; 0 = none.
        gate: u64,
        /// The event.
        event: Event,
    },
    /// Here the edge's own bytes for a client have their place: as many pieces as [`ToLeader::OwnBytes`](crate::ToLeader::OwnBytes)
    /// counted.
    OwnBytes {
        /// The client.
        client: ClientId,
        /// How many.
        count: u32,
    },
    /// This commit of the present epoch is durable, and so are all before it.
    Durable {
        /// Its number.
        commit: u64,
    },
    /// The engine has done with a client: what it held and waited for is released.
    Closed {
        /// The client.
        client: ClientId,
    },
    /// The leader's clocks, by which the edge's sessions run. The last item of a turn of the leader.
    Clock(Reading),
    /// Whether the store does not respond: then nothing is acknowledged, and what waits for a commit is unknown.
    Failed(bool),
    /// This many more of a client's items take effect here ([`ToLeader::is_counted`](crate::ToLeader::is_counted)): after all
    /// events before this item, and before the events that answer them.
    Applied {
        /// The client.
        client: ClientId,
        /// How many.
        count: u32,
    },
    /// A message that a connection of another daemon has published. The edge passes it to its connections that want it.
    Published {
        /// The connection's protocol.
        protocol: Protocol,
        /// As the protocol encodes it.
        message: Bytes,
    },
    /// The edge is not accepted, and the stream ends.
    Refused(Rejection),
    /// The leader ends the stream: it leads no more.
    Bye,
    /// The leader lives, but its right to lead is uncertain: nothing else comes until it is certain again.
    Beat,
    /// Workers wait because too many bytes of jobs are on their way: the edge closes connections that take nothing of
    /// theirs.
    Starved,
    /// All daemons that are linked to the leader. Comes first of all, and after each change.
    Edges(Vec<Linked>),
    /// What the leader is, and then each of the last [`ToEdge::Edges`], in the same order. Comes behind them.
    About(Vec<About>),
}

impl Item for ToEdge {
    /// A leader answers what an edge has asked for, so what the edge does not know is news that it can do without.
    fn in_place_of(_: &[u8]) -> Option<Self> {
        None
    }
}

/// A daemon that is linked to the leader.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Linked {
    /// The address of its own link.
    pub link: Box<str>,
    /// Since when it is linked, by the leader's wall clock.
    pub since: Timestamp,
}

/// The first item of an accepted edge.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Welcome {
    /// The leader's epoch.
    pub epoch: u64,
    /// The edge's number: that which it had before, if it was served by an earlier leader, else a new one.
    pub edge: Edge,
    /// The newest commit of the epoch that the edge knows ([`Known`](crate::Known)) that is in the journal; 0 = none,
    /// or the edge knows no epoch. What waited for a later commit is unknown. If that epoch is this leader's own: 0 =
    /// what the edge's clients had here is gone; otherwise the edge claims it under its new number.
    pub reaches: u64,
    /// The newest durable commit of the leader's own epoch.
    pub durable: u64,
    /// Whether the edge's settings are the leader's, where they must be.
    pub same_settings: bool,
    /// The leader's clocks.
    pub clock: Reading,
    /// The longest frame that the leader reads, in bytes.
    pub frame_bytes_max: u64,
}

/// Why an edge is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Deserialize, Serialize)]
pub enum Rejection {
    /// The edge is part of another broker.
    #[error("this is a daemon of the cluster {0:?}")]
    Cluster(Box<str>),
    /// The edge speaks another version of the frames.
    #[error("this daemon speaks version {0} of the link")]
    Version(u8),
    /// This daemon does not lead. The name of the one that does, if it is known.
    #[error("this daemon does not lead")]
    NotLeading(Option<Box<str>>),
    /// The edge knows a later epoch than this leader's.
    #[error("epoch {0} is over")]
    Deposed(u64),
    /// The edge's lease on its old number is over: its clients must begin anew.
    #[error("the edge was away for too long")]
    TooLate,
    /// The edge did not keep to the order of items.
    #[error("out of order: {0}")]
    OutOfOrder(Box<str>),
}
