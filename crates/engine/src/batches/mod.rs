//! Batches: groups of jobs with callbacks. [`Batches`] owns them, their progress and the time of their next check.

mod batch;
mod table;

pub use batch::{Batch, BatchProgress, NewBatch, Stage};
pub(crate) use table::Batches;
