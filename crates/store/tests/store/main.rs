//! The store, from outside the crate.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what helps a test may fail like a test"
)]

mod absorbed;
mod before;
mod daemon;
mod damage;
mod disk;
mod files;
mod golden;
mod jobs;
mod journal;
mod old;
mod power_cut;
mod record;
mod recovery;
mod rng;
mod simulation;
mod world;
