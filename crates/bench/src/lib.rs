//! A load generator that compares job servers: it starts two or more of them, gives each the same work in turn, and
//! prints how they relate.
//!
//! It is not a test of correctness, but no figure is reported for a run whose jobs were not all accounted for: a job
//! lost, doubled or answered with another's result fails the run.
//!
//! Reading order: [`metric`] (what is measured), [`stats`] (how figures become one), [`compare`] (runs, interleaved),
//! [`report`] (tables and ratios), [`process`], [`servers`] and [`windlass`] (the servers under load), [`count`] (their own counts), [`load`] (connections
//! and what they count), [`settings`] (what is asked for), [`solo`] (runs without a peer), then one module per
//! protocol: [`gearman`], [`faktory`], [`spiderq`] and [`eventmq`]. A protocol brings its own codec, written apart from the
//! daemon's, so that both cannot share a mistake; only ZeroMQ's transport, under the last two, is the daemon's own.
//!
//! Invariants: every server is a child on loopback with its data in a temporary directory, and dies with its
//! [`servers::Server`]; the client side is one thread, so its cost can be told from the server's.

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
