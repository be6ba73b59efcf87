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
mod connection;
mod file_mode;
mod inherited;
pub mod listen;
mod output;
mod patience;
mod places;
mod polling;
pub mod rates;
mod serving;
mod settings;
mod stops;
mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;
mod traffic;

pub use client::Clients;
pub use connection::{Bounds, Shared};
pub use file_mode::{FileMode, FileModeError};
pub use inherited::Inherited;
pub use listen::{Acceptor, Bound, KeepAlive, Served, SocketFile};
pub use patience::Patience;
pub use places::{Admitted, CONNECTIONS, PlaceLimits, Places};
pub use polling::{Polling, PollingError};
pub use rates::Allowance;
pub use serving::{Pulse, ThreadSlots, Threads, shorten_slices};
pub use settings::Server;
pub use tls::{Handshaker, Terms};
pub use traffic::{Counts, ProtocolTraffic, Traffic};
