//! What tests of the daemon are made of: a machine whose clocks jump, a slow calendar, seeded dice, the simulator with its oracle, a handle on the real binary.
//!
//! Nothing here is part of the daemon, and nothing here is a test: those are in `tests/` of the crates that use it.

pub mod calendar;
pub mod cgroup;
pub mod clock;
pub mod daemon;
pub mod dice;
pub mod disk;
pub mod memory;
pub mod sim;
pub mod transcript;
