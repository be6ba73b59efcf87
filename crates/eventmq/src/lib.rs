//! EventMQ's protocol eMQP: wire format, sessions and publishing.
//!
//! **Contract.** Bytes of one connection in, bytes for that connection out. This crate opens no socket, reads no clock
//! and touches no disk. No byte from a peer makes it panic or hold more memory than its limits allow. Identifiers,
//! names of queues and bodies are bytes, never text.
//!
//! **Reading order.** [`wire`], the codec: [`wire::Packet`] is one message, and the rest of the module parses its
//! frames. [`session`], one connection: it turns each message into engine commands and each event of the engine into a
//! message. [`publish`], messages with a topic, which bypass the engine. [`config`], the section of the configuration:
//! it makes the sessions.
//!
//! Spec: `eventmq-protocol.rst` (eMQP/1.0). Where it is silent or wrong: the behaviour of the released programs
//! (0.3.13).

pub mod bridge;
pub mod config;
mod elsewhere;
pub mod publish;
pub mod session;
pub mod wire;
