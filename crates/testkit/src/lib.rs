//! What tests of the daemon are made of.

pub mod memory;
pub mod transcript;
