//! The store, from outside the crate.

#![cfg(test)]

mod absorbed;
mod cold;
mod daemon;
mod damage;
mod directory;
mod disk;
mod due;
mod ended;
mod export;
mod files;
mod filled;
mod golden;
mod golden_records;
mod jobs;
mod journal;
mod journalled;
mod large;
mod parts;
mod picture;
mod power_cut;
mod record;
mod recovery;
mod refused;
mod rng;
mod salvage;
mod simulation;
mod world;
