//! A batch's bytes: whole, with its pending callbacks, or only its progress.
//!
//! ```text
//! batch       = 9 id bits protocol depth name [parent-id parent-name] about meta created-at
//!               [template body-len body] [template body-len body] progress
//! batch-moved = 10 id progress
//! progress    = flags since [held-until] total ran succeeded incomplete unsuccessful
//! ```
//!
//! The flags are: committed, two bits for the stage of `complete`, two for that of `success`, held.

use bytes::Bytes;
use windlass_engine::{Batch, BatchProgress, JobId, NewJob, Protocol, Stage};

use super::template::{put_template, read_template};
use super::{BATCH, BATCH_MOVED, COUNT_MAX};
use crate::codec::{DecodeError, Reader, code, put_bytes, put_time, put_u32, put_u64};

/// Optional fields of a batch, as bits.
mod has {
    pub(super) const PARENT: u64 = 1;
    pub(super) const COMPLETE: u64 = 1 << 1;
    pub(super) const SUCCESS: u64 = 1 << 2;
    /// Above all of them.
    pub(super) const END: u64 = 1 << 3;
}

/// The progress of a batch: the part that changes while its jobs are processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchMoved {
    /// The batch.
    pub batch: JobId,
    /// Its progress.
    pub progress: BatchProgress,
}

impl BatchMoved {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(BATCH_MOVED);
        put_u64(out, self.batch.0);
        put_progress(&self.progress, out);
    }
}

/// Appends a whole batch.
pub(crate) fn encode_batch(batch: &Batch, out: &mut Vec<u8>) {
    let bit = |there: bool, bit: u64| if there { bit } else { 0 };
    let parent = batch.parent.zip(batch.parent_name.as_ref());
    out.push(BATCH);
    put_u64(out, batch.id.0);
    let callbacks =
        bit(batch.complete.is_some(), has::COMPLETE) | bit(batch.success.is_some(), has::SUCCESS);
    put_u64(out, bit(parent.is_some(), has::PARENT) | callbacks);
    out.push(batch.protocol.0);
    put_u32(out, batch.depth);
    put_bytes(out, &batch.name);
    if let Some((id, name)) = parent {
        put_u64(out, id.0);
        put_bytes(out, name);
    }
    put_bytes(out, &batch.about);
    put_bytes(out, &batch.meta);
    put_time(out, batch.created_at);
    for job in [&batch.complete, &batch.success].into_iter().flatten() {
        put_template(job, None, out);
        put_bytes(out, &job.body);
    }
    put_progress(&batch.progress, out);
}

/// Appends the progress of a batch.
pub(crate) fn encode_batch_moved(batch: &Batch, out: &mut Vec<u8>) {
    BatchMoved {
        batch: batch.id,
        progress: batch.progress,
    }
    .encode(out);
}

fn put_progress(progress: &BatchProgress, out: &mut Vec<u8>) {
    let BatchProgress {
        committed,
        since,
        total,
        ran,
        succeeded,
        incomplete,
        unsuccessful,
        ..
    } = *progress;
    let BatchProgress {
        complete,
        success,
        held_until,
        ..
    } = *progress;
    let held = u8::from(held_until.is_some());
    out.push(
        u8::from(committed)
            | code(&STAGES, complete) << 1
            | code(&STAGES, success) << 3
            | held << 5,
    );
    put_time(out, since);
    held_until.iter().for_each(|until| put_time(out, *until));
    [
        total,
        ran,
        succeeded,
        incomplete.into(),
        unsuccessful.into(),
    ]
    .into_iter()
    .for_each(|n| put_u64(out, n));
}

/// By their codes.
const STAGES: [Stage; 4] = [
    Stage::Waiting,
    Stage::Enqueued,
    Stage::Succeeded,
    Stage::Passed,
];

// ---- reading -------------------------------------------------------------------------------------------------------

pub(super) fn decode_batch(from: &mut Reader<'_>) -> Result<Batch, DecodeError> {
    let id = JobId(from.below("a batch's number", COUNT_MAX)?);
    let bits = from.below("a batch's bits", has::END)?;
    let protocol = Protocol(from.u8()?);
    let (depth, name) = (from.u32("a batch's depth")?, from.owned()?);
    let parent = if bits & has::PARENT == 0 {
        None
    } else {
        Some(read_parent(id, from)?)
    };
    let (about, meta, created_at) = (from.owned()?, from.owned()?, from.time()?);
    let complete = if bits & has::COMPLETE == 0 {
        None
    } else {
        Some(read_callback(from)?)
    };
    let success = if bits & has::SUCCESS == 0 {
        None
    } else {
        Some(read_callback(from)?)
    };
    let progress = read_progress(from)?;
    let (parent, parent_name) = parent.unzip();
    Ok(Batch {
        id,
        name,
        protocol,
        parent,
        parent_name,
        depth,
        about,
        meta,
        created_at,
        complete,
        success,
        progress,
    })
}

pub(super) fn decode_batch_moved(from: &mut Reader<'_>) -> Result<BatchMoved, DecodeError> {
    let batch = JobId(from.below("a batch's number", COUNT_MAX)?);
    Ok(BatchMoved {
        batch,
        progress: read_progress(from)?,
    })
}

/// A batch is younger than its parent.
fn read_parent(id: JobId, from: &mut Reader<'_>) -> Result<(JobId, Bytes), DecodeError> {
    Ok((JobId(from.below("a batch's parent", id.0)?), from.owned()?))
}

fn read_callback(from: &mut Reader<'_>) -> Result<Box<NewJob>, DecodeError> {
    let (_, job) = read_template(from)?;
    Ok(Box::new(NewJob {
        body: from.owned()?,
        ..job
    }))
}

fn read_progress(from: &mut Reader<'_>) -> Result<BatchProgress, DecodeError> {
    let flags = from.below("a batch's flags", 1 << 6)?;
    let since = from.time()?;
    let held_until = if flags & 1 << 5 == 0 {
        None
    } else {
        Some(from.time()?)
    };
    // Each count is part of the one before.
    let total = from.below("jobs of a batch", COUNT_MAX)?;
    let ran = from.below("jobs of a batch that ran", total + 1)?;
    let succeeded = from.below("jobs of a batch that succeeded", ran + 1)?;
    let (incomplete, unsuccessful) = (
        from.u32("batches in a batch")?,
        from.u32("batches in a batch")?,
    );
    let stage = |code: u64| {
        let code = usize::try_from(code & 3).unwrap_or_default();
        STAGES.get(code).copied().unwrap_or(Stage::Passed)
    };
    let (committed, complete, success) = (flags & 1 != 0, stage(flags >> 1), stage(flags >> 3));
    if held_until.is_some()
        && !(committed && (complete == Stage::Waiting || success == Stage::Waiting))
    {
        return Err(DecodeError::Range {
            field: "a batch's flags",
            value: flags,
        });
    }
    let counted = BatchProgress {
        total,
        ran,
        succeeded,
        incomplete,
        unsuccessful,
        ..BatchProgress::new(since)
    };
    Ok(BatchProgress {
        committed,
        complete,
        success,
        held_until,
        ..counted
    })
}
