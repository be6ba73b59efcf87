//! What operators do: start, configure, watch, change, drain, stop, import and export.
#![cfg(test)]
#![allow(unreachable_pub, reason = "a test program is its own and only user")]

mod bridge;
mod bulk;
mod cli;
#[path = "../common/mod.rs"]
mod common;
mod daemon;
mod draining;
mod ended;
mod events;
mod export;
mod failures;
mod http;
#[cfg(feature = "sqlite")]
mod import;
mod import_eventmq;
mod import_faktory;
mod import_spiderq;
mod kinds;
mod log;
mod login;
mod mask;
mod namespaces;
mod newcomer;
mod night;
mod on_dead;
mod operate;
mod policies;
mod policies_by_time;
mod recipes;
mod reload;
mod schedules;
mod starting;
mod stopping;
mod supervision;
mod warnings;
