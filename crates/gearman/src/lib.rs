//! Gearman: the protocol's codec, and the session that connects it to the engine.
//!
//! **Contract.** Bytes of one connection in, bytes for that connection out. Nothing here opens a socket, reads a clock
//! or touches a disk. No input makes it panic or hold more memory than its limits allow. Names, uniques and ids are
//! bytes, never text.
//!
//! **Reading order.** [`wire`], the codec: [`wire::Frames`] cuts a stream into messages, [`wire::Request`] and
//! [`wire::AdminRequest`] read them, [`wire::Response`] and [`wire::reply`] write the answers. Then [`session`],
//! one connection: it turns requests into commands for the engine, and the engine's events into answers. [`config`],
//! the section of the configuration: it makes the sessions.
//!
//! Spec: the gearmand project's `PROTOCOL` document.

pub mod bridge;
pub mod config;
pub mod session;
pub mod wire;
