//! ZMTP 3.1, ZeroMQ's transport: one side of a connection, without a socket.
//!
//! **Contract.** Bytes of one connection in, events out; messages in, bytes out. No socket, no clock, no thread. No
//! input makes it panic. Every length is checked as soon as it is read, before anything is allocated for it.
//!
//! **Reading order.** [`wire`], the codec: [`wire::Greeting`], [`wire::Header`], [`wire::Command`], [`wire::Metadata`].
//! [`Message`], one view of its read buffer. [`Peer`], the connection: greeting, handshake, traffic, heartbeats; its
//! [`Settings`], and [`Close`], why it ends. [`ConnectionRegistry`], what the connections of one listener share:
//! identities. [`Link`], a peer with its place in there. [`Subscriptions`], the topics of one
//! subscriber. [`Zmtp`], the section of the configuration, and [`Access`], the keys that the sections over it share.
//!
//! **Invariants.** Where the stream is cut does not matter. A message's parts are views, never copies. All output is
//! appended to the caller's buffer, so that everything sent in one visit leaves in one write.
//!
//! Spec: ZeroMQ RFC 37 (ZMTP 3.1); RFC 23 and 15 (3.0 and 2.0, older peers), 24 (PLAIN), 26 (CURVE), 28 (identities),
//! 29 (subscriptions).

mod access;
mod config;
pub mod curve;
mod guests;
mod link;
mod message;
mod peer;
mod registry;
mod subscriptions;
pub mod wire;

pub use access::{Access, NamespaceLogin};
pub use config::Zmtp;
pub use guests::Guests;
pub use link::Link;
pub use message::{Envelope, Message, Parts, first_part};
pub use peer::{Close, Event, Limits, Login, Mechanism, Peer, Ready, Role, Settings, Unsent};
pub use registry::{ConnectionRegistry, HangUp, Registration};
pub use subscriptions::{Subscriptions, TooMany};
