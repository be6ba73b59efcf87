//! Gearman: everything that Windlass knows about one protocol, in one room.
//!
//! **Contract.** Bytes of one connection in, bytes for that connection out. Nothing here opens a
//! socket, reads a clock or touches a disk, and no byte a peer can send makes it panic or hold more
//! memory than its limits allow. Names, uniques and ids are bytes, never text.
//!
//! **Reading order.** [`wire`], the codec: [`wire::Frames`] cuts a stream into messages,
//! [`wire::Request`] and [`wire::AdminRequest`] say what they ask for, [`wire::Response`] and
//! [`wire::AdminReply`] write the answers. Then [`session`], one connection: what each request means to
//! the engine, and what each of the engine's events means to the peer.
//!
//! Spec: the gearmand project's `PROTOCOL` document.

pub mod session;
pub mod wire;
