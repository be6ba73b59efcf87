//! Jobs. [`Jobs`] owns all of them with every index that depends on a job alone.
//!
//! Reading order: `job`, `state`, `extra`, `payload`, `stored` (the data) · `table` (the owner) · the parts:
//! `slab`, `packed`, `row` and `shape` (memory), `bodies`, `by_state`, `keys`, `names`, `timed`, `kept`,
//! `holders`, `counts` (indexes), `numbered` (a map by job ID).

mod attempts;
mod bodies;
mod by_state;
mod counts;
mod extra;
mod full;
mod half_hash;
mod holders;
mod job;
mod job_set;
mod kept;
mod keys;
mod listeners;
mod names;
mod numbered;
mod packed;
mod payload;
mod row;
mod shape;
mod slab;
mod state;
mod stored;
mod table;
mod timed;

pub use attempts::{Attempt, AttemptEnd, AttemptError, Attempts};
pub(crate) use counts::StateCounts;
pub use extra::*;
pub use job::*;
pub use numbered::Numbered;
pub use payload::Payload;
pub use slab::{Slab, Slot};
pub use state::*;
pub use stored::Stored;
pub(crate) use table::Jobs;
