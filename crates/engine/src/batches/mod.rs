//! Batches: groups of jobs with callbacks. [`Batches`] owns them, with progress and the time of the next
//! check.

mod batch;
mod table;

pub use batch::{Batch, BatchProgress, NewBatch, Stage};
pub(crate) use table::Batches;
