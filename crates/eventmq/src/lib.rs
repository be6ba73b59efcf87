//! EventMQ: everything that Windlass knows about one protocol, in one room.
//!
//! **Contract.** Bytes of one connection in, bytes for that connection out. Nothing here opens a socket, reads a
//! clock or touches a disk, and no byte a peer can send makes it panic or hold more memory than its limits allow.
//! Identifiers, queues' names and bodies are bytes, never text.
//!
//! **Reading order.** [`wire`], the codec: [`wire::Packet`] is one message, and the rest of the module what stands in its
//! frames. [`session`], one connection: what each message means to the engine, and each of the engine's events to the peer.
//! [`publish`], messages with a topic, which never see the engine.
//!
//! Spec: `eventmq-protocol.rst` (eMQP/1.0), and where it is silent or wrong what the released programs (0.3.13) do.

pub mod publish;
pub mod session;
pub mod wire;
