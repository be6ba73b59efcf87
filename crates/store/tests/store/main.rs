//! The journal and its stores, from outside the crate.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what helps a test may fail like a test"
)]

mod daemon;
mod dice;
mod jobs;
mod journal;
mod power_cut;
mod record;
mod recovery;
mod simulation;
mod sled;
mod world;
