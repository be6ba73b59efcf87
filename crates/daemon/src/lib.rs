//! The daemon: from its configuration to listeners, threads and an open store, and back to an
//! orderly stop.
//!
//! [`run`] is the entry point. Reading order: `run` (start to stop) · `binding` (addresses) ·
//! `role` (alone, leading or following) and `engine_room` (the parts of a daemon with the engine) ·
//! `protocols` (what protocols use of the daemon) · `desired`, `reconcile`, `recurring`, `rules`,
//! `throttles`, `on_dead` (engine state that comes from the configuration) · `control` (signals,
//! reload, requests of operators) and `describe` (the report on SIGTTIN) · `data` (the data
//! directory) · [`operator_port`] (listeners in addition to those of the protocols) · [`config`] ·
//! [`logging`].
//!
//! Connections and sockets are in `windlass_net`, the engine with its lock in `windlass_hub`. Only
//! `cluster` uses `windlass_cluster`; without the feature, `no_cluster` replaces it.

mod addresses;
mod admission;
mod binding;
#[cfg_attr(not(feature = "cluster"), path = "no_cluster.rs")]
mod cluster;
pub mod config;
pub mod control;
mod data;
mod dead_drops;
mod describe;
mod desired;
mod engine_room;
pub mod export;
pub mod figures;
mod history;
mod log_growth;
pub mod logging;
mod machine;
mod masks;
mod namespaces;
mod notify;
mod on_dead;
pub mod operator_port;
mod policies;
mod progress;
mod protocols;
mod random;
mod reconcile;
mod recurring;
mod retry;
mod role;
mod rules;
mod run;
#[cfg(test)]
mod stall_tests;
mod throttles;
mod warnings;

pub use windlass_hub::{Edge, Reasons, Refused, Role, clock};
pub use windlass_net::{client, rates};

pub use admission::allow_open_files;
pub use cluster::{LINK_VERSION, check_certificates_today};
pub use data::{
    accept_loss, bytes_to_add, compact, look, move_store, open, open_to_add, restore, salvage,
    verify,
};
pub use protocols::daemon;
pub use random::random_seed;
pub use run::run;
