//! A load generator that compares job servers: it starts two or more of them, gives each the same work in turn, and
//! prints the ratios of their figures.
//!
//! It is not a test of correctness, but it reports no figure for a run unless all jobs are accounted for: a job that is
//! lost, doubled or answered with another's result fails the run.
//!
//! Reading order: [`metric`] (what is measured), [`stats`] (how figures become one), [`compare`] (runs, interleaved),
//! [`report`] (tables and ratios), [`process`], [`servers`] and [`windlass`] (the servers under load), [`count`] (the servers'
//! own counts), [`load`] (connections and their counters), [`settings`] (options), [`solo`] (runs without a peer), then one
//! module per protocol: [`gearman`], [`faktory`], [`spiderq`] and [`eventmq`]. Each protocol has a codec of its own, separate
//! from the daemon's, so that both cannot share a mistake. Only ZeroMQ's transport, under the last two, is the daemon's own.
//!
//! Invariants: every server is a child on loopback with its data in a temporary directory, and dies with its
//! [`servers::Server`]; the client side is one thread, so that its cost can be separated from the server's.

pub mod compare;
pub mod count;
pub mod error;
pub mod eventmq;
pub mod faktory;
pub mod gearman;
pub mod interrupt;
pub mod load;
pub mod metric;
pub mod process;
pub mod report;
pub mod servers;
pub mod settings;
pub mod solo;
pub mod spiderq;
pub mod stats;
pub mod windlass;
