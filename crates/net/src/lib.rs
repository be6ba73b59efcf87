//! Sockets: the threads that serve connections, the connections themselves without any protocol, listeners, TLS, and the
//! limits on connections.
//!
//! Reading order: `listen` (accepts) · `serving` (threads and their turns) · `connection` (one socket, no protocol) ·
//! `output` (bytes that wait to be written) · `places`, `rates`, `patience` (limits on connections and time) · `stream`
//! and `tls` (sockets) · `inherited` (sockets of a service manager) · `client` (parts of the daemon that are no connections)
//! · `settings` (the section `[server]`).
//!
//! # Invariants
//!
//! * No thread waits for a peer. The bytes that a peer has not read are bounded; beyond the bound the daemon closes the
//!   connection.
//! * A connection knows no protocol, and not whether the engine is in this daemon.

pub mod client;
pub mod connection;
pub mod file_mode;
pub mod inherited;
pub mod listen;
mod output;
pub mod patience;
pub mod places;
pub mod polling;
pub mod rates;
pub mod served;
pub mod serving;
pub mod settings;
pub mod stops;
pub mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;
pub mod traffic;
mod warnings;
