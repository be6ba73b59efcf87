//! Tables: the one in sled, and one in memory that loses what was not synced.

pub(crate) mod memory;
pub(crate) mod sled;
