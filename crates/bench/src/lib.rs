//! A load generator that compares job servers: it starts two or more of them, gives each the same work in turn, and
//! prints the ratios of their figures. As a library, it puts load on one daemon, for `windlass bench`.
//!
//! It is not a test of correctness, but it reports no figure for a run unless all jobs are accounted for: a job that is
//! lost, doubled or answered with another's result fails the run.
//!
//! Reading order: `command` (the command line) and `alone` (one daemon) · `shape`, `cases` and `table` (the load as data),
//! `comparison` (cases × peers × runs), `run` (one run of one case), `driver` and `tally` (all connections of a run:
//! the measured window, and what has happened to the jobs), `load` (the work of one connection, whatever its protocol),
//! `protocol` and then a module per protocol, which adds bytes: `gearman`, `faktory`, `spiderq`, `eventmq`, `redis`,
//! `beanstalkd`, with `resp` and `zmtp` under them. Beside these: `links` (sockets), `peers` and `servers` (the servers
//! under load), `watcher` (someone who watches them), `tenants` and `flood` (a tenant beside a hostile one), `process`
//! (their cost), `metric`, `stats` and `report` (figures, tables, ratios). The codecs share no code with the daemon's, so that both cannot share a mistake; the tests run them
//! against the daemon's sessions.
//!
//! Invariants: every server is a child on loopback with its data in a temporary directory, and dies with its
//! `servers::Server`; the client side is one thread, so that its cost can be separated from the server's; a hostile tenant has another.

#[cfg(test)]
mod accounting;
mod alone;
mod beanstalkd;
mod cases;
mod command;
mod comparison;
mod driver;
mod error;
mod eventmq;
mod faktory;
mod flood;
mod gearman;
mod interrupt;
mod links;
mod load;
mod metric;
mod peers;
mod process;
mod protocol;
mod redis;
mod report;
mod resp;
mod run;
mod servers;
mod shape;
mod spiderq;
mod stamp;
mod stats;
mod table;
mod tally;
mod tenants;
mod watcher;
mod zmtp;

pub use crate::alone::{Alone, Figures};
pub use crate::command::compare;
pub use crate::error::Error;
