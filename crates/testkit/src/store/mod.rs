//! Stores for tests: a log and a table in memory that fail on demand, and what recovery must restore.

mod fingerprint;
mod log;
mod table;

pub use fingerprint::Fingerprint;
pub use log::{Fault, MemoryLog};
pub use table::MemoryTable;
