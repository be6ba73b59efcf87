//! spiderq: everything that Windlass knows about one protocol, in one room.
//!
//! **Contract.** Bytes of one connection in, bytes for that connection out. Nothing here opens a socket, reads a clock or
//! touches a disk, and no byte a peer can send makes it panic or hold more memory than its limits allow. Keys and values are
//! bytes, never text.
//!
//! **Reading order.** [`wire`], the codec: [`wire::Request`] reads a frame, [`wire::Reply`] writes one, [`wire::cut`] finds
//! frames on a bare stream. Then [`session`], one connection, over ZMTP or bare: what each request means to the engine, and
//! what each of the engine's events means to the peer.
//!
//! Spec: `spiderq-protocol`, which is dialect 1.3.

pub mod session;
pub mod wire;
