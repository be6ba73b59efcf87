//! Random numbers from the system.

/// An unpredictable number for hash tables, the engine's random numbers, challenges and keys.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // Every supported system provides random numbers; the fallback hashes the standard library's.
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(std::process::id()))
}
