//! Random numbers from the system.

/// A number that outsiders cannot guess: for hash tables, the engine's random numbers, challenges and keys.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // Every supported system has random numbers; the standard library's are the same ones, hashed.
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(std::process::id()))
}
