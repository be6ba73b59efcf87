//! The daemon's own sections of the configuration, and the protocols with theirs. The binary reads
//! both from one file.
//!
//! Reading order: `sections` (all keys with their defaults) · `queues`, `policy` (rules for single
//! queues) · `namespaces` · `check` (rules that types cannot express). Formats of values and errors are in
//! `windlass_config`. This code does not bind sockets or write to the log, but it opens the files
//! of TLS and, through the protocols, those of passwords to check them.

mod check;
mod coalesce;
#[cfg(test)]
pub(crate) mod fixture;
mod namespaces;
mod policy;
mod queues;
mod sections;

pub use namespaces::{Limits as NamespaceLimits, Namespace, Namespaces, Pushes};
pub use policy::{Key, PerKey, Rate, policy, policy_as_json, policy_of_json};
pub(crate) use queues::reporter;
pub use queues::{History as QueueHistory, OnDead, Queue, Retry, aliases, check_text};
pub use sections::{
    Bridge, Cluster, Config, Durability, History, Limits, Log, LogFormat, Postgres, SslMode, Store,
};
pub use windlass_net::{FileMode, FileModeError, Polling, PollingError, Server};
