//! What daemons of one broker send each other, as bytes: an edge sends what its clients ask of the queue, the leader,
//! which has the engine, sends what they get.
//!
//! **Contract.** Pure: no socket, no clock, no thread. Bytes in, items out, and the reverse. No byte of a peer makes
//! this code panic, recurse, or hold more than a small multiple of the bytes that have arrived; every frame is bounded.
//!
//! **Reading order.** [`ToLeader`] and [`ToEdge`], the items in both directions, with the order that they promise · [`Encoder`]
//! and [`Decoder`], a stream of frames · [`Edge`], whose number makes the numbers of clients unique · [`Ledger`], what
//! an edge's clients have at the engine, so that it can be claimed of a new leader. The crate's README has the tables.
mod frame;
mod ledger;
mod number;
mod to_edge;
mod to_leader;

pub use frame::{Decoder, Encoder, FRAME_BYTES_MAX, FrameError, Item, TooLong, VERSION};
pub use ledger::{Bounds, Ledger};
pub use number::Edge;
pub use to_edge::{Linked, Rejection, ToEdge, Welcome};
pub use to_leader::{About, Hello, Known, ToLeader};
