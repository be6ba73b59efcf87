//! spiderq: the protocol's codec, and the session that connects it to the engine.
//!
//! **Contract.** Bytes of one connection in, bytes for that connection out. Nothing here opens a socket, reads a clock
//! or touches a disk, except that [`config`] reads a file with a password. No input makes it panic or hold more memory
//! than its limits allow. Keys and values are bytes, never text.
//!
//! **Reading order.** [`wire`], the codec: [`wire::Request`] reads a frame, [`wire::Reply`] writes one, [`wire::cut`]
//! finds frames on a bare stream. Then [`session`], one connection over ZMTP or bare: it turns requests into commands
//! for the engine, and the engine's events into replies. [`config`], the section of the configuration: it makes the
//! sessions.
//!
//! Spec: `spiderq-protocol`, which is dialect 1.3.

pub mod config;
pub mod session;
pub mod wire;
