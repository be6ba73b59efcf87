//! EventMQ: everything that Windlass knows about one protocol, in one room. So far the codec.
//!
//! **Contract.** Messages in, what they say out; what is to be said in, frames out. Nothing here opens a socket, reads a
//! clock or touches a disk, and no byte a peer can send makes it panic or hold more memory than its limits allow.
//! Identifiers, queues' names and bodies are bytes, never text.
//!
//! **Reading order.** [`wire`], the codec: [`wire::Packet`] is one message, and the rest of the module what stands in its
//! frames.
//!
//! Spec: `eventmq-protocol.rst` (eMQP/1.0), and where it is silent or wrong what the released programs (0.3.13) do.

pub mod wire;
