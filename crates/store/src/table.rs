//! Tables: the one in sled, and one in memory that loses writes that were not synced.

pub(crate) mod memory;
pub(crate) mod sled;
