//! Random numbers from the system, through the standard library.

/// A seed that outsiders cannot guess: for hash tables and for the engine's random numbers.
pub(crate) fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
