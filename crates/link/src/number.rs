//! The numbers of edges, which make the numbers of clients unique in a broker of several daemons.

use std::fmt;

use serde::{Deserialize, Serialize};
use windlass_engine::ClientId;

/// The number of an edge: the leader gives one to each run of a daemon, and never gives it again. It is in the high
/// bits of the numbers of the edge's clients.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    derive_more::Into,
    Deserialize,
    Serialize,
)]
#[serde(try_from = "u32", into = "u32")]
pub struct Edge(u32);

/// A number that no edge can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is not the number of an edge")]
pub struct BadEdge(u32);

impl Edge {
    /// The largest number. Edges begin at 1: the numbers below [`Edge::first_client`] of the first edge belong to the
    /// leader's own clients.
    pub const MAX: u32 = (1 << (u64::BITS - ClientId::OWN_BITS)) - 1;

    /// The edge with this number, which is from 1 to [`Edge::MAX`].
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 || number > Self::MAX {
            None
        } else {
            Some(Self(number))
        }
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The edge's own client, for what the daemon asks on its own behalf. Its connections have the numbers from the
    /// next one on.
    pub const fn first_client(self) -> ClientId {
        ClientId((self.0 as u64) << ClientId::OWN_BITS)
    }

    /// Whether a client is this edge's.
    pub const fn owns(self, client: ClientId) -> bool {
        client.daemon() == self.0 as u64
    }

    /// The edge of a client; `None` for clients of the leader.
    pub fn of(client: ClientId) -> Option<Self> {
        u32::try_from(client.daemon()).ok().and_then(Self::new)
    }
}

impl TryFrom<u32> for Edge {
    type Error = BadEdge;

    fn try_from(number: u32) -> Result<Self, BadEdge> {
        Self::new(number).ok_or(BadEdge(number))
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_belongs_to_one_edge() {
        let (one, two, last) = (
            Edge::new(1).unwrap(),
            Edge::new(2).unwrap(),
            Edge::new(Edge::MAX).unwrap(),
        );
        assert_eq!((Edge::new(0), Edge::new(Edge::MAX + 1)), (None, None));
        let end = ClientId(two.first_client().0 - 1);
        let table = [
            (ClientId(1), None),
            (ClientId(one.first_client().0 - 1), None),
            (one.first_client(), Some(one)),
            (end, Some(one)),
            (two.first_client(), Some(two)),
            (ClientId(u64::MAX), Some(last)),
        ];
        for (client, edge) in table {
            assert_eq!(Edge::of(client), edge, "{client:?}");
            for other in [one, two, last] {
                assert_eq!(
                    other.owns(client),
                    edge == Some(other),
                    "{client:?} {other}"
                );
            }
        }
    }
}
