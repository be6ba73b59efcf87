//! A batch.

use bytes::Bytes;
use windlass_codec::{DecodeError, Reader};
use windlass_engine::{Batch, BatchProgress, JobId, NewJob, Protocol, Stage};

use super::template::read_template;
use super::{COUNT_MAX, owned, time};

/// Optional fields of a batch, as bits.
mod has {
    pub(super) const PARENT: u64 = 1;
    pub(super) const COMPLETE: u64 = 1 << 1;
    pub(super) const SUCCESS: u64 = 1 << 2;
    /// Above all of them.
    pub(super) const END: u64 = 1 << 3;
}

/// By their codes.
const STAGES: [Stage; 4] = [
    Stage::Waiting,
    Stage::Enqueued,
    Stage::Succeeded,
    Stage::Passed,
];

pub(super) fn read(from: &mut Reader<'_>) -> Result<Batch, DecodeError> {
    let id = JobId(from.below("a batch's number", COUNT_MAX)?);
    let bits = from.below("a batch's bits", has::END)?;
    let protocol = Protocol(from.u8()?);
    let (depth, name) = (from.u32("a batch's depth")?, owned(from)?);
    let parent = if bits & has::PARENT == 0 {
        None
    } else {
        Some(read_parent(id, from)?)
    };
    let (about, meta, created_at) = (owned(from)?, owned(from)?, time(from)?);
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
        namespace: windlass_engine::Namespace::UNNAMED,
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

/// A batch is younger than its parent.
fn read_parent(id: JobId, from: &mut Reader<'_>) -> Result<(JobId, Bytes), DecodeError> {
    Ok((JobId(from.below("a batch's parent", id.0)?), owned(from)?))
}

fn read_callback(from: &mut Reader<'_>) -> Result<Box<NewJob>, DecodeError> {
    let (_, job) = read_template(from)?;
    Ok(Box::new(NewJob {
        body: owned(from)?,
        ..job
    }))
}

fn read_progress(from: &mut Reader<'_>) -> Result<BatchProgress, DecodeError> {
    let flags = from.below("a batch's flags", 1 << 6)?;
    let since = time(from)?;
    let held_until = if flags & 1 << 5 == 0 {
        None
    } else {
        Some(time(from)?)
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
