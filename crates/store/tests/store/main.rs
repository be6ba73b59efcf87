//! The store, from outside the crate.

#![cfg(test)]

mod absorbed;
mod daemon;
mod damage;
mod disk;
mod due;
mod export;
mod files;
mod filled;
mod golden;
mod jobs;
mod journal;
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
