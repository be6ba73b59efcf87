//! spiderq: everything that Windlass knows about one protocol, in one room.
//!
//! **Contract.** Bytes of one connection in, bytes for that connection out. Nothing here opens a socket, reads a clock or
//! touches a disk, and no byte a peer can send makes it panic or hold more memory than its limits allow.
//!
//! **Reading order.** [`session`], one connection: what each request means to the engine, and what each of the engine's
//! events means to the peer.
//!
//! Spec: `spiderq-protocol`.

pub mod session;
