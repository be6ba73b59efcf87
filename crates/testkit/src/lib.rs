//! Tools for tests of the daemon: a machine whose clocks jump, a slow calendar, seeded random numbers, the simulator
//! with its oracle, transcripts, a handle on the real binary.
//!
//! Nothing here is part of the daemon. The tests themselves are in `tests/` of the crates that use these tools.

pub mod answers;
pub mod calendar;
pub mod cgroup;
pub mod clock;
pub mod daemon;
pub mod dice;
pub mod disk;
pub mod memory;
pub mod play;
pub mod power;
pub mod preload;
pub mod protocol;
pub mod rng;
pub mod sim;
pub mod store;
pub mod transcript;
