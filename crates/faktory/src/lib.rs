//! Faktory's work protocol (FWP): everything that Windlass knows about it, in one room.
//!
//! **Contract.** Bytes of one connection in, bytes for that connection out. Nothing here opens a socket, reads a clock or
//! touches a disk, and no byte a peer can send makes it panic or hold more memory than its limits allow. Random numbers
//! are handed in.
//!
//! **Reading order.** [`wire`], the codec: [`wire::Lines`] cuts a stream into lines, [`wire::Request`] says what a line
//! asks for, [`wire::Unit`] is a job, [`wire::reply`] writes answers. Then [`session`], one connection: what each verb
//! means to the engine, and what each of the engine's events means to the peer.
//!
//! Spec: the Faktory project's `protocol-specification.md`, and what deployed servers do where it is silent.

pub mod session;
pub mod wire;
