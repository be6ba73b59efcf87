//! CurveZMQ: connections that are encrypted, and clients that are known by their keys. Pure: random bytes come from
//! outside.
//!
//! Reading order: `keys` (what an operator handles) · `boxes` (encryption, and the nonces) · `server` (the four
//! commands of a handshake, from the server's side) · `secured` (frames in boxes, after it) · `client` (the other side,
//! for tests and load generators). [`crate::Peer`] uses the server's side.
//!
//! Spec: RFC 26. Where it leaves a choice, as libzmq: a `MESSAGE` has no command flag, and its first octet has a second
//! flag, for commands.

mod boxes;
mod client;
mod keys;
mod secured;
mod server;
mod z85;

pub use client::CurveClient;
pub use keys::{CurveKeyError, CurvePublicKey, CurveSecretKey};
pub use server::CurveServer;

pub(crate) use secured::Secured;
pub(crate) use server::{Awaited, hello, initiate};

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// Bytes of the cookie that a server gives a client.
const COOKIE_BYTES: usize = 96;

/// Bytes of the vouch: 16 of a nonce, and two keys in a box.
const VOUCH_BYTES: usize = 16 + boxes::TAG_BYTES + 2 * KEY_BYTES;

/// The commands, with the length in front of each name.
const HELLO: &[u8] = b"\x05HELLO";
const WELCOME: &[u8] = b"\x07WELCOME";
const INITIATE: &[u8] = b"\x08INITIATE";
const READY: &[u8] = b"\x05READY";
const MESSAGE: &[u8] = b"\x07MESSAGE";
