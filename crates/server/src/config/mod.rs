//! The daemon's own sections of the configuration, and the protocols with theirs. The binary reads both from one file.
//!
//! Reading order: `sections` (all keys with their defaults) · `queues` (rules for single queues) · `file_mode` and
//! `polling` (formats of values) · `check` (rules that types cannot express). Formats of values and errors:
//! `windlass_config`. This code does not bind sockets or write to the log. To check them, it opens the files of TLS
//! and, through the protocols, those of passwords.

mod check;
mod file_mode;
#[cfg(test)]
pub(crate) mod fixture;
mod polling;
mod queues;
mod sections;

pub use file_mode::{FileMode, FileModeError};
pub use polling::{Polling, PollingError};
pub(crate) use queues::reporter;
pub use queues::{Codec, OnDead, Queue, Retry, aliases, check_text};
pub use sections::{Bridge, Cluster, Config, Durability, Limits, Log, LogFormat, Postgres, Server, SslMode, Store};
